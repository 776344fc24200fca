//! Where a line of a run comes from: through branches, and lines on which the run went on, back to its first.

use std::collections::HashSet;
use std::sync::Arc;

use crate::blob::BlobRef;
use crate::body::{Created, Forked, Instead, StepEntered};
use crate::error::{ErrorKind, Result};
use crate::id::{Point, RecordId, SessionId};
use crate::kind::Kind;
use crate::reader::{Reader, tampered};
use crate::record::{Fault, Record};
use crate::session::RUN;
use crate::store::{Error, Scan, Store};

/// Where a line of a run comes from.
#[derive(Clone, Debug)]
pub struct Ancestry {
    /// The run's first line.
    pub root: SessionId,
    /// What the run is made of on this line, where the text of a program says it.
    pub program: Option<BlobRef>,
    /// The step of the run that is at work on this line, or worked on it last. A run that was over and went on has
    /// several.
    pub(crate) latest: Option<Point>,
    /// The lines that were left on the way here, youngest first: where, for which, and why.
    pub(crate) left: Vec<(Point, SessionId, Instead)>,
}

impl Ancestry {
    /// Whether the run began its work, on this line or before it.
    pub fn is_begun(&self) -> bool {
        self.latest.is_some()
    }

    /// Walks back from `line`.
    pub async fn of(store: &Arc<dyn Store>, line: SessionId) -> Result<Self> {
        let reader = Reader::new(store.clone());
        let mut ancestry = Self { root: line, program: None, latest: None, left: Vec::new() };
        let mut seen = HashSet::new();
        let mut until = END;
        loop {
            let first = reader.record(Point { session: ancestry.root, seq: 0 }).await?;
            // A forged fork point may lead back here.
            if !seen.insert(ancestry.root) {
                return Err(Error::Tampered { point: first.point(), why: Fault::Chain }.into());
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
            let next = forked.maker.as_ref().map_or(forked.from.session, |maker| maker.session);
            match forked.instead {
                Some(instead) => {
                    ancestry.program = ancestry.program.or(instead.program.clone());
                    ancestry.left.push((forked.from, ancestry.root, instead));
                    until = forked.from.seq;
                }
                None if forked.is_of_run() => until = END,
                // A fork that a person made is a run of its own. It goes on with what the run was made of there.
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
    /// What the run is made of that a fork point is in.
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
                Some(Forked { instead: Some(Instead { program: Some(program), .. }), .. }) => return Ok(Some(program)),
                Some(forked) => point = forked.from,
                None => return Ok(first.body::<Created>().ok().and_then(|created| created.program)),
            }
        }
        Ok(None)
    }
}

/// Behind every record of a line.
const END: u64 = u64::MAX - 1;

/// The last step of a run up to here on the line that begins with `first`, and the program that it names.
async fn run_step(
    reader: &Reader,
    first: &Record,
    forked: Option<&Forked>,
    until: u64,
) -> Result<Option<(Point, Option<BlobRef>)>> {
    let line = first.session();
    // On a fork that a person made in the middle of a step, a run is a step of its own in that step.
    let is_plain = forked.is_some_and(|forked| !forked.is_of_run() && forked.instead.is_none());
    let point = first.point();
    let around = match is_plain {
        true => first.header().map_err(|why| ErrorKind::Record { point, why: why.into() })?.step,
        false => None,
    };
    let steps = Scan::session(line, 0, until).kinds(&[Kind::StepEntered]);
    let Some(first) = reader.store.scan(steps.clone().limit(1)).await?.records.into_iter().next() else {
        return Ok(None);
    };
    let last = reader.store.scan(Scan::session(line, 0, until).backwards().limit(1)).await?.records;
    let end = last.first().map_or(first.point(), Record::point);
    // Mostly there is one, and however many steps are in it, they are not read.
    let state = reader.state_at(end).await?;
    let inherited = state.steps.iter().rfind(|step| step.inherited).filter(|_| around.is_some());
    if inherited.map_or(state.entered, |step| step.entered) < 2 {
        return Ok(run_step_in(std::slice::from_ref(&first), around.as_ref()));
    }
    let mut until = until;
    loop {
        let page = reader.store.scan(Scan::session(line, 0, until).kinds(&[Kind::StepEntered]).backwards().limit(64));
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

/// The first of these records that is the step of a run, entered in the step `around` of the line before.
fn run_step_in(steps: &[Record], around: Option<&RecordId>) -> Option<(Point, Option<BlobRef>)> {
    steps.iter().find_map(|record| {
        let is_outermost = record.header().ok()?.step.as_ref() == around;
        let step = record.body::<StepEntered>().ok().filter(|step| is_outermost && step.name == RUN)?;
        Some((record.point(), step.program))
    })
}

/// How a line began, if it is a fork.
pub(crate) fn forked(first: &Record) -> Result<Option<Forked>> {
    match first.kind() {
        Kind::Forked => Ok(Some(first.body().map_err(|why| tampered(first, why))?)),
        _ => Ok(None),
    }
}
