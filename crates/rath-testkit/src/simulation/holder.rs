//! A process with leases on sessions. It behaves like `rath_core::Session`: it creates records in memory, sends all
//! unacknowledged ones until they are acknowledged, and publishes a fork together with the records that it is based on.

use std::collections::BTreeSet;

use rath_core::RecordId;
use rath_core::store::{FIRST_FENCING_TOKEN, FencingToken};

use super::disk::{Part, ProcessId, Stored};
use super::entry::{Content, Effect, Entry, Post, Session};

/// The maximum number of records per session.
const LONG: u64 = 20;

/// The progress of a side effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// This process recorded the intent as record `at`.
    Intended { at: u64 },
    /// Another process recorded the intent. Whether the effect happened is unknown.
    Inherited { at: u64 },
}

/// A session leased by a process.
#[derive(Debug)]
pub(super) struct LeasedSession {
    pub(super) session: Session,
    pub(super) fence: FencingToken,
    head: Option<RecordId>,
    next: u64,
    /// The unacknowledged records, oldest first.
    tail: Vec<Entry>,
    /// The number of records that were sent.
    sent: u64,
    /// The posts in the unacknowledged records, with the sequence number of each record.
    consumed: Vec<(u64, Post)>,
    /// The fork point.
    origin: Option<(Session, u64)>,
    pub(super) effect: Option<(Effect, Progress)>,
    intents: usize,
    closed: bool,
    /// Whether the program has dropped the session. Forks may still be based on its unacknowledged records.
    pub(super) released: bool,
}

impl LeasedSession {
    pub(super) fn created(session: Session, origin: Option<(Session, u64, RecordId)>, salt: u64) -> Self {
        let mut held = Self {
            session,
            fence: FIRST_FENCING_TOKEN,
            head: origin.map(|(_, _, id)| id),
            next: 0,
            tail: Vec::new(),
            sent: 0,
            consumed: Vec::new(),
            origin: origin.map(|(from, seq, _)| (from, seq)),
            effect: None,
            intents: 0,
            closed: false,
            released: false,
        };
        held.append(salt, origin.map_or(Content::Created, |(from, seq, _)| Content::Forked { from, seq }));
        held
    }

    /// Opens a stored session.
    pub(super) fn opened(session: Session, fence: FencingToken, stored: &Stored) -> Self {
        let length = stored.entries.len() as u64;
        let mut held = Self {
            session,
            fence,
            head: stored.entries.last().map(|last| last.id),
            next: length,
            tail: Vec::new(),
            sent: length,
            consumed: Vec::new(),
            origin: None,
            effect: None,
            intents: 0,
            closed: false,
            released: false,
        };
        for entry in &stored.entries {
            match entry.what {
                Some(Content::Intent(effect)) => {
                    held.intents += 1;
                    held.effect = Some((effect, Progress::Inherited { at: entry.seq }));
                }
                Some(Content::Done(_) | Content::Unknown(_)) => held.effect = None,
                Some(Content::Closed) => held.closed = true,
                _ => {}
            }
        }
        held
    }

    pub(super) fn is_full(&self) -> bool {
        self.closed || self.next >= LONG
    }

    pub(super) fn append(&mut self, salt: u64, what: Content) {
        let entry = Entry::new(self.session, self.next, self.head, self.fence, salt, what);
        self.closed |= what == Content::Closed;
        self.head = Some(entry.id);
        self.next += 1;
        self.tail.push(entry);
    }

    pub(super) fn plan(&mut self, salt: u64) {
        let effect = Effect { session: self.session, nth: self.intents };
        self.effect = Some((effect, Progress::Intended { at: self.next }));
        self.intents += 1;
        self.append(salt, Content::Intent(effect));
    }

    pub(super) fn record_post(&mut self, salt: u64, post: Post) {
        self.consumed.push((self.next, post));
        self.append(salt, Content::Post(post));
    }

    pub(super) fn has_recorded(&self, post: Post) -> bool {
        self.consumed.iter().any(|(_, said)| *said == post)
    }

    /// The point to fork from.
    pub(super) fn head(&self) -> Option<(Session, u64, RecordId)> {
        Some((self.session, self.next.checked_sub(1)?, self.head?))
    }

    /// The number of acknowledged records.
    pub(super) fn acknowledged(&self) -> u64 {
        self.next - self.tail.len() as u64
    }

    pub(super) fn was_sent(&self, seq: u64) -> bool {
        self.sent > seq
    }

