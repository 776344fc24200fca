//! [`CallBranch`]: the branch of the session that a call works on.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::session::Session;

/// The branch that the runtime forks for a call of a tool with [`branches`](crate::ToolSpec::branches). The tool takes
/// it with [`Call::branch`](crate::Call::branch).
pub struct CallBranch(Mutex<Option<Session>>);

impl CallBranch {
    /// A branch that can be taken once.
    pub fn new(branch: Session) -> Self {
        Self(Mutex::new(Some(branch)))
    }

    /// Takes the branch; `None` if it was taken before.
    pub fn take(&self) -> Option<Session> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for CallBranch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallBranch")
    }
}
