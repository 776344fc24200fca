//! Making records durable.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::lease::LineHold;
use super::{RECENT, STILL, Session};
use crate::arrivals;
use crate::clock::Time;
use crate::error::Result;
use crate::list::List;
use crate::record::Record;
use crate::store::{Batch, Part, Provenance};

/// When records become durable by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Before an effect that depends on them: at asks, merges and the end of an outermost step.
    #[default]
    Effect,
    /// Each record at once.
    Record,
    /// From time to time, when [`Session::settle`] is called. A crash loses what was made since; [`Session::at_risk`]
    /// says how much.
    Relaxed {
        /// How long a record waits before the next `settle` publishes it.
        every: Duration,
    },
}

/// The unpublished end of a line that a fork stands on.
#[derive(Clone)]
pub(crate) struct Unpublished {
    pub(super) hold: Arc<LineHold>,
    /// Youngest first, from the fork point down.
    pub(super) records: List<Record>,
    /// Posts that they say.
    pub(super) taken: Vec<Taken>,
}

/// A post that leaves the inbox with the record that says it.
#[derive(Clone)]
pub(super) struct Taken {
    pub(super) post: String,
    /// The record. It may not be made yet.
    pub(super) seq: u64,
}

impl Session {
    /// Makes everything durable that this session has and stands on. Only then is it acknowledged.
    pub async fn publish(&mut self) -> Result<()> {
        self.0.gear.check()?;
        let is_new = self.0.needs_snapshot && !self.0.is_operator;
        if is_new && matches!(self.0.store.provenance()?, Provenance::Elsewhere(_)) {
            // What the store has so far is listed as made elsewhere before this line is in it.
            arrivals::list(self.0.store.clone(), self.actor().clone()).await?;
        }
        let mut batch = Batch::default();
        self.collect(&mut batch);
        if !batch.parts.is_empty() || !batch.taken.is_empty() {
            self.0.store.commit(batch).await?;
        }
        self.mark_published();
        Ok(())
    }

    /// Publishes if the session's [`Durability`] asks for it now. Drivers call it after every append.
    pub async fn settle(&mut self) -> Result<()> {
        let due = match self.0.durability {
            Durability::Record => self.0.oldest_unpublished != Time(0),
            Durability::Relaxed { every } => {
                let since = self.0.oldest_unpublished;
                since != Time(0) && Time::now().micros_since(since) >= every.as_micros() as u64
            }
            Durability::Effect => self.0.at_boundary,
        };
        match due {
            true => self.publish().await,
            false => Ok(()),
        }
    }

    /// Chooses when records become durable by themselves.
    pub fn set_durability(&mut self, durability: Durability) {
        self.0.durability = durability;
    }

    /// How many records a crash would lose now.
    pub fn at_risk(&self) -> u64 {
        self.0.head.seq + 1 - self.0.hold.published.load(Ordering::Acquire).min(self.0.head.seq + 1)
    }

    /// The tail, youngest first.
    pub(super) fn unpublished(&self) -> impl Iterator<Item = &Record> {
        let published = self.0.hold.published.load(Ordering::Acquire);
        self.0.records.iter().take_while(move |record| record.seq() >= published)
    }

    /// Adds to `batch` what is not published: ancestors first.
    pub(super) fn collect(&self, batch: &mut Batch) {
        let mut ancestors: Vec<_> = self.0.ancestors.iter().collect();
        ancestors.reverse();
        for ancestor in ancestors {
            add_part(batch, &ancestor.hold, ancestor.records.iter(), None);
            // Whoever publishes the record takes the post, or it would be said again.
            let last = ancestor.records.first().map(Record::seq);
            let said = ancestor.taken.iter().filter(|taken| last >= Some(taken.seq));
            batch.taken.extend(said.map(|taken| taken.post.clone()));
        }
        let snapshot = self.0.needs_snapshot.then(|| self.0.state.to_snapshot());
        add_part(batch, &self.0.hold, self.0.records.iter(), snapshot);
        batch.taken.extend(self.0.gear.taken().iter().map(|taken| taken.post.clone()));
    }

    /// Notes that a batch with all that [`collect`](Self::collect) gave was committed.
    pub(super) fn mark_published(&mut self) {
        for ancestor in self.0.ancestors.iter() {
            if let Some(last) = ancestor.records.first() {
                ancestor.hold.published.fetch_max(last.seq() + 1, Ordering::AcqRel);
            }
            // The session may have been dropped while its line was on the way.
            ancestor.hold.release_if_dropped();
        }
        self.0.ancestors = List::new();
        self.0.fork_base = OnceLock::new();
        self.0.hold.published.fetch_max(self.0.head.seq + 1, Ordering::AcqRel);
        self.0.needs_snapshot = false;
        self.0.oldest_unpublished = Time(0);
        self.0.at_boundary = false;
        self.0.gear.forget_taken();
        if self.0.records.len() > RECENT {
            self.0.records = self.0.records.youngest(STILL);
        }
    }
}

/// Adds the unpublished ones among `records` (youngest first) of a line.
fn add_part<'a>(
    batch: &mut Batch,
    hold: &LineHold,
    records: impl Iterator<Item = &'a Record>,
    snapshot: Option<Vec<u8>>,
) {
    let published = hold.published.load(Ordering::Acquire);
    let mut records: Vec<_> = records.take_while(|record| record.seq() >= published).cloned().collect();
    records.reverse();
    let (Some(first), Some(last)) = (records.first(), records.last()) else { return };
    // Branches of one merge share ancestors: one part a line, the longest.
    if let Some(part) = batch.parts.iter_mut().find(|part| part.session == first.session()) {
        if part.records.last().is_none_or(|known| known.seq() < last.seq()) {
            part.records = records;
            part.snapshot = part.snapshot.take().or(snapshot);
        }
        return;
    }
    hold.offered.store(true, Ordering::Release);
    let hold_it = hold.alive.load(Ordering::Acquire);
    batch.parts.push(Part { session: hold.id, fence: hold.fence, hold: hold_it, records, snapshot });
}
