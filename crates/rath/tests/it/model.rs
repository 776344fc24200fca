//! Model-based test of sessions with files: random operations on real sessions and on a simple model, which must have
//! the same files after every record, in every directory and version, and in the sandbox.
//!
//! The model keeps whole trees as maps, finds merge bases by walking the graph of records, merges file by file, and
//! undoes changes along a linked list. It shares no code with the implementation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;

use pollster::block_on;
use proptest::prelude::*;
use rath::body::Restored;
use rath::files::FilePath;
use rath::sandbox::Command;
use rath::workspaces::{Error, PlacementSpec, PruneOptions, Resolution, RestoreReport};
use rath::{Actor, How, Kind, Point, Session, SessionId};

use crate::support::{Shop, Tree, backends, disk, layers, put, put_in, tree};

const PATHS: &[&str] = &["a", "b", "c", "d/x", "d/y"];

/// A shell command that prints all files.
const SHOW: &str = "for p in a b c d d/x d/y; do \
    if [ -d $p ]; then echo $p/; elif [ -e $p ]; then echo $p; cat $p; fi; done; ls -A | grep -vx '[abcd]'";

fn shown(tree: &Tree) -> String {
    tree.iter().map(|(path, content)| format!("{path}\n{content}")).collect()
}

/// An operation. Numbers select among the existing sessions, directories and paths.
#[derive(Clone, Debug)]
enum Op {
    /// Creates a session: in a copy of a directory, in place, or without files; on a backend.
    Assign(u8, usize, usize),
    /// Moves a session to another backend.
    Move(usize),
    /// Runs a command that writes or removes a file.
    Exec(usize, usize, bool),
    /// Edits a session's directory from outside.
    Edit(usize, usize, bool),
    /// Edits an origin.
    EditOrigin(usize, usize, bool),
    Save(usize),
    Fork(usize),
    /// Forks at any record of any session.
    ForkAt(usize, usize),
    /// Merges: into, others, strategy.
    Merge(usize, Vec<usize>, u8),
    Resolve(usize, usize, u8),
    /// Undoes: session, how often, whether external edits are overwritten.
    Undo(usize, u8, bool),
    /// Restores: session, session of the record, record, whether external edits are overwritten.
    Restore(usize, usize, usize, bool),
    /// Applies: session, whether it is a dry run.
    Apply(usize, bool),
    /// Drops everything and opens it again, and may prune copies in between.
    Reopen(Option<bool>),
}

fn op() -> impl Strategy<Value = Op> {
    let n = || 0..64usize;
    let removes = || prop::bool::weighted(0.25);
    prop_oneof![
        2 => (0..3u8, n(), n()).prop_map(|(how, dir, on)| Op::Assign(how, dir, on)),
        1 => n().prop_map(Op::Move),
        4 => (n(), n(), removes()).prop_map(|(s, p, r)| Op::Exec(s, p, r)),
        4 => (n(), n(), removes()).prop_map(|(s, p, r)| Op::Edit(s, p, r)),
        2 => (n(), n(), removes()).prop_map(|(d, p, r)| Op::EditOrigin(d, p, r)),
        5 => n().prop_map(Op::Save),
        6 => n().prop_map(Op::Fork),
        2 => (n(), n()).prop_map(|(s, k)| Op::ForkAt(s, k)),
        5 => (n(), prop::collection::vec(n(), 1..3), 0..4u8).prop_map(|(s, o, h)| Op::Merge(s, o, h)),
        3 => (n(), n(), 0..6u8).prop_map(|(s, c, d)| Op::Resolve(s, c, d)),
        4 => (n(), 1..4u8, prop::bool::ANY).prop_map(|(s, t, o)| Op::Undo(s, t, o)),
        3 => (n(), n(), n(), prop::bool::ANY).prop_map(|(s, f, k, o)| Op::Restore(s, f, k, o)),
        3 => (n(), prop::bool::weighted(0.2)).prop_map(|(s, d)| Op::Apply(s, d)),
        1 => prop::option::of(prop::bool::ANY).prop_map(Op::Reopen),
    ]
}

/// A conflict.
#[derive(Clone, Debug, PartialEq)]
struct Clash {
    path: String,
    base: Option<String>,
    ours: Option<String>,
    theirs: Option<String>,
}

