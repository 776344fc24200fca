//! Ctrl-C: the first one stops the work, the second one exits the program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use rath::Cancel;

use crate::output;
use crate::termination::exit_when_terminated;

/// The exit code of a program that was interrupted.
const EXIT_INTERRUPTED: i32 = 130;

/// Handles Ctrl-C.
#[derive(Clone, Default)]
pub(crate) struct Interrupts {
    /// The work that the next one stops.
    working: Arc<Mutex<Option<Cancel>>>,
    /// Whether there was one since the work started.
    any: Arc<AtomicBool>,
}

impl Interrupts {
    /// Installs the handler. A process may do so once.
    #[allow(clippy::disallowed_methods, reason = "a second Ctrl-C exits at once")]
    pub(crate) fn listen() -> Result<Self> {
        exit_when_terminated()?;
        let interrupts = Self::default();
        let Self { working, any } = interrupts.clone();
        ctrlc::set_handler(move || {
            any.store(true, Ordering::SeqCst);
            match working.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(work) => {
                    work.cancel("interrupted");
                    output::remark("\nstopping; Ctrl-C again exits at once, and no record is lost");
                }
                // Published records are durable, and sandboxes end with this process.
                None => std::process::exit(EXIT_INTERRUPTED),
            }
        })
        .context("listening for interrupts")?;
        Ok(interrupts)
    }

    /// Does what Ctrl-C does. For the line editor, which receives Ctrl-C as a key and not as a signal.
    pub(crate) fn interrupt(&self) {
        self.any.store(true, Ordering::SeqCst);
        if let Some(work) = self.working.lock().unwrap_or_else(PoisonError::into_inner).take() {
            work.cancel("interrupted");
        }
    }

    /// Has the next Ctrl-C stop this work.
    pub(crate) fn stop(&self, work: Cancel) {
        self.any.store(false, Ordering::SeqCst);
        *self.working.lock().unwrap_or_else(PoisonError::into_inner) = Some(work);
    }

    /// Ends the work. Returns whether it was interrupted.
    pub(crate) fn done(&self) -> bool {
        *self.working.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.any.load(Ordering::SeqCst)
    }
}
