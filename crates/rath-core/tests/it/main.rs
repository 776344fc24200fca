//! The tests of rath-core, in one binary.

#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "how many random programs a run tries is in the environment")]

mod ancestry;
mod continued_runs;
mod files;
mod forked_runs;
mod in_memory;
mod merges;
mod resume;
mod session;
mod step_values;
mod trimmed;
mod unknown_values;
mod vectors;
mod waits;

mod world;
