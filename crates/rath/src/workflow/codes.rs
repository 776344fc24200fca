//! The error codes of combinators. Each has a page in docs/errors.

pub(super) const NO_BRANCH_ACCEPTED: &str = "no-branch-accepted";
pub(super) const NO_MAJORITY: &str = "no-majority";
pub(super) const PANICKED: &str = "workflow-panicked";
pub(super) const REJECTED: &str = "rejected";
pub(super) const ROUNDS_USED_UP: &str = "rounds-used-up";
pub(super) const TIMED_OUT: &str = "timed-out";
pub(super) const TOO_FEW_SUCCEEDED: &str = "too-few-succeeded";
