//! Random programs in overlay mounts, compared with the same programs in plain directories.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use proptest::prelude::*;
use rath_core::files::{FilePath, Version};
use rath_workspace::{Error, Options, Saved, Workspace};
use tempfile::TempDir;

use super::layers::{Layers, can_mount};
use super::program::{cases, store};
use super::{assert_same, in_memory, on_disk};

const NAMES: &[&[u8]] = &[
    b"a",
    b"b",
    b"d",
    b"e",
    b"x.ign",
    b"y.ign",
    b".wh.a",
    b"new\nline",
    b"\xff\xfe",
    b"user.overlay.whiteout",
    &[b'n'; 200],
];

const CONTENTS: &[&str] = &["", "one", "two", "lines\nof\ntext\n"];

const MODES: &[&str] = &["644", "755", "700", "750", "1755"];

const RULES: &[&str] = &["", "a\n", "*.ign\n", "!x.ign\n", "d/\n", "/e\n", "*\n"];

type Path = Vec<usize>;

#[derive(Clone, Debug)]
enum Op {
    Write(Path, usize),
    Append(Path),
    Truncate(Path),
    /// Replaces the file by rename.
    Replace(Path, usize),
    MakeDirectory(Path),
    Remove(Path),
    RemoveAll(Path),
    Move(Path, Path),
    Link(Path, Path),
    Symlink(Path, usize),
    Chmod(Path, usize),
    FileToDirectory(Path),
    DirectoryToFile(Path),
    Rules(Path, usize),
    Pipe(Path),
    Touch(Path),
}

/// What happens after a script.
#[derive(Clone, Debug)]
enum Then {
    Nothing,
    Fork,
    Restore(usize),
    Reopen,
    LoseIndex,
}

#[derive(Clone, Debug)]
struct Step {
    branch: usize,
    ops: Vec<Op>,
    then: Then,
}

fn path() -> impl Strategy<Value = Path> {
    prop::collection::vec(prop_oneof![5 => 0..5usize, 1 => 0..NAMES.len()], 1..4)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (path(), 0..CONTENTS.len()).prop_map(|(path, content)| Op::Write(path, content)),
        2 => path().prop_map(Op::Append),
        1 => path().prop_map(Op::Truncate),
        1 => (path(), 0..CONTENTS.len()).prop_map(|(path, content)| Op::Replace(path, content)),
        2 => path().prop_map(Op::MakeDirectory),
        2 => path().prop_map(Op::Remove),
        3 => path().prop_map(Op::RemoveAll),
        3 => (path(), path()).prop_map(|(from, to)| Op::Move(from, to)),
        1 => (path(), path()).prop_map(|(from, to)| Op::Link(from, to)),
        1 => (path(), 0..NAMES.len()).prop_map(|(path, target)| Op::Symlink(path, target)),
        2 => (path(), 0..MODES.len()).prop_map(|(path, mode)| Op::Chmod(path, mode)),
        2 => path().prop_map(Op::FileToDirectory),
        2 => path().prop_map(Op::DirectoryToFile),
        1 => (path(), 0..RULES.len() * 2).prop_map(|(path, rules)| Op::Rules(path, rules)),
        1 => path().prop_map(Op::Pipe),
        1 => path().prop_map(Op::Touch),
    ]
}

fn step(forks: u32) -> impl Strategy<Value = Step> {
    let then = prop_oneof![
        2 => Just(Then::Nothing),
        forks => Just(Then::Fork),
        4 => (0..32usize).prop_map(Then::Restore),
        1 => Just(Then::Reopen),
        1 => Just(Then::LoseIndex),
    ];
    (0..4usize, prop::collection::vec(op(), 0..7), then).prop_map(|(branch, ops, then)| Step { branch, ops, then })
}

fn quoted(path: &[usize]) -> Vec<u8> {
    let mut text = b"'./".to_vec();
    for (at, name) in path.iter().enumerate() {
        if at > 0 {
            text.push(b'/');
        }
        text.extend_from_slice(NAMES[*name]);
    }
    text.push(b'\'');
    text
}

