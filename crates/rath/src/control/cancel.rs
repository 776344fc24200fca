//! Cancelling the work on a session and on the branches of its run.

use rath_core::body::Forked;
use rath_core::store::{Error as StoreError, PostContent, SessionFilter};
use rath_core::{ErrorKind, SessionId, View};
use serde::Serialize;

use super::{Control, Delivery, Result};
use crate::inspect::{RunState, RunStatus};

/// The result of a cancellation.
#[derive(Clone, Debug, Serialize)]
pub struct Cancellation {
    /// Branches of the run that were cancelled first, in this order.
    pub branches: Vec<(SessionId, Delivery)>,
    /// The delivery of the cancellation to the session itself.
    pub delivery: Delivery,
    /// The state of the run before.
    pub run: Option<RunState>,
    /// Forks on which the run continued after a divergence. They are not cancelled.
    pub continued_as: Vec<SessionId>,
}

impl Control {
    /// Cancels the work on a session. A process that works on it stops at its next step; otherwise open calls and steps
    /// are closed as cancelled here, first those of the run's branches.
    pub async fn cancel(&self, session: SessionId, why: impl Into<String>) -> Result<Cancellation> {
        let why = why.into();
        let run = RunStatus::of(&self.store, &View::of(&self.store, session, None).await?).await?.map(|run| run.is);
        let mut branches = Vec::new();
        // A process that works on the session stops its branches itself. If the branches were cancelled first, it would
        // start the calls that wait for them.
        if !self.is_locked(session).await? {
            for branch in self.open_branches(session).await? {
                branches.push((branch, self.deliver(branch, PostContent::Cancel { why: why.clone() }).await?));
            }
        }
        let delivery = self.deliver(session, PostContent::Cancel { why }).await?;
        let mut continued_as = Vec::new();
        for row in self.store.sessions(SessionFilter::ChildrenOf(session).into()).await? {
            let forked = View::of(&self.store, row.id, Some(0)).await?.record().body::<Forked>();
            let continues = forked.is_ok_and(|forked| forked.continued_from.is_some());
            if continues && !View::of(&self.store, row.id, None).await?.pending().is_empty() {
                continued_as.push(row.id);
            }
        }
        Ok(Cancellation { branches, delivery, run, continued_as })
    }

    /// The branches of a session's run, recursively, that have open calls, steps or questions.
    async fn open_branches(&self, session: SessionId) -> Result<Vec<SessionId>> {
        let (mut open, mut parents) = (Vec::new(), vec![session]);
        while let Some(parent) = parents.pop() {
            for row in self.store.sessions(SessionFilter::ChildrenOf(parent).into()).await? {
                // A fork that a person made is not part of the run; one that continues the session itself is another
                // run.
                let first = View::of(&self.store, row.id, Some(0)).await?;
                let forked = first.record().body::<Forked>();
                let is_of_run =
                    |forked: Forked| forked.is_of_run() || forked.continued_from.is_some() && parent != session;
                if !forked.is_ok_and(is_of_run) {
                    continue;
                }
                parents.push(row.id);
                if !row.closed && !View::of(&self.store, row.id, None).await?.pending().is_empty() {
                    open.push(row.id);
                }
            }
        }
        Ok(open)
    }

    /// Whether another process has a session locked.
    async fn is_locked(&self, session: SessionId) -> Result<bool> {
        match self.store.open(session, self.by.clone()).await {
            Ok(_) => Ok(false),
            Err(error) => match error.kind() {
                ErrorKind::Store(StoreError::Locked { .. }) => Ok(true),
                _ => Err(error.into()),
            },
        }
    }
}
