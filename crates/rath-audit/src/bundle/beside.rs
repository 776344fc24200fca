//! Work that is done on threads beside, in order.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// So many inputs may be under way: each may be large.
const UNDER_WAY: usize = 8;

/// Threads that turn inputs into outputs, which come in the order in which the inputs were given.
pub(super) struct Beside<I, O> {
    /// Each in turn gets an input.
    threads: Vec<Thread<I, O>>,
    given: usize,
    taken: usize,
}

struct Thread<I, O> {
    inputs: SyncSender<I>,
    outputs: Receiver<O>,
    /// To be waited for when it ended before its time.
    handle: Option<JoinHandle<()>>,
}

impl<I: Send + 'static, O: Send + 'static> Beside<I, O> {
    /// Starts a thread for each of `works`, under a name that shows in a list of threads. Where fewer can be had, those do.
    pub(super) fn new<W: FnMut(I) -> O + Send + 'static>(
        name: &str,
        works: impl IntoIterator<Item = W>,
    ) -> io::Result<Self> {
        let mut threads = Vec::new();
        for work in works {
            match Thread::start(name, work) {
                Ok(thread) => threads.push(thread),
                Err(error) if threads.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(Self { threads, given: 0, taken: 0 })
    }

    /// Gives an input. While many are under way, the oldest is waited for and comes back.
    pub(super) fn give(&mut self, input: I) -> Option<O> {
        let oldest = if self.given - self.taken >= UNDER_WAY { self.take() } else { None };
        let at = self.given % self.threads.len();
        self.given += 1;
        self.threads[at].give(input);
        oldest
    }

    /// The oldest of those under way; `None` when there is none.
    pub(super) fn take(&mut self) -> Option<O> {
        if self.taken == self.given {
            return None;
        }
        let at = self.taken % self.threads.len();
        self.taken += 1;
        Some(self.threads[at].take())
    }
}

impl<I: Send + 'static, O: Send + 'static> Thread<I, O> {
    fn start(name: &str, mut work: impl FnMut(I) -> O + Send + 'static) -> io::Result<Self> {
        let (inputs, given) = sync_channel::<I>(UNDER_WAY);
        let (done, outputs) = sync_channel(UNDER_WAY);
        let handle = std::thread::Builder::new().name(name.into()).spawn(move || {
            while let Ok(input) = given.recv() {
                if done.send(work(input)).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { inputs, outputs, handle: Some(handle) })
    }

    fn give(&mut self, input: I) {
        if self.inputs.send(input).is_err() {
            self.fail();
        }
    }

    fn take(&mut self) -> O {
        match self.outputs.recv() {
            Ok(output) => output,
            Err(_) => self.fail(),
        }
    }

    /// The thread ended before its time: its panic goes on here.
    fn fail(&mut self) -> ! {
        match self.handle.take().map(JoinHandle::join) {
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            _ => panic!("a thread ended before its time"),
        }
    }
}