/// The files after a record.
#[derive(Debug, Default)]
struct Moment {
    tree: Tree,
    clashes: Vec<Clash>,
    /// The state before the last change of the files.
    before: Option<Rc<Moment>>,
    /// The base version of the origin.
    base: Tree,
    /// The backend.
    backend: &'static str,
}

impl Moment {
    fn with(self: &Rc<Self>, tree: Tree, clashes: Vec<Clash>) -> Rc<Self> {
        let before = if tree == self.tree { self.before.clone() } else { Some(self.clone()) };
        Rc::new(Moment { tree, clashes, before, base: self.base.clone(), backend: self.backend })
    }

    /// The state after a resolution, which is a change even if it keeps the current content.
    fn decided(self: &Rc<Self>, tree: Tree, clashes: Vec<Clash>) -> Rc<Self> {
        let (before, base) = (Some(self.clone()), self.base.clone());
        Rc::new(Moment { tree, clashes, before, base, backend: self.backend })
    }

    /// The state after a restore of `to`.
    fn jump(self: &Rc<Self>, to: &Rc<Moment>) -> Rc<Self> {
        let Moment { tree, clashes, before, .. } = &**to;
        let (tree, clashes, before) = (tree.clone(), clashes.clone(), before.clone());
        Rc::new(Moment { tree, clashes, before, base: self.base.clone(), backend: self.backend })
    }

    /// With another base or backend.
    fn placed(self: &Rc<Self>, base: Tree, backend: &'static str) -> Rc<Self> {
        let Moment { tree, clashes, before, .. } = &**self;
        Rc::new(Moment { tree: tree.clone(), clashes: clashes.clone(), before: before.clone(), base, backend })
    }
}

struct Directory {
    path: PathBuf,
    /// `None` until the copy exists.
    tree: Option<Tree>,
    /// Whether the copy consists of layers, which are not edited from outside.
    layered: bool,
}

type Spot = (usize, u64);

struct Line {
    id: SessionId,
    /// `None` when it is closed.
    session: Option<Session>,
    past: Vec<Rc<Moment>>,
    born: Option<Spot>,
    merges: BTreeMap<u64, Vec<Spot>>,
    dir: usize,
    origin: Option<usize>,
    in_place: bool,
    /// What the session last saw in its directory.
    seen: Option<Tree>,
}

impl Line {
    fn now(&self) -> Rc<Moment> {
        self.past.last().unwrap().clone()
    }

    /// The first record with files.
    fn first(&self) -> usize {
        usize::from(self.born.is_none())
    }
}

/// The state in which a session finds its directory.
#[derive(Clone, Copy, PartialEq)]
enum Look {
    Clean,
    Outside,
    Behind,
}

struct World {
    shop: Shop,
    lines: Vec<Line>,
    dirs: Vec<Directory>,
    count: u32,
}

impl World {
    fn new(on: usize) -> Self {
        let shop = Shop::new();
        let mut dirs = Vec::new();
        for (name, files) in [("first", &[("a", "0\n"), ("d/x", "0\n")][..]), ("second", &[("b", "0\n")][..])] {
            let path = shop.directory(name);
            files.iter().for_each(|(file, content)| put(&path, file, Some(content)));
            dirs.push(Directory { path, tree: Some(tree(files)), layered: false });
        }
        let mut world = Self { shop, lines: Vec::new(), dirs, count: 0 };
        world.place(0, 0, on);
        world
    }

    fn open(&self) -> Vec<usize> {
        (0..self.lines.len()).filter(|at| self.lines[*at].session.is_some()).collect()
    }

    fn pick(&self, number: usize) -> usize {
        let open = self.open();
        open[number % open.len()]
    }

