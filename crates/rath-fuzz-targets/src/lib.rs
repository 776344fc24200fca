//! Fuzz targets: one function for each parser of untrusted input. A target panics if the parser breaks a promise.
//! `cargo xtask fuzz` runs the targets with a fuzzer; the tests of this crate run them with the inputs in `fuzz/corpus`
//! and variations of those.

#![allow(clippy::expect_used, clippy::missing_panics_doc, reason = "a target fails by panicking")]

mod bundle;
mod expression;
mod import;
mod record;
mod shell;
mod sse;

pub use bundle::bundle;
pub use expression::expression;
pub use import::import;
pub use record::record;
pub use shell::shell;
pub use sse::sse;
