//! A lock between starting processes and writing programs.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Between fork and exec, a new process has all open files of this process. If a program is being written at that
/// moment, it cannot be executed ("text file busy") until the exec closes the files.
static STARTING: RwLock<()> = RwLock::new(());

/// While the guard exists, no sandbox starts a process.
pub(crate) fn block_starts() -> RwLockWriteGuard<'static, ()> {
    STARTING.write().unwrap_or_else(PoisonError::into_inner)
}

/// To be held while a process is started.
pub(crate) fn starting() -> RwLockReadGuard<'static, ()> {
    STARTING.read().unwrap_or_else(PoisonError::into_inner)
}
