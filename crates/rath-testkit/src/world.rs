//! Sessions and a plain model of them, side by side: the same operations on both, the same answers expected.
//!
//! The model keeps every record as a node with its parents, reaches by walking the graph, and keeps contexts as
//! lists whose items know every record they derive from. It is slow, obvious, and shares no code with the real one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pollster::block_on;
use proptest::prelude::*;
use rath_core::body::{Assistant, Block, ModelResponded, Outcome};
use rath_core::{Actor, Durability, How, Record, Session, SessionId, Store, Usage};

/// Something that happens to a session; numbers choose among what is there.
#[derive(Clone, Debug)]
pub enum Op {
    /// A person speaks.
    User(usize),
    /// A model speaks.
    Assistant(usize),
    /// A model calls a tool.
    Call(usize),
    /// An open call is answered.
    Answer(usize),
    /// A remark.
    Note(usize),
    /// A model's answer is paid for.
    Pay(usize, u64),
    /// A label is set.
    Label(usize, u8),
    /// A label is taken away.
    Unlabel(usize, u8),
    /// A step begins.
    Enter(usize),
    /// A step ends.
    Leave(usize),
    /// A branch from the head.
    Fork(usize),
    /// A branch from an earlier record.
    ForkAt(usize, usize),
    /// A new root with the context.
    Detach(usize),
    /// Branches come together: into, others, manner.
    Merge(usize, Vec<usize>, u8),
    /// Context items are replaced: session, from, how many.
    Compress(usize, usize, usize),
    /// A session ends.
    Close(usize),
    /// Everything becomes durable.
    Publish(usize),
    /// The session is dropped and opened again.
    Reopen(usize),
}

/// Any operation.
pub fn op() -> impl Strategy<Value = Op> {
    let n = || 0..64usize;
    prop_oneof![
        4 => n().prop_map(Op::User),
        4 => n().prop_map(Op::Assistant),
        2 => n().prop_map(Op::Call),
        2 => n().prop_map(Op::Answer),
        1 => n().prop_map(Op::Note),
        2 => (n(), 1..100u64).prop_map(|(s, t)| Op::Pay(s, t)),
        1 => (n(), 0..4u8).prop_map(|(s, l)| Op::Label(s, l)),
        1 => (n(), 0..4u8).prop_map(|(s, l)| Op::Unlabel(s, l)),
        1 => n().prop_map(Op::Enter),
        1 => n().prop_map(Op::Leave),
        4 => n().prop_map(Op::Fork),
        2 => (n(), n()).prop_map(|(s, k)| Op::ForkAt(s, k)),
        1 => n().prop_map(Op::Detach),
        5 => (n(), prop::collection::vec(n(), 1..4), 0..4u8).prop_map(|(s, o, h)| Op::Merge(s, o, h)),
        2 => (n(), n(), 1..5usize).prop_map(|(s, a, c)| Op::Compress(s, a, c)),
        1 => n().prop_map(Op::Close),
        1 => n().prop_map(Op::Publish),
        2 => n().prop_map(Op::Reopen),
    ]
}

/// A list of operations.
pub fn ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 1..most)
}

type Uid = usize;

#[derive(Clone, Debug)]
struct Node {
    parents: Vec<Uid>,
    tokens: u64,
}

#[derive(Clone, Debug)]
struct Item {
    key: (Uid, usize),
    text: String,
    sources: BTreeSet<Uid>,
    calls: Option<String>,
    answers: Option<String>,
    marker: bool,
}

#[derive(Clone, Debug, Default)]
struct Moment {
    head: Uid,
    items: Vec<Item>,
    labels: BTreeMap<String, String>,
    /// Open steps of this line.
    steps: usize,
    /// Open calls: id, and whether they were made on this line.
    calls: Vec<(String, bool)>,
}

struct Line {
    id: SessionId,
    now: Moment,
    /// How it was after each of its records.
    past: Vec<Moment>,
}

/// The real sessions and the model.
pub struct World {
    store: Arc<dyn Store>,
    live: Vec<(Session, Line)>,
    nodes: Vec<Node>,
    words: usize,
}