/// Replaces each `$` in a pattern by the next path.
fn line(pattern: &str, paths: &[&Path]) -> Vec<u8> {
    let mut parts = pattern.split('$');
    let mut text = parts.next().unwrap().as_bytes().to_vec();
    for (part, path) in parts.zip(paths.iter().cycle()) {
        text.extend_from_slice(&quoted(path));
        text.extend_from_slice(part.as_bytes());
    }
    text
}

impl Op {
    fn shell(&self) -> Vec<u8> {
        let content = |at: usize| CONTENTS[at].replace('\n', "\\n");
        match self {
            Op::Write(path, at) => {
                let directory = path[..path.len() - 1].to_vec();
                line(&format!("mkdir -p $ && test ! -p $ && printf '{}' > $", content(*at)), &[&directory, path, path])
            }
            Op::Append(path) => line("test -f $ -a ! -L $ && printf more >> $", &[path]),
            Op::Truncate(path) => line("test -f $ -a ! -L $ && : > $", &[path]),
            Op::Replace(path, at) => {
                line(&format!("test -f $ && printf '{}' > temporary && mv -T temporary $", content(*at)), &[path])
            }
            Op::MakeDirectory(path) => line("mkdir -p $", &[path]),
            Op::Remove(path) => line("rm -f $", &[path]),
            Op::RemoveAll(path) => line("rm -rf $", &[path]),
            Op::Move(from, to) if to.starts_with(from) || from.starts_with(to) => b":".to_vec(),
            Op::Move(from, to) => line("mv -f -T $ $", &[from, to]),
            Op::Link(from, to) => line("test -f $ -a ! -L $ && ln $ $", &[from, from, from, to]),
            Op::Symlink(path, target) => {
                let mut text = b"ln -s -T ".to_vec();
                text.extend_from_slice(&quoted(&[*target]));
                text.push(b' ');
                text.extend_from_slice(&quoted(path));
                text
            }
            Op::Chmod(path, mode) => line(&format!("test ! -L $ && chmod {} $", MODES[*mode]), &[path])
                .into_iter()
                .chain(line("; test -d $ -a ! -L $ && chmod u+rwx $", &[path]))
                .collect(),
            Op::FileToDirectory(path) => line("test -f $ && rm $ && mkdir $ && printf in > $/a", &[path]),
            Op::DirectoryToFile(path) => line("test -d $ && rm -rf $ && printf now > $", &[path]),
            Op::Rules(path, at) => {
                let file = if *at < RULES.len() { ".gitignore" } else { ".rathignore" };
                let text = RULES[at % RULES.len()].replace('\n', "\\n");
                let directory = &path[..path.len() - 1].to_vec();
                match text.is_empty() {
                    true => line(&format!("rm -f $/{file}"), &[directory]),
                    false => line(&format!("printf '{text}' > $/{file}"), &[directory]),
                }
            }
            Op::Pipe(path) => line("mkfifo $", &[path]),
            Op::Touch(path) => line("test -e $ && touch -d @1000000000 $", &[path]),
        }
    }
}

/// The script for a step. It starts by breaking up hard links, because overlayfs does not keep them when it copies a
/// file up. The last operations make new ones.
fn script(ops: &[Op]) -> Vec<u8> {
    let alone = r#"cp -p -- "$1" temporary && mv -f -T -- temporary "$1""#;
    let mut text = format!("umask 022\nfind . -type f -links +1 -exec sh -c '{alone}' sh {{}} ';'\n").into_bytes();
    let (last, first): (Vec<_>, Vec<_>) = ops.iter().partition(|op| matches!(op, Op::Link(..)));
    for op in first.into_iter().chain(last) {
        text.extend_from_slice(b"{ ");
        text.extend_from_slice(&op.shell());
        text.extend_from_slice(b"; } 2>/dev/null\n");
    }
    text.extend_from_slice(b"rm -rf ./temporary\ntrue\n");
    text
}

/// A plain directory and a layered workspace that must have the same files.
struct Branch {
    name: String,
    plain: Workspace,
    layered: Option<Workspace>,
    /// The last saved version.
    last: Version,
}

struct Program {
    layers: Layers,
    branches: Vec<Branch>,
    versions: Vec<Version>,
}

