//! [`Cancel`]: a cancellation token. Cancellation is cooperative: work must check the token or await it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

/// A cancellation token. Clones are the same token. A [child](Cancel::child) is also cancelled when its parent is.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Inner>);

#[derive(Default)]
struct Inner {
    stopped: AtomicBool,
    waits: Mutex<Waits>,
}

#[derive(Default)]
struct Waits {
    why: Option<Arc<str>>,
    wakers: Vec<Waker>,
    children: Vec<Weak<Inner>>,
}

impl Cancel {
    /// A new token, not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// A token that is cancelled when this one is, and can be cancelled separately.
    #[must_use]
    pub fn child(&self) -> Self {
        let child = Self::new();
        let mut waits = self.waits();
        match &waits.why {
            Some(why) => child.cancel(why.as_ref()),
            None => {
                waits.children.retain(|child| child.strong_count() > 0);
                waits.children.push(Arc::downgrade(&child.0));
            }
        }
        drop(waits);
        child
    }

    /// Cancels the token. If it was cancelled before, the first reason stays.
    pub fn cancel(&self, why: impl Into<String>) {
        let why: Arc<str> = why.into().into();
        let mut waits = self.waits();
        let why = waits.why.get_or_insert(why).clone();
        self.0.stopped.store(true, Ordering::Release);
        let (wakers, children) = (std::mem::take(&mut waits.wakers), std::mem::take(&mut waits.children));
        drop(waits);
        wakers.into_iter().for_each(Waker::wake);
        for child in children.iter().filter_map(Weak::upgrade) {
            Self(child).cancel(why.as_ref());
        }
    }

    /// Whether the token is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// The reason; `None` if the token is not cancelled.
    pub fn why(&self) -> Option<Arc<str>> {
        self.waits().why.clone()
    }

    /// Waits until the token is cancelled.
    pub fn cancelled(&self) -> CancelledFuture {
        CancelledFuture(self.clone())
    }

    fn waits(&self) -> std::sync::MutexGuard<'_, Waits> {
        self.0.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Cancel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cancel({})", if self.is_cancelled() { "stopped" } else { "going" })
    }
}

/// The future returned by [`Cancel::cancelled`].
#[derive(Debug)]
pub struct CancelledFuture(Cancel);

impl Future for CancelledFuture {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0.is_cancelled() {
            return Poll::Ready(());
        }
        let mut waits = self.0.waits();
        if waits.why.is_some() {
            return Poll::Ready(());
        }
        if !waits.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            waits.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelling_a_parent_cancels_children_but_not_vice_versa() {
        let parent = Cancel::new();
        let (one, other) = (parent.child(), parent.child());
        one.cancel("enough");
        assert!(one.is_cancelled() && !parent.is_cancelled() && !other.is_cancelled());
        parent.cancel("the user left");
        assert_eq!(other.why().as_deref(), Some("the user left"));
        assert_eq!(one.why().as_deref(), Some("enough"), "the first reason stays");
        assert!(parent.child().is_cancelled(), "a child of a cancelled token is cancelled");
    }

    #[test]
    fn waiting_ends_when_another_thread_cancels() {
        let token = Cancel::new();
        let child = token.child();
        let waiting = std::thread::spawn(move || pollster::block_on(child.cancelled()));
        token.cancel("now");
        waiting.join().unwrap();
    }
}
