//! A simulated store on a disk that can lose power: unsynced writes can be undone.

use std::rc::Rc;

use rath_core::protocol::{self, CommitBackend, PostStatus, Proposal, Propose, Rules as _, StoredHead};
use rath_core::store::{Error, FIRST_FENCING_TOKEN, FencingToken, Result};
use rath_core::{Point, RecordId, SessionId};

use super::entry::{Content, Entry, Post, Session, name, number};
use super::injected_bug::{BuggyRules, InjectedBug};

/// The number of a process. A restarted process gets a new number.
pub(super) type ProcessId = usize;

/// The records of one session in a batch.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) session: Session,
    pub(super) fence: FencingToken,
    pub(super) process: ProcessId,
    /// Whether the sender keeps the lease if this part creates the session.
    pub(super) keep_lease: bool,
    pub(super) entries: Rc<[Entry]>,
}

impl Propose for Part {
    type Entry = Entry;

    fn proposal(&self) -> Proposal<'_, Entry> {
        Proposal { session: name(self.session), fence: self.fence, entries: &self.entries }
    }
}

/// A stored session.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) entries: Vec<Entry>,
    pub(super) fence: FencingToken,
    pub(super) holder: Option<ProcessId>,
    closed: bool,
}

/// How to undo a write.
#[derive(Debug)]
enum Undo {
    Created(Session),
    Appended { session: Session, entries: usize, closed: bool },
    Lease { session: Session, fence: FencingToken, holder: Option<ProcessId> },
    PostStatus { post: Post, status: PostStatus },
    Body { session: Session, seq: usize, what: Option<Content> },
}

/// The store.
pub(super) struct Disk {
    rules: BuggyRules,
    pub(super) sessions: Vec<Option<Stored>>,
    pub(super) posts: Vec<PostStatus>,
    /// The undo entries of all writes since the last sync.
    journal: Vec<Undo>,
    /// The ends of the transactions in the journal.
    ends: Vec<usize>,
}

impl Disk {
    pub(super) fn new(rules: BuggyRules, sessions: usize, posts: usize) -> Self {
        let sessions = std::iter::repeat_with(|| None).take(sessions).collect();
        Self { rules, sessions, posts: vec![PostStatus::Unknown; posts], journal: Vec::new(), ends: Vec::new() }
    }

    pub(super) fn stored(&self, session: Session) -> Option<&Stored> {
        self.sessions[session].as_ref()
    }

    /// Runs `write` as a transaction: on failure, undoes its writes.
    fn transaction<T>(&mut self, write: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let start = self.journal.len();
        let done = write(self);
        match done {
            Ok(_) => self.ends.push(self.journal.len()),
            Err(_) => self.undo_to(start),
        }
        done
    }

    fn undo_to(&mut self, mark: usize) {
        while self.journal.len() > mark
            && let Some(undo) = self.journal.pop()
        {
            match undo {
                Undo::Created(session) => self.sessions[session] = None,
                Undo::Appended { session, entries, closed } => {
                    if let Some(stored) = &mut self.sessions[session] {
                        stored.entries.truncate(entries);
                        stored.closed = closed;
                    }
                }
                Undo::Lease { session, fence, holder } => {
                    if let Some(stored) = &mut self.sessions[session] {
                        (stored.fence, stored.holder) = (fence, holder);
                    }
                }
                Undo::PostStatus { post, status } => self.posts[post] = status,
                Undo::Body { session, seq, what } => {
                    if let Some(stored) = &mut self.sessions[session] {
                        stored.entries[seq].what = what;
                    }
                }
            }
        }
    }

    /// Makes all writes durable.
    pub(super) fn sync(&mut self) {
        self.journal.clear();
        self.ends.clear();
    }

    /// Simulates a power cut: of the transactions since the last sync, only the first ones remain.
    pub(super) fn lose_power(&mut self, kept: usize) {
        let kept = kept % (self.ends.len() + 1);
        self.undo_to(kept.checked_sub(1).map_or(0, |last| self.ends[last]));
        self.sync();
    }

    pub(super) fn commit(&mut self, parts: &[Part], consumed: &[Post]) -> Result<()> {
        let rules = self.rules;
        if rules.has(InjectedBug::PartByPart) {
            let each = parts
                .iter()
                .try_for_each(|part| self.transaction(|disk| protocol::commit(&rules, disk, vec![part.clone()], &[])));
            return each.and_then(|()| self.transaction(|disk| protocol::commit(&rules, disk, Vec::new(), consumed)));
        }
        if rules.has(InjectedBug::ErasedBodyReturns) {
            self.restore_bodies(parts);
        }
        self.transaction(|disk| protocol::commit(&rules, disk, parts.to_vec(), consumed))
    }

