//! The tests of the audit crate, in one binary.

#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "verify.py is run")]

mod admin;
mod bundles;
mod checkpoints;
mod imports;
mod operator;
