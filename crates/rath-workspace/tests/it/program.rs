//! Random programs of edits, saves, restores and merges, compared with readings of the directory.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use pollster::block_on;
use proptest::prelude::*;
use rath_core::Store;
use rath_core::files::{Drivers, FilePath, TreeStore, Version, merge};
use rath_store::Embedded;
use rath_workspace::{Error, Options, Workspace};
use tempfile::TempDir;

use super::{Files, Fixture, assert_same, chmod, in_memory, temporaries};

/// Unusual names, and a few that collide often.
const NAMES: &[&[u8]] = &[
    b"a",
    b"b",
    b"d",
    b"e",
    b"a b ",
    b"new\nline",
    b"-rf",
    b"\xff\xfe",
    "\u{e9}t\u{e9}".as_bytes(),
    b"a.b",
    b"a-b",
    b"x.ign",
    &[b'n'; 200],
];

const CONTENTS: &[&[u8]] =
    &[b"", b"one", b"two", b"lines\nof\ntext\n", b"LINES\nof\ntext\n", b"\0binary\xff", b"lines\nof\nTEXT\n"];

const MODES: &[u32] = &[0o644, 0o755, 0o600, 0o4755, 0o777];

const TARGETS: &[&[u8]] = &[b"a", b"nowhere", b"/etc/passwd", b"..", b"../../outside", b"d", b"\xff", b"."];

#[derive(Clone, Debug)]
enum Op {
    /// Writes in place, like an editor that truncates.
    Write(Vec<usize>, usize),
    /// Replaces by rename, like an editor that writes a new file.
    Replace(Vec<usize>, usize),
    Append(Vec<usize>),
    /// Writes other bytes of the same length and sets the old modification time.
    Sneak(Vec<usize>),
    Touch(Vec<usize>),
    Chmod(Vec<usize>, usize),
    Remove(Vec<usize>),
    Rename(Vec<usize>, Vec<usize>),
    Directory(Vec<usize>),
    Link(Vec<usize>, usize),
    HardLink(Vec<usize>, Vec<usize>),
    Save,
    Restore(usize),
    Merge(usize, usize, usize),
    Reopen,
    LoseIndex,
    DamageIndex(usize),
    OlderIndex,
}

fn path() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![4 => 0..4usize, 1 => 0..NAMES.len()], 1..4)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (path(), 0..CONTENTS.len()).prop_map(|(path, content)| Op::Write(path, content)),
        2 => (path(), 0..CONTENTS.len()).prop_map(|(path, content)| Op::Replace(path, content)),
        2 => path().prop_map(Op::Append),
        2 => path().prop_map(Op::Sneak),
        1 => path().prop_map(Op::Touch),
        3 => (path(), 0..MODES.len()).prop_map(|(path, mode)| Op::Chmod(path, mode)),
        3 => path().prop_map(Op::Remove),
        2 => (path(), path()).prop_map(|(from, to)| Op::Rename(from, to)),
        2 => path().prop_map(Op::Directory),
        2 => (path(), 0..TARGETS.len()).prop_map(|(path, target)| Op::Link(path, target)),
        2 => (path(), path()).prop_map(|(from, to)| Op::HardLink(from, to)),
        6 => Just(Op::Save),
        6 => (0..32usize).prop_map(Op::Restore),
        2 => (0..32usize, 0..32usize, 0..32usize).prop_map(|(base, ours, theirs)| Op::Merge(base, ours, theirs)),
        1 => Just(Op::Reopen),
        1 => Just(Op::LoseIndex),
        1 => (0..4096usize).prop_map(Op::DamageIndex),
        1 => Just(Op::OlderIndex),
    ]
}

/// One store for all programs. They do not influence each other.
pub(super) fn store() -> Arc<dyn Store> {
    static STORE: OnceLock<(Arc<dyn Store>, TempDir)> = OnceLock::new();
    let make = || {
        let dir = in_memory(64 << 20);
        (Embedded::create(dir.path().join("store")).unwrap(), dir)
    };
    STORE.get_or_init(make).0.clone()
}

struct Program {
    fixture: Fixture,
    workspace: Option<Workspace>,
    versions: Vec<(Version, Files)>,
    index: Option<Vec<u8>>,
}

fn is_ignored(path: &FilePath) -> bool {
    path.as_bytes().ends_with(b".ign") || path.parts().any(|part| part.as_bytes().ends_with(b".ign"))
}

/// The versioned part of a directory: without ignored files, and without directories that contain only those.
fn versioned(disk: &Files) -> Files {
    let mut kept: Files =
        disk.iter().filter(|(path, _)| !is_ignored(path)).map(|(p, t)| (p.clone(), t.clone())).collect();
    let has = |files: &Files, directory: &FilePath| files.keys().any(|path| path.split().0 == *directory);
    loop {
        let hollow = kept.iter().find(|(path, thing)| thing.is_directory() && has(disk, path) && !has(&kept, path));
        let Some(path) = hollow.map(|(path, _)| path.clone()) else { return kept };
        kept.remove(&path);
    }
}

