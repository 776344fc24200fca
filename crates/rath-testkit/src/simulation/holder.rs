//! A process that holds sessions, as `rath_core::Session` does: records are made in memory, sent whole until they are
//! acknowledged, and forks bring along what they stand on.

use std::collections::BTreeSet;

use rath_core::RecordId;
use rath_core::store::{FIRST_FENCE, Fence};

use super::disk::{Life, Part, Stored};
use super::entry::{Effect, Entry, Post, Session, What};

/// A line is not written beyond this: a schedule is short.
const LONG: u64 = 20;

/// How far an effect has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Its intent is record `at`.
    Intended { at: u64 },
    /// Somebody else intended it: nobody knows whether it was done.
    Inherited { at: u64 },
}

/// A session in a process's hands.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) session: Session,
    pub(super) fence: Fence,
    head: Option<RecordId>,
    next: u64,
    /// What is not acknowledged, oldest first.
    tail: Vec<Entry>,
    /// What was sent, acknowledged or not.
    sent: u64,
    /// Posts that the tail says, each with its record.
    taken: Vec<(u64, Post)>,
    /// The record that it was forked off.
    origin: Option<(Session, u64)>,
    pub(super) effect: Option<(Effect, Progress)>,
    intents: usize,
    closed: bool,
    /// Whether the program has dropped it. Forks may still stand on its tail.
    pub(super) left: bool,
}

impl Held {
    pub(super) fn begun(session: Session, origin: Option<(Session, u64, RecordId)>, salt: u64) -> Self {
        let mut held = Self {
            session,
            fence: FIRST_FENCE,
            head: origin.map(|(_, _, id)| id),
            next: 0,
            tail: Vec::new(),
            sent: 0,
            taken: Vec::new(),
            origin: origin.map(|(from, seq, _)| (from, seq)),
            effect: None,
            intents: 0,
            closed: false,
            left: false,
        };
        held.append(salt, origin.map_or(What::Created, |(from, seq, _)| What::Forked { from, seq }));
        held
    }

    /// What a new holder finds.
    pub(super) fn opened(session: Session, fence: Fence, stored: &Stored) -> Self {
        let length = stored.entries.len() as u64;
        let mut held = Self {
            session,
            fence,
            head: stored.entries.last().map(|last| last.id),
            next: length,
            tail: Vec::new(),
            sent: length,
            taken: Vec::new(),
            origin: None,
            effect: None,
            intents: 0,
            closed: false,
            left: false,
        };
        for entry in &stored.entries {
            match entry.what {
                Some(What::Intent(effect)) => {
                    held.intents += 1;
                    held.effect = Some((effect, Progress::Inherited { at: entry.seq }));
                }
                Some(What::Done(_) | What::Unknown(_)) => held.effect = None,
                Some(What::Closed) => held.closed = true,
                _ => {}
            }
        }
        held
    }

    pub(super) fn is_full(&self) -> bool {
        self.closed || self.next >= LONG
    }

    pub(super) fn append(&mut self, salt: u64, what: What) {
        let entry = Entry::new(self.session, self.next, self.head, self.fence, salt, what);
        self.closed |= what == What::Closed;
        self.head = Some(entry.id);
        self.next += 1;
        self.tail.push(entry);
    }

    pub(super) fn plan(&mut self, salt: u64) {
        let effect = Effect { session: self.session, nth: self.intents };
        self.effect = Some((effect, Progress::Intended { at: self.next }));
        self.intents += 1;
        self.append(salt, What::Intent(effect));
    }

    pub(super) fn say(&mut self, salt: u64, post: Post) {
        self.taken.push((self.next, post));
        self.append(salt, What::Said(post));
    }

    pub(super) fn says(&self, post: Post) -> bool {
        self.taken.iter().any(|(_, said)| *said == post)
    }

    /// The place to fork from.
    pub(super) fn head(&self) -> Option<(Session, u64, RecordId)> {
        Some((self.session, self.next.checked_sub(1)?, self.head?))
    }

    /// How many of its records were acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.next - self.tail.len() as u64
    }

    pub(super) fn was_sent(&self, seq: u64) -> bool {
        self.sent > seq
    }

    /// Notes that everything before `end`, and these posts, are durable.
    fn settle(&mut self, end: u64, taken: &[Post]) {
        self.tail.retain(|entry| entry.seq >= end);
        self.taken.retain(|(_, post)| !taken.contains(post));
    }
}

