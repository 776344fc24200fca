//! A store on a disk that can lose power: what was not synced can be undone.

use std::rc::Rc;

use rath_core::protocol::{self, Line, Offer, Offered, Rules as _, Shelf, Standing};
use rath_core::store::{Error, FIRST_FENCE, Fence, Result};
use rath_core::{Point, RecordId, SessionId};

use super::entry::{Entry, Post, Session, What, name, number};
use super::planted::{Planted, Play};

/// A process that lives once, by its number.
pub(super) type Life = usize;

/// The records of one session in a batch.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) session: Session,
    pub(super) fence: Fence,
    pub(super) life: Life,
    /// Whether the sender has the session if this makes it.
    pub(super) hold: bool,
    pub(super) entries: Rc<[Entry]>,
}

impl Offered for Part {
    type Entry = Entry;

    fn offer(&self) -> Offer<'_, Entry> {
        Offer { session: name(self.session), fence: self.fence, entries: &self.entries }
    }
}

/// A session as it is stored.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) entries: Vec<Entry>,
    pub(super) fence: Fence,
    pub(super) holder: Option<Life>,
    closed: bool,
}

/// How to take back what was written.
#[derive(Debug)]
enum Undo {
    Begun(Session),
    Appended { session: Session, entries: usize, closed: bool },
    Held { session: Session, fence: Fence, holder: Option<Life> },
    Stood { post: Post, standing: Standing },
    Body { session: Session, seq: usize, what: Option<What> },
}

/// The store.
pub(super) struct Disk {
    rules: Play,
    pub(super) lines: Vec<Option<Stored>>,
    pub(super) posts: Vec<Standing>,
    /// What was written since the last sync.
    journal: Vec<Undo>,
    /// Where its transactions end.
    ends: Vec<usize>,
}

impl Disk {
    pub(super) fn new(rules: Play, sessions: usize, posts: usize) -> Self {
        let lines = std::iter::repeat_with(|| None).take(sessions).collect();
        Self { rules, lines, posts: vec![Standing::Unknown; posts], journal: Vec::new(), ends: Vec::new() }
    }

    pub(super) fn stored(&self, session: Session) -> Option<&Stored> {
        self.lines[session].as_ref()
    }

    /// Writes something whole, or not at all.
    fn transaction<T>(&mut self, write: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let begun = self.journal.len();
        let done = write(self);
        match done {
            Ok(_) => self.ends.push(self.journal.len()),
            Err(_) => self.undo_to(begun),
        }
        done
    }

    fn undo_to(&mut self, mark: usize) {
        while self.journal.len() > mark
            && let Some(undo) = self.journal.pop()
        {
            match undo {
                Undo::Begun(session) => self.lines[session] = None,
                Undo::Appended { session, entries, closed } => {
                    if let Some(line) = &mut self.lines[session] {
                        line.entries.truncate(entries);
                        line.closed = closed;
                    }
                }
                Undo::Held { session, fence, holder } => {
                    if let Some(line) = &mut self.lines[session] {
                        (line.fence, line.holder) = (fence, holder);
                    }
                }
                Undo::Stood { post, standing } => self.posts[post] = standing,
                Undo::Body { session, seq, what } => {
                    if let Some(line) = &mut self.lines[session] {
                        line.entries[seq].what = what;
                    }
                }
            }
        }
    }

    /// From here on a power cut takes nothing of it.
    pub(super) fn sync(&mut self) {
        self.journal.clear();
        self.ends.clear();
    }

    /// The power fails: of the transactions since the last sync the first few are there.
    pub(super) fn lose_power(&mut self, kept: usize) {
        let kept = kept % (self.ends.len() + 1);
        self.undo_to(kept.checked_sub(1).map_or(0, |last| self.ends[last]));
        self.sync();
    }

    pub(super) fn commit(&mut self, parts: &[Part], taken: &[Post]) -> Result<()> {
        let rules = self.rules;
        if rules.has(Planted::PartByPart) {
            let each = parts
                .iter()
                .try_for_each(|part| self.transaction(|disk| protocol::commit(&rules, disk, vec![part.clone()], &[])));
            return each.and_then(|()| self.transaction(|disk| protocol::commit(&rules, disk, Vec::new(), taken)));
        }
        if rules.has(Planted::ErasedComesBack) {
            self.restore_bodies(parts);
        }
        self.transaction(|disk| protocol::commit(&rules, disk, parts.to_vec(), taken))
    }

