//! Model-based test of blame. Every line has a unique text, so its text identifies the record that wrote it, through
//! forks, merges, restores and resolutions.

use std::collections::HashMap;

use pollster::block_on;
use proptest::prelude::*;
use rath::files::FilePath;
use rath::sandbox::Command;
use rath::workspaces::{PlacementSpec, Resolution};
use rath::{How, Point, Session};

use crate::support::{Shop, backends, layers, put};

const FILE: &str = "src/file";

#[derive(Clone, Debug)]
enum Op {
    /// A command rewrites lines of the file, possibly after an external edit.
    Exec(usize, Cut, Option<Cut>),
    /// An external edit that is saved.
    Save(usize, Cut),
    Fork(usize),
    Merge(usize, usize),
    Undo(usize),
    /// Restores any record of any session.
    Restore(usize, usize, usize),
}

/// The lines to remove, and the number of lines to insert.
#[derive(Clone, Debug)]
struct Cut {
    at: usize,
    remove: usize,
    add: usize,
}

fn op() -> impl Strategy<Value = Op> {
    let n = || 0..64usize;
    let cut = || (n(), 0..3usize, 0..4usize).prop_map(|(at, remove, add)| Cut { at, remove, add });
    prop_oneof![
        6 => (n(), cut(), prop::option::weighted(0.3, cut())).prop_map(|(s, c, o)| Op::Exec(s, c, o)),
        2 => (n(), cut()).prop_map(|(s, c)| Op::Save(s, c)),
        3 => n().prop_map(Op::Fork),
        4 => (n(), n()).prop_map(|(s, o)| Op::Merge(s, o)),
        2 => n().prop_map(Op::Undo),
        1 => (n(), n(), n()).prop_map(|(s, f, k)| Op::Restore(s, f, k)),
    ]
}

/// The writer of a line.
#[derive(Clone, Debug, PartialEq)]
struct Writer {
    record: Point,
    what: String,
    outside: bool,
}

struct World {
    shop: Shop,
    /// Whether copies are directories, which can be edited from outside.
    by_hand: bool,
    sessions: Vec<Session>,
    /// All sessions, including merged ones.
    ends: HashMap<rath::SessionId, u64>,
    writers: HashMap<String, Writer>,
    count: usize,
}

impl World {
    fn new(on: usize) -> Self {
        let backend = backends()[on % backends().len()];
        let shop = Shop::new();
        let origin = shop.directory("origin");
        let first: Vec<String> = (0..6).map(|line| format!("first {line}\n")).collect();
        put(&origin, FILE, Some(&first.concat()));
        let mut session = shop.create();
        block_on(shop.workspaces.assign(&mut session, PlacementSpec::copy_of(backend, &origin))).unwrap();
        let record = session.head().point();
        let what = "there when the session was placed".to_owned();
        let writer = Writer { record, what, outside: false };
        let writers = first.into_iter().map(|line| (line, writer.clone())).collect();
        Self {
            shop,
            by_hand: backend == "host" || !layers(),
            sessions: vec![session],
            ends: HashMap::new(),
            writers,
            count: 0,
        }
    }

    fn lines(&self, at: usize) -> Vec<String> {
        let files = self.shop.now(&self.sessions[at]);
        files.get(FILE).map(|text| text.split_inclusive('\n').map(str::to_owned).collect()).unwrap_or_default()
    }

    /// The lines after a rewrite, and the new ones among them.
    fn cut(&mut self, mut lines: Vec<String>, cut: &Cut) -> (Vec<String>, Vec<String>) {
        let at = cut.at % (lines.len() + 1);
        let to = (at + cut.remove).min(lines.len());
        self.count += 1;
        let new: Vec<String> = (0..cut.add).map(|line| format!("line {} of {}\n", line, self.count)).collect();
        lines.splice(at..to, new.clone());
        (lines, new)
    }

    fn wrote(&mut self, lines: Vec<String>, writer: Writer) {
        self.writers.extend(lines.into_iter().map(|line| (line, writer.clone())));
    }

    /// Saves external edits.
    fn save(&mut self, at: usize) -> Option<Point> {
        let saved = block_on(self.shop.workspaces.save(&mut self.sessions[at])).unwrap();
        saved.map(|(record, _)| record.point())
    }

    /// Resolves open conflicts, because a branch with a conflict cannot be merged.
    fn decide(&mut self, at: usize) {
        let session = &mut self.sessions[at];
        if let Some(conflict) = session.state().conflicts.first() {
            assert_eq!(conflict.path, FilePath::from(FILE));
            self.count += 1;
            let decision = if self.count.is_multiple_of(3) { Resolution::Ours } else { Resolution::Theirs };
            block_on(self.shop.workspaces.resolve(session, &FilePath::from(FILE), decision)).unwrap();
        }
    }

