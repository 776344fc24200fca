//! Running the failed steps of a run again.
//!
//! A recorded failure is final: a resumed run gets it back. To run failed steps again, the run continues on a fork at the
//! record before the failure, like a run whose code diverged: steps that finished before that record stay finished, and
//! the records of the failure stay in the session that the run left. A branch that failed is left in the same way, so the
//! other branches keep their work.

use std::collections::HashSet;
use std::sync::Arc;

use super::Session;
use crate::ancestry::{Ancestry, forked};
use crate::body::{ContinuedFrom, Forked, ForkedBy, Outcome, Role, StepEntered, StepLeft};
use crate::error::{ErrorKind, Result};
use crate::id::{Point, RecordId, SessionId};
use crate::kind::{Kind, OnResume};
use crate::reader::Reader;
use crate::record::{PendingData, Record};
use crate::session::RunOptions;
use crate::store::{BoxFuture, Lookup, Scan, SessionFilter, Store};
use crate::view::{self, View};

/// The reason recorded for a fork on which failed steps run again.
const AGAIN: &str = "failed steps run again";

/// The error code for a run in which nothing failed.
const NOTHING_FAILED: &str = "nothing-failed";

impl dyn Store {
    /// Continues a run that failed or was cancelled, on a fork on which the failed and cancelled steps are entered again.
    /// [`Session::execute`] runs the workflow on the returned session. Finished steps, also those of branches, stay
    /// finished. The program may have changed.
    ///
    /// Of nested steps that failed together, the innermost is entered again. An agent starts its step over, and so do
    /// steps with [`as_a_whole`](StepEntered::as_a_whole). If a validation rejected the work, it is made again. Fails with
    /// the code `nothing-failed` if the run is not over or if it succeeded.
    pub async fn run_again(self: &Arc<Self>, session: SessionId, options: impl Into<RunOptions>) -> Result<Session> {
        let options = options.into();
        let ancestry = Ancestry::of(self, session).await?;
        let mut current = ancestry.root;
        // The newest continuation comes first.
        while let Some((_, next, _)) = ancestry.continuations.iter().find(|(left, ..)| left.session == current) {
            current = *next;
        }
        let known = ancestry.continuations.iter().map(|(.., continued)| continued.resume_id.clone()).collect();
        let resume_id = format!("{:016x}", crate::entropy::random_number());
        let mut again = Again {
            store: self.clone(),
            options: &options,
            resume_id,
            known,
            forks: Vec::new(),
            planned: HashSet::new(),
        };
        again.plan(current).await?;
        let mut next = None;
        // Branches come after the session that forked them. The first session is published last: until then the run
        // counts as failed.
        while let Some(mut fork) = again.forks.pop() {
            fork.publish().await?;
            next = Some(fork.id());
        }
        match next {
            Some(next) => self.resume(next, options).await,
            None => {
                let why = format!("no step of the run of session {} failed or was cancelled", current.short());
                Err(ErrorKind::Coded { code: NOTHING_FAILED.into(), why: why.into() }.into())
            }
        }
    }
}

struct Again<'a> {
    store: Arc<dyn Store>,
    options: &'a RunOptions,
    resume_id: String,
    /// The ids of the resumes on the path to the session.
    known: HashSet<String>,
    /// The forks on which the run continues, each before those of its branches.
    forks: Vec<Session>,
    planned: HashSet<SessionId>,
}