    fn restore_bodies(&mut self, parts: &[Part]) {
        for part in parts {
            let Some(line) = &mut self.lines[part.session] else { continue };
            for entry in part.entries.iter() {
                if let Some(have) = line.entries.get_mut(entry.seq as usize)
                    && have.id == entry.id
                {
                    have.what = entry.what;
                }
            }
        }
    }

    /// `lives` says whether a process is taken to live.
    pub(super) fn lease(
        &mut self,
        session: Session,
        asker: Life,
        lives: impl Fn(Life) -> bool,
    ) -> Result<Option<Fence>> {
        let rules = self.rules;
        self.transaction(|disk| {
            let unknown = || Error::NotFound(format!("session {session}"));
            let line = disk.lines[session].as_mut().ok_or_else(unknown)?;
            let (before, holder) = (line.fence, line.holder);
            let Ok(fence) = rules.grant(before, holder.filter(|holder| lives(*holder))) else { return Ok(None) };
            (line.fence, line.holder) = (fence, Some(asker));
            disk.journal.push(Undo::Held { session, fence: before, holder });
            Ok(Some(fence))
        })
    }

    pub(super) fn release(&mut self, session: Session, by: Life, given: Fence) {
        let Some(line) = self.lines[session].as_mut() else { return };
        let (fence, holder) = (line.fence, line.holder);
        if self.rules.gives_back(fence, given, holder == Some(by)) {
            line.holder = None;
            self.journal.push(Undo::Held { session, fence, holder });
            self.ends.push(self.journal.len());
        }
    }

    pub(super) fn post(&mut self, post: Post, session: Session) -> Result<()> {
        let rules = self.rules;
        self.transaction(|disk| {
            if disk.lines[session].is_none() {
                return Err(Error::NotFound(format!("session {session}")));
            }
            let before = disk.standing(&post)?;
            let after = rules.posted(before);
            if after != before {
                disk.stand(&post, after)?;
            }
            Ok(())
        })
    }

    /// Whether there was a body to destroy.
    pub(super) fn erase(&mut self, session: Session, seq: usize) -> bool {
        let entry = self.lines[session].as_mut().and_then(|line| line.entries.get_mut(seq));
        let words = |entry: &&mut Entry| matches!(entry.what, Some(What::Note | What::Said(_)));
        let Some(entry) = entry.filter(words) else { return false };
        let what = entry.what.take();
        self.journal.push(Undo::Body { session, seq, what });
        self.ends.push(self.journal.len());
        true
    }
}

impl Shelf for Disk {
    type Part = Part;
    type Place = ();
    type Post = Post;

    fn line(&self, session: SessionId) -> Result<Option<(Line, ())>> {
        let seen = self.stored(number(session)).and_then(|line| {
            let last = line.entries.last()?;
            Some(Line { head: last.id, seq: last.seq, closed: line.closed, fence: line.fence })
        });
        Ok(seen.map(|line| (line, ())))
    }

    fn id_at(&self, point: Point) -> Result<Option<RecordId>> {
        let line = self.stored(number(point.session));
        Ok(line.and_then(|line| line.entries.get(point.seq as usize)).map(|entry| entry.id))
    }

    fn may_begin(&self, _part: &Part) -> Result<()> {
        Ok(())
    }

    fn append(&mut self, part: Part, _place: Option<()>, known: usize) -> Result<()> {
        let session = part.session;
        if self.lines[session].is_none() {
            self.journal.push(Undo::Begun(session));
        }
        let line = self.lines[session].get_or_insert_with(|| Stored {
            entries: Vec::new(),
            fence: FIRST_FENCE,
            holder: part.hold.then_some(part.life),
            closed: false,
        });
        self.journal.push(Undo::Appended { session, entries: line.entries.len(), closed: line.closed });
        line.entries.extend_from_slice(&part.entries[known..]);
        line.closed |= part.entries.last().is_some_and(|last| last.what == Some(What::Closed));
        Ok(())
    }

    fn standing(&self, post: &Post) -> Result<Standing> {
        Ok(self.posts[*post])
    }

    fn stand(&mut self, post: &Post, standing: Standing) -> Result<()> {
        let before = std::mem::replace(&mut self.posts[*post], standing);
        self.journal.push(Undo::Stood { post: *post, standing: before });
        Ok(())
    }
}
