//! Publishing: making records durable.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::lease::LeaseState;
use super::{CACHE_KEEP, CACHE_LIMIT, Session};
use crate::arrivals;
use crate::clock::Time;
use crate::error::Result;
use crate::list::List;
use crate::record::Record;
use crate::store::{Batch, BatchPart, Provenance};

/// When records become durable without an explicit [`publish`](Session::publish).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Before an effect that depends on them: at questions, merges and the end of an outermost step.
    #[default]
    Effect,
    /// After each record.
    Record,
    /// At intervals, when [`Session::publish_if_due`] is called. A crash loses the records appended since the last
    /// publish: [`Session::unpublished_count`].
    Relaxed {
        /// The minimum age of the oldest unpublished record at which `publish_if_due` publishes.
        every: Duration,
    },
}

/// The unpublished tail of a session that a fork depends on.
#[derive(Clone)]
pub(crate) struct PendingTail {
    pub(super) lease: Arc<LeaseState>,
    /// Newest first, starting at the fork point.
    pub(super) records: List<Record>,
    /// The posts that these records were made from.
    pub(super) consumed: Vec<ConsumedPost>,
}

/// A post that leaves the inbox in the commit that publishes its record.
#[derive(Clone)]
pub(super) struct ConsumedPost {
    pub(super) post: String,
    /// The seq of the record. It may not exist yet.
    pub(super) seq: u64,
}

impl Session {
    /// Makes this session and everything it depends on durable. Records are acknowledged only when this returns.
    pub async fn publish(&mut self) -> Result<()> {
        self.0.run_context.check()?;
        let is_new = self.0.needs_snapshot && !self.0.is_operator;
        if is_new && matches!(self.0.store.provenance()?, Provenance::Elsewhere(_)) {
            // List the store's existing records as foreign before this session is added to them.
            arrivals::list(self.0.store.clone(), self.actor().clone()).await?;
        }
        let mut batch = Batch::default();
        self.collect(&mut batch);
        if !batch.parts.is_empty() || !batch.consumed_posts.is_empty() {
            self.0.store.commit(batch).await?;
        }
        self.mark_published();
        Ok(())
    }

    /// Publishes the tails of sessions whose `Session` values may have been dropped.
    pub(super) async fn publish_tails(store: &Arc<dyn crate::Store>, tails: &List<PendingTail>) -> Result<()> {
        let mut batch = Batch::default();
        let mut oldest_first: Vec<_> = tails.iter().collect();
        oldest_first.reverse();
        for tail in &oldest_first {
            add_part(&mut batch, &tail.lease, tail.records.iter(), None);
            batch.consumed_posts.extend(tail.consumed.iter().map(|consumed| consumed.post.clone()));
        }
        if !batch.parts.is_empty() {
            store.commit(batch).await?;
        }
        for tail in oldest_first {
            if let Some(last) = tail.records.first() {
                tail.lease.published.fetch_max(last.seq() + 1, Ordering::AcqRel);
            }
            tail.lease.release_if_dropped();
        }
        Ok(())
    }

    /// Publishes if the session's [`Durability`] requires it now. The agent loop calls it after every append.
    pub async fn publish_if_due(&mut self) -> Result<()> {
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

    /// Sets when records become durable without an explicit `publish`.
    pub fn set_durability(&mut self, durability: Durability) {
        self.0.durability = durability;
    }

    /// The number of unpublished records: what a crash would lose now.
    pub fn unpublished_count(&self) -> u64 {
        self.0.head.seq + 1 - self.0.lease.published.load(Ordering::Acquire).min(self.0.head.seq + 1)
    }

    /// The unpublished records, newest first.
    pub(super) fn unpublished(&self) -> impl Iterator<Item = &Record> {
        let published = self.0.lease.published.load(Ordering::Acquire);
        self.0.records.iter().take_while(move |record| record.seq() >= published)
    }

    /// Adds all unpublished records to `batch`, ancestors first.
    pub(super) fn collect(&self, batch: &mut Batch) {
        let mut ancestors: Vec<_> = self.0.ancestors.iter().collect();
        ancestors.reverse();
        for ancestor in ancestors {
            add_part(batch, &ancestor.lease, ancestor.records.iter(), None);
            // The commit that publishes the record must also consume its post, or the post would be recorded twice.
            let last = ancestor.records.first().map(Record::seq);
            let published_posts = ancestor.consumed.iter().filter(|consumed| last >= Some(consumed.seq));
            batch.consumed_posts.extend(published_posts.map(|consumed| consumed.post.clone()));
        }
        let snapshot = self.0.needs_snapshot.then(|| self.0.state.to_snapshot());
        add_part(batch, &self.0.lease, self.0.records.iter(), snapshot);
        batch.consumed_posts.extend(self.0.run_context.consumed().iter().map(|consumed| consumed.post.clone()));
    }

    /// Updates the bookkeeping after a batch from [`collect`](Self::collect) was committed.
    pub(super) fn mark_published(&mut self) {
        for ancestor in self.0.ancestors.iter() {
            if let Some(last) = ancestor.records.first() {
                ancestor.lease.published.fetch_max(last.seq() + 1, Ordering::AcqRel);
            }
            // The ancestor's `Session` value may have been dropped during the commit.
            ancestor.lease.release_if_dropped();
        }
        self.0.ancestors = List::new();
        self.0.fork_base = OnceLock::new();
        self.0.lease.published.fetch_max(self.0.head.seq + 1, Ordering::AcqRel);
        self.0.needs_snapshot = false;
        self.0.oldest_unpublished = Time(0);
        self.0.at_boundary = false;
        self.0.run_context.clear_consumed();
        if self.0.records.len() > CACHE_LIMIT {
            self.0.records = self.0.records.newest(CACHE_KEEP);
        }
    }
}

/// Adds the unpublished records of one session to `batch`. `records` are newest first.
fn add_part<'a>(
    batch: &mut Batch,
    lease: &LeaseState,
    records: impl Iterator<Item = &'a Record>,
    snapshot: Option<Vec<u8>>,
) {
    let published = lease.published.load(Ordering::Acquire);
    let mut records: Vec<_> = records.take_while(|record| record.seq() >= published).cloned().collect();
    records.reverse();
    let (Some(first), Some(last)) = (records.first(), records.last()) else { return };
    // Branches of one merge share ancestors: add one part per session, the longest.
    if let Some(part) = batch.parts.iter_mut().find(|part| part.session == first.session()) {
        if part.records.last().is_none_or(|known| known.seq() < last.seq()) {
            part.records = records;
            part.snapshot = part.snapshot.take().or(snapshot);
        }
        return;
    }
    lease.sent.store(true, Ordering::Release);
    let keep_lease = lease.alive.load(Ordering::Acquire);
    batch.parts.push(BatchPart { session: lease.id, fence: lease.fence, keep_lease, records, snapshot });
}
