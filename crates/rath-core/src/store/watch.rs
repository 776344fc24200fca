//! Waiting for changes of a store without asking it again and again.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use super::{Cursor, Page, Result, Scan, Store};
use crate::kind::Kind;

/// What a [`Watcher`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Records were committed.
    Commits,
    /// Something was posted to an inbox.
    Posts,
}

/// Wakes those who wait for changes of one store. Each store has one.
#[derive(Default)]
pub struct Notifier {
    commits: Channel,
    posts: Channel,
}

#[derive(Default)]
struct Channel {
    /// How often there was a change.
    count: AtomicU64,
    watchers: Mutex<Watchers>,
}

#[derive(Default)]
struct Watchers {
    last: u64,
    /// Each with its waker while it waits.
    all: HashMap<u64, Option<Waker>>,
}

impl Channel {
    fn watchers(&self) -> std::sync::MutexGuard<'_, Watchers> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> u64 {
        let mut watchers = self.watchers();
        watchers.last += 1;
        let id = watchers.last;
        watchers.all.insert(id, None);
        id
    }
}

impl Notifier {
    /// Wakes those who wait for `change`. To be called when it can be read.
    pub fn notify(&self, change: Change) {
        let channel = self.channel(change);
        channel.count.fetch_add(1, Ordering::AcqRel);
        let wakers: Vec<Waker> = channel.watchers().all.values_mut().filter_map(Option::take).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits for changes from now on.
    pub fn watch(self: &Arc<Self>, change: Change) -> Watcher {
        let channel = self.channel(change);
        let seen = AtomicU64::new(channel.count.load(Ordering::Acquire));
        Watcher { notifier: self.clone(), change, id: channel.enter(), seen }
    }

    /// Whether anything waits for `change`, or may do so.
    pub fn is_watched(&self, change: Change) -> bool {
        !self.channel(change).watchers().all.is_empty()
    }

    fn channel(&self, change: Change) -> &Channel {
        match change {
            Change::Commits => &self.commits,
            Change::Posts => &self.posts,
        }
    }
}

/// Waits for changes of a store, made by this process or another one. Several changes may wake it once.
///
/// The order that misses nothing: [`mark`](Self::mark), then read, then wait for [`changed`](Self::changed).
pub struct Watcher {
    notifier: Arc<Notifier>,
    change: Change,
    id: u64,
    /// How many changes were taken note of.
    seen: AtomicU64,
}

impl Watcher {
    /// Takes note of all changes until now: only later ones count.
    pub fn mark(&self) {
        let count = self.notifier.channel(self.change).count.load(Ordering::Acquire);
        self.seen.store(count, Ordering::Release);
    }

    /// Comes with the next change since the last one that was taken note of, and takes note of it.
    pub fn changed(&self) -> Changed<'_> {
        Changed(self)
    }
}

impl Clone for Watcher {
    /// Another one that has taken note of as much.
    fn clone(&self) -> Self {
        let id = self.notifier.channel(self.change).enter();
        let seen = AtomicU64::new(self.seen.load(Ordering::Acquire));
        Self { notifier: self.notifier.clone(), change: self.change, id, seen }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.notifier.channel(self.change).watchers().all.remove(&self.id);
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watcher({:?})", self.change)
    }
}

/// Waits for a change.
#[derive(Debug)]
pub struct Changed<'a>(&'a Watcher);

impl Future for Changed<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self(watcher) = *self;
        let channel = watcher.notifier.channel(watcher.change);
        let mut watchers = channel.watchers();
        let count = channel.count.load(Ordering::Acquire);
        if watcher.seen.swap(count, Ordering::AcqRel) != count {
            return Poll::Ready(());
        }
        watchers.all.insert(watcher.id, Some(context.waker().clone()));
        Poll::Pending
    }
}

/// The records of a store as they are committed, by this process and others.
pub struct Commits {
    store: Arc<dyn Store>,
    scan: Scan,
    watcher: Watcher,
}

impl dyn Store {
    /// What is committed after `after`, in commit order: first what is there, then what comes. Nothing is missed, nothing
    /// repeated, and nothing is read while nothing is committed.
    pub fn commits(self: &Arc<Self>, after: Cursor) -> Commits {
        Commits { watcher: self.watch(Change::Commits), scan: Scan::store(after), store: self.clone() }
    }
}

impl Commits {
    /// Only records of these kinds.
    #[must_use]
    pub fn kinds(mut self, kinds: &[Kind]) -> Self {
        self.scan = self.scan.kinds(kinds);
        self
    }

    /// The next page that holds anything; waits for it. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Page> {
        loop {
            self.watcher.mark();
            let page = self.store.scan(self.scan.clone()).await?;
            self.scan.of = super::Of::Store { after: page.cursor.clone() };
            if !page.records.is_empty() {
                return Ok(page);
            }
            if !page.more {
                self.watcher.changed().await;
            }
        }
    }
}

impl fmt::Debug for Commits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commits").field("scan", &self.scan).finish_non_exhaustive()
    }
}