impl World {
    /// One empty session in `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let mut world = Self { store, live: Vec::new(), nodes: Vec::new(), words: 0 };
        let session = world.store.create(Actor::program("world"));
        let head = world.node(vec![], 0);
        world.adopt(session, Moment { head, ..Moment::default() });
        world
    }

    fn node(&mut self, parents: Vec<Uid>, tokens: u64) -> Uid {
        self.nodes.push(Node { parents, tokens });
        self.nodes.len() - 1
    }

    fn adopt(&mut self, session: Session, now: Moment) {
        let line = Line { id: session.id(), past: vec![now.clone()], now };
        self.live.push((session, line));
    }

    fn pick(&self, n: usize) -> Option<usize> {
        (!self.live.is_empty()).then(|| n % self.live.len())
    }

    fn reach(&self, head: Uid) -> BTreeSet<Uid> {
        let mut seen = BTreeSet::new();
        let mut open = vec![head];
        while let Some(uid) = open.pop() {
            if seen.insert(uid) {
                open.extend(&self.nodes[uid].parents);
            }
        }
        seen
    }

    fn word(&mut self, kind: &str) -> String {
        self.words += 1;
        format!("{kind} {}", self.words)
    }

    /// Adds a record to the model of session `s`.
    fn advance(&mut self, s: usize, more: Vec<Uid>, tokens: u64, change: impl FnOnce(Uid, &mut Moment)) -> Uid {
        let mut parents = vec![self.live[s].1.now.head];
        parents.extend(more);
        let uid = self.node(parents, tokens);
        let line = &mut self.live[s].1;
        line.now.head = uid;
        change(uid, &mut line.now);
        line.past.push(line.now.clone());
        uid
    }

    fn say(&mut self, s: usize, text: String, calls: Option<String>, answers: Option<String>) {
        self.advance(s, vec![], 0, |uid, now| {
            let sources = BTreeSet::from([uid]);
            now.items.push(Item { key: (uid, 0), text, sources, calls, answers, marker: false });
        });
    }

    /// Does `op` on both sides.
    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::User(n) => self.with(*n, |world, s| {
                let text = world.word("user");
                world.live[s].0.user(text.clone()).unwrap();
                world.say(s, text, None, None);
            }),
            Op::Assistant(n) => self.with(*n, |world, s| {
                let text = world.word("assistant");
                world.live[s].0.assistant(text.clone()).unwrap();
                world.say(s, text, None, None);
            }),
            Op::Call(n) => self.with(*n, |world, s| {
                let id = world.word("call");
                let block = Block::ToolUse { id: id.clone(), name: "tool".into(), arguments: "{}".into() };
                world.live[s].0.append(Assistant::new(vec![block])).unwrap();
                world.say(s, format!("→ tool({{}}) [{id}]"), Some(id.clone()), None);
                world.live[s].1.now.calls.push((id, true));
                world.settle(s);
            }),
            Op::Answer(n) => self.with(*n, |world, s| {
                let Some((id, _)) = world.live[s].1.now.calls.first().cloned() else { return };
                world.live[s].0.tool_result(id.clone(), "done").unwrap();
                world.say(s, format!("[{id}] done"), None, Some(id));
                world.live[s].1.now.calls.remove(0);
                world.settle(s);
            }),
            Op::Note(n) => self.with(*n, |world, s| {
                world.live[s].0.note("a remark").unwrap();
                world.advance(s, vec![], 0, |_, _| {});
            }),
            Op::Pay(n, tokens) => self.with(*n, |world, s| {
                let usage = Usage { requests: 1, input_tokens: *tokens, ..Usage::default() };
                world.live[s].0.append(ModelResponded { usage, ..ModelResponded::default() }).unwrap();
                world.advance(s, vec![], *tokens, |_, _| {});
            }),
            Op::Label(n, l) => self.with(*n, |world, s| {
                let value = world.word("value");
                world.live[s].0.label(format!("l{l}"), value.clone()).unwrap();
                world.advance(s, vec![], 0, |_, now| drop(now.labels.insert(format!("l{l}"), value)));
            }),
            Op::Unlabel(n, l) => self.with(*n, |world, s| {
                world.live[s].0.unlabel(format!("l{l}")).unwrap();
                world.advance(s, vec![], 0, |_, now| drop(now.labels.remove(&format!("l{l}"))));
            }),
            Op::Enter(n) => self.with(*n, |world, s| {
                world.live[s].0.enter("step").unwrap();
                world.advance(s, vec![], 0, |_, now| now.steps += 1);
            }),
            Op::Leave(n) => self.with(*n, |world, s| {
                if world.live[s].1.now.steps == 0 {
                    assert_eq!(world.live[s].0.leave(Outcome::Done).unwrap_err().code(), "no-step");
                    return;
                }
                world.live[s].0.leave(Outcome::Done).unwrap();
                world.advance(s, vec![], 0, |_, now| now.steps -= 1);
            }),
            Op::Fork(n) => self.with(*n, |world, s| {
                let child = world.live[s].0.fork("try");
                let now = world.live[s].1.now.clone();
                world.branch(child, now);
            }),
            Op::ForkAt(n, k) => self.with(*n, |world, s| {
                let (session, line) = &world.live[s];
                let seq = k % line.past.len();
                let point = rath_core::Point { session: session.id(), seq: seq as u64 };
                let child = block_on(session.fork_at(point, "from there")).unwrap();
                let then = line.past[seq].clone();
                world.branch(child, then);
            }),
            Op::Detach(n) => self.with(*n, |world, s| {
                let child = block_on(world.live[s].0.detach("clean")).unwrap();
                let uid = world.node(vec![], 0);
                let mut items = world.live[s].1.now.items.clone();
                for (part, item) in items.iter_mut().enumerate() {
                    (item.key, item.sources, item.marker) = ((uid, part), BTreeSet::from([uid]), false);
                }
                world.adopt(child, Moment { head: uid, items, ..Moment::default() });
            }),
            Op::Merge(into, others, how) => self.merge(*into, others, *how),
            Op::Compress(n, at, count) => self.with(*n, |world, s| world.compress(s, *at, *count)),
            Op::Close(n) => self.with(*n, |world, s| {
                if world.live.len() == 1 || world.open(s) {
                    return;
                }
                let (session, line) = world.live.remove(s);
                block_on(session.close("enough")).unwrap();
                let again = block_on(world.store.open(line.id, Actor::program("again"))).unwrap();
                assert!(again.state().closed);
                let mut fork = again.fork("after the end");
                assert!(fork.note("goes on").is_ok());
            }),
            Op::Publish(n) => self.with(*n, |world, s| {
                block_on(world.live[s].0.publish()).unwrap();
                assert_eq!(world.live[s].0.at_risk(), 0);
            }),
            Op::Reopen(n) => self.with(*n, |world, s| {
                let (mut session, line) = world.live.remove(s);
                block_on(session.publish()).unwrap();
                drop(session);
                let mut again = block_on(world.store.open(line.id, Actor::program("again"))).unwrap();
                again.set_durability(Durability::Record);
                world.live.insert(s, (again, line));
            }),
        }
    }

    fn with(&mut self, n: usize, work: impl FnOnce(&mut Self, usize)) {
        if let Some(s) = self.pick(n) {
            work(self, s);
        }
    }

    /// The last moment, corrected after it was noted.
    fn settle(&mut self, s: usize) {
        let line = &mut self.live[s].1;
        if let Some(last) = line.past.last_mut() {
            *last = line.now.clone();
        }
    }

    fn open(&self, s: usize) -> bool {
        let now = &self.live[s].1.now;
        now.steps > 0 || now.calls.iter().any(|(_, own)| *own)
    }

    fn branch(&mut self, child: Session, mut from: Moment) {
        let uid = self.node(vec![from.head], 0);
        from.head = uid;
        from.labels.clear();
        from.steps = 0;
        from.calls.iter_mut().for_each(|(_, own)| *own = false);
        self.adopt(child, from);
    }

    fn merge(&mut self, into: usize, others: &[usize], how: u8) {
        let Some(s) = self.pick(into) else { return };
        let chosen: BTreeSet<usize> = others.iter().map(|n| n % self.live.len()).filter(|o| *o != s).collect();
        if chosen.is_empty() {
            return;
        }
        let refused = chosen.iter().any(|o| self.open(*o));
        let keep = self.live[*chosen.iter().next().unwrap()].1.id;
        let how = match how {
            0 => How::Append,
            1 => How::keep(keep, "better"),
            2 => How::take_in(),
            _ => How::synthesize(|mut session: Session| async move {
                session.assistant("all in all")?;
                Ok(session)
            }),
        };
        // Take them out, back to front, so that the numbers stay right; then put them in order.
        let mut all: BTreeSet<usize> = chosen.clone();
        all.insert(s);
        let mut taken: BTreeMap<usize, (Session, Line)> = BTreeMap::new();
        for n in all.into_iter().rev() {
            taken.insert(n, self.live.remove(n));
        }
        let (session, mut line) = taken.remove(&s).unwrap();
        let (branches, lines): (Vec<Session>, Vec<Line>) = taken.into_values().unzip();
        let merged = block_on(session.merge(branches, how.clone()));
        if refused {
            let error = merged.unwrap_err();
            assert_eq!(error.code(), "still-open");
            let mut back = error.into_sessions().into_iter();
            self.live.push((back.next().unwrap(), line));
            self.live.extend(back.zip(lines));
            return;
        }
        let session = merged.unwrap();
        let shared = self.reach(line.now.head);
        let mut parents = vec![line.now.head];
        parents.extend(lines.iter().map(|other| other.now.head));
        let uid = self.node(parents, 0);
        line.now.head = uid;
        let before = line.now.items.len();
        match &how {
            How::Keep { .. } => {
                line.now.items = lines.iter().find(|other| other.id == keep).unwrap().now.items.clone();
            }
            How::TakeIn { .. } => {}
            _ => {
                let mut seen = BTreeSet::new();
                for (part, other) in lines.iter().enumerate() {
                    let new: Vec<Item> = other
                        .now
                        .items
                        .iter()
                        .filter(|item| !item.sources.is_subset(&shared) && seen.insert(item.key))
                        .cloned()
                        .collect();
                    if new.is_empty() {
                        continue;
                    }
                    let text = format!("from {}", other.id.short());
                    let sources = BTreeSet::from([uid]);
                    line.now.items.push(Item {
                        key: (uid, part),
                        text,
                        sources,
                        calls: None,
                        answers: None,
                        marker: true,
                    });
                    line.now.items.extend(new);
                }
            }
        }
        line.past.push(line.now.clone());
        let brought = line.now.items.len() - before.min(line.now.items.len());
        self.live.push((session, line));
        let s = self.live.len() - 1;
        match how {
            How::Keep { .. } => {
                for _ in lines.iter().filter(|other| other.id != keep) {
                    self.advance(s, vec![], 0, |_, _| {});
                }
            }
            How::Synthesize(_) => {
                self.say(s, "all in all".into(), None, None);
                if brought > 0 {
                    self.compressed(s, before, brought, None);
                }
            }
            How::Append | How::TakeIn { .. } => {}
        }
    }

    fn compress(&mut self, s: usize, at: usize, count: usize) {
        let items = &self.live[s].1.now.items;
        let at = if items.is_empty() { 0 } else { at % items.len() };
        let range = at..at + count;
        let fits = range.end <= items.len();
        // The result of a call is the first answer behind it with its id.
        let parted = items.iter().enumerate().any(|(place, item)| {
            let Some(call) = &item.calls else { return false };
            let answer =
                items.iter().enumerate().find(|(later, item)| *later > place && item.answers.as_ref() == Some(call));
            match answer {
                Some((later, _)) => range.contains(&place) != range.contains(&later),
                None => range.contains(&place),
            }
        });
        let text = self.word("summary");
        let done = block_on(self.live[s].0.compress(at, count, text.clone()));
        if !fits || parted {
            assert_eq!(done.unwrap_err().code(), "bad-range");
            return;
        }
        done.unwrap();
        self.compressed(s, at, count, Some(text));
    }

    fn compressed(&mut self, s: usize, at: usize, count: usize, text: Option<String>) {
        self.advance(s, vec![], 0, |uid, now| {
            let gone: Vec<Item> = now.items.drain(at..at + count).collect();
            let markers = gone.iter().filter(|item| item.marker).count();
            let text = text.unwrap_or_else(|| {
                format!("[{markers} merged branches, {count} items: see the history; the result follows]")
            });
            let sources = gone.into_iter().flat_map(|item| item.sources).collect();
            now.items.insert(at, Item { key: (uid, 0), text, sources, calls: None, answers: None, marker: false });
        });
    }

    /// Compares every live session with its model.
    pub fn check(&self) {
        for (session, line) in &self.live {
            let now = &line.now;
            let context = block_on(session.context()).unwrap();
            let real: Vec<String> = context.iter().map(|message| strip_why(&message.said.to_string())).collect();
            let model: Vec<String> = now.items.iter().map(|item| item.text.clone()).collect();
            assert_eq!(real, model, "context of {session:?}");
            let reach = self.reach(now.head);
            let tokens: u64 = reach.iter().map(|uid| self.nodes[*uid].tokens).sum();
            assert_eq!(session.usage().input_tokens, tokens, "usage of {session:?}");
            let history = block_on(async { session.history().await?.all().await }).unwrap();
            assert_eq!(history.len(), reach.len(), "history of {session:?}");
            assert_parents_first(&history);
            assert_eq!(session.state().labels, now.labels);
            let pending = session.pending();
            assert_eq!(pending.steps.len(), now.steps);
            assert_eq!(pending.calls.len(), now.calls.iter().filter(|(_, own)| *own).count());
            assert_eq!(session.head().seq + 1, line.past.len() as u64);
        }
    }

    /// Publishes everything.
    pub fn publish_all(&mut self) {
        for (session, _) in &mut self.live {
            block_on(session.publish()).unwrap();
        }
    }
}

/// Markers say why a branch was forked; the model does not.
fn strip_why(text: &str) -> String {
    match text.strip_prefix("from ").and_then(|rest| rest.split_once(" (")) {
        Some((branch, _)) => format!("from {branch}"),
        None => text.to_owned(),
    }
}

fn assert_parents_first(history: &[Record]) {
    let mut seen = BTreeSet::new();
    for record in history {
        assert!(record.header().unwrap().parents.iter().all(|parent| seen.contains(parent)), "{record:?}");
        seen.insert(record.id());
    }
}
