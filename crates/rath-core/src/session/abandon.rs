//! Abandoning work: cancels what is open on the branches of a failed step, because no code will return to it.

use super::Session;
use super::run_tree::RecordedFork;
use crate::body::{CallOutcome, ForkedBy, ToolFinished};
use crate::error::{ErrorKind, Result};
use crate::id::{Point, RecordId};
use crate::kind::Kind;
use crate::state::{OpenCall, Pending};
use crate::store::{BoxFuture, SessionFilter, SessionInfo};

/// The remark on a call whose outcome is unknown.
const OUTCOME_UNKNOWN: &str =
    "the process ended during this call, and the run was cancelled before its outcome was known";

impl Session {
    /// Cancels what is open in this session and on its branches.
    pub(super) fn abandon<'a>(&'a mut self, why: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.jump_to_end().await?;
            self.abandon_branches(0, why).await?;
            // A conflict is not work that can be cancelled.
            let is_open = !Pending { conflicts: Vec::new(), ..self.pending() }.is_empty();
            if is_open {
                self.cancel(why)?;
            }
            // Publish also if posts were consumed.
            match is_open || !self.0.run_context.consumed().is_empty() {
                true => self.publish().await,
                false => Ok(()),
            }
        })
    }

    /// Records calls that were started and not finished as lost. Returns the ids of all `calls`.
    pub(super) fn close_lost_calls(&mut self, calls: Vec<OpenCall>) -> Result<Vec<String>> {
        for call in calls.iter().filter(|call| call.started.is_some() && call.finished.is_none()) {
            let mut finished = ToolFinished::new(&call.id, CallOutcome::Lost);
            finished.remarks.push(OUTCOME_UNKNOWN.into());
            self.append(finished)?;
        }
        Ok(calls.into_iter().map(|call| call.id).collect())
    }

    /// Abandons the branches that were forked in the steps from `depth` inwards; `0` means all branches.
    pub(super) async fn abandon_branches(&mut self, depth: usize, why: &str) -> Result<()> {
        let steps = self.0.state.steps.iter().skip(depth.saturating_sub(1));
        let steps: Vec<RecordId> = steps.map(|step| step.record).collect();
        match self.0.run_context.tree().cloned() {
            Some(tree) if depth == 0 => tree.open_branches_of_session(self.id()).await?,
            Some(tree) => {
                let forked_by = |step: &RecordId| ForkedBy { session: self.id(), step: Some(*step) };
                tree.open_branches_of(steps.iter().map(forked_by).collect()).await?;
            }
            None => {}
        }
        for row in self.0.store.sessions(SessionFilter::ChildrenOf(self.id()).into()).await? {
            if row.first_kind != Kind::Forked || row.closed {
                continue;
            }
            if let Some(mut branch) = self.branch_of(&row, |step| depth == 0 || steps.contains(step)).await? {
                branch.abandon(why).await?;
            }
        }
        Ok(())
    }

    /// Opens a branch of this session if one of the given steps forked it and no other process has it open.
    async fn branch_of(&self, row: &SessionInfo, is_meant: impl Fn(&RecordId) -> bool) -> Result<Option<Session>> {
        let point = Point { session: row.id, seq: 0 };
        let first = self.reader().record(point).await?;
        let Some(forked) = crate::ancestry::forked(&first)?.filter(|forked| forked.is_of_run()) else {
            return Ok(None);
        };
        let step = first.header().map_err(|why| ErrorKind::Record { point, why: why.into() })?.step;
        let forked_by = forked.forked_by.clone().unwrap_or(ForkedBy { session: self.id(), step });
        if forked_by.session != self.id() || !forked_by.step.as_ref().is_none_or(is_meant) {
            return Ok(None);
        }
        let tree = self.0.run_context.tree();
        match tree.map_or(RecordedFork::None, |tree| tree.take(forked_by, &forked, |made| *made == forked)) {
            RecordedFork::Branch(branch) => self.open_branch(*branch).map(Some),
            // The process that has it open is still working on it.
            RecordedFork::Locked(..) => Ok(None),
            RecordedFork::None | RecordedFork::Mismatch(_) => {
                match Session::open(&self.0.store, row.id, self.0.actor.actor.clone()).await {
                    Ok(mut session) => {
                        session.0.run_context = self.0.run_context.inherited();
                        Ok(Some(session))
                    }
                    Err(_) => Ok(None),
                }
            }
        }
    }
}
