//! Commits the new records of a bundle: a batch fills while the previous one is written.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures_util::FutureExt as _;
use rath_core::store::{Batch, BatchPart, BoxFuture, FIRST_FENCING_TOKEN, FencingToken, SessionFilter, Store};
use rath_core::{Point, Record, RecordError, SNAPSHOT_EVERY, SessionId, State, View};

use super::BundleError;
use super::graph::BundleGraph;
use super::import::{OriginWorkspace, Records, SessionImportOutcome};
use super::plan::ImportPlan;

/// The size of the first batch, in bytes. It is small so that reading and writing overlap soon; the size doubles with
/// every batch, up to [`MAX_BATCH_BYTES`].
const FIRST_BATCH_BYTES: usize = 1 << 20;
const MAX_BATCH_BYTES: usize = 8 << 20;

/// Leases of the sessions that the import extends, released on drop.
pub(super) struct Leases<'a> {
    store: &'a Arc<dyn Store>,
    fences: HashMap<SessionId, FencingToken>,
}

impl<'a> Leases<'a> {
    pub(super) async fn take(store: &'a Arc<dyn Store>, plan: &ImportPlan) -> Result<Self, BundleError> {
        let mut leases = Self { store, fences: HashMap::new() };
        for (session, outcome) in &plan.outcomes {
            if matches!(outcome, SessionImportOutcome::Forwarded { .. }) {
                leases.fences.insert(*session, store.lease(*session).await?);
                // The session may have grown between planning and the lease.
                let known = plan.known.get(session).copied().unwrap_or(0);
                let row = store.sessions(SessionFilter::Id(*session).into()).await?.into_iter().next();
                if let Some(row) = row.filter(|row| row.seq + 1 != known) {
                    return Err(rath_core::store::Error::Conflict { session: *session, seq: row.seq }.into());
                }
            }
        }
        Ok(leases)
    }
}

impl Drop for Leases<'_> {
    fn drop(&mut self) {
        for (session, fence) in &self.fences {
            self.store.release(*session, *fence);
        }
    }
}

/// Commits the new records in batches, and counts those that are acknowledged. After an interruption, importing the
/// bundle again continues from there.
#[expect(clippy::too_many_arguments, reason = "the last three report progress")]
pub(super) async fn commit(
    store: &Arc<dyn Store>,
    mut records: Records<'_>,
    graph: &BundleGraph,
    plan: &ImportPlan,
    leases: &Leases<'_>,
    acknowledged: &mut u64,
    origins: &mut BTreeMap<SessionId, OriginWorkspace>,
    progress: &mut dyn FnMut(u64),
) -> Result<(), BundleError> {
    let lengths: HashMap<SessionId, u64> = graph.sessions.iter().map(|head| (head.session, head.seq + 1)).collect();
    let mut batch_writer = BatchWriter {
        store,
        leases,
        open_sessions: Vec::new(),
        by_session: HashMap::new(),
        last: 0,
        parts: Vec::new(),
        waiting: 0,
        in_flight: None,
        acknowledged,
    };
    let mut batch_bytes = FIRST_BATCH_BYTES;
    let mut count = 0;
    while let Some(record) = records.next()? {
        if !plan.imports(record.point()) {
            continue;
        }
        OriginWorkspace::note(origins, &record);
        batch_writer.add(record, &lengths).await?;
        count += 1;
        if batch_writer.waiting >= batch_bytes {
            batch_writer.flush().await?;
            batch_bytes = MAX_BATCH_BYTES.min(2 * batch_bytes);
            progress(count);
        }
    }
    batch_writer.finish().await?;
    progress(count);
    Ok(())
}

/// The state of the import: the batch that fills, and the batch that is being written.
struct BatchWriter<'a> {
    store: &'a Arc<dyn Store>,
    leases: &'a Leases<'a>,
    open_sessions: Vec<OpenSession>,
    /// Positions in `open_sessions`, by session.
    by_session: HashMap<SessionId, usize>,
    /// The position of the last session: most records follow one of the same session.
    last: usize,
    /// The parts of the batch, each with the position of its session.
    parts: Vec<(usize, BatchPart)>,
    waiting: usize,
    /// The previous batch, which the store may still be writing, and its number of records.
    in_flight: Option<(u64, BoxFuture<'a, rath_core::store::Result<()>>)>,
    /// The number of acknowledged records.
    acknowledged: &'a mut u64,
}

