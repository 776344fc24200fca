//! The tests of rath-store, in one binary.

#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "tests start children of their own binary and tell them by environment")]

mod begun_runs;
mod conformance;
mod corpus;
mod crash;
mod damage;
mod erasing;
mod faults;
mod folds;
mod formats;
mod holes;
mod inboxes;
mod power;
mod processes;
mod projections;
mod raising;
mod riders;
mod scanning;
mod search;
mod shape;
mod simulation;
mod squeezed;
mod support;
mod tamper;
mod watching;
mod world;