/// A batch on its way, and who waits for it.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) life: Life,
    pub(super) parts: Vec<Part>,
    pub(super) taken: Vec<Post>,
    /// Whether it leaves out what was sent before: then it may come too early.
    pub(super) ahead: bool,
}

/// A process.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) life: Life,
    pub(super) stalled: bool,
    pub(super) lines: Vec<Held>,
    /// Sessions that it was told it lost.
    pub(super) lost: BTreeSet<Session>,
}

impl Holder {
    pub(super) fn new(life: Life) -> Self {
        Self { life, stalled: false, lines: Vec::new(), lost: BTreeSet::new() }
    }

    pub(super) fn held(&mut self, session: Session) -> Option<&mut Held> {
        self.lines.iter_mut().find(|held| held.session == session)
    }

    /// What publishing these lines sends: what is not acknowledged of them and of what they stand on, ancestors first.
    pub(super) fn batch(&mut self, lines: &[Session], ahead: bool, fork_leaves_posts: bool) -> Batch {
        let mut batch = Batch { life: self.life, parts: Vec::new(), taken: Vec::new(), ahead };
        for session in lines {
            self.collect(*session, u64::MAX, &mut batch, true, fork_leaves_posts);
        }
        batch
    }

    fn collect(&mut self, session: Session, last: u64, batch: &mut Batch, own: bool, fork_leaves_posts: bool) {
        let Some(at) = self.lines.iter().position(|held| held.session == session) else { return };
        if let Some((from, seq)) = self.lines[at].origin {
            self.collect(from, seq, batch, false, fork_leaves_posts);
        }
        let (life, held) = (self.life, &mut self.lines[at]);
        // What it stands on is never left out: the store does not ask for it.
        let from = if batch.ahead && own { held.sent } else { 0 };
        let entries: Vec<Entry> =
            held.tail.iter().filter(|entry| (from..=last).contains(&entry.seq)).copied().collect();
        let Some(end) = entries.last().map(|last| last.seq + 1) else { return };
        held.sent = held.sent.max(end);
        if own || !fork_leaves_posts {
            let said = held.taken.iter().filter(|(seq, _)| *seq < end).map(|(_, post)| *post);
            let new: Vec<Post> = said.filter(|post| !batch.taken.contains(post)).collect();
            batch.taken.extend(new);
        }
        let part = Part { session, fence: held.fence, life, hold: !held.left, entries: entries.into() };
        match batch.parts.iter_mut().find(|part| part.session == session) {
            // One part a line, the longest.
            Some(have) if have.entries.len() < part.entries.len() => *have = part,
            Some(_) => {}
            None => batch.parts.push(part),
        }
    }

    /// A batch was acknowledged. Returns the lines that were dropped while they were on the way: they are given back.
    pub(super) fn settle(&mut self, batch: &Batch) -> Vec<(Session, Fence)> {
        let mut dropped = Vec::new();
        for part in &batch.parts {
            let Some(end) = part.entries.last().map(|last| last.seq + 1) else { continue };
            if let Some(held) = self.held(part.session)
                && held.fence == part.fence
            {
                held.settle(end, &batch.taken);
                if held.left {
                    dropped.push((held.session, held.fence));
                }
            }
        }
        dropped
    }

    /// A commit came too early, or may have: everything is sent again.
    pub(super) fn start_over(&mut self) {
        for held in &mut self.lines {
            held.sent = held.acknowledged();
        }
    }

    /// Drops a line, and what stands on records of it that will never be stored.
    pub(super) fn drop_line(&mut self, session: Session) {
        let Some(at) = self.lines.iter().position(|held| held.session == session) else { return };
        let acknowledged = self.lines.remove(at).acknowledged();
        let hangs = |held: &Held| held.origin.is_some_and(|(from, seq)| from == session && seq >= acknowledged);
        let hanging: Vec<Session> = self.lines.iter().filter(|held| hangs(held)).map(|held| held.session).collect();
        hanging.into_iter().for_each(|fork| self.drop_line(fork));
    }
}