    fn content(&mut self, path: usize, removes: bool) -> (&'static str, Option<String>) {
        self.count += 1;
        // Few contents, so that sides sometimes agree.
        (PATHS[path % PATHS.len()], (!removes).then(|| format!("v{}\n", self.count % 7)))
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Assign(how, dir, on) => self.place(how, dir % 2, on),
            Op::Move(at) => self.go(self.pick(at)),
            Op::Exec(at, path, removes) => {
                let (path, content) = self.content(path, removes);
                self.exec(self.pick(at), path, content.as_deref());
            }
            Op::Edit(at, path, removes) => {
                let (path, content) = self.content(path, removes);
                let at = self.pick(at);
                self.edit(self.lines[at].dir, path, content.as_deref());
            }
            Op::EditOrigin(dir, path, removes) => {
                let (path, content) = self.content(path, removes);
                self.edit(dir % 2, path, content.as_deref());
            }
            Op::Save(at) => self.save(self.pick(at)),
            Op::Fork(at) => {
                let at = self.pick(at);
                let session = self.lines[at].session.as_ref().unwrap();
                let (fork, seq) = (session.fork("try"), session.head().seq);
                self.born(fork, (at, seq));
            }
            Op::ForkAt(at, seq) => {
                let at = at % self.lines.len();
                let seq = self.any_seq(at, seq);
                let view = self.shop.view(Point { session: self.lines[at].id, seq });
                let fork = view.fork(Actor::person("ada"), "try from there").unwrap();
                self.born(fork, (at, seq));
            }
            Op::Merge(into, others, how) => {
                let into = self.pick(into);
                let others: BTreeSet<usize> = others.into_iter().map(|at| self.pick(at)).collect();
                let others: Vec<usize> = others.into_iter().filter(|other| *other != into).collect();
                if !others.is_empty() {
                    self.merge(into, &others, how);
                }
            }
            Op::Resolve(at, which, decision) => self.resolve(self.pick(at), which, decision),
            Op::Undo(at, times, over) => {
                let at = self.pick(at);
                for _ in 0..times {
                    let target = self.lines[at].now().before.clone();
                    let mut session = self.lines[at].session.take().unwrap();
                    let head = session.head();
                    let undone = block_on(self.shop.workspaces.undo(&mut session, over));
                    self.lines[at].session = Some(session);
                    match target {
                        Some(target) => self.went(at, undone, &target, over),
                        None => {
                            assert_eq!(undone.unwrap_err().code(), "nothing-to-undo");
                            assert_eq!(self.lines[at].session.as_ref().unwrap().head(), head);
                        }
                    }
                }
            }
            Op::Restore(at, from, seq, over) => {
                let (at, from) = (self.pick(at), from % self.lines.len());
                let seq = self.any_seq(from, seq);
                let target = self.lines[from].past[seq as usize].clone();
                let point = Point { session: self.lines[from].id, seq };
                let mut session = self.lines[at].session.take().unwrap();
                let back = block_on(self.shop.workspaces.restore(&mut session, point, over));
                self.lines[at].session = Some(session);
                self.went(at, back, &target, over);
            }
            Op::Apply(at, dry) => self.apply(self.pick(at), dry),
            Op::Reopen(prune) => self.reopen(prune),
        }
        // Several sessions may work in one directory, one at a time.
        for line in self.lines.iter().filter(|line| line.in_place) {
            self.shop.workspaces.leave(line.id);
        }
        self.find_shared_layers();
        self.check();
    }

    fn any_seq(&self, line: usize, number: usize) -> u64 {
        let line = &self.lines[line];
        (line.first() + number % (line.past.len() - line.first())) as u64
    }

    fn place(&mut self, how: u8, dir: usize, on: usize) {
        let backend = backends()[on % backends().len()];
        let mut session = self.shop.create();
        let path = self.dirs[dir].path.clone();
        let there = self.dirs[dir].tree.clone().unwrap();
        let (place, files) = match how {
            0 => (PlacementSpec::copy_of(backend, path), there),
            1 => (PlacementSpec::in_place(backend, path), there),
            _ => (PlacementSpec::empty(backend), Tree::new()),
        };
        block_on(self.shop.workspaces.assign(&mut session, place)).unwrap();
        let moment = Rc::new(Moment { tree: files.clone(), base: files.clone(), backend, ..Moment::default() });
        let id = session.id();
        let (own, in_place) = (self.dirs.len(), how == 1);
        self.lines.push(Line {
            id,
            session: Some(session),
            past: vec![Rc::default(), moment],
            born: None,
            merges: BTreeMap::new(),
            dir: if in_place { dir } else { own },
            origin: (how < 2).then_some(dir),
            in_place,
            seen: in_place.then_some(files),
        });
        if !in_place {
            self.dirs.push(Directory { path: self.shop.copy(id), tree: None, layered: false });
        }
    }

    /// Moves a session to the next backend. Its versioned files are kept; its layers are removed.
    fn go(&mut self, at: usize) {
        let line = &mut self.lines[at];
        let now = line.now();
        let next = backends().iter().position(|name| *name == now.backend).unwrap() + 1;
        let backend = backends()[next % backends().len()];
        let origin = line.origin.map(|origin| self.dirs[origin].path.clone());
        let place = PlacementSpec { backend: backend.into(), origin, in_place: line.in_place, setup: None };
        let mut session = line.session.take().unwrap();
        let moved = block_on(self.shop.workspaces.assign(&mut session, place));
        line.session = Some(session);
        let there = line.origin.map(|origin| self.dirs[origin].tree.clone().unwrap());
        if line.in_place && there.as_ref().is_some_and(|there| !there.is_empty() && *there != now.tree) {
            assert_eq!(moved.unwrap_err().code(), "directory-not-empty");
            return;
        }
        moved.unwrap();
        if backend == now.backend {
            return;
        }
        let dir = &mut self.dirs[line.dir];
        if dir.layered {
            *dir = Directory { path: dir.path.clone(), tree: None, layered: false };
        }
        if line.in_place {
            line.seen.clone_from(&there);
        }
        // An empty directory has nothing that could be overwritten.
        let base = there.filter(Tree::is_empty).unwrap_or_else(|| now.base.clone());
        self.settle(at, &[(Kind::Placed, now.placed(base, backend))]);
    }

    fn born(&mut self, mut fork: Session, from: Spot) {
        block_on(fork.publish()).unwrap();
        let parent = &self.lines[from.0];
        let moment = parent.past[from.1 as usize].clone();
        let base = if parent.in_place { moment.tree.clone() } else { moment.base.clone() };
        let moment = moment.placed(base, moment.backend);
        self.dirs.push(Directory { path: self.shop.copy(fork.id()), tree: None, layered: false });
        self.lines.push(Line {
            id: fork.id(),
            session: Some(fork),
            past: vec![moment],
            born: Some(from),
            merges: BTreeMap::new(),
            dir: self.dirs.len() - 1,
            origin: parent.origin,
            in_place: false,
            seen: None,
        });
    }

    fn edit(&mut self, dir: usize, path: &str, content: Option<&str>) {
        let dir = &mut self.dirs[dir];
        if let Some(tree) = dir.tree.as_mut().filter(|_| !dir.layered) {
            put(&dir.path, path, content);
            put_in(tree, path, content);
        }
    }

    /// Notes the forks that were given layers before they used their files: these contain what the fork started with.
    fn find_shared_layers(&mut self) {
        for line in self.lines.iter_mut().filter(|line| line.born.is_some() && !line.in_place) {
            let dir = &mut self.dirs[line.dir];
            if dir.tree.is_none() && dir.path.with_file_name("stack.json").exists() {
                let files = line.past[0].tree.clone();
                (dir.tree, dir.layered, line.seen) = (Some(files.clone()), true, Some(files));
            }
        }
    }

    /// Reconciles the session's directory, and returns its state.
    fn look(&mut self, at: usize) -> Look {
        let line = &mut self.lines[at];
        let dir = &mut self.dirs[line.dir];
        let target = &line.past.last().unwrap().tree;
        if dir.tree.is_none() {
            line.seen = None;
            dir.layered = line.past.last().unwrap().backend == "local" && layers();
        }
        let there = dir.tree.get_or_insert_default();
        match &line.seen {
            _ if there == target => Look::Clean,
            seen if seen.as_ref() == Some(there) || (seen.is_none() && there.is_empty()) => {
                there.clone_from(target);
                line.seen = Some(target.clone());
                Look::Clean
            }
            Some(seen) if seen != target => Look::Behind,
            _ => Look::Outside,
        }
    }

    fn there(&self, at: usize) -> Tree {
        self.dirs[self.lines[at].dir].tree.clone().unwrap()
    }

    /// Reads the records that an operation made. Each of `steps` names a kind and the state after that record.
    fn settle(&mut self, at: usize, steps: &[(Kind, Rc<Moment>)]) {
        let line = &mut self.lines[at];
        let session = line.session.as_ref().unwrap();
        let records = block_on(async { session.view().await?.own_records().await }).unwrap();
        let mut steps = steps.iter();
        let mut next = steps.next();
        for record in &records[line.past.len()..] {
            let mut now = line.now();
            if let Some((kind, moment)) = next
                && record.kind() == kind
            {
                now = moment.clone();
                next = steps.next();
            }
            line.past.push(now);
        }
        assert!(next.is_none(), "no record of {next:?}");
        self.check_records(at, records.len().saturating_sub(6));
    }

    fn exec(&mut self, at: usize, path: &str, content: Option<&str>) {
        let command = match content {
            Some(content) => format!("{SHOW}; mkdir -p $(dirname {path}) && echo {} > {path}", content.trim_end()),
            None => format!("{SHOW}; rm -f {path}; rmdir d 2>/dev/null; true"),
        };
        let look = self.look(at);
        let mut session = self.lines[at].session.take().unwrap();
        let done = block_on(self.shop.workspaces.exec(&mut session, Command::shell(command), |_| {}));
        self.lines[at].session = Some(session);
        if look == Look::Behind {
            assert_eq!(done.unwrap_err().code(), "outside-changes");
            return;
        }
        let done = done.unwrap();
        assert!(done.finished.ended.success());
        assert_eq!(done.outside.is_empty(), look == Look::Clean);
        let (now, mut after) = (self.lines[at].now(), self.there(at));
        assert_eq!(String::from_utf8(done.finished.stdout.bytes).unwrap(), shown(&after));
        let started = now.with(after.clone(), now.clashes.clone());
        match content {
            Some(_) => put_in(&mut after, path, content),
            None => {
                put_in(&mut after, path, None);
                // The command removes an empty directory, even if it was emptied from outside.
                if after.keys().filter(|key| key.starts_with("d/")).count() == 1 {
                    after.remove("d/");
                }
            }
        }
        let finished = started.with(after.clone(), now.clashes.clone());
        assert_eq!(done.changed.is_empty(), after == started.tree);
        self.dirs[self.lines[at].dir].tree = Some(after.clone());
        self.lines[at].seen = Some(after);
        self.settle(at, &[(Kind::ToolStarted, started), (Kind::ToolFinished, finished)]);
    }

    fn save(&mut self, at: usize) {
        let look = self.look(at);
        let mut session = self.lines[at].session.take().unwrap();
        let saved = block_on(self.shop.workspaces.save(&mut session));
        self.lines[at].session = Some(session);
        match look {
            Look::Behind => assert_eq!(saved.unwrap_err().code(), "outside-changes"),
            Look::Clean => {
                assert!(saved.unwrap().is_none());
                self.lines[at].seen = Some(self.there(at));
            }
            Look::Outside => {
                let (record, changed) = saved.unwrap().unwrap();
                assert!(!changed.is_empty());
                let (now, there) = (self.lines[at].now(), self.there(at));
                assert_eq!(record, self.lines[at].session.as_ref().unwrap().head());
                let steps = [(Kind::ToolFinished, now.with(there.clone(), now.clashes.clone()))];
                self.lines[at].seen = Some(there);
                self.settle(at, &steps);
            }
        }
    }

    /// After an undo or a restore.
    fn went(&mut self, at: usize, back: Result<RestoreReport, Error>, target: &Rc<Moment>, over: bool) {
        let look = self.look(at);
        if look != Look::Clean && !over {
            assert_eq!(back.unwrap_err().code(), "outside-changes");
            return;
        }
        let back = back.unwrap();
        let (now, there) = (self.lines[at].now(), self.there(at));
        assert_eq!(back.outside.is_empty(), look == Look::Clean);
        assert!(back.kept.is_empty());
        let nothing = look == Look::Clean && target.tree == now.tree && target.clashes == now.clashes;
        assert_eq!(back.record.is_none(), nothing);
        self.dirs[self.lines[at].dir].tree = Some(target.tree.clone());
        self.lines[at].seen = Some(target.tree.clone());
        if nothing {
            return;
        }
        self.settle(at, &[(Kind::Restored, now.jump(target))]);
        // The overwritten edits are in the record's versions.
        let view = self.shop.view(back.record.unwrap().point());
        let restored: Restored = view.record().body().unwrap();
        assert_eq!(self.shop.files(&restored.from), there);
    }

    fn resolve(&mut self, at: usize, which: usize, decision: u8) {
        let now = self.lines[at].now();
        let path = match &now.clashes[..] {
            [] => "a".to_owned(),
            clashes => clashes[which % clashes.len()].path.clone(),
        };
        self.count += 1;
        let content = format!("decided {}\n", self.count);
        let clash = now.clashes.iter().find(|clash| clash.path == path).cloned();
        let (decision, chosen) = match (decision, &clash) {
            (1, Some(clash)) => (Resolution::Theirs, clash.theirs.clone()),
            (2, Some(clash)) => (Resolution::Base, clash.base.clone()),
            (3, _) => (Resolution::Remove, None),
            (4, _) => (Resolution::Content(content.clone().into()), Some(content)),
            (5, _) => (Resolution::Current, None),
            (_, clash) => (Resolution::Ours, clash.as_ref().and_then(|clash| clash.ours.clone())),
        };
        let as_it_is = matches!(decision, Resolution::Current);
        let look = if clash.is_some() { self.look(at) } else { Look::Clean };
        let mut session = self.lines[at].session.take().unwrap();
        let resolved = block_on(self.shop.workspaces.resolve(&mut session, &FilePath::from(path.as_str()), decision));
        self.lines[at].session = Some(session);
        if clash.is_none() {
            assert_eq!(resolved.unwrap_err().code(), "no-conflict");
            return;
        }
        let there = self.there(at);
        let all: BTreeSet<&String> = there.keys().chain(now.tree.keys()).collect();
        let elsewhere = all.into_iter().any(|key| *key != path && there.get(key) != now.tree.get(key));
        if look == Look::Behind || elsewhere || (look == Look::Outside && !as_it_is) {
            assert_eq!(resolved.unwrap_err().code(), "outside-changes");
            return;
        }
        resolved.unwrap();
        let mut after = if as_it_is { there } else { now.tree.clone() };
        match (as_it_is, chosen) {
            (true, _) => {}
            (false, Some(content)) => put_in(&mut after, &path, Some(&content)),
            // The directory stays.
            (false, None) => drop(after.remove(&path)),
        }
        let open = now.clashes.iter().filter(|clash| clash.path != path).cloned().collect();
        self.dirs[self.lines[at].dir].tree = Some(after.clone());
        self.lines[at].seen = Some(after.clone());
        self.settle(at, &[(Kind::Resolved, now.decided(after, open))]);
    }

    fn merge(&mut self, into: usize, others: &[usize], how: u8) {
        let chosen = match how {
            0 => Some(into),
            1 => Some(others[0]),
            _ => None,
        };
        let how = match chosen {
            Some(chosen) => How::keep(self.lines[chosen].id, "better"),
            None => How::Append,
        };
        let bases: Vec<_> = (0..others.len()).map(|at| self.base_of_all(into, &others[..at], others[at])).collect();
        let session = self.lines[into].session.take().unwrap();
        let branches: Vec<_> = others.iter().map(|other| self.lines[*other].session.take().unwrap()).collect();
        let merged = block_on(session.merge(branches, how));
        if others.iter().any(|other| !self.lines[*other].now().clashes.is_empty()) {
            let error = merged.unwrap_err();
            assert_eq!(error.code(), "still-open");
            for session in error.into_sessions() {
                let line = self.lines.iter_mut().find(|line| line.id == session.id()).unwrap();
                line.session = Some(session);
            }
            return;
        }
        let mut session = merged.unwrap();
        let now = self.lines[into].now();
        let (mut files, mut clashes) = (now.tree.clone(), now.clashes.clone());
        match chosen {
            Some(chosen) => {
                files.clone_from(&self.lines[chosen].now().tree);
                clashes.clone_from(&self.lines[chosen].now().clashes);
            }
            None => {
                for (other, base) in others.iter().zip(&bases) {
                    // Conflicts open at the fork point were resolved on the branch: a branch with an open one cannot
                    // merge.
                    if let Some((line, seq)) = *base {
                        let then = &self.lines[line].past[seq as usize].clashes;
                        clashes.retain(|clash| !then.contains(clash));
                    }
                    let theirs = &self.lines[*other].now().tree;
                    if files != *theirs {
                        let base = base.map(|(line, seq)| self.lines[line].past[seq as usize].tree.clone());
                        (files, clashes) = three_way(&base.unwrap_or_default(), &files, theirs, clashes);
                    }
                }
            }
        }
        let (dir, brings) = (self.lines[into].dir, self.count.is_multiple_of(2));
        let heads = others.iter().map(|other| (*other, self.lines[*other].past.len() as u64 - 1)).collect();
        let seq = self.lines[into].past.len() as u64;
        for other in others {
            let line = &mut self.lines[*other];
            line.past.push(line.now());
            self.shop.workspaces.leave(line.id);
        }
        let synced = brings.then(|| block_on(self.shop.workspaces.sync(&mut session)));
        self.lines[into].session = Some(session);
        self.lines[into].merges.insert(seq, heads);
        self.settle(into, &[(Kind::Merged, now.with(files, clashes))]);
        match synced {
            Some(synced) if self.dirs[dir].tree.is_some() => match self.look(into) {
                Look::Clean => {
                    synced.unwrap();
                    self.lines[into].seen = Some(self.there(into));
                }
                Look::Outside => assert_eq!(synced.unwrap_err().code(), "unsaved-changes"),
                Look::Behind => assert_eq!(synced.unwrap_err().code(), "outside-changes"),
            },
            Some(synced) => synced.unwrap(),
            None => {}
        }
    }

    /// The newest common ancestor of `other` and everything merged before it.
    fn base_of_all(&self, into: usize, before: &[usize], other: usize) -> Option<Spot> {
        let mut youngest: Option<Spot> = None;
        for line in std::iter::once(&into).chain(before) {
            let base = self.base(*line, other);
            if base.is_some_and(|base| youngest.is_none_or(|known| self.generation(known) < self.generation(base))) {
                youngest = base;
            }
        }
        youngest
    }

    /// The newest common ancestor.
    fn base(&self, one: usize, two: usize) -> Option<Spot> {
        let head = |line: usize| (line, self.lines[line].past.len() as u64 - 1);
        let (one, two) = (self.behind(head(one)), self.behind(head(two)));
        let key = |place: &Spot| (self.generation(*place), self.lines[place.0].id, place.1);
        one.intersection(&two).copied().max_by_key(key)
    }

    fn parents(&self, (line, seq): Spot) -> Vec<Spot> {
        let mut parents: Vec<Spot> = match seq {
            0 => self.lines[line].born.into_iter().collect(),
            seq => vec![(line, seq - 1)],
        };
        parents.extend(self.lines[line].merges.get(&seq).into_iter().flatten());
        parents
    }

    fn behind(&self, from: Spot) -> BTreeSet<Spot> {
        let (mut open, mut found) = (vec![from], BTreeSet::new());
        while let Some(place) = open.pop() {
            if found.insert(place) {
                open.extend(self.parents(place));
            }
        }
        found
    }

    fn generation(&self, place: Spot) -> u64 {
        self.parents(place).into_iter().map(|parent| self.generation(parent) + 1).max().unwrap_or(0)
    }

    fn apply(&mut self, at: usize, dry: bool) {
        let mut session = self.lines[at].session.take().unwrap();
        let applied = block_on(self.shop.workspaces.apply(&mut session, dry));
        self.lines[at].session = Some(session);
        let now = self.lines[at].now();
        let (Some(origin), false) = (self.lines[at].origin, self.lines[at].in_place) else {
            assert_eq!(applied.unwrap_err().code(), "nothing-to-apply");
            return;
        };
        if !now.clashes.is_empty() {
            assert_eq!(applied.unwrap_err().code(), "open-conflicts");
            return;
        }
        if self.dirs[self.lines[at].dir].tree.is_some() {
            match self.look(at) {
                Look::Clean => self.lines[at].seen = Some(self.there(at)),
                Look::Outside => return assert_eq!(applied.unwrap_err().code(), "unsaved-changes"),
                Look::Behind => return assert_eq!(applied.unwrap_err().code(), "outside-changes"),
            }
        }
        let there = self.dirs[origin].tree.clone().unwrap();
        let Some((after, todo)) = synced(&now.base, &now.tree, &there) else {
            assert_eq!(applied.unwrap_err().code(), "changed-meanwhile");
            return;
        };
        let applied = applied.unwrap();
        assert_eq!(applied.changed.len(), todo);
        assert_eq!(applied.record.is_some(), todo > 0 && !dry);
        if !dry {
            self.dirs[origin].tree = Some(after);
            let moved = (now.base != now.tree).then(|| (Kind::Placed, now.placed(now.tree.clone(), now.backend)));
            self.settle(at, moved.as_slice());
        }
    }

    fn reopen(&mut self, prune: Option<bool>) {
        let open = self.open();
        self.lines.iter_mut().for_each(|line| drop(line.session.take()));
        self.shop.reopen();
        if let Some(all) = prune {
            let pruned = block_on(self.shop.workspaces.prune(PruneOptions { all, ..PruneOptions::default() })).unwrap();
            let mut removed = BTreeSet::new();
            for (at, line) in self.lines.iter_mut().enumerate().filter(|(_, line)| !line.in_place) {
                let (dir, now) = (&mut self.dirs[line.dir], line.past.last().unwrap());
                let unneeded = all || !open.contains(&at);
                if let Some(tree) = &dir.tree
                    && unneeded
                    && (*tree == now.tree || tree.is_empty())
                {
                    removed.insert(dir.path.parent().unwrap().to_owned());
                    (dir.tree, line.seen) = (None, None);
                }
            }
            // Unused layers are removed too.
            let copies = pruned.removed.into_iter().filter(|path| path.parent() == Some(self.shop.workspaces.home()));
            assert_eq!(copies.collect::<BTreeSet<_>>(), removed);
        }
        for at in open {
            self.lines[at].session = Some(self.shop.open(self.lines[at].id));
        }
    }

    /// Checks the directories and the sessions against the model.
    fn check(&self) {
        for dir in &self.dirs {
            let layers = dir.path.with_file_name("stack.json").exists();
            assert_eq!(layers, dir.layered && dir.tree.is_some(), "{}", dir.path.display());
            match &dir.tree {
                Some(_) if dir.layered => {}
                Some(tree) => assert_eq!(disk(&dir.path), *tree, "{}", dir.path.display()),
                None => assert!(!dir.path.exists()),
            }
        }
        for line in &self.lines {
            let Some(session) = &line.session else { continue };
            assert_eq!(session.head().seq, line.past.len() as u64 - 1);
            let open: Vec<_> = session.state().conflicts.iter().map(|clash| clash.path.lossy().into_owned()).collect();
            let expected: Vec<_> = line.now().clashes.iter().map(|clash| clash.path.clone()).collect();
            assert_eq!(open, expected);
        }
    }

    fn check_records(&self, at: usize, from: usize) {
        let line = &self.lines[at];
        for seq in from.max(line.first())..line.past.len() {
            let view = self.shop.view(Point { session: line.id, seq: seq as u64 });
            let files = self.shop.files(view.state().workspace.as_ref().unwrap());
            assert_eq!(files, line.past[seq].tree, "line {at}, record {seq}");
            assert_eq!(view.state().conflicts.len(), line.past[seq].clashes.len());
        }
    }
}

