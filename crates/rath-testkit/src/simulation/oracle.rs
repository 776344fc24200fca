//! The oracle: knows what the store acknowledged and checks that the stored content agrees with it.

use std::fmt;

use rath_core::RecordId;
use rath_core::protocol::PostStatus;

use super::disk::{Disk, ProcessId};
use super::entry::{Content, Effect, Entry, Post, Session};

/// A violated guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub(super) String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) type Checked = Result<(), Violation>;

pub(super) fn ensure(holds: bool, broken: impl FnOnce() -> String) -> Checked {
    match holds {
        true => Ok(()),
        false => Err(Violation(broken())),
    }
}

/// What the store acknowledged, and to which process.
pub(super) struct Oracle {
    /// The ids of the acknowledged records of each session.
    acknowledged: Vec<Vec<RecordId>>,
    /// The session of each post.
    pub(super) addressed: Vec<Session>,
    /// For each post, whether the store acknowledged it.
    accepted: Vec<bool>,
    /// The records whose erasure the store acknowledged.
    erased: Vec<(Session, usize)>,
    /// For each session, the process that got the lease last and has not released it.
    owners: Vec<Option<ProcessId>>,
    done: Vec<Effect>,
}

impl Oracle {
    pub(super) fn new(sessions: usize, addressed: Vec<Session>) -> Self {
        Self {
            acknowledged: vec![Vec::new(); sessions],
            accepted: vec![false; addressed.len()],
            addressed,
            erased: Vec::new(),
            owners: vec![None; sessions],
            done: Vec::new(),
        }
    }

    /// The store acknowledges these records, and with them all records that they are based on.
    pub(super) fn acknowledge(&mut self, entries: &[Entry], disk: &Disk) -> Checked {
        let Some(last) = entries.last() else { return Ok(()) };
        self.mark_acknowledged(last.session, last.seq, disk);
        for entry in entries {
            let Entry { session, seq, .. } = *entry;
            ensure(self.acknowledged[session].get(seq as usize) == Some(&entry.id), || {
                format!("record {seq} of session {session} was acknowledged, but another one is stored")
            })?;
        }
        Ok(())
    }

    /// Marks the records up to `seq` as acknowledged: a process got an acknowledgement for them, or has read them.
    pub(super) fn mark_acknowledged(&mut self, session: Session, seq: u64, disk: &Disk) {
        let Some(stored) = disk.stored(session) else { return };
        let known = &mut self.acknowledged[session];
        let before = known.len();
        let end = stored.entries.len().min(seq as usize + 1);
        known.extend(stored.entries.get(before..end).unwrap_or_default().iter().map(|entry| entry.id));
        if before == 0
            && let Some(Content::Forked { from, seq }) = stored.entries.first().and_then(|first| first.what)
        {
            self.mark_acknowledged(from, seq, disk);
        }
    }

    pub(super) fn accept(&mut self, post: Post) {
        self.accepted[post] = true;
    }

    pub(super) fn erase(&mut self, session: Session, seq: usize) {
        self.erased.push((session, seq));
    }

    /// A process gets the lease of a session.
    pub(super) fn grant(&mut self, session: Session, to: ProcessId, alive: impl Fn(ProcessId) -> bool) -> Checked {
        let owner = self.owners[session].filter(|owner| *owner != to && alive(*owner));
        ensure(owner.is_none(), || {
            format!("process {to} gets the lease of session {session} while its holder is alive")
        })?;
        self.owners[session] = Some(to);
        Ok(())
    }

    /// A process creates a session.
    pub(super) fn begin(&mut self, session: Session, by: ProcessId) {
        self.owners[session] = Some(by);
    }

    /// A process releases the lease of a session.
    pub(super) fn leave(&mut self, session: Session, by: ProcessId) {
        if self.owners[session] == Some(by) {
            self.owners[session] = None;
        }
    }

