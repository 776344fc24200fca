//! Ctrl-C: the first one stops what is being done, the second one leaves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use rath::Cancel;

use crate::output;
use crate::termination::leave_when_terminated;

/// What a program that Ctrl-C ended says.
const INTERRUPTED: i32 = 130;

/// Listens for Ctrl-C.
#[derive(Clone, Default)]
pub(crate) struct Interrupts {
    /// What is stopped by the next one.
    working: Arc<Mutex<Option<Cancel>>>,
    /// Whether there was one.
    any: Arc<AtomicBool>,
}

impl Interrupts {
    /// Begins to listen. The process may do so once.
    #[allow(clippy::disallowed_methods, reason = "a second Ctrl-C waits for nobody, not for main either")]
    pub(crate) fn listen() -> Result<Self> {
        leave_when_terminated()?;
        let interrupts = Self::default();
        let Self { working, any } = interrupts.clone();
        ctrlc::set_handler(move || {
            any.store(true, Ordering::SeqCst);
            match working.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(work) => {
                    work.cancel("interrupted");
                    output::remark("\nstopping; Ctrl-C again leaves at once, nothing is lost");
                }
                // What was recorded is durable, and sandboxes end with their parent.
                None => std::process::exit(INTERRUPTED),
            }
        })
        .context("listening for interrupts")?;
        Ok(interrupts)
    }

    /// As Ctrl-C, where the keyboard has it.
    pub(crate) fn interrupt(&self) {
        self.any.store(true, Ordering::SeqCst);
        if let Some(work) = self.working.lock().unwrap_or_else(PoisonError::into_inner).take() {
            work.cancel("interrupted");
        }
    }

    /// The next one stops this work.
    pub(crate) fn stop(&self, work: Cancel) {
        self.any.store(false, Ordering::SeqCst);
        *self.working.lock().unwrap_or_else(PoisonError::into_inner) = Some(work);
    }

    /// The work is over. Says whether it was stopped.
    pub(crate) fn done(&self) -> bool {
        *self.working.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.any.load(Ordering::SeqCst)
    }
}
