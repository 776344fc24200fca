//! The tests of rath-testkit, in one binary.

#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "how many schedules a run tries is in the environment")]

mod simulation;
