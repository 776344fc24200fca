//! A simple model of sessions. Operations are applied to real sessions and to the model, and the results are compared.
//!
//! The model keeps every record as a graph node with its parents, and a context as a list of items, each with all
//! records that it derives from. It is slow and simple, and shares no code with the real implementation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pollster::block_on;
use proptest::prelude::*;
use rath_core::body::{Assistant, Block, ModelResponded, Outcome};
use rath_core::{Actor, Durability, How, Record, Session, SessionId, Store, Usage};

/// An operation on a session. Numbers select sessions and records, modulo the existing ones.
#[derive(Clone, Debug)]
pub enum Op {
    /// Append a user message.
    User(usize),
    /// Append an assistant message.
    Assistant(usize),
    /// Append an assistant message with a tool call.
    Call(usize),
    /// Append the result of an open call.
    Answer(usize),
    /// Append a note.
    Note(usize),
    /// Append a model response with this usage.
    Usage(usize, u64),
    /// Set a label.
    Label(usize, u8),
    /// Remove a label.
    Unlabel(usize, u8),
    /// Enter a step.
    Enter(usize),
    /// Finish a step.
    Leave(usize),
    /// Fork at the head.
    Fork(usize),
    /// Fork at an earlier record.
    ForkAt(usize, usize),
    /// Start a new root session with the context.
    Detach(usize),
    /// Merge branches: the target session, the branches, and the strategy.
    Merge(usize, Vec<usize>, u8),
    /// Replace context items by a summary: the session, the first item, and the number of items.
    Compress(usize, usize, usize),
    /// Close a session.
    Close(usize),
    /// Publish a session.
    Publish(usize),
    /// Drop a session and open it again.
    Reopen(usize),
}