    fn run(&mut self, op: Op) {
        let pick = |number: usize| number % self.sessions.len();
        match op {
            Op::Exec(at, cut, by_hand) => {
                let at = pick(at);
                let mut lines = self.lines(at);
                let mut outside = Vec::new();
                if let Some(by_hand) = by_hand.filter(|_| self.by_hand) {
                    self.save(at);
                    (lines, outside) = self.cut(lines, &by_hand);
                    put(&self.shop.copy(self.sessions[at].id()), FILE, Some(&lines.concat()));
                }
                let (lines, new) = self.cut(lines, &cut);
                let line = format!("mkdir -p src && cat > {FILE} # {}", self.count);
                let what = format!("$ {line}");
                let command = Command::shell(line).stdin(lines.concat());
                let done = block_on(self.shop.workspaces.exec(&mut self.sessions[at], command, |_| {})).unwrap();
                let record = done.record.point();
                self.wrote(new, Writer { record, what, outside: false });
                let noticed = Point { seq: record.seq - 1, ..record };
                let what = "changed outside, before this record".to_owned();
                self.wrote(outside, Writer { record: noticed, what, outside: true });
            }
            Op::Save(..) if !self.by_hand => {}
            Op::Save(at, cut) => {
                let at = pick(at);
                self.save(at);
                let (lines, new) = self.cut(self.lines(at), &cut);
                put(&self.shop.copy(self.sessions[at].id()), FILE, Some(&lines.concat()));
                if let Some(record) = self.save(at) {
                    self.wrote(new, Writer { record, what: "save".into(), outside: false });
                }
            }
            Op::Fork(at) => {
                let at = pick(at);
                let fork = self.sessions[at].fork("try");
                self.sessions.push(fork);
            }
            Op::Merge(into, other) => {
                let (into, other) = (pick(into), pick(other));
                if into == other {
                    return;
                }
                let branch = self.sessions.remove(other);
                let into = self.sessions.remove(into - usize::from(other < into));
                self.ends.insert(branch.id(), branch.head().seq);
                let mut merged = block_on(into.merge([branch], How::Append)).unwrap();
                block_on(self.shop.workspaces.sync(&mut merged)).unwrap();
                self.sessions.push(merged);
                self.check(self.sessions.last().unwrap());
                self.decide(self.sessions.len() - 1);
            }
            Op::Undo(at) => {
                let at = pick(at);
                match block_on(self.shop.workspaces.undo(&mut self.sessions[at], false)) {
                    Ok(_) => self.decide(at),
                    Err(error) => assert_eq!(error.code(), "nothing-to-undo"),
                }
            }
            Op::Restore(at, from, seq) => {
                let at = pick(at);
                let mut all: Vec<_> = self.ends.iter().map(|(id, end)| (*id, *end)).collect();
                all.sort();
                all.extend(self.sessions.iter().map(|session| (session.id(), session.head().seq)));
                let (session, end) = all[from % all.len()];
                let point = Point { session, seq: seq as u64 % (end + 1) };
                for session in &mut self.sessions {
                    block_on(session.publish()).unwrap();
                }
                if self.shop.view(point).state().workspace.is_some() {
                    block_on(self.shop.workspaces.restore(&mut self.sessions[at], point, false)).unwrap();
                    self.decide(at);
                }
            }
        }
    }

    fn check(&self, session: &Session) {
        let files = self.shop.now(session);
        let Some(text) = files.get(FILE).filter(|text| !text.is_empty()) else { return };
        let blame = block_on(async { session.view().await?.blame(&FilePath::from(FILE)).await }).unwrap();
        assert_eq!(*blame.content, *text.as_bytes());
        for (at, line) in text.split_inclusive('\n').enumerate() {
            let origin = &blame.origins[blame.lines[at]];
            let found = Writer { record: origin.record.point(), what: origin.what.clone(), outside: origin.outside };
            assert_eq!(found, self.writers[line], "{line:?} in {}", session.id().short());
            assert_eq!(origin.actor.name, "ada");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: rath_testkit::scaled(40), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_line_is_its_writers(on in 0..2usize, ops in prop::collection::vec(op(), 5..20)) {
        let mut world = World::new(on);
        ops.into_iter().for_each(|op| world.run(op));
        world.sessions.iter().for_each(|session| world.check(session));
    }
}
