//! Worker threads whose outputs come in the order of their inputs.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// The maximum number of inputs in progress. Inputs can be large.
const MAX_IN_PROGRESS: usize = 8;

/// Worker threads that turn inputs into outputs. Outputs come in the order of the inputs.
pub(super) struct OrderedWorkers<I, O> {
    /// The threads. They receive inputs in turn.
    threads: Vec<Thread<I, O>>,
    given: usize,
    returned: usize,
}

struct Thread<I, O> {
    inputs: SyncSender<I>,
    outputs: Receiver<O>,
    /// Joined if the thread ends early, to get its panic.
    handle: Option<JoinHandle<()>>,
}

impl<I: Send + 'static, O: Send + 'static> OrderedWorkers<I, O> {
    /// Starts a thread with this name for each of `works`. If not all threads can be started, uses those that can.
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
        Ok(Self { threads, given: 0, returned: 0 })
    }

    /// Passes an input to a thread. If too many inputs are in progress, waits for the oldest output and returns it.
    pub(super) fn give(&mut self, input: I) -> Option<O> {
        let oldest = if self.given - self.returned >= MAX_IN_PROGRESS { self.take() } else { None };
        let at = self.given % self.threads.len();
        self.given += 1;
        self.threads[at].give(input);
        oldest
    }

    /// Waits for the oldest output; `None` if no input is in progress.
    pub(super) fn take(&mut self) -> Option<O> {
        if self.returned == self.given {
            return None;
        }
        let at = self.returned % self.threads.len();
        self.returned += 1;
        Some(self.threads[at].take())
    }
}

impl<I: Send + 'static, O: Send + 'static> Thread<I, O> {
    fn start(name: &str, mut work: impl FnMut(I) -> O + Send + 'static) -> io::Result<Self> {
        let (inputs, given) = sync_channel::<I>(MAX_IN_PROGRESS);
        let (done, outputs) = sync_channel(MAX_IN_PROGRESS);
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

    /// Continues the panic of a thread that ended early.
    fn fail(&mut self) -> ! {
        match self.handle.take().map(JoinHandle::join) {
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            _ => panic!("a worker thread ended early"),
        }
    }
}
