//! Workspaces, compared with a plain reading of the same files. All tests are in one binary.

#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "tests start children of their own binary and tell them by environment")]

mod collecting;
mod ignoring;
mod killed;
mod large;
mod layers;
mod layers_forks;
mod layers_killed;
mod layers_program;
mod odd;
mod program;
mod restoring;
mod support;
mod tracked;
mod trees;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pollster::block_on;
use rath_core::Store;
use rath_core::files::{FilePath, NodeKind, TreeStore, Version};
use rath_store::Embedded;
use rath_workspace::{Options, Saved, Workspace};
use tempfile::TempDir;

/// A directory entry, read by `std::fs`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum DiskEntry {
    File { mode: u32, content: Vec<u8> },
    Directory { mode: u32 },
    Link { target: Vec<u8> },
    Special,
}

impl DiskEntry {
    fn is_directory(&self) -> bool {
        matches!(self, DiskEntry::Directory { .. })
    }
}

impl std::fmt::Debug for DiskEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DiskEntry::File { mode, content } => {
                let shown = &content[..content.len().min(40)];
                write!(f, "file {mode:04o} {} {:?}", content.len(), FilePath::from(shown))
            }
            DiskEntry::Directory { mode } => write!(f, "directory {mode:04o}"),
            DiskEntry::Link { target } => write!(f, "link {:?}", FilePath::from(&target[..])),
            DiskEntry::Special => write!(f, "special"),
        }
    }
}

/// Everything below a directory.
pub(crate) type Files = BTreeMap<FilePath, DiskEntry>;

/// Reads a directory using only the standard library.
pub(crate) fn on_disk(root: &Path) -> Files {
    fn walk(directory: &Path, path: &FilePath, files: &mut Files) {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let path = path.join(&FilePath::from(entry.file_name().as_bytes()));
            let meta = entry.path().symlink_metadata().unwrap();
            let mode = meta.mode() & 0o7777;
            let thing = match meta.file_type() {
                kind if kind.is_dir() => {
                    walk(&entry.path(), &path, files);
                    DiskEntry::Directory { mode }
                }
                kind if kind.is_symlink() => {
                    DiskEntry::Link { target: fs::read_link(entry.path()).unwrap().as_os_str().as_bytes().into() }
                }
                kind if kind.is_file() => DiskEntry::File { mode, content: fs::read(entry.path()).unwrap() },
                _ => DiskEntry::Special,
            };
            files.insert(path, thing);
        }
    }
    let mut files = Files::new();
    walk(root, &FilePath::root(), &mut files);
    files
}

/// The files of a version, read from the store.
pub(crate) fn in_version(store: &Arc<dyn Store>, version: &Version) -> Files {
    let forest = TreeStore::new(&**store);
    let content = |digest| block_on(forest.content(digest)).unwrap().to_vec();
    let mut files = Files::new();
    for (path, node) in block_on(forest.list(version)).unwrap() {
        let thing = match node.kind {
            NodeKind::Directory => DiskEntry::Directory { mode: node.mode },
            NodeKind::Symlink => DiskEntry::Link { target: content(node.sha256) },
            NodeKind::File => {
                let content = content(node.sha256);
                assert_eq!(content.len() as u64, node.size, "{path}");
                DiskEntry::File { mode: node.mode, content }
            }
        };
        files.insert(path, thing);
    }
    files
}

/// Panics with the differences if two readings differ.
#[track_caller]
pub(crate) fn assert_same(found: &Files, expected: &Files, what: &str) {
    let mut differences = Vec::new();
    for path in found.keys().chain(expected.keys().filter(|path| !found.contains_key(*path))) {
        let (found, expected) = (found.get(path), expected.get(path));
        if found != expected {
            differences.push(format!("{path}: found {found:?}, expected {expected:?}"));
        }
    }
    differences.truncate(20);
    assert!(differences.is_empty(), "{what}:\n{}", differences.join("\n"));
}

/// A store, a directory with files, and the workspace's state directory.
pub(crate) struct Fixture {
    pub(crate) dir: TempDir,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) options: Options,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::at(TempDir::new().unwrap())
    }

    pub(crate) fn at(dir: TempDir) -> Self {
        let store = Embedded::create(dir.path().join("store")).unwrap();
        Self::with(store, dir)
    }

    pub(crate) fn with(store: Arc<dyn Store>, dir: TempDir) -> Self {
        fs::create_dir(dir.path().join("files")).unwrap();
        Self { dir, store, options: Options::default() }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("files")
    }

    pub(crate) fn path(&self, path: impl AsRef<[u8]>) -> PathBuf {
        self.root().join(OsStr::from_bytes(path.as_ref()))
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub(crate) fn open(&self) -> Workspace {
        let (workspace, recovered) = self.try_open().unwrap();
        assert!(recovered.is_none());
        workspace
    }

    pub(crate) fn try_open(&self) -> rath_workspace::Result<(Workspace, Option<rath_workspace::RecoveredRestore>)> {
        Workspace::open(self.store.clone(), &self.root(), &self.state(), &self.options)
    }

    /// Writes a file and the directories above it.
    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn on_disk(&self) -> Files {
        on_disk(&self.root())
    }

    pub(crate) fn in_version(&self, version: &Version) -> Files {
        in_version(&self.store, version)
    }

    /// Saves, and checks the version against what is on disk.
    #[track_caller]
    pub(crate) fn save(&self, workspace: &mut Workspace) -> Saved {
        let saved = workspace.save().unwrap();
        assert_same(&self.in_version(&saved.version), &self.on_disk(), "saved");
        saved
    }

    /// Restores, and checks the disk against the version.
    #[track_caller]
    pub(crate) fn restore(&self, workspace: &mut Workspace, version: &Version) {
        let restored = workspace.restore(None, version).unwrap();
        assert_eq!(restored.kept, []);
        assert_eq!(restored.version, *version);
        assert_same(&self.on_disk(), &self.in_version(version), "restored");
    }
}

pub(crate) fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A directory on a tmpfs, if there is one with enough space: creating and syncing files there is fast.
pub(crate) fn in_memory(bytes: u64) -> TempDir {
    let memory = Path::new("/dev/shm");
    let has_room = rustix::fs::statvfs(memory)
        .is_ok_and(|there| there.f_bavail * there.f_frsize > bytes && there.f_favail * 2000 > bytes);
    has_room.then(|| TempDir::new_in(memory).ok()).flatten().unwrap_or_else(|| TempDir::new().unwrap())
}

/// Whether a path is a temporary file of a restore.
pub(crate) fn temporaries(files: &Files) -> Vec<&FilePath> {
    files.keys().filter(|path| path.split().1.as_bytes().starts_with(b".rath-")).collect()
}

/// A simple random number generator: a linear congruential generator.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id()))
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