/// Whether a restore of `target` would overwrite an ignored file.
fn is_in_the_way(disk: &Files, target: &Files) -> bool {
    let above = |path: &FilePath| {
        let parts: Vec<FilePath> = path.parts().collect();
        (1..parts.len())
            .map(|n| parts[..n].iter().fold(FilePath::root(), |path, part| path.join(part)))
            .collect::<Vec<_>>()
    };
    let blocked = |path: &FilePath| target.get(path).is_some_and(|thing| !thing.is_directory());
    disk.keys().filter(|path| is_ignored(path)).any(|path| above(path).iter().any(blocked))
}

/// The expected files after a restore: the target, the ignored files, and the directories above them.
fn expected(disk: &Files, target: &Files) -> Files {
    let mut files = target.clone();
    for (path, thing) in disk.iter().filter(|(path, _)| is_ignored(path)) {
        files.insert(path.clone(), thing.clone());
        let mut directory = path.split().0;
        while !directory.as_bytes().is_empty() {
            files.entry(directory.clone()).or_insert_with(|| disk[&directory].clone());
            directory = directory.split().0;
        }
    }
    files
}

impl Program {
    fn new(dir: TempDir) -> Self {
        let mut fixture = Fixture::with(store(), dir);
        fixture.options = Options { ignore: vec!["*.ign".into()], ..Options::default() };
        Self { fixture, workspace: None, versions: Vec::new(), index: None }
    }

    fn workspace(&mut self) -> &mut Workspace {
        let fixture = &self.fixture;
        self.workspace.get_or_insert_with(|| fixture.open())
    }

    fn at(&self, path: &[usize]) -> PathBuf {
        path.iter().fold(self.fixture.root(), |at, name| at.join(std::ffi::OsStr::from_bytes(NAMES[*name])))
    }

