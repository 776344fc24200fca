//! Writes the new records of a bundle: a batch fills while the one before it is written.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures_util::FutureExt as _;
use rath_core::store::{Batch, BoxFuture, FIRST_FENCE, Fence, Part, Store, Which};
use rath_core::{Fault, Point, Record, SNAPSHOT_EVERY, SessionId, State, View};

use super::Error;
use super::graph::Graph;
use super::import::{Fate, Records, Worked};
use super::plan::Plan;

/// Records of so many bytes are committed together at first, so that laying out and writing overlap soon. It doubles with
/// every batch, up to [`MOST_TOGETHER`].
const FIRST_TOGETHER: usize = 1 << 20;
const MOST_TOGETHER: usize = 8 << 20;

/// The sessions that go on, held while they do.
pub(super) struct Leases<'a> {
    store: &'a Arc<dyn Store>,
    fences: HashMap<SessionId, Fence>,
}

impl<'a> Leases<'a> {
    pub(super) async fn take(store: &'a Arc<dyn Store>, plan: &Plan) -> Result<Self, Error> {
        let mut leases = Self { store, fences: HashMap::new() };
        for (session, fate) in &plan.fates {
            if matches!(fate, Fate::Forwarded { .. }) {
                leases.fences.insert(*session, store.lease(*session).await?);
                // It may have gone on between the look and the lease.
                let known = plan.known.get(session).copied().unwrap_or(0);
                let row = store.sessions(Which::Id(*session).into()).await?.into_iter().next();
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

/// Commits what is new, some thousand records at a time, and counts those that are acknowledged. What is cut short goes on
/// when the bundle is imported again.
#[expect(clippy::too_many_arguments, reason = "the last three are what is told on the way")]
pub(super) async fn commit(
    store: &Arc<dyn Store>,
    mut records: Records<'_>,
    graph: &Graph,
    plan: &Plan,
    leases: &Leases<'_>,
    taken: &mut u64,
    worked: &mut BTreeMap<SessionId, Worked>,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Error> {
    let lengths: HashMap<SessionId, u64> = graph.sessions.iter().map(|head| (head.session, head.seq + 1)).collect();
    let mut writing = Writing {
        store,
        leases,
        lines: Vec::new(),
        by_session: HashMap::new(),
        last: 0,
        parts: Vec::new(),
        waiting: 0,
        under_way: None,
        taken,
    };
    let mut together = FIRST_TOGETHER;
    let mut count = 0;
    while let Some(record) = records.next()? {
        if !plan.wants(record.point()) {
            continue;
        }
        Worked::note(worked, &record);
        writing.add(record, &lengths).await?;
        count += 1;
        if writing.waiting >= together {
            writing.flush().await?;
            together = MOST_TOGETHER.min(2 * together);
            progress(count);
        }
    }
    writing.finish().await?;
    progress(count);
    Ok(())
}

/// A batch that fills.
struct Writing<'a> {
    store: &'a Arc<dyn Store>,
    leases: &'a Leases<'a>,
    lines: Vec<Going>,
    /// Where those are, by session.
    by_session: HashMap<SessionId, usize>,
    /// Where the last one is: most records go on with it.
    last: usize,
    /// Each with the place of its line.
    parts: Vec<(usize, Part)>,
    waiting: usize,
    /// The batch before, which the store may still be writing, and how many records it has.
    under_way: Option<(u64, BoxFuture<'a, rath_core::store::Result<()>>)>,
    /// So many records are acknowledged.
    taken: &'a mut u64,
}

/// A session that goes on.
struct Going {
    session: SessionId,
    /// The folded state of a long line: opening it needs one.
    state: Option<State>,
    /// Which part of the batch is its own.
    part: Option<usize>,
}

impl Writing<'_> {
    async fn add(&mut self, record: Record, lengths: &HashMap<SessionId, u64>) -> Result<(), Error> {
        let session = record.session();
        if self.lines.get(self.last).is_none_or(|line| line.session != session) {
            self.last = match self.by_session.get(&session) {
                Some(place) => *place,
                None => {
                    let is_long = lengths.get(&session).is_some_and(|length| *length >= SNAPSHOT_EVERY);
                    let state = if is_long { Some(self.before(&record).await?) } else { None };
                    self.by_session.insert(session, self.lines.len());
                    self.lines.push(Going { session, state, part: None });
                    self.lines.len() - 1
                }
            };
        }
        let line = &mut self.lines[self.last];
        if let Some(state) = &mut line.state {
            state.apply(&record).map_err(|why| tampered(&record, why))?;
        }
        self.waiting += record.size();
        let part = *line.part.get_or_insert_with(|| {
            let fence = self.leases.fences.get(&session).copied().unwrap_or(FIRST_FENCE);
            self.parts.push((self.last, Part { session, fence, hold: false, records: Vec::new(), snapshot: None }));
            self.parts.len() - 1
        });
        self.parts[part].1.records.push(record);
        Ok(())
    }

    /// What is folded of the line that a record goes on with.
    async fn before(&mut self, record: &Record) -> Result<State, Error> {
        let before = match (record.origin().map_err(|why| tampered(record, why))?, record.seq().checked_sub(1)) {
            (Some(origin), _) => origin.point(),
            (None, Some(seq)) => Point { session: record.session(), seq },
            (None, None) => return Ok(State::default()),
        };
        self.finish().await?;
        Ok(View::of(self.store, before.session, Some(before.seq)).await?.recorded_state().clone())
    }

    /// Sends the batch. It is written while the next one fills.
    async fn flush(&mut self) -> Result<(), Error> {
        self.waiting = 0;
        if self.parts.is_empty() {
            return Ok(());
        }
        let folded = |(line, part): (usize, Part)| {
            let line = &mut self.lines[line];
            line.part = None;
            Part { snapshot: line.state.as_ref().map(State::to_snapshot), ..part }
        };
        let parts: Vec<_> = std::mem::take(&mut self.parts).into_iter().map(folded).collect();
        let records = parts.iter().map(|part| part.records.len() as u64).sum();
        // The store may get ready for it, but nothing of it is written before all that stands before it was.
        let mut under_way = self.store.commit(Batch { parts, taken: Vec::new() });
        self.settle().await?;
        // What is not asked for does not begin.
        match (&mut under_way).now_or_never() {
            Some(done) => {
                done?;
                *self.taken += records;
            }
            None => self.under_way = Some((records, under_way)),
        }
        Ok(())
    }

    /// Waits for the batch before.
    async fn settle(&mut self) -> Result<(), Error> {
        if let Some((records, under_way)) = self.under_way.take() {
            under_way.await?;
            *self.taken += records;
        }
        Ok(())
    }

    /// Sends the batch, and waits until it is written.
    async fn finish(&mut self) -> Result<(), Error> {
        self.flush().await?;
        self.settle().await
    }
}

fn tampered(record: &Record, why: Fault) -> rath_core::store::Error {
    rath_core::store::Error::Tampered { point: record.point(), why }
}
