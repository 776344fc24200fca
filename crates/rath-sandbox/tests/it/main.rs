//! The tests of rath-sandbox, in one binary.

#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "tests start children of their own binary and tell them by environment")]

mod conformance;
mod escape;
mod local;
mod registry;
mod running;