    /// Creates the directories above a path, replacing whatever is there, and removes the path itself.
    fn room(&self, path: &[usize]) -> PathBuf {
        for length in 1..path.len() {
            let above = self.at(&path[..length]);
            if !above.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
                let _ = fs::remove_file(&above);
                fs::create_dir(&above).unwrap();
            }
        }
        let path = self.at(path);
        clear(&path);
        path
    }

    fn file(&self, path: &[usize]) -> Option<PathBuf> {
        Some(self.at(path))
            .filter(|path| self.is_inside(path) && path.symlink_metadata().is_ok_and(|meta| meta.is_file()))
    }

    /// Whether no parent of the path is a link.
    fn is_inside(&self, path: &Path) -> bool {
        let directory = path.parent().unwrap();
        directory.canonicalize().is_ok_and(|real| real == *directory)
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Write(path, content) => match self.file(path) {
                Some(path) => fs::write(path, CONTENTS[*content]).unwrap(),
                None => fs::write(self.room(path), CONTENTS[*content]).unwrap(),
            },
            Op::Replace(path, content) => {
                let to = self.room(path);
                let temporary = self.fixture.dir.path().join("temporary");
                fs::write(&temporary, CONTENTS[*content]).unwrap();
                fs::rename(temporary, to).unwrap();
            }
            Op::Append(path) => {
                if let Some(path) = self.file(path) {
                    OpenOptions::new().append(true).open(path).unwrap().write_all(b"more\n").unwrap();
                }
            }
            Op::Sneak(path) => {
                if let Some(path) = self.file(path) {
                    let time = path.metadata().unwrap().modified().unwrap();
                    let bytes: Vec<u8> = fs::read(&path).unwrap().iter().map(|byte| byte ^ 1).collect();
                    fs::write(&path, bytes).unwrap();
                    File::options()
                        .write(true)
                        .open(&path)
                        .unwrap()
                        .set_times(FileTimes::new().set_modified(time))
                        .unwrap();
                }
            }
            Op::Touch(path) => {
                if let Some(path) = self.file(path) {
                    let now = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
                    File::options()
                        .write(true)
                        .open(path)
                        .unwrap()
                        .set_times(FileTimes::new().set_modified(now))
                        .unwrap();
                }
            }
            Op::Chmod(path, mode) => {
                let path = self.at(path);
                if self.is_inside(&path) && path.symlink_metadata().is_ok_and(|meta| !meta.is_symlink()) {
                    chmod(&path, MODES[*mode] | if path.is_dir() { 0o700 } else { 0o600 });
                }
            }
            Op::Remove(path) => {
                let path = self.at(path);
                if self.is_inside(&path) {
                    clear(&path);
                }
            }
            Op::Rename(from, to) => {
                let there = self.at(from);
                if self.is_inside(&there)
                    && there.symlink_metadata().is_ok()
                    && !to.starts_with(from)
                    && !from.starts_with(to)
                {
                    let to = self.room(to);
                    // Creating the directories may have removed the source.
                    let _ = fs::rename(there, to);
                }
            }
            Op::Directory(path) => fs::create_dir(self.room(path)).unwrap(),
            Op::Link(path, target) => symlink(std::ffi::OsStr::from_bytes(TARGETS[*target]), self.room(path)).unwrap(),
            Op::HardLink(from, to) => {
                if self.file(from).is_some() && from != to && !from.starts_with(to) && !to.starts_with(from) {
                    let to = self.room(to);
                    if let Some(from) = self.file(from) {
                        fs::hard_link(from, to).unwrap();
                    }
                }
            }
            Op::Save => self.save(),
            Op::Restore(which) => {
                if let Some((version, files)) = self.versions.get(which % self.versions.len().max(1)).cloned() {
                    self.restore(&version, &files);
                }
            }
            Op::Merge(base, ours, theirs) => {
                if !self.versions.is_empty() {
                    self.merge(*base, *ours, *theirs);
                }
            }
            Op::Reopen => self.workspace = None,
            Op::LoseIndex => {
                self.workspace = None;
                let _ = fs::remove_file(self.fixture.state().join("index"));
            }
            Op::DamageIndex(at) => {
                self.workspace = None;
                let path = self.fixture.state().join("index");
                if let Ok(mut bytes) = fs::read(&path) {
                    let at = at % bytes.len();
                    bytes[at] ^= 0x10;
                    fs::write(path, bytes).unwrap();
                }
            }
            // Simulates a crash before the index was written.
            Op::OlderIndex => {
                self.workspace = None;
                let path = self.fixture.state().join("index");
                if let Some(older) = self.index.take() {
                    fs::write(path, older).unwrap();
                } else {
                    self.index = fs::read(path).ok();
                }
            }
        }
    }

    fn save(&mut self) {
        let saved = self.workspace().save().unwrap();
        assert!(saved.skipped.is_empty() && saved.unstable.is_empty(), "{saved:?}");
        let files = versioned(&self.fixture.on_disk());
        assert_same(&self.fixture.in_version(&saved.version), &files, "saved");
        assert_eq!(saved.files, files.len() as u64 + self.unversioned_directories(&files));
        self.versions.push((saved.version, files));
    }

    /// Number of directories that contain only ignored files: they are walked and counted.
    fn unversioned_directories(&self, files: &Files) -> u64 {
        let disk = self.fixture.on_disk();
        disk.keys().filter(|path| !is_ignored(path) && !files.contains_key(path)).count() as u64
    }

    fn restore(&mut self, version: &Version, files: &Files) {
        let before = self.fixture.on_disk();
        match self.workspace().restore(None, version) {
            Ok(restored) => {
                assert!(!is_in_the_way(&before, files), "it went over something");
                assert_eq!(restored.kept, []);
                assert!(restored.version.same_files(version));
                assert_same(&self.fixture.in_version(&restored.from), &versioned(&before), "what was there");
                assert_same(&self.fixture.on_disk(), &expected(&before, files), "restored");
            }
            Err(Error::InTheWay { .. }) => {
                assert!(is_in_the_way(&before, files), "nothing was in the way");
                assert_same(&self.fixture.on_disk(), &before, "refused");
            }
            Err(error) => panic!("{error}"),
        }
        assert!(temporaries(&self.fixture.on_disk()).is_empty());
    }

    fn merge(&mut self, base: usize, ours: usize, theirs: usize) {
        let version = |at: usize| self.versions[at % self.versions.len()].0.clone();
        let (base, ours, theirs) = (version(base), version(ours), version(theirs));
        let forest = TreeStore::new(&*self.fixture.store);
        let merged = block_on(merge(&forest, Some(&base), &ours, &theirs, &Drivers::default(), None)).unwrap();
        let files = self.fixture.in_version(&merged.version);
        self.restore(&merged.version, &files);
        self.versions.push((merged.version, files));
    }
}

fn clear(path: &Path) {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

/// Number of programs in a run.
pub(super) fn cases(usual: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(rath_testkit::scaled(usual)) }
}

fn run(dir: TempDir, ops: &[Op]) {
    let mut program = Program::new(dir);
    for op in ops {
        program.apply(op);
    }
    program.save();
    // Each version can still be restored.
    for (version, files) in program.versions.clone() {
        assert_same(&program.fixture.in_version(&version), &files, "kept");
        program.restore(&version, &files);
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn versions_agree_with_the_directory(ops in prop::collection::vec(op(), 1..60)) {
        run(in_memory(64 << 20), &ops);
    }
}

proptest! {
    #![proptest_config(cases(12))]

    /// The same on a disk instead of a tmpfs: inode numbers and timestamps behave differently there.
    #[test]
    fn versions_on_disk_agree_with_the_directory(ops in prop::collection::vec(op(), 1..60)) {
        run(TempDir::new().unwrap(), &ops);
    }
}
