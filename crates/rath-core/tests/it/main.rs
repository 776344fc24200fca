//! The tests of rath-core, in one binary.

#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

mod ancestry;
mod compile;
mod continued_runs;
mod files;
mod forked_runs;
mod memory;
mod resume;
mod session;
mod vectors;

mod world;
