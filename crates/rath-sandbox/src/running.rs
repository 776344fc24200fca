//! A running command: the caller's end ([`Running`]) and the backend's end ([`OutputSink`]).

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::error::{Error, Result};
use crate::finished::{CapturedOutput, Finished};

/// Maximum number of recorded switches between the two streams. Beyond it, output is attached to the last chunk of its
/// stream, so the order of the streams is lost.
const MOST_CHUNKS: usize = 1 << 16;

/// A running command.
///
/// The output is kept up to the command's limit, even if nothing reads it. Dropping this value kills the command and
/// everything that it started. After [`detach`](Running::detach), the command runs until it ends or the sandbox is
/// closed.
pub struct Running {
    shared: Arc<Shared>,
    stop: Box<dyn Fn(StopMode) + Send + Sync>,
    /// The result, once it is known.
    done: Option<Result<Finished>>,
    chunks: VecDeque<(Stream, usize)>,
    given: [usize; 2],
    detached: bool,
}

/// An event of a running command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandEvent {
    /// The command wrote output.
    Output {
        /// The stream.
        stream: Stream,
        /// The output.
        bytes: Vec<u8>,
    },
}

/// One of a command's two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How to stop a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopMode {
    /// SIGTERM, then SIGKILL after the command's [grace period](crate::Command::grace).
    Graceful,
    /// SIGKILL at once.
    Immediate,
}

/// The backend's end of a running command: receives its output and its result.
pub struct OutputSink {
    shared: Arc<Shared>,
    limit: u64,
}

struct Shared(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    captured: [CapturedOutput; 2],
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
    /// Creates both ends. At most `limit` bytes of each stream are kept. `stop` must request the stop and return
    /// without waiting; for a command that has ended, it must do nothing.
    pub fn new(limit: u64, stop: impl Fn(StopMode) + Send + Sync + 'static) -> (Running, OutputSink) {
        let shared = Arc::new(Shared(Mutex::default()));
        let running = Running {
            shared: shared.clone(),
            stop: Box::new(stop),
            done: None,
            chunks: VecDeque::new(),
            given: [0; 2],
            detached: false,
        };
        (running, OutputSink { shared, limit })
    }

    /// The next event; `None` after the end. Output beyond the limit gives no events.
    pub async fn next(&mut self) -> Option<CommandEvent> {
        poll_fn(|context| match self.take(context.waker()) {
            None if self.done.is_none() => Poll::Pending,
            event => Poll::Ready(event),
        })
        .await
    }

    /// Waits for the end of the command.
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

    /// The result, without waiting. `None` while the command runs.
    pub fn poll(&mut self) -> Option<Result<&Finished, &Error>> {
        let shared = self.shared.clone();
        self.settle(&mut shared.lock(), None);
        self.done.as_ref().map(Result::as_ref)
    }

    /// Stops the command and everything that it started, with SIGTERM and, after the grace period, SIGKILL. Does not
    /// wait: [`finish`](Self::finish) returns the result.
    pub fn stop(&self) {
        (self.stop)(StopMode::Graceful);
    }

    /// Lets the command run without this value.
    pub fn detach(mut self) {
        self.detached = true;
    }

    /// Takes the result from the backend, or registers the waker if there is none yet.
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

    /// The oldest output that was not returned yet. Looks for the output and for the result under one lock, because the
    /// result moves the output.
    fn take(&mut self, waker: &Waker) -> Option<CommandEvent> {
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
        Some(CommandEvent::Output { stream, bytes: kept.bytes[from..from + length].to_vec() })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.detached && self.done.is_none() {
            (self.stop)(StopMode::Immediate);
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("done", &self.done).finish_non_exhaustive()
    }
}

impl OutputSink {
    /// Adds output.
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

    /// Sets the result. The output of `done` is replaced by what was pushed.
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

impl Drop for OutputSink {
    /// Sets an error if the backend stops without a result, so that the caller does not wait forever.
    fn drop(&mut self) {
        let ended = self.shared.lock().ended;
        if !ended {
            self.settle(Err(Error::machine("running a command", "the thread that watched it stopped")));
        }
    }
}

impl fmt::Debug for OutputSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Feed")
    }
}