/// Generates an operation.
pub fn op() -> impl Strategy<Value = Op> {
    let n = || 0..64usize;
    prop_oneof![
        4 => n().prop_map(Op::User),
        4 => n().prop_map(Op::Assistant),
        2 => n().prop_map(Op::Call),
        2 => n().prop_map(Op::Answer),
        1 => n().prop_map(Op::Note),
        2 => (n(), 1..100u64).prop_map(|(s, t)| Op::Usage(s, t)),
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

/// Generates a list of operations, shorter than `limit`.
pub fn ops(limit: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 1..limit)
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
struct Snapshot {
    head: Uid,
    items: Vec<Item>,
    labels: BTreeMap<String, String>,
    /// The number of open steps of this session.
    steps: usize,
    /// The open calls: the id, and whether the call was made in this session.
    calls: Vec<(String, bool)>,
}

struct ModelSession {
    id: SessionId,
    now: Snapshot,
    /// The snapshot after each record.
    past: Vec<Snapshot>,
}

/// The real sessions and their model.
pub struct World {
    store: Arc<dyn Store>,
    live: Vec<(Session, ModelSession)>,
    nodes: Vec<Node>,
    words: usize,
}

impl World {
    /// Creates one empty session in `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let mut world = Self { store, live: Vec::new(), nodes: Vec::new(), words: 0 };
        let session = world.store.create(Actor::program("world"));
        let head = world.node(vec![], 0);
        world.adopt(session, Snapshot { head, ..Snapshot::default() });
        world
    }

    fn node(&mut self, parents: Vec<Uid>, tokens: u64) -> Uid {
        self.nodes.push(Node { parents, tokens });
        self.nodes.len() - 1
    }

    fn adopt(&mut self, session: Session, now: Snapshot) {
        let model = ModelSession { id: session.id(), past: vec![now.clone()], now };
        self.live.push((session, model));
    }

    fn pick(&self, n: usize) -> Option<usize> {
        (!self.live.is_empty()).then(|| n % self.live.len())
    }

    fn reachable(&self, head: Uid) -> BTreeSet<Uid> {
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
    fn advance(&mut self, s: usize, more: Vec<Uid>, tokens: u64, change: impl FnOnce(Uid, &mut Snapshot)) -> Uid {
        let mut parents = vec![self.live[s].1.now.head];
        parents.extend(more);
        let uid = self.node(parents, tokens);
        let model = &mut self.live[s].1;
        model.now.head = uid;
        change(uid, &mut model.now);
        model.past.push(model.now.clone());
        uid
    }

    fn add_message(&mut self, s: usize, text: String, calls: Option<String>, answers: Option<String>) {
        self.advance(s, vec![], 0, |uid, now| {
            let sources = BTreeSet::from([uid]);
            now.items.push(Item { key: (uid, 0), text, sources, calls, answers, marker: false });
        });
    }

    /// Applies `op` to a real session and to the model.
    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::User(n) => self.with(*n, |world, s| {
                let text = world.word("user");
                world.live[s].0.user(text.clone()).unwrap();
                world.add_message(s, text, None, None);
            }),
            Op::Assistant(n) => self.with(*n, |world, s| {
                let text = world.word("assistant");
                world.live[s].0.assistant(text.clone()).unwrap();
                world.add_message(s, text, None, None);
            }),
            Op::Call(n) => self.with(*n, |world, s| {
                let id = world.word("call");
                let block = Block::ToolUse { id: id.clone(), name: "tool".into(), arguments: "{}".into() };
                world.live[s].0.append(Assistant::new(vec![block])).unwrap();
                world.add_message(s, format!("→ tool({{}}) [{id}]"), Some(id.clone()), None);
                world.live[s].1.now.calls.push((id, true));
                world.update_last_snapshot(s);
            }),
            Op::Answer(n) => self.with(*n, |world, s| {
                let Some((id, _)) = world.live[s].1.now.calls.first().cloned() else { return };
                world.live[s].0.tool_result(id.clone(), "done").unwrap();
                world.add_message(s, format!("[{id}] done"), None, Some(id));
                world.live[s].1.now.calls.remove(0);
                world.update_last_snapshot(s);
            }),
            Op::Note(n) => self.with(*n, |world, s| {
                world.live[s].0.note("a note").unwrap();
                world.advance(s, vec![], 0, |_, _| {});
            }),
            Op::Usage(n, tokens) => self.with(*n, |world, s| {
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
                world.add_branch(child, now);
            }),
            Op::ForkAt(n, k) => self.with(*n, |world, s| {
                let (session, model) = &world.live[s];
                let seq = k % model.past.len();
                let point = rath_core::Point { session: session.id(), seq: seq as u64 };
                let child = block_on(session.fork_at(point, "from there")).unwrap();
                let then = model.past[seq].clone();
                world.add_branch(child, then);
            }),
            Op::Detach(n) => self.with(*n, |world, s| {
                let child = block_on(world.live[s].0.detach("clean")).unwrap();
                let uid = world.node(vec![], 0);
                let mut items = world.live[s].1.now.items.clone();
                for (part, item) in items.iter_mut().enumerate() {
                    (item.key, item.sources, item.marker) = ((uid, part), BTreeSet::from([uid]), false);
                }
                world.adopt(child, Snapshot { head: uid, items, ..Snapshot::default() });
            }),
            Op::Merge(into, others, how) => self.merge(*into, others, *how),
            Op::Compress(n, at, count) => self.with(*n, |world, s| world.compress(s, *at, *count)),
            Op::Close(n) => self.with(*n, |world, s| {
                if world.live.len() == 1 || world.open(s) {
                    return;
                }
                let (session, model) = world.live.remove(s);
                block_on(session.close("enough")).unwrap();
                let again = block_on(world.store.open(model.id, Actor::program("again"))).unwrap();
                assert!(again.state().closed);
                let mut fork = again.fork("after the end");
                assert!(fork.note("after the fork").is_ok());
            }),
            Op::Publish(n) => self.with(*n, |world, s| {
                block_on(world.live[s].0.publish()).unwrap();
                assert_eq!(world.live[s].0.unpublished_count(), 0);
            }),
            Op::Reopen(n) => self.with(*n, |world, s| {
                let (mut session, model) = world.live.remove(s);
                block_on(session.publish()).unwrap();
                drop(session);
                let mut again = block_on(world.store.open(model.id, Actor::program("again"))).unwrap();
                again.set_durability(Durability::Record);
                world.live.insert(s, (again, model));
            }),
        }
    }

    fn with(&mut self, n: usize, work: impl FnOnce(&mut Self, usize)) {
        if let Some(s) = self.pick(n) {
            work(self, s);
        }
    }

    /// Replaces the last snapshot by the current one.
    fn update_last_snapshot(&mut self, s: usize) {
        let model = &mut self.live[s].1;
        if let Some(last) = model.past.last_mut() {
            *last = model.now.clone();
        }
    }

    fn open(&self, s: usize) -> bool {
        let now = &self.live[s].1.now;
        now.steps > 0 || now.calls.iter().any(|(_, own)| *own)
    }

    fn add_branch(&mut self, child: Session, mut from: Snapshot) {
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
            2 => How::files_only(),
            _ => How::synthesize(|mut session: Session| async move {
                session.assistant("all in all")?;
                Ok(session)
            }),
        };
        // Remove the sessions back to front, so that the indices stay valid, then restore their order.
        let mut all: BTreeSet<usize> = chosen.clone();
        all.insert(s);
        let mut removed: BTreeMap<usize, (Session, ModelSession)> = BTreeMap::new();
        for n in all.into_iter().rev() {
            removed.insert(n, self.live.remove(n));
        }
        let (session, mut model) = removed.remove(&s).unwrap();
        let (branches, models): (Vec<Session>, Vec<ModelSession>) = removed.into_values().unzip();
        let merged = block_on(session.merge(branches, how.clone()));
        if refused {
            let error = merged.unwrap_err();
            assert_eq!(error.code(), "still-open");
            let mut back = error.into_sessions().into_iter();
            self.live.push((back.next().unwrap(), model));
            self.live.extend(back.zip(models));
            return;
        }
        let session = merged.unwrap();
        let shared = self.reachable(model.now.head);
        let mut parents = vec![model.now.head];
        parents.extend(models.iter().map(|other| other.now.head));
        let uid = self.node(parents, 0);
        model.now.head = uid;
        let before = model.now.items.len();
        match &how {
            How::Keep { .. } => {
                model.now.items = models.iter().find(|other| other.id == keep).unwrap().now.items.clone();
            }
            How::FilesOnly { .. } => {}
            _ => {
                let mut seen = BTreeSet::new();
                for (part, other) in models.iter().enumerate() {
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
                    model.now.items.push(Item {
                        key: (uid, part),
                        text,
                        sources,
                        calls: None,
                        answers: None,
                        marker: true,
                    });
                    model.now.items.extend(new);
                }
            }
        }
        model.past.push(model.now.clone());
        let added = model.now.items.len() - before.min(model.now.items.len());
        self.live.push((session, model));
        let s = self.live.len() - 1;
        match how {
            How::Keep { .. } => {
                for _ in models.iter().filter(|other| other.id != keep) {
                    self.advance(s, vec![], 0, |_, _| {});
                }
            }
            How::Synthesize(_) => {
                self.add_message(s, "all in all".into(), None, None);
                if added > 0 {
                    self.compressed(s, before, added, None);
                }
            }
            How::Append | How::FilesOnly { .. } | How::PerBranch { .. } => {}
        }
    }

    fn compress(&mut self, s: usize, at: usize, count: usize) {
        let items = &self.live[s].1.now.items;
        let at = if items.is_empty() { 0 } else { at % items.len() };
        let range = at..at + count;
        let in_range = range.end <= items.len();
        // The result of a call is the first answer after it with its id.
        let splits_pair = items.iter().enumerate().any(|(place, item)| {
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
        if !in_range || splits_pair {
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
        for (session, model) in &self.live {
            let now = &model.now;
            let context = block_on(session.context()).unwrap();
            let real: Vec<String> = context.iter().map(|message| strip_why(&message.body.to_string())).collect();
            let expected: Vec<String> = now.items.iter().map(|item| item.text.clone()).collect();
            assert_eq!(real, expected, "context of {session:?}");
            let reachable = self.reachable(now.head);
            let tokens: u64 = reachable.iter().map(|uid| self.nodes[*uid].tokens).sum();
            assert_eq!(session.usage().input_tokens, tokens, "usage of {session:?}");
            let history = block_on(async { session.history().await?.all().await }).unwrap();
            assert_eq!(history.len(), reachable.len(), "history of {session:?}");
            assert_parents_first(&history);
            assert_eq!(session.state().labels, now.labels);
            let pending = session.pending();
            assert_eq!(pending.steps.len(), now.steps);
            assert_eq!(pending.calls.len(), now.calls.iter().filter(|(_, own)| *own).count());
            assert_eq!(session.head().seq + 1, model.past.len() as u64);
        }
    }

    /// Publishes all sessions.
    pub fn publish_all(&mut self) {
        for (session, _) in &mut self.live {
            block_on(session.publish()).unwrap();
        }
    }
}

/// Removes the reason of the fork from a merge marker, because the model does not keep reasons.
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
