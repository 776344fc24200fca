//! The integration tests of the crate, in one binary.

#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "commands need a PATH")]

mod agents;
mod bank;
mod blame;
mod builtin_tools;
mod edges;
mod evidence;
mod examples;
mod inspect;
mod layers;
mod lost;
mod model;
mod process_killed;
mod random_runs;
mod random_workflows;
mod run_workflow;
mod setups;
mod shared;
mod store_dies;
mod support;
mod tools_macro;
mod workers;
mod workflow_faults;
mod workflow_files;
mod workflows;