impl Program {
    fn new(dir: TempDir) -> Self {
        let mut layers = Layers::with(store(), dir);
        layers.options = Options { ignore: vec!["*.ign".into()], ..Options::default() };
        let mut program = Self { layers, branches: Vec::new(), versions: Vec::new() };
        let mut plain = program.plain("0");
        let files = program.files("0");
        for (path, content) in [("a", "one"), ("d/a", "one"), ("d/b", "two"), ("d/d/a", "deep"), ("e/d/b", "x")] {
            fs::create_dir_all(files.join(path).parent().unwrap()).unwrap();
            fs::write(files.join(path), content).unwrap();
        }
        plain.track(Vec::new());
        let version = plain.save().unwrap().version;
        let layered = Some(program.layers.create_layered("0", &version));
        program.versions.push(version.clone());
        program.branches.push(Branch { name: "0".into(), plain, layered, last: version });
        program
    }

    fn files(&self, name: &str) -> PathBuf {
        self.layers.dir.path().join("plain").join(name)
    }

    fn plain(&self, name: &str) -> Workspace {
        let files = self.files(name);
        fs::create_dir_all(&files).unwrap();
        let state = self.layers.dir.path().join("states").join(name);
        Workspace::open(self.layers.store.clone(), &files, &state, &self.layers.options).unwrap().0
    }

    fn layered(&mut self, branch: usize) -> &mut Workspace {
        let Branch { name, layered, last, .. } = &mut self.branches[branch];
        layered.get_or_insert_with(|| {
            let mut layered = self.layers.open(name);
            layered.track(vec![last.clone()]);
            layered
        })
    }

    fn step(&mut self, step: &Step) {
        let branch = step.branch % self.branches.len();
        let script = script(&step.ops);
        self.layered(branch);
        let Branch { name, layered, .. } = &self.branches[branch];
        let overlay = layered.as_ref().unwrap().overlay().unwrap();
        super::layers::run_mounted(&overlay, self.layers.dir.path(), &script);
        let plain = self.files(name);
        let done = Command::new("sh").arg(self.layers.dir.path().join("script")).current_dir(plain).output().unwrap();
        assert!(done.status.success());
        let version = self.save(branch);
        match &step.then {
            Then::Nothing => {}
            Then::Fork => self.fork(branch),
            Then::Restore(which) => self.restore(branch, *which),
            Then::Reopen => self.branches[branch].layered = None,
            Then::LoseIndex => {
                self.branches[branch].layered = None;
                let _ = fs::remove_file(self.layers.state(&self.branches[branch].name).join("index"));
            }
        }
        self.versions.push(version);
        self.check_view(branch);
    }

    /// Saves both and compares the versions.
    fn save(&mut self, branch: usize) -> Version {
        let plain = self.branches[branch].plain.save().unwrap();
        let layered = self.layered(branch).save().unwrap();
        self.branches[branch].last = plain.version.clone();
        self.check_view(branch);
        assert_same(
            &self.layers.in_version(&layered.version),
            &self.layers.in_version(&plain.version),
            "saved in layers",
        );
        assert_eq!(layered.version, plain.version);
        let skipped = |saved: &Saved| saved.skipped.iter().map(|one| one.path.clone()).collect::<BTreeSet<FilePath>>();
        assert_eq!(skipped(&layered), skipped(&plain));
        if !self.has_unversioned(branch) {
            assert_eq!((layered.files, layered.bytes), (plain.files, plain.bytes));
        }
        // Save again without changes, then with a walk of all layers, forced by an equivalent configuration.
        assert_eq!(self.layered(branch).save().unwrap().version, plain.version);
        let Branch { name, layered, .. } = &mut self.branches[branch];
        *layered = None;
        let (store, home, state) = (self.layers.store.clone(), self.layers.home(), self.layers.state(name));
        let options = Options { ignore: vec!["*.ign".into(), "*.ign".into()], ..Options::default() };
        let kept = fs::read(state.join("index")).unwrap();
        let (mut all, _) = Workspace::open_layered(store, &home, &state, &options).unwrap();
        all.track(vec![plain.version.clone()]);
        assert!(all.save().unwrap().version.same_files(&plain.version), "all layers");
        drop(all);
        fs::write(state.join("index"), kept).unwrap();
        plain.version
    }

