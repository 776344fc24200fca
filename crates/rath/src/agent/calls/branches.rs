//! The branches that calls work on: forked before the call, merged after all calls of the turn, in call order.

use std::collections::HashMap;

use rath_core::body::CallOutcome;
use rath_core::store::BoxFuture;
use rath_core::{OpenCall, Result, Session};

use super::super::Agent;
use super::super::drive::{Bench, of_workshop};
use super::ScheduledCall;
use super::decide::Plan;
use super::merged::MergedBranch;
use crate::recorder;

impl Agent {
    /// The branch for a call: the one it had before a crash, or a new one.
    pub(super) async fn fork_for_call(&self, session: &mut Session, bench: &Bench, call: &OpenCall) -> Result<Session> {
        let (why, name) = (format!("call {} of {}", call.id, call.tool), name_of(call));
        let workshop = bench.workshop().ok().filter(|_| session.state().placement.is_some());
        let mut branch = match workshop {
            Some(workshop) => workshop.fork_for_call(session, why, &name).await.map_err(of_workshop)?,
            None => session.fork_for_call(why, &name),
        };
        // The agents that work there stop when the time of this one is over.
        branch.equip_shared(bench.late.clone());
        Ok(branch)
    }

    /// Merges the branches that calls worked on: files and usage, not their conversations. Returns what is to be said
    /// about the files of each.
    pub(super) async fn merge_branches(
        &self,
        session: &mut Session,
        calls: &[ScheduledCall],
        branches: Vec<(usize, Session)>,
    ) -> Result<Vec<MergedBranch>> {
        let mut branches = branches;
        // Branches of calls that ended before a crash. What was merged then is closed.
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
        // In call order, whichever ended first.
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
            session.take_in(branches, without_files).await?;
        }
        Ok(merged)
    }
}

/// A name for a call that no other call of the session has, whatever ids a provider gives.
fn name_of(call: &OpenCall) -> String {
    format!("{}/{}", call.record.short(), call.id)
}

/// Gives up the branches of open calls: those that wait in this process, and those that an earlier one left.
pub(in super::super) fn give_up<'a>(
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
            give_up(&mut branch, HashMap::new(), why).await?;
            branch.cancel(why)?;
            branch.publish().await?;
            if call.started.is_some() && call.finished.is_none() {
                let remark = "the run was stopped, and the work on its branch was given up";
                session.append(recorder::closed(&call.id, CallOutcome::Cancelled, None, remark.into()))?;
            }
        }
        Ok(())
    })
}
