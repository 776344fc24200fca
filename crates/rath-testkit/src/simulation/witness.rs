//! What must hold, whatever happens. It sees what was promised and compares it with what is stored.

use std::fmt;

use rath_core::RecordId;
use rath_core::protocol::Standing;

use super::disk::{Disk, Life};
use super::entry::{Effect, Entry, Post, Session, What};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub(super) String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) type Checked = Result<(), Violation>;

pub(super) fn must(holds: bool, broken: impl FnOnce() -> String) -> Checked {
    match holds {
        true => Ok(()),
        false => Err(Violation(broken())),
    }
}

/// What was promised to whom.
pub(super) struct Witness {
    /// The ids of the acknowledged records of each session.
    acknowledged: Vec<Vec<RecordId>>,
    /// The session of each post.
    pub(super) addressed: Vec<Session>,
    /// Posts whose sender was told that they are kept.
    accepted: Vec<bool>,
    /// Records whose eraser was told that they are gone.
    erased: Vec<(Session, usize)>,
    /// Who was given each session last and has not given it back.
    owners: Vec<Option<Life>>,
    done: Vec<Effect>,
}

impl Witness {
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

    /// The store says that these records are durable, and so is all that they stand on.
    pub(super) fn acknowledge(&mut self, entries: &[Entry], disk: &Disk) -> Checked {
        let Some(last) = entries.last() else { return Ok(()) };
        self.vouch(last.session, last.seq, disk);
        for entry in entries {
            let Entry { session, seq, .. } = *entry;
            must(self.acknowledged[session].get(seq as usize) == Some(&entry.id), || {
                format!("record {seq} of session {session} was acknowledged, and another one is stored")
            })?;
        }
        Ok(())
    }

    /// Somebody was told of these records, or has read them: they are to stay.
    pub(super) fn vouch(&mut self, session: Session, seq: u64, disk: &Disk) {
        let Some(stored) = disk.stored(session) else { return };
        let known = &mut self.acknowledged[session];
        let before = known.len();
        let end = stored.entries.len().min(seq as usize + 1);
        known.extend(stored.entries.get(before..end).unwrap_or_default().iter().map(|entry| entry.id));
        if before == 0
            && let Some(What::Forked { from, seq }) = stored.entries.first().and_then(|first| first.what)
        {
            self.vouch(from, seq, disk);
        }
    }

    pub(super) fn accept(&mut self, post: Post) {
        self.accepted[post] = true;
    }

    pub(super) fn erase(&mut self, session: Session, seq: usize) {
        self.erased.push((session, seq));
    }

    /// A session is given to a process.
    pub(super) fn grant(&mut self, session: Session, to: Life, lives: impl Fn(Life) -> bool) -> Checked {
        let owner = self.owners[session].filter(|owner| *owner != to && lives(*owner));
        must(owner.is_none(), || {
            format!("session {session} is given to process {to} while another one lives that has it")
        })?;
        self.owners[session] = Some(to);
        Ok(())
    }

    /// A session was made by a process.
    pub(super) fn begin(&mut self, session: Session, by: Life) {
        self.owners[session] = Some(by);
    }

    /// A process gives a session back.
    pub(super) fn leave(&mut self, session: Session, by: Life) {
        if self.owners[session] == Some(by) {
            self.owners[session] = None;
        }
    }

    /// An effect begins now.
    pub(super) fn act(&mut self, effect: Effect, at: u64, disk: &Disk, lost: bool) -> Checked {
        let Effect { session, nth } = effect;
        must(!self.done.contains(&effect), || format!("effect {nth} of session {session} is done twice"))?;
        must(!lost, || {
            format!("effect {nth} of session {session} is done by a process that was told it lost the session")
        })?;
        let known = self.acknowledged[session].get(at as usize);
        let stored = disk.stored(session).and_then(|line| line.entries.get(at as usize));
        let intended = stored.is_some_and(|entry| {
            known == Some(&entry.id) && entry.what.is_none_or(|what| what == What::Intent(effect))
        });
        must(intended, || format!("effect {nth} of session {session} is done before its intent is acknowledged"))?;
        self.done.push(effect);
        Ok(())
    }

    /// Looks at what is stored of a session.
    pub(super) fn check(&self, session: Session, disk: &Disk) -> Checked {
        let entries = disk.stored(session).map(|line| line.entries.as_slice()).unwrap_or_default();
        let known = &self.acknowledged[session];
        must(entries.len() >= known.len(), || {
            format!("record {} of session {session} was acknowledged and is lost", entries.len())
        })?;
        let mut before: Option<&Entry> = None;
        for (at, entry) in entries.iter().enumerate() {
            must(entry.is_sound() && entry.session == session, || {
                format!("record {at} of session {session} was altered")
            })?;
            must(entry.seq == at as u64, || format!("session {session} has record {} in place {at}", entry.seq))?;
            must(known.get(at).is_none_or(|id| *id == entry.id), || {
                format!("record {at} of session {session} is not the one that was acknowledged")
            })?;
            let behind = match before {
                Some(before) => entry.parent == Some(before.id),
                None => self.begins_well(entry, disk),
            };
            must(behind, || format!("record {at} of session {session} does not stand on the one before it"))?;
            must(before.is_none_or(|before| before.fence <= entry.fence), || {
                format!("record {at} of session {session} was taken from one who had been replaced")
            })?;
            before = Some(entry);
        }
        self.check_inbox(session, entries, disk)
    }

    /// The first record stands on nothing, or on the record that it was forked off.
    fn begins_well(&self, first: &Entry, disk: &Disk) -> bool {
        match first.what {
            Some(What::Forked { from, seq }) => {
                let origin = disk.stored(from).and_then(|line| line.entries.get(seq as usize));
                origin.is_some_and(|origin| first.parent == Some(origin.id))
            }
            Some(What::Created) => first.parent.is_none(),
            Some(_) => false,
            None => true,
        }
    }

    /// A post is one record, or waits.
    fn check_inbox(&self, session: Session, entries: &[Entry], disk: &Disk) -> Checked {
        // A body that was erased does not tell whether it said a post.
        let readable = entries.iter().all(|entry| entry.what.is_some());
        for (post, _) in self.addressed.iter().enumerate().filter(|(_, to)| **to == session) {
            let said = entries.iter().filter(|entry| entry.what == Some(What::Said(post))).count();
            let standing = disk.posts[post];
            let waits = usize::from(standing == Standing::Waiting);
            must(said + waits <= 1, || match waits {
                0 => format!("post {post} is {said} records"),
                _ => format!("post {post} is a record and still waits"),
            })?;
            let lost = said + waits == 0 && (self.accepted[post] || standing != Standing::Unknown);
            must(!lost || !readable, || format!("post {post} is lost"))?;
        }
        Ok(())
    }

    /// Looks at everything.
    pub(super) fn check_all(&self, disk: &Disk) -> Checked {
        for session in 0..self.acknowledged.len() {
            self.check(session, disk)?;
        }
        Ok(())
    }

    /// Erased bodies are gone for good.
    pub(super) fn check_erased(&self, disk: &Disk) -> Checked {
        for (session, seq) in &self.erased {
            let entry = disk.stored(*session).and_then(|line| line.entries.get(*seq));
            must(entry.is_some_and(|entry| entry.what.is_none()), || {
                format!("record {seq} of session {session} was erased and is back")
            })?;
        }
        Ok(())
    }
}
