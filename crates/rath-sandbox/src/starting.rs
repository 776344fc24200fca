//! Programs are written while no process is started, and the other way round.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A process that is being started has all open files of this one for a moment. If a program is being written at
/// that moment it cannot be run ("text file busy") until the other process has let go of it.
static STARTING: RwLock<()> = RwLock::new(());

/// Until it is dropped, no sandbox starts a process.
pub(crate) fn none() -> RwLockWriteGuard<'static, ()> {
    STARTING.write().unwrap_or_else(PoisonError::into_inner)
}

/// Held while a process is started.
pub(crate) fn one() -> RwLockReadGuard<'static, ()> {
    STARTING.read().unwrap_or_else(PoisonError::into_inner)
}
