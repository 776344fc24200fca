//! One function for each parser that reads hostile input. They panic when it breaks a promise. `cargo xtask fuzz` gives
//! them inputs that a fuzzer makes; the tests of this crate give them the inputs in `fuzz/corpus`, and variations of those.

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
