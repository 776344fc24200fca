//! The escape suite: every attempt of `escape` is made in a sandbox, and every one must be refused.
//!
//! Each test runs in processes of its own, one a user: as root and as a plain user where the tests are run by root.
//! `RATH_ESCAPE_TABLE=1` shows every verdict; `RATH_ESCAPE_ONLY=NAME` makes one attempt, and the counts then fail.

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
