//! Waiting for changes of a store without polling it.

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
pub enum WatchTopic {
    /// Records were committed.
    Commits,
    /// A post was put into an inbox.
    Posts,
}

/// Wakes the watchers of one store. Each store has one notifier.
#[derive(Default)]
pub struct Notifier {
    commits: Channel,
    posts: Channel,
}

#[derive(Default)]
struct Channel {
    /// The number of changes so far.
    count: AtomicU64,
    watchers: Mutex<Watchers>,
}

#[derive(Default)]
struct Watchers {
    last: u64,
    /// All watchers by id, with the waker of a waiting one.
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
    /// Wakes the watchers of `topic`. Call it only after the change is visible to readers.
    pub fn notify(&self, topic: WatchTopic) {
        let channel = self.channel(topic);
        channel.count.fetch_add(1, Ordering::AcqRel);
        let wakers: Vec<Waker> = channel.watchers().all.values_mut().filter_map(Option::take).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Creates a watcher for changes from now on.
    pub fn watch(self: &Arc<Self>, topic: WatchTopic) -> Watcher {
        let channel = self.channel(topic);
        let seen = AtomicU64::new(channel.count.load(Ordering::Acquire));
        Watcher { notifier: self.clone(), topic, id: channel.enter(), seen }
    }

    /// Whether `topic` has any watchers.
    pub fn is_watched(&self, topic: WatchTopic) -> bool {
        !self.channel(topic).watchers().all.is_empty()
    }

    fn channel(&self, topic: WatchTopic) -> &Channel {
        match topic {
            WatchTopic::Commits => &self.commits,
            WatchTopic::Posts => &self.posts,
        }
    }
}

/// Waits for changes of a store, made by this process or another one. Several changes may complete one wait.
///
/// To miss no change, first call [`mark`](Self::mark), then read, then wait for [`changed`](Self::changed).
pub struct Watcher {
    notifier: Arc<Notifier>,
    topic: WatchTopic,
    id: u64,
    /// The number of changes that were marked as seen.
    seen: AtomicU64,
}

impl Watcher {
    /// Marks all changes so far as seen.
    pub fn mark(&self) {
        let count = self.notifier.channel(self.topic).count.load(Ordering::Acquire);
        self.seen.store(count, Ordering::Release);
    }

    /// Completes at the next change that is not marked as seen, and marks all changes as seen. Completes at once if
    /// there was such a change already.
    pub fn changed(&self) -> Changed<'_> {
        Changed(self)
    }
}

impl Clone for Watcher {
    /// Creates a watcher that has seen the same changes.
    fn clone(&self) -> Self {
        let id = self.notifier.channel(self.topic).enter();
        let seen = AtomicU64::new(self.seen.load(Ordering::Acquire));
        Self { notifier: self.notifier.clone(), topic: self.topic, id, seen }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.notifier.channel(self.topic).watchers().all.remove(&self.id);
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watcher({:?})", self.topic)
    }
}

/// The future returned by [`Watcher::changed`].
#[derive(Debug)]
pub struct Changed<'a>(&'a Watcher);

impl Future for Changed<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self(watcher) = *self;
        let channel = watcher.notifier.channel(watcher.topic);
        let mut watchers = channel.watchers();
        let count = channel.count.load(Ordering::Acquire);
        if watcher.seen.swap(count, Ordering::AcqRel) != count {
            return Poll::Ready(());
        }
        watchers.all.insert(watcher.id, Some(context.waker().clone()));
        Poll::Pending
    }
}

/// A stream of the records of a store, as they are committed by this process and others.
pub struct Commits {
    store: Arc<dyn Store>,
    scan: Scan,
    watcher: Watcher,
}

impl dyn Store {
    /// Returns the records after `after` in commit order: first the stored ones, then new ones as they are committed.
    /// No record is skipped or repeated. The store is read only after a commit.
    pub fn commits(self: &Arc<Self>, after: Cursor) -> Commits {
        Commits { watcher: self.watch(WatchTopic::Commits), scan: Scan::store(after), store: self.clone() }
    }
}

impl Commits {
    /// Returns only records of these kinds.
    #[must_use]
    pub fn kinds(mut self, kinds: &[Kind]) -> Self {
        self.scan = self.scan.kinds(kinds);
        self
    }

    /// Waits for the next page that is not empty. The future can be dropped without losing records.
    pub async fn next(&mut self) -> Result<Page> {
        loop {
            self.watcher.mark();
            let page = self.store.scan(self.scan.clone()).await?;
            self.scan.range = super::ScanRange::Store { after: page.cursor.clone() };
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
