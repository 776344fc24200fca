//! Work that is done on a thread beside, in order.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// So many inputs may be under way.
const UNDER_WAY: usize = 8;

/// A thread that turns inputs into outputs, in the order in which they were given.
pub(super) struct Beside<I, O> {
    inputs: Option<SyncSender<I>>,
    outputs: Receiver<O>,
    under_way: usize,
    thread: Option<JoinHandle<()>>,
}

impl<I: Send + 'static, O: Send + 'static> Beside<I, O> {
    /// Starts the thread, under a name that shows in a list of threads.
    pub(super) fn new(name: &str, mut work: impl FnMut(I) -> O + Send + 'static) -> Self {
        let (inputs, given) = sync_channel::<I>(UNDER_WAY);
        let (done, outputs) = sync_channel(UNDER_WAY);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            while let Ok(input) = given.recv() {
                if done.send(work(input)).is_err() {
                    break;
                }
            }
        });
        // Where no thread can be had, the first input says so.
        Self { inputs: Some(inputs), outputs, under_way: 0, thread: thread.ok() }
    }

    /// Gives an input. While many are under way, the oldest is waited for and comes back.
    pub(super) fn give(&mut self, input: I) -> Option<O> {
        let oldest = if self.under_way >= UNDER_WAY { self.take() } else { None };
        self.under_way += 1;
        if self.inputs.as_ref().is_none_or(|inputs| inputs.send(input).is_err()) {
            self.fail();
        }
        oldest
    }

    /// The oldest of those under way; `None` when there is none.
    pub(super) fn take(&mut self) -> Option<O> {
        self.under_way = self.under_way.checked_sub(1)?;
        match self.outputs.recv() {
            Ok(output) => Some(output),
            Err(_) => self.fail(),
        }
    }

    /// The thread ended before its time: its panic goes on here.
    fn fail(&mut self) -> ! {
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            _ => panic!("no thread could be started"),
        }
    }
}
