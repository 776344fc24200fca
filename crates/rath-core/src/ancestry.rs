//! Where a line of a run comes from: through branches, and lines on which the run went on, back to its first.

use std::collections::HashSet;
use std::sync::Arc;

use crate::blob::BlobRef;
use crate::body::{Created, Forked, Instead, StepEntered};
use crate::error::Result;
use crate::id::{Point, SessionId};
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
            if let Some((at, program)) = run_step(&reader, ancestry.root, until).await? {
                ancestry.latest = ancestry.latest.or(Some(at));
                ancestry.program = ancestry.program.or(program);
            }
            let Some(forked) = forked(&first)? else {
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
                None => return Ok(ancestry),
            }
            ancestry.root = next;
        }
    }
}

/// Behind every record of a line.
const END: u64 = u64::MAX - 1;

/// The last step of a run on a line up to here, and the program that it names.
async fn run_step(reader: &Reader, line: SessionId, until: u64) -> Result<Option<(Point, Option<BlobRef>)>> {
    let steps = Scan::session(line, 0, until).kinds(&[Kind::StepEntered]);
    let Some(first) = reader.store.scan(steps.clone().limit(1)).await?.records.into_iter().next() else {
        return Ok(None);
    };
    let last = reader.store.scan(Scan::session(line, 0, until).backwards().limit(1)).await?.records;
    let end = last.first().map_or(first.point(), Record::point);
    // Mostly there is one, and however many steps are in it, they are not read.
    if reader.state_at(end).await?.entered < 2 {
        return Ok(run_step_in(std::slice::from_ref(&first)));
    }
    let mut until = until;
    loop {
        let page = reader.store.scan(Scan::session(line, 0, until).kinds(&[Kind::StepEntered]).backwards().limit(64));
        let page = page.await?.records;
        if let Some(found) = run_step_in(&page) {
            return Ok(Some(found));
        }
        match page.last().and_then(|record| record.seq().checked_sub(1)) {
            Some(before) => until = before,
            None => return Ok(None),
        }
    }
}

/// The first of these records that is the step of a run.
fn run_step_in(steps: &[Record]) -> Option<(Point, Option<BlobRef>)> {
    steps.iter().find_map(|record| {
        let is_outermost = record.header().ok()?.step.is_none();
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