    /// Whether a branch has unversioned files. Then the counts of the two may differ.
    fn has_unversioned(&self, branch: usize) -> bool {
        let plain = on_disk(&self.files(&self.branches[branch].name));
        plain.len() != self.layers.in_version(&self.versions_last(branch)).len()
    }

    fn versions_last(&self, branch: usize) -> Version {
        let state = self.layers.dir.path().join("looked");
        let _ = fs::remove_dir_all(&state);
        let files = self.files(&self.branches[branch].name);
        let (mut workspace, _) =
            Workspace::open(self.layers.store.clone(), &files, &state, &self.layers.options).unwrap();
        workspace.track(vec![self.branches[branch].last.clone()]);
        workspace.save().unwrap().version
    }

    fn check_view(&mut self, branch: usize) {
        self.layered(branch);
        let Branch { name, layered, .. } = &self.branches[branch];
        let view = self.layers.view(layered.as_ref().unwrap());
        assert_same(&view, &on_disk(&self.files(name)), "the mount");
    }

    fn fork(&mut self, branch: usize) {
        let child = format!("{}", self.branches.len());
        let state = self.layers.state(&child);
        self.layered(branch).fork_into(&state).unwrap();
        let from = self.files(&self.branches[branch].name);
        let to = self.files(&child);
        let copied = Command::new("cp").arg("-a").arg(from).arg(&to).status().unwrap();
        assert!(copied.success());
        let last = self.branches[branch].last.clone();
        let mut plain = self.plain(&child);
        plain.track(vec![last.clone()]);
        self.branches.push(Branch { name: child, plain, layered: None, last });
        self.check_view(self.branches.len() - 1);
    }

    fn restore(&mut self, branch: usize, which: usize) {
        let version = self.versions[which % self.versions.len()].clone();
        let plain = self.branches[branch].plain.restore(None, &version);
        let layered = self.layered(branch).restore(None, &version);
        match (plain, layered) {
            (Ok(plain), Ok(layered)) => {
                assert_eq!(plain.kept, []);
                // When a restore removes ignore rules, files that they matched become visible. A layered workspace
                // reports them in the result, a plain directory at the next save.
                let present = self.branches[branch].plain.save().unwrap().version;
                assert!(layered.version == plain.version || layered.version == present);
                assert_eq!(layered.changed, plain.changed);
            }
            (Err(Error::InTheWay { paths: plain }), Err(Error::InTheWay { paths: layered })) => {
                assert_eq!(layered, plain);
            }
            (plain, layered) => panic!("plain: {plain:?}, layered: {layered:?}"),
        }
        self.check_view(branch);
        let _ = self.save(branch);
    }
}

fn run(dir: TempDir, steps: &[Step]) {
    if !can_mount() {
        return;
    }
    let mut program = Program::new(dir);
    for step in steps {
        program.step(step);
    }
    // Branches are independent.
    for branch in 0..program.branches.len() {
        program.save(branch);
    }
    let collected = rath_workspace::collect_layers(&program.layers.home(), false).unwrap();
    drop(collected);
    for branch in 0..program.branches.len() {
        program.branches[branch].layered = None;
        program.check_view(branch);
    }
    let dir = program.layers.dir.path().to_owned();
    drop(program.branches);
    let _ = rath_workspace::remove_tree(&dir);
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn layered_workspaces_agree_with_plain_directories(steps in prop::collection::vec(step(3), 1..10)) {
        run(in_memory(64 << 20), &steps);
    }
}

proptest! {
    #![proptest_config(cases(2))]

    /// With enough forks that layers are squashed.
    #[test]
    fn many_forks_agree_with_plain_directories(steps in prop::collection::vec(step(40), 14..24)) {
        let one_line: Vec<_> = steps.into_iter().map(|step| Step { branch: 0, ..step }).collect();
        run(in_memory(64 << 20), &one_line);
    }

    /// The same on a disk instead of a tmpfs.
    #[test]
    fn layered_workspaces_on_disk_agree_with_plain_directories(steps in prop::collection::vec(step(3), 1..10)) {
        run(TempDir::new().unwrap(), &steps);
    }
}
