//! The tests of rath-store, in one binary.

#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests start child processes of their own binary, with arguments in environment variables"
)]

mod compressed_segments;
mod conformance;
mod corpus;
mod crash;
mod damage;
mod earlier_runs;
mod erased_state;
mod erasing;
mod faults;
mod folds;
mod formats;
mod inboxes;
mod inline_blobs;
mod power;
mod processes;
mod projections;
mod random_programs;
mod scanning;
mod schema_check;
mod search;
mod simulation;
mod support;
mod tamper;
mod upgrading;
mod watching;
