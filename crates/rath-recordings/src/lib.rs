//! Recorded traffic with providers, compared with what the vendors' own clients made of it.
//!
//! [`check`] decodes every recording of a folder, split in several ways, and compares the turns with the golden files.

mod api;
mod check;
mod exchange;
pub mod golden;
mod python;
mod yaml;

pub use api::{RecordedApi, payloads};
pub use check::{CheckReport, Checked, check, files, pieces};
pub use exchange::{Exchange, read};
pub use golden::{Difference, GoldenVerdict};
