//! The tests of the workshop, in one binary.

#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "commands need a PATH")]

mod agents;
mod bank;
mod blame;
mod builtin_tools;
mod bundles;
mod care;
mod checkpoints;
mod edges;
mod evidence;
mod examples;
mod imports;
mod inspect;
mod killed;
mod layers;
mod lost;
mod model;
mod operator;
mod random_runs;
mod setups;
mod shared;
mod support;
mod tools_macro;
mod ui;
