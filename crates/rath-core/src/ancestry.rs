//! [`Ancestry`]: the sessions of a run from one of them back to the first, through branches and continuations.

use std::collections::HashSet;
use std::sync::Arc;

use crate::blob::BlobRef;
use crate::body::{ContinuedFrom, Created, Forked, StepEntered};
use crate::error::{ErrorKind, Result};
use crate::id::{Point, RecordId, SessionId};
use crate::kind::Kind;
use crate::reader::{Reader, tampered};
use crate::record::{Record, RecordError};
use crate::session::RUN;
use crate::store::{Error, Scan, Store};

/// How a session of a run descends from the run's first session.
#[derive(Clone, Debug)]
pub struct Ancestry {
    /// The run's first session.
    pub root: SessionId,
    /// The source of the program that the run executes on this session, if it has one.
    pub program: Option<BlobRef>,
    /// The outermost step of the run that was entered last. A finished run that was continued has several such steps.
    pub(crate) latest: Option<Point>,
    /// The sessions that the run left on the way here, newest first: at which point, for which session, and why.
    pub(crate) continuations: Vec<(Point, SessionId, ContinuedFrom)>,
}

impl Ancestry {
    /// Whether the run has entered its first step.
    pub fn is_started(&self) -> bool {
        self.latest.is_some()
    }

    /// Walks back from `session`.
    pub async fn of(store: &Arc<dyn Store>, session: SessionId) -> Result<Self> {
        let reader = Reader::new(store.clone());
        let mut ancestry = Self { root: session, program: None, latest: None, continuations: Vec::new() };
        let mut seen = HashSet::new();
        let mut until = END;
        loop {
            let first = reader.record(Point { session: ancestry.root, seq: 0 }).await?;
            // Forged fork points may form a cycle.
            if !seen.insert(ancestry.root) {
                return Err(Error::Tampered { point: first.point(), why: RecordError::Chain }.into());
            }
            let forked = forked(&first)?;
            if let Some((at, program)) = run_step(&reader, &first, forked.as_ref(), until).await? {
                ancestry.latest = ancestry.latest.or(Some(at));
                ancestry.program = ancestry.program.or(program);
            }
            let Some(forked) = forked else {
                let created = first.body::<Created>().ok();
                ancestry.program = ancestry.program.or(created.and_then(|created| created.program));
                return Ok(ancestry);
            };
            let next = forked.forked_by.as_ref().map_or(forked.from.session, |maker| maker.session);
            match forked.continued_from {
                Some(continuation) => {
                    ancestry.program = ancestry.program.or(continuation.program.clone());
                    ancestry.continuations.push((forked.from, ancestry.root, continuation));
                    until = forked.from.seq;
                }
                None if forked.is_of_run() => until = END,
                // A fork that a person made is a new run, with the program that the run had at the fork point.
                None => {
                    if ancestry.program.is_none() {
                        ancestry.program = Self::program_before(store, forked.from).await?;
                    }
                    return Ok(ancestry);
                }
            }
            ancestry.root = next;
        }
    }
}

impl Ancestry {
    /// The program of the run that contains a fork point.
    async fn program_before(store: &Arc<dyn Store>, fork_point: Point) -> Result<Option<BlobRef>> {
        let reader = Reader::new(store.clone());
        let (mut point, mut seen) = (fork_point, HashSet::new());
        while seen.insert(point.session) {
            let first = reader.record(Point { session: point.session, seq: 0 }).await?;
            let forked = forked(&first)?;
            if let Some((_, Some(program))) = run_step(&reader, &first, forked.as_ref(), point.seq).await? {
                return Ok(Some(program));
            }
            match forked {
                Some(Forked { continued_from: Some(ContinuedFrom { program: Some(program), .. }), .. }) => {
                    return Ok(Some(program));
                }
                Some(forked) => point = forked.from,
                None => return Ok(first.body::<Created>().ok().and_then(|created| created.program)),
            }
        }
        Ok(None)
    }
}

/// Greater than the seq of any record.
const END: u64 = u64::MAX - 1;

/// The last outermost step of a run up to `until` in the session that starts with `first`, and the program that it
/// names.
async fn run_step(
    reader: &Reader,
    first: &Record,
    forked: Option<&Forked>,
    until: u64,
) -> Result<Option<(Point, Option<BlobRef>)>> {
    let session = first.session();
    // On a fork that a person made inside a step, the step of a run is entered inside that step.
    let is_plain = forked.is_some_and(|forked| !forked.is_of_run() && forked.continued_from.is_none());
    let point = first.point();
    let around = match is_plain {
        true => first.header().map_err(|why| ErrorKind::Record { point, why: why.into() })?.step,
        false => None,
    };
    let steps = Scan::session(session, 0, until).kinds(&[Kind::StepEntered]);
    let Some(first) = reader.store.scan(steps.clone().limit(1)).await?.records.into_iter().next() else {
        return Ok(None);
    };
    let last = reader.store.scan(Scan::session(session, 0, until).backwards().limit(1)).await?.records;
    let end = last.first().map_or(first.point(), Record::point);
    // Usually there is only one. Its inner steps are not read.
    let state = reader.state_at(end).await?;
    let inherited = state.steps.iter().rfind(|step| step.inherited).filter(|_| around.is_some());
    if inherited.map_or(state.entered, |step| step.entered) < 2 {
        return Ok(run_step_in(std::slice::from_ref(&first), around.as_ref()));
    }
    let mut until = until;
    loop {
        let page =
            reader.store.scan(Scan::session(session, 0, until).kinds(&[Kind::StepEntered]).backwards().limit(64));
        let page = page.await?.records;
        if let Some(found) = run_step_in(&page, around.as_ref()) {
            return Ok(Some(found));
        }
        match page.last().and_then(|record| record.seq().checked_sub(1)) {
            Some(before) => until = before,
            None => return Ok(None),
        }
    }
}

/// The first of these records that is the step of a run, entered inside step `around` of the parent session.
fn run_step_in(steps: &[Record], around: Option<&RecordId>) -> Option<(Point, Option<BlobRef>)> {
    steps.iter().find_map(|record| {
        let is_outermost = record.header().ok()?.step.as_ref() == around;
        let step = record.body::<StepEntered>().ok().filter(|step| is_outermost && step.name == RUN)?;
        Some((record.point(), step.program))
    })
}

/// The body of a session's first record, if the session is a fork.
pub(crate) fn forked(first: &Record) -> Result<Option<Forked>> {
    match first.kind() {
        Kind::Forked => Ok(Some(first.body().map_err(|why| tampered(first, why))?)),
        _ => Ok(None),
    }
}
