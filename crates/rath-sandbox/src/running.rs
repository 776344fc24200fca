//! A command while it runs: the reader's end and the backend's end.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::error::{Error, Result};
use crate::finished::{Captured, Finished};

/// How many changes between the streams are remembered for a reader that does not read.
const MOST_CHUNKS: usize = 1 << 16;

/// A command that was started. Its output is kept up to the command's limit whether anyone reads it or not.
/// Dropping it kills the command and all that it started; [detached](Running::detach), it runs on until it ends or
/// the sandbox is closed.
pub struct Running {
    shared: Arc<Shared>,
    stop: Box<dyn Fn(Stop) + Send + Sync>,
    /// What became of it, once known.
    done: Option<Result<Finished>>,
    chunks: VecDeque<(Stream, usize)>,
    given: [usize; 2],
    detached: bool,
}

/// Something a command did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It wrote.
    Output {
        /// Where.
        stream: Stream,
        /// What.
        bytes: Vec<u8>,
    },
}

/// One of a command's two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How a command is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// It may end by itself within its grace.
    Politely,
    /// At once.
    Now,
}

/// The backend's end: where it puts what the command does.
pub struct Feed {
    shared: Arc<Shared>,
    limit: u64,
}

struct Shared(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    captured: [Captured; 2],
    chunks: VecDeque<(Stream, usize)>,
    done: Option<Result<Finished>>,
    ended: bool,
    waker: Option<Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    /// The two ends of a command of which `limit` bytes a stream are kept. `stop` asks the backend to stop it and
    /// returns at once; asking a command that has ended does nothing.
    pub fn new(limit: u64, stop: impl Fn(Stop) + Send + Sync + 'static) -> (Running, Feed) {
        let shared = Arc::new(Shared(Mutex::default()));
        let running = Running {
            shared: shared.clone(),
            stop: Box::new(stop),
            done: None,
            chunks: VecDeque::new(),
            given: [0; 2],
            detached: false,
        };
        (running, Feed { shared, limit })
    }

    /// The next thing it did, `None` after its end. Output beyond the limit is not among it.
    pub async fn next(&mut self) -> Option<Event> {
        poll_fn(|context| match self.take(context.waker()) {
            None if self.done.is_none() => Poll::Pending,
            event => Poll::Ready(event),
        })
        .await
    }

    /// Waits for its end.
    pub async fn finish(mut self) -> Result<Finished> {
        poll_fn(|context| {
            let shared = self.shared.clone();
            self.settle(&mut shared.lock(), Some(context.waker()));
            let done = self.done.take();
            self.detached |= done.is_some();
            done.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// What became of it, without waiting. `None` while it runs.
    pub fn poll(&mut self) -> Option<Result<&Finished, &Error>> {
        let shared = self.shared.clone();
        self.settle(&mut shared.lock(), None);
        self.done.as_ref().map(Result::as_ref)
    }

    /// Stops it and all that it started, within its grace. Its end comes as usual.
    pub fn kill(&self) {
        (self.stop)(Stop::Politely);
    }

    /// Lets it run on by itself.
    pub fn detach(mut self) {
        self.detached = true;
    }

    /// Takes over what the backend is done with, or leaves a waker.
    fn settle(&mut self, inner: &mut Inner, waker: Option<&Waker>) {
        if self.done.is_some() {
            return;
        }
        if let Some(done) = inner.done.take() {
            self.done = Some(done);
            self.chunks.append(&mut inner.chunks);
        } else if let Some(waker) = waker {
            inner.waker = Some(waker.clone());
        }
    }

    /// The oldest output that was not given out. It is looked for under the lock under which the command was seen to
    /// run or to have ended: the end takes the output with it.
    fn take(&mut self, waker: &Waker) -> Option<Event> {
        let shared = self.shared.clone();
        let mut inner = shared.lock();
        self.settle(&mut inner, Some(waker));
        let (stream, length) = self.chunks.pop_front().or_else(|| inner.chunks.pop_front())?;
        let from = self.given[stream as usize];
        self.given[stream as usize] += length;
        let kept = match &self.done {
            Some(Ok(finished)) => [&finished.stdout, &finished.stderr][stream as usize],
            _ => &inner.captured[stream as usize],
        };
        Some(Event::Output { stream, bytes: kept.bytes[from..from + length].to_vec() })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.detached && self.done.is_none() {
            (self.stop)(Stop::Now);
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("done", &self.done).finish_non_exhaustive()
    }
}

impl Feed {
    /// The command wrote.
    pub fn push(&self, stream: Stream, bytes: &[u8]) {
        let mut guard = self.shared.lock();
        let inner = &mut *guard;
        let kept = inner.captured[stream as usize].push(bytes, self.limit);
        if kept == 0 {
            return;
        }
        let looked_at = if inner.chunks.len() < MOST_CHUNKS { 1 } else { 2 };
        match inner.chunks.iter_mut().rev().take(looked_at).find(|(of, _)| *of == stream) {
            Some((_, length)) => *length += kept,
            None => inner.chunks.push_back((stream, kept)),
        }
        let waker = inner.waker.take();
        drop(guard);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The command ended. Its output is what was pushed.
    pub fn end(self, done: Result<Finished>) {
        self.settle(done);
    }

    fn settle(&self, done: Result<Finished>) {
        let mut inner = self.shared.lock();
        inner.ended = true;
        inner.done = Some(done.map(|mut finished| {
            [finished.stdout, finished.stderr] = std::mem::take(&mut inner.captured);
            finished
        }));
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Feed {
    /// A backend that gives up without a word must not leave a reader waiting.
    fn drop(&mut self) {
        let ended = self.shared.lock().ended;
        if !ended {
            self.settle(Err(Error::machine("running a command", "its watcher stopped")));
        }
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Feed")
    }
}