    /// A side effect happens now.
    pub(super) fn act(&mut self, effect: Effect, at: u64, disk: &Disk, lost: bool) -> Checked {
        let Effect { session, nth } = effect;
        ensure(!self.done.contains(&effect), || format!("effect {nth} of session {session} happens twice"))?;
        ensure(!lost, || {
            format!("effect {nth} of session {session} happens in a process that knows that it lost the lease")
        })?;
        let known = self.acknowledged[session].get(at as usize);
        let stored = disk.stored(session).and_then(|stored| stored.entries.get(at as usize));
        let intended = stored.is_some_and(|entry| {
            known == Some(&entry.id) && entry.what.is_none_or(|what| what == Content::Intent(effect))
        });
        ensure(intended, || format!("effect {nth} of session {session} happens before its intent is acknowledged"))?;
        self.done.push(effect);
        Ok(())
    }

    /// Checks the stored content of a session.
    pub(super) fn check(&self, session: Session, disk: &Disk) -> Checked {
        let entries = disk.stored(session).map(|stored| stored.entries.as_slice()).unwrap_or_default();
        let known = &self.acknowledged[session];
        ensure(entries.len() >= known.len(), || {
            format!("record {} of session {session} was acknowledged, but is lost", entries.len())
        })?;
        let mut before: Option<&Entry> = None;
        for (at, entry) in entries.iter().enumerate() {
            ensure(entry.is_valid() && entry.session == session, || {
                format!("record {at} of session {session} was altered")
            })?;
            ensure(entry.seq == at as u64, || format!("session {session} has record {} at position {at}", entry.seq))?;
            ensure(known.get(at).is_none_or(|id| *id == entry.id), || {
                format!("record {at} of session {session} is not the one that was acknowledged")
            })?;
            let behind = match before {
                Some(before) => entry.parent == Some(before.id),
                None => self.begins_well(entry, disk),
            };
            ensure(behind, || format!("record {at} of session {session} does not follow the one before it"))?;
            ensure(before.is_none_or(|before| before.fence <= entry.fence), || {
                format!("record {at} of session {session} was accepted with a stale fencing token")
            })?;
            before = Some(entry);
        }
        self.check_inbox(session, entries, disk)
    }

    /// Whether the first record has no parent, or the fork point as its parent.
    fn begins_well(&self, first: &Entry, disk: &Disk) -> bool {
        match first.what {
            Some(Content::Forked { from, seq }) => {
                let origin = disk.stored(from).and_then(|stored| stored.entries.get(seq as usize));
                origin.is_some_and(|origin| first.parent == Some(origin.id))
            }
            Some(Content::Created) => first.parent.is_none(),
            Some(_) => false,
            None => true,
        }
    }

    /// Checks that each post is either in one record or in the inbox.
    fn check_inbox(&self, session: Session, entries: &[Entry], disk: &Disk) -> Checked {
        // An erased record may have contained a post.
        let readable = entries.iter().all(|entry| entry.what.is_some());
        for (post, _) in self.addressed.iter().enumerate().filter(|(_, to)| **to == session) {
            let said = entries.iter().filter(|entry| entry.what == Some(Content::Post(post))).count();
            let status = disk.posts[post];
            let waits = usize::from(status == PostStatus::Waiting);
            ensure(said + waits <= 1, || match waits {
                0 => format!("post {post} is in {said} records"),
                _ => format!("post {post} is in a record and in the inbox"),
            })?;
            let lost = said + waits == 0 && (self.accepted[post] || status != PostStatus::Unknown);
            ensure(!lost || !readable, || format!("post {post} is lost"))?;
        }
        Ok(())
    }

    /// Checks all sessions.
    pub(super) fn check_all(&self, disk: &Disk) -> Checked {
        for session in 0..self.acknowledged.len() {
            self.check(session, disk)?;
        }
        Ok(())
    }

    /// Checks that erased bodies do not come back.
    pub(super) fn check_erased(&self, disk: &Disk) -> Checked {
        for (session, seq) in &self.erased {
            let entry = disk.stored(*session).and_then(|stored| stored.entries.get(*seq));
            ensure(entry.is_some_and(|entry| entry.what.is_none()), || {
                format!("record {seq} of session {session} was erased, but has a body")
            })?;
        }
        Ok(())
    }
}