/// A session that receives records.
struct OpenSession {
    session: SessionId,
    /// The folded state of a long session, for its next snapshot.
    state: Option<State>,
    /// The index of the session's part in the batch.
    part: Option<usize>,
}

impl BatchWriter<'_> {
    async fn add(&mut self, record: Record, lengths: &HashMap<SessionId, u64>) -> Result<(), BundleError> {
        let session = record.session();
        if self.open_sessions.get(self.last).is_none_or(|open| open.session != session) {
            self.last = match self.by_session.get(&session) {
                Some(position) => *position,
                None => {
                    let is_long = lengths.get(&session).is_some_and(|length| *length >= SNAPSHOT_EVERY);
                    let state = if is_long { Some(self.before(&record).await?) } else { None };
                    self.by_session.insert(session, self.open_sessions.len());
                    self.open_sessions.push(OpenSession { session, state, part: None });
                    self.open_sessions.len() - 1
                }
            };
        }
        let open = &mut self.open_sessions[self.last];
        if let Some(state) = &mut open.state {
            state.apply(&record).map_err(|why| tampered(&record, why))?;
        }
        self.waiting += record.size();
        let part = *open.part.get_or_insert_with(|| {
            let fence = self.leases.fences.get(&session).copied().unwrap_or(FIRST_FENCING_TOKEN);
            self.parts.push((
                self.last,
                BatchPart { session, fence, keep_lease: false, records: Vec::new(), snapshot: None },
            ));
            self.parts.len() - 1
        });
        self.parts[part].1.records.push(record);
        Ok(())
    }

    /// The folded state before a record.
    async fn before(&mut self, record: &Record) -> Result<State, BundleError> {
        let before = match (record.origin().map_err(|why| tampered(record, why))?, record.seq().checked_sub(1)) {
            (Some(origin), _) => origin.point(),
            (None, Some(seq)) => Point { session: record.session(), seq },
            (None, None) => return Ok(State::default()),
        };
        self.finish().await?;
        Ok(View::of(self.store, before.session, Some(before.seq)).await?.recorded_state().clone())
    }

    /// Starts to commit the batch. It is written while the next one fills.
    async fn flush(&mut self) -> Result<(), BundleError> {
        self.waiting = 0;
        if self.parts.is_empty() {
            return Ok(());
        }
        let folded = |(position, part): (usize, BatchPart)| {
            let open = &mut self.open_sessions[position];
            open.part = None;
            BatchPart { snapshot: open.state.as_ref().map(State::to_snapshot), ..part }
        };
        let parts: Vec<_> = std::mem::take(&mut self.parts).into_iter().map(folded).collect();
        let records = parts.iter().map(|part| part.records.len() as u64).sum();
        // The store may prepare this commit now, but it writes nothing before the previous batch is complete.
        let mut in_flight = self.store.commit(Batch { parts, consumed_posts: Vec::new() });
        self.settle().await?;
        // A future does nothing before it is polled.
        match (&mut in_flight).now_or_never() {
            Some(done) => {
                done?;
                *self.acknowledged += records;
            }
            None => self.in_flight = Some((records, in_flight)),
        }
        Ok(())
    }

    /// Waits for the previous batch.
    async fn settle(&mut self) -> Result<(), BundleError> {
        if let Some((records, in_flight)) = self.in_flight.take() {
            in_flight.await?;
            *self.acknowledged += records;
        }
        Ok(())
    }

    /// Commits the batch and waits until it is written.
    async fn finish(&mut self) -> Result<(), BundleError> {
        self.flush().await?;
        self.settle().await
    }
}

fn tampered(record: &Record, why: RecordError) -> rath_core::store::Error {
    rath_core::store::Error::Tampered { point: record.point(), why }
}
