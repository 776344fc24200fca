//! What stops a run early: a cancel token, a cancel request in the inbox, and the time limit of the budget.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rath_core::store::{BoxFuture, PostContent, Watcher};
use rath_core::{Cancel, Error, ErrorKind, Session, SessionId, Store};

use super::Agent;
use super::drive::StepContext;
use crate::sleep::sleep;

/// The time limit of an agent's budget, and of the budgets of the agents that called it.
#[derive(Default)]
pub(super) struct TimeLimit {
    own: AtomicBool,
    /// Cancelled when the own limit or a caller's is reached.
    any: Cancel,
}

impl TimeLimit {
    pub(super) fn under(caller: Option<Arc<TimeLimit>>) -> Self {
        let any = caller.map_or_else(Cancel::new, |caller| caller.any.child());
        Self { own: AtomicBool::new(false), any }
    }

    /// Marks the own limit as reached.
    fn reach(&self) {
        self.own.store(true, Ordering::Release);
        self.any.cancel("the time limit of the budget is reached");
    }

    /// Whether the own limit or a caller's is reached.
    pub(super) fn is_reached(&self) -> bool {
        self.any.is_cancelled()
    }

    /// Completes when the own limit or a caller's is reached.
    pub(super) async fn reached(&self) {
        self.any.cancelled().await;
    }

    fn is_own(&self) -> bool {
        self.own.load(Ordering::Acquire)
    }
}

impl Agent {
    /// Completes when the run must stop. Then [`stopped`](Self::stopped) returns the reason.
    pub(super) fn stop(&self, session: &Session, context: &StepContext) -> BoxFuture<'static, ()> {
        let (id, store, time) = (session.id(), session.store().clone(), self.time_is_over(context));
        let (cancel, time_limit, posts) = (context.cancel.clone(), context.time_limit.clone(), context.posts.clone());
        Box::pin(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                why = told(id, &*store, &posts) => cancel.cancel(why),
                () = time => time_limit.reach(),
            }
        })
    }

    /// Completes when the time limit of the budget is reached.
    pub(super) fn time_is_over(&self, context: &StepContext) -> impl Future<Output = ()> + Send + use<> {
        let left = self.budget.time_left(context.since);
        async move {
            match left {
                Some(left) => sleep(left).await,
                None => pending().await,
            }
        }
    }

    /// The error to stop with, if the run must stop.
    pub(super) fn stopped(&self, context: &StepContext) -> Option<Error> {
        if let Some(why) = context.cancel.why() {
            return Some(ErrorKind::Cancelled { why: why.to_string() }.into());
        }
        let time_limit =
            context.time_limit.is_own() || self.budget.time_left(context.since).is_some_and(|left| left.is_zero());
        time_limit.then(|| {
            ErrorKind::Budget { agent: self.name.clone(), spent: self.budget.time_spent(context.since) }.into()
        })
    }
}

/// Completes with the reason when a cancel request is posted. The post is consumed at the next boundary.
async fn told(session: SessionId, store: &dyn Store, watcher: &Watcher) -> String {
    loop {
        watcher.changed().await;
        let posts = store.posts(session).await.unwrap_or_default();
        let stop = posts.iter().find_map(|post| match &post.what {
            PostContent::Cancel { why } => Some(format!("requested by {}: {why}", post.actor)),
            _ => None,
        });
        if let Some(why) = stop {
            return why;
        }
    }
}
