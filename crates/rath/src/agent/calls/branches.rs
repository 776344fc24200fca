//! Branches of calls: forked before the call, and merged in call order after all calls of the turn.

use std::collections::HashMap;

use rath_core::body::CallOutcome;
use rath_core::store::BoxFuture;
use rath_core::{OpenCall, Result, Session, SessionId};

use super::super::Agent;
use super::super::drive::{StepContext, workspace_error};
use super::ScheduledCall;
use super::decide::Plan;
use super::merged::MergedBranch;
use crate::recorder;
use crate::workflow::SharedBudget;

impl Agent {
    /// The branch for a call: the one from before a crash, or a new one.
    pub(super) async fn fork_for_call(
        &self,
        session: &mut Session,
        context: &StepContext,
        call: &OpenCall,
    ) -> Result<Session> {
        let (why, name) = (format!("call {} of {}", call.id, call.tool), name_of(call));
        let workspaces = context.workspaces().ok().filter(|_| session.state().placement.is_some());
        let mut branch = match workspaces {
            Some(workspaces) => {
                session.publish().await?;
                let mut branch = session.fork_for_call(why, &name);
                branch.publish().await?;
                workspaces.share_with_forks(session).await.map_err(workspace_error)?;
                branch
            }
            None => session.fork_for_call(why, &name),
        };
        // Agents on the branch stop at this agent's time limit.
        branch.provide_shared(context.time_limit.clone());
        Ok(branch)
    }

    /// Merges the files and usage of branches, not their conversations. Returns for each the notice about its files.
    pub(super) async fn merge_branches(
        &self,
        session: &mut Session,
        calls: &[ScheduledCall],
        branches: Vec<(usize, Session)>,
    ) -> Result<Vec<MergedBranch>> {
        let mut branches = branches;
        // Branches of calls that ended before a crash. Those that were merged then are closed.
        for (at, scheduled) in calls.iter().enumerate() {
            let branching = self.tool(&scheduled.call.tool).is_some_and(|tool| tool.spec().branches);
            let is_over = matches!(scheduled.plan, Plan::Report { .. } | Plan::Say { finished: Some(_), .. });
            if branching && is_over {
                let left = session.branch_of_call(&name_of(&scheduled.call)).await?;
                if let Some(left) = left.filter(|left| !branches.iter().any(|(_, branch)| branch.id() == left.id())) {
                    branches.push((at, left));
                }
            }
        }
        // In call order, not in the order in which they ended.
        branches.sort_by_key(|(at, _)| *at);
        let mut merged = Vec::with_capacity(branches.len());
        for (at, branch) in &branches {
            let failed = matches!(calls[*at].plan, Plan::Report { failed: true, .. });
            merged.push(MergedBranch::of(*at, branch, failed).await?);
        }
        let branches = branches.into_iter().map(|(_, branch)| branch);
        let mut branches: Vec<Session> = branches.filter(|branch| !branch.state().closed).collect();
        for branch in &mut branches {
            branch.cancel("the call that it was made for is over")?;
        }
        if !branches.is_empty() {
            let without_files = merged.iter().filter_map(MergedBranch::without_files).collect();
            let ids: Vec<SessionId> = branches.iter().map(Session::id).collect();
            session.merge_files_only(branches, without_files).await?;
            if let Ok(shared) = session.resources().get::<SharedBudget>() {
                ids.into_iter().for_each(|branch| shared.forget(branch));
                shared.note(session);
            }
        }
        Ok(merged)
    }
}

/// A name for a call that is unique in the session, even if the provider repeats ids.
fn name_of(call: &OpenCall) -> String {
    format!("{}/{}", call.record.short(), call.id)
}

/// Abandons the branches of open calls: those that wait in this process, and those from an earlier process.
pub(in super::super) fn abandon_branches<'a>(
    session: &'a mut Session,
    mut waiting: HashMap<String, Session>,
    why: &'a str,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        for call in session.pending().calls {
            let branch = match waiting.remove(&call.id) {
                Some(branch) => Some(branch),
                None => session.branch_of_call(&name_of(&call)).await?,
            };
            let Some(mut branch) = branch.filter(|branch| !branch.state().closed) else { continue };
            abandon_branches(&mut branch, HashMap::new(), why).await?;
            branch.cancel(why)?;
            branch.publish().await?;
            if call.started.is_some() && call.finished.is_none() {
                let remark = "the run was stopped, and its branch was abandoned";
                session.append(recorder::closed(&call.id, CallOutcome::Cancelled, None, remark.into()))?;
            }
        }
        Ok(())
    })
}
