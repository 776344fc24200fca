//! The escape suite: makes each attempt of the program `escape` in a sandbox, which must refuse it.
//!
//! Each test runs in its own processes: as root and as a plain user if the tests are run by root, otherwise as the
//! current user. `RATH_ESCAPE_TABLE=1` prints all results. `RATH_ESCAPE_ONLY=NAME` makes only one attempt; the check of
//! the number of attempts fails then.

#![cfg(target_os = "linux")]
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "tests start children of their own binary and tell them by environment")]

mod host;
mod local;
mod outside;
mod probe;
mod role;
mod table;
mod terminal;
