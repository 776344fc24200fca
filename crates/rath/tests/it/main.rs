//! The tests of the workshop, in one binary.

#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "commands need a PATH")]

mod blame;
mod edges;
mod evidence;
mod layers;
mod lost;
mod model;
mod setups;
mod shared;
mod support;