    fn restore_bodies(&mut self, parts: &[Part]) {
        for part in parts {
            let Some(stored) = &mut self.sessions[part.session] else { continue };
            for entry in part.entries.iter() {
                if let Some(have) = stored.entries.get_mut(entry.seq as usize)
                    && have.id == entry.id
                {
                    have.what = entry.what;
                }
            }
        }
    }

    /// `alive` returns whether a process counts as alive.
    pub(super) fn lease(
        &mut self,
        session: Session,
        asker: ProcessId,
        alive: impl Fn(ProcessId) -> bool,
    ) -> Result<Option<FencingToken>> {
        let rules = self.rules;
        self.transaction(|disk| {
            let unknown = || Error::NotFound(format!("session {session}"));
            let stored = disk.sessions[session].as_mut().ok_or_else(unknown)?;
            let (before, holder) = (stored.fence, stored.holder);
            let Ok(fence) = rules.grant(before, holder.filter(|holder| alive(*holder))) else { return Ok(None) };
            (stored.fence, stored.holder) = (fence, Some(asker));
            disk.journal.push(Undo::Lease { session, fence: before, holder });
            Ok(Some(fence))
        })
    }

    pub(super) fn release(&mut self, session: Session, by: ProcessId, given: FencingToken) {
        let Some(stored) = self.sessions[session].as_mut() else { return };
        let (fence, holder) = (stored.fence, stored.holder);
        if self.rules.may_release(fence, given, holder == Some(by)) {
            stored.holder = None;
            self.journal.push(Undo::Lease { session, fence, holder });
            self.ends.push(self.journal.len());
        }
    }

    pub(super) fn post(&mut self, post: Post, session: Session) -> Result<()> {
        let rules = self.rules;
        self.transaction(|disk| {
            if disk.sessions[session].is_none() {
                return Err(Error::NotFound(format!("session {session}")));
            }
            let before = disk.post_status(&post)?;
            let after = rules.posted(before);
            if after != before {
                disk.set_post_status(&post, after)?;
            }
            Ok(())
        })
    }

    /// Erases a body. Returns whether there was one.
    pub(super) fn erase(&mut self, session: Session, seq: usize) -> bool {
        let entry = self.sessions[session].as_mut().and_then(|stored| stored.entries.get_mut(seq));
        let words = |entry: &&mut Entry| matches!(entry.what, Some(Content::Note | Content::Post(_)));
        let Some(entry) = entry.filter(words) else { return false };
        let what = entry.what.take();
        self.journal.push(Undo::Body { session, seq, what });
        self.ends.push(self.journal.len());
        true
    }
}

impl CommitBackend for Disk {
    type Part = Part;
    type Location = ();
    type Post = Post;

    fn session_head(&self, session: SessionId) -> Result<Option<(StoredHead, ())>> {
        let seen = self.stored(number(session)).and_then(|stored| {
            let last = stored.entries.last()?;
            Some(StoredHead { id: last.id, seq: last.seq, closed: stored.closed, fence: stored.fence })
        });
        Ok(seen.map(|stored| (stored, ())))
    }

    fn id_at(&self, point: Point) -> Result<Option<RecordId>> {
        let stored = self.stored(number(point.session));
        Ok(stored.and_then(|stored| stored.entries.get(point.seq as usize)).map(|entry| entry.id))
    }

    fn check_start(&self, _part: &Part) -> Result<()> {
        Ok(())
    }

    fn append(&mut self, part: Part, _place: Option<()>, known: usize) -> Result<()> {
        let session = part.session;
        if self.sessions[session].is_none() {
            self.journal.push(Undo::Created(session));
        }
        let stored = self.sessions[session].get_or_insert_with(|| Stored {
            entries: Vec::new(),
            fence: FIRST_FENCING_TOKEN,
            holder: part.keep_lease.then_some(part.process),
            closed: false,
        });
        self.journal.push(Undo::Appended { session, entries: stored.entries.len(), closed: stored.closed });
        stored.entries.extend_from_slice(&part.entries[known..]);
        stored.closed |= part.entries.last().is_some_and(|last| last.what == Some(Content::Closed));
        Ok(())
    }

    fn post_status(&self, post: &Post) -> Result<PostStatus> {
        Ok(self.posts[*post])
    }

    fn set_post_status(&mut self, post: &Post, status: PostStatus) -> Result<()> {
        let before = std::mem::replace(&mut self.posts[*post], status);
        self.journal.push(Undo::PostStatus { post: *post, status: before });
        Ok(())
    }
}
