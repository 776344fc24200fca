//! Recorded traffic with providers, and what the vendors' own clients made of it.
//!
//! [`check`] reads every recording of a folder in random pieces and compares the turns with the goldens beside them.

mod api;
mod check;
mod exchange;
pub mod golden;
mod python;
mod yaml;

pub use api::{Api, payloads};
pub use check::{Checked, Report, check, files, pieces};
pub use exchange::{Exchange, read};
pub use golden::{Difference, Verdict};
