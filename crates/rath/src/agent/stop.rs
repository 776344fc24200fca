//! What ends the work before it is done: somebody who says so, here or by a post, and the time of the budget.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rath_core::store::{BoxFuture, Posted, Watcher};
use rath_core::{Cancel, Error, ErrorKind, Session, SessionId, Store};

use super::Agent;
use super::drive::Bench;
use crate::pause::pause;

/// Whether the time of a budget is over: of the agent's own, or of an agent's that it works for.
#[derive(Default)]
pub(super) struct Late {
    own: AtomicBool,
    /// Stops when the own time is over, or a caller's.
    any: Cancel,
}

impl Late {
    pub(super) fn under(caller: Option<Arc<Late>>) -> Self {
        let any = caller.map_or_else(Cancel::new, |caller| caller.any.child());
        Self { own: AtomicBool::new(false), any }
    }

    /// Notes that the own time is over.
    fn say(&self) {
        self.own.store(true, Ordering::Release);
        self.any.cancel("the time of the budget is over");
    }

    /// Whether the own time is over, or a caller's.
    pub(super) fn is_said(&self) -> bool {
        self.any.is_cancelled()
    }

    /// Comes when it is.
    pub(super) async fn said(&self) {
        self.any.cancelled().await;
    }

    fn is_own(&self) -> bool {
        self.own.load(Ordering::Acquire)
    }
}

impl Agent {
    /// Comes when the work is to stop: [`stopped`](Self::stopped) then says why.
    pub(super) fn stop(&self, session: &Session, bench: &Bench) -> BoxFuture<'static, ()> {
        let (id, store, time) = (session.id(), session.store().clone(), self.time_is_over(bench));
        let (cancel, late, posts) = (bench.cancel.clone(), bench.late.clone(), bench.posts.clone());
        Box::pin(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                why = told(id, &*store, &posts) => cancel.cancel(why),
                () = time => late.say(),
            }
        })
    }

    /// Comes when the time of the budget is over.
    pub(super) fn time_is_over(&self, bench: &Bench) -> impl Future<Output = ()> + Send + use<> {
        let left = self.budget.time_left(bench.since);
        async move {
            match left {
                Some(left) => pause(left).await,
                None => pending().await,
            }
        }
    }

    /// Why the work is to stop, if it is.
    pub(super) fn stopped(&self, bench: &Bench) -> Option<Error> {
        if let Some(why) = bench.cancel.why() {
            return Some(ErrorKind::Cancelled { why: why.to_string() }.into());
        }
        let late = bench.late.is_own() || self.budget.time_left(bench.since).is_some_and(|left| left.is_zero());
        late.then(|| ErrorKind::Budget { agent: self.name.clone(), spent: self.budget.time_spent(bench.since) }.into())
    }
}

/// Comes when somebody posts that the work is to stop. The post itself is taken at the next boundary.
async fn told(session: SessionId, store: &dyn Store, watcher: &Watcher) -> String {
    loop {
        watcher.changed().await;
        let posts = store.posts(session).await.unwrap_or_default();
        let stop = posts.iter().find_map(|post| match &post.what {
            Posted::Cancel { why } => Some(format!("{} said so: {why}", post.actor)),
            _ => None,
        });
        if let Some(why) = stop {
            return why;
        }
    }
}