    /// Removes the acknowledged records before `end` and the consumed posts.
    fn acknowledge(&mut self, end: u64, consumed: &[Post]) {
        self.tail.retain(|entry| entry.seq >= end);
        self.consumed.retain(|(_, post)| !consumed.contains(post));
    }
}

/// A batch that was sent to the store.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) process: ProcessId,
    pub(super) parts: Vec<Part>,
    pub(super) consumed: Vec<Post>,
    /// Whether the batch omits records that were sent before. Such a batch may arrive before them.
    pub(super) ahead: bool,
}

/// A process.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) process: ProcessId,
    pub(super) stalled: bool,
    pub(super) sessions: Vec<LeasedSession>,
    /// The sessions for which the process received `LeaseLost`.
    pub(super) lost: BTreeSet<Session>,
}

impl Holder {
    pub(super) fn new(process: ProcessId) -> Self {
        Self { process, stalled: false, sessions: Vec::new(), lost: BTreeSet::new() }
    }

    pub(super) fn held(&mut self, session: Session) -> Option<&mut LeasedSession> {
        self.sessions.iter_mut().find(|held| held.session == session)
    }

    /// The batch that publishes these sessions: the unacknowledged records of each and of the sessions that it is based
    /// on, ancestors first.
    pub(super) fn batch(&mut self, sessions: &[Session], ahead: bool, fork_omits_posts: bool) -> Batch {
        let mut batch = Batch { process: self.process, parts: Vec::new(), consumed: Vec::new(), ahead };
        for session in sessions {
            self.collect(*session, u64::MAX, &mut batch, true, fork_omits_posts);
        }
        batch
    }

    fn collect(&mut self, session: Session, last: u64, batch: &mut Batch, own: bool, fork_omits_posts: bool) {
        let Some(at) = self.sessions.iter().position(|held| held.session == session) else { return };
        if let Some((from, seq)) = self.sessions[at].origin {
            self.collect(from, seq, batch, false, fork_omits_posts);
        }
        let (process, held) = (self.process, &mut self.sessions[at]);
        // Records of ancestors are always sent, because the store does not request missing ones.
        let from = if batch.ahead && own { held.sent } else { 0 };
        let entries: Vec<Entry> =
            held.tail.iter().filter(|entry| (from..=last).contains(&entry.seq)).copied().collect();
        let Some(end) = entries.last().map(|last| last.seq + 1) else { return };
        held.sent = held.sent.max(end);
        if own || !fork_omits_posts {
            let said = held.consumed.iter().filter(|(seq, _)| *seq < end).map(|(_, post)| *post);
            let new: Vec<Post> = said.filter(|post| !batch.consumed.contains(post)).collect();
            batch.consumed.extend(new);
        }
        let part = Part { session, fence: held.fence, process, keep_lease: !held.released, entries: entries.into() };
        match batch.parts.iter_mut().find(|part| part.session == session) {
            // One part per session: the longest one.
            Some(have) if have.entries.len() < part.entries.len() => *have = part,
            Some(_) => {}
            None => batch.parts.push(part),
        }
    }

    /// Handles an acknowledgement. Returns the sessions that were dropped since the batch was sent; their leases must
    /// be released.
    pub(super) fn settle(&mut self, batch: &Batch) -> Vec<(Session, FencingToken)> {
        let mut dropped = Vec::new();
        for part in &batch.parts {
            let Some(end) = part.entries.last().map(|last| last.seq + 1) else { continue };
            if let Some(held) = self.held(part.session)
                && held.fence == part.fence
            {
                held.acknowledge(end, &batch.consumed);
                if held.released {
                    dropped.push((held.session, held.fence));
                }
            }
        }
        dropped
    }

    /// Sends all unacknowledged records again, because a commit was refused.
    pub(super) fn resend_all(&mut self) {
        for held in &mut self.sessions {
            held.sent = held.acknowledged();
        }
    }

    /// Drops a session, and all forks that are based on its unacknowledged records.
    pub(super) fn drop_session(&mut self, session: Session) {
        let Some(at) = self.sessions.iter().position(|held| held.session == session) else { return };
        let acknowledged = self.sessions.remove(at).acknowledged();
        let hangs =
            |held: &LeasedSession| held.origin.is_some_and(|(from, seq)| from == session && seq >= acknowledged);
        let hanging: Vec<Session> = self.sessions.iter().filter(|held| hangs(held)).map(|held| held.session).collect();
        hanging.into_iter().for_each(|fork| self.drop_session(fork));
    }
}