impl Again<'_> {
    /// Forks a session before the failure that ended its outermost step, if one did, and then its branches that failed.
    fn plan(&mut self, session: SessionId) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            // Forged fork points may form a cycle.
            if !self.planned.insert(session) {
                return Ok(());
            }
            let Some((failed, boundary)) = self.failure_of(session).await? else { return Ok(()) };
            let at = match self.step_to_start_over(&failed).await? {
                Some(entered) => before(entered),
                None => self.before_validation(boundary).await?,
            };
            self.fork(at).await?;
            let Some(innermost) = failed.last().filter(|_| at.session == session && at.seq == boundary.seq) else {
                return Ok(());
            };
            for branch in self.branches_of(session, *innermost).await? {
                self.plan(branch).await?;
            }
            Ok(())
        })
    }

    /// The steps that failed together at the end of a session, the outermost first, and the last record before the
    /// failure. `None` if the session's outermost step is open or succeeded.
    async fn failure_of(&self, session: SessionId) -> Result<Option<(Vec<RecordId>, Point)>> {
        let row = view::row(&self.store, session).await?;
        let view = View::of(&self.store, session, Some(row.seq)).await?;
        if view.state().steps.iter().any(|step| !step.inherited) {
            return Ok(None);
        }
        let mut failed = Vec::new();
        let mut until = row.seq;
        loop {
            let page = self.store.scan(Scan::session(session, 0, until).backwards().limit(256)).await?.records;
            for record in &page {
                let point = record.point();
                match record.kind() {
                    Kind::StepLeft => {
                        let left: StepLeft = record.body().map_err(|why| ErrorKind::Record { point, why })?;
                        match left.outcome {
                            Outcome::Failed | Outcome::Cancelled => failed.push(left.step),
                            _ if failed.is_empty() => return Ok(None),
                            _ => return Ok(Some((failed, point))),
                        }
                    }
                    Kind::Failed | Kind::Cancelled if !failed.is_empty() => {}
                    // What the session waited for when it was cancelled belongs to the session that the run leaves. It is
                    // asked or awaited again.
                    Kind::Asked | Kind::Awaited if !failed.is_empty() => {}
                    // Records after the end of the run, and those that replay ignores.
                    _ if failed.is_empty() || record.kind().row().resume == OnResume::Ignored => {}
                    _ => return Ok(Some((failed, point))),
                }
            }
            match page.last().and_then(|record| record.seq().checked_sub(1)) {
                Some(before) => until = before,
                None => return Ok(None),
            }
        }
    }

    /// The `step_entered` record of the outermost of these steps that cannot be continued inside.
    async fn step_to_start_over(&self, failed: &[RecordId]) -> Result<Option<Point>> {
        for step in failed {
            let record = self.record(*step).await?;
            let point = record.point();
            let entered: StepEntered = record.body().map_err(|why| ErrorKind::Record { point, why })?;
            if entered.as_a_whole || matches!(entered.role, Some(Role::Agent | Role::Validator)) {
                return Ok(Some(point));
            }
        }
        Ok(None)
    }

    /// The record before the validation that ends at `boundary`, or else `boundary`.
    async fn before_validation(&self, boundary: Point) -> Result<Point> {
        let reader = Reader::new(self.store.clone());
        let Ok(left) = reader.record(boundary).await?.body::<StepLeft>() else { return Ok(boundary) };
        let record = self.record(left.step).await?;
        match record.body::<StepEntered>().is_ok_and(|entered| entered.role == Some(Role::Validator)) {
            true => Ok(before(record.point())),
            false => Ok(boundary),
        }
    }

    async fn record(&self, id: RecordId) -> Result<Record> {
        let found = self.store.get(Lookup::Id(id)).await?.into_iter().next();
        Ok(found.ok_or_else(|| crate::store::Error::NotFound(format!("record {id}")))?)
    }

    /// The branches that a step of a session forked: of each, the session on which the run continued.
    async fn branches_of(&self, session: SessionId, step: RecordId) -> Result<Vec<SessionId>> {
        let reader = Reader::new(self.store.clone());
        let (mut branches, mut parents, mut seen) = (Vec::new(), vec![session], HashSet::new());
        // The step may have forked branches before the run continued on this session.
        while let Some(parent) = parents.pop().filter(|parent| seen.insert(*parent)) {
            let first = reader.record(Point { session: parent, seq: 0 }).await?;
            if let Some(Forked { continued_from: Some(_), from, .. }) = forked(&first)? {
                parents.push(from.session);
            }
            for row in self.store.sessions(SessionFilter::ChildrenOf(parent).into()).await? {
                let first = reader.record(Point { session: row.id, seq: 0 }).await?;
                let Some(made) = forked(&first)?.filter(Forked::is_of_run) else { continue };
                let in_step = first.header().ok().and_then(|header| header.step);
                let forked_by = made.forked_by.unwrap_or(ForkedBy { session: parent, step: in_step });
                if forked_by.step == Some(step) {
                    branches.push(self.continued(row.id).await?);
                }
            }
        }
        Ok(branches)
    }

    /// The session on which the run continued that was on `session`.
    async fn continued(&self, mut session: SessionId) -> Result<SessionId> {
        let reader = Reader::new(self.store.clone());
        loop {
            let mut newest = None;
            for row in self.store.sessions(SessionFilter::ChildrenOf(session).into()).await? {
                let first = reader.record(Point { session: row.id, seq: 0 }).await?;
                let continued = forked(&first)?.and_then(|forked| forked.continued_from);
                if continued.is_some_and(|continued| self.known.contains(&continued.resume_id)) {
                    newest = newest.max(Some(row.id));
                }
            }
            match newest {
                Some(next) => session = next,
                None => return Ok(session),
            }
        }
    }

    /// Forks the run at `at`, to continue there.
    async fn fork(&mut self, at: Point) -> Result<()> {
        let view = View::of(&self.store, at.session, Some(at.seq)).await?;
        let program = self.options.program.clone();
        let continued_from = ContinuedFrom {
            diverged: AGAIN.into(),
            resume_id: self.resume_id.clone(),
            program: program.as_ref().map(|program| program.reference.clone()),
        };
        // A branch is still named after what it was forked for.
        let first = Reader::new(self.store.clone()).record(Point { session: at.session, seq: 0 }).await?;
        let why = forked(&first)?.map_or_else(|| AGAIN.to_owned(), |forked| forked.why);
        let forked = Forked { continued_from: Some(continued_from), ..Forked::new(at, why) };
        let extras = program.map(|program| PendingData { blobs: vec![program], ..PendingData::default() });
        let mut fork = view.fork_as(self.options.actor.clone(), forked, extras)?;
        if let Some(title) = view.state().title.clone() {
            fork.set_title(title)?;
        }
        self.forks.push(fork);
        Ok(())
    }
}

fn before(entered: Point) -> Point {
    Point { seq: entered.seq.saturating_sub(1), ..entered }
}