/// The result of an apply: the directory's files and the number of changes. `None` if the apply must fail.
fn synced(base: &Tree, files: &Tree, there: &Tree) -> Option<(Tree, usize)> {
    let (mut after, mut todo) = (there.clone(), 0);
    let all: BTreeSet<&String> = base.keys().chain(files.keys()).collect();
    let gone = |key: &String| base.contains_key(key) && !files.contains_key(key);
    for key in all.into_iter().filter(|key| base.get(*key) != files.get(*key)) {
        let held = key.ends_with('/') && there.keys().any(|other| other.starts_with(key) && !gone(other));
        match (there.get(key), base.get(key), files.get(key)) {
            (now, _, wanted) if now == wanted => continue,
            (_, Some(_), None) if held => continue,
            (now, before, wanted) if now == before => match wanted {
                Some(content) if key.ends_with('/') => drop(after.insert(key.clone(), content.clone())),
                Some(content) => put_in(&mut after, key, Some(content)),
                None => drop(after.remove(key)),
            },
            _ => return None,
        }
        todo += 1;
    }
    Some((after, todo))
}

/// A three-way merge, file by file.
fn three_way(base: &Tree, ours: &Tree, theirs: &Tree, mut clashes: Vec<Clash>) -> (Tree, Vec<Clash>) {
    let mut merged = Tree::new();
    let all: BTreeSet<&String> = base.keys().chain(ours.keys()).chain(theirs.keys()).collect();
    for key in all {
        let [base, ours, theirs] = [base, ours, theirs].map(|tree| tree.get(key).cloned());
        let result = match () {
            () if ours == theirs || theirs == base => ours,
            () if ours == base => theirs,
            () => {
                clashes.push(Clash { path: key.clone(), base, ours: ours.clone(), theirs });
                ours
            }
        };
        if let Some(content) = result {
            match key.ends_with('/') {
                true => drop(merged.insert(key.clone(), content)),
                false => put_in(&mut merged, key, Some(&content)),
            }
        }
    }
    (merged, clashes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: rath_testkit::scaled(60), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn files_follow_the_model(on in 0..2usize, ops in prop::collection::vec(op(), 10..22)) {
        let mut world = World::new(on);
        for op in ops {
            world.run(op);
        }
        // Compare what commands see in every copy.
        for at in 0..world.open().len() {
            world.run(Op::Exec(at, 0, true));
        }
        world.run(Op::Reopen(None));
        for line in 0..world.lines.len() {
            world.check_records(line, 0);
        }
        world.shop.verify();
    }
}
