//! A session's transcript on the terminal.
//!
//! [`rath::inspect::transcript`] says what the records mean; [`told`] makes lines of it, and [`Blocks`] puts what belongs to
//! one call together.

mod blocks;
mod call;
mod changes;
mod files;
mod model;
mod people;
mod render;
mod run;
mod shown;
mod step;
mod words;

pub(crate) use blocks::Blocks;
pub(crate) use changes::{difference, paths};
pub(crate) use model::unusual_end;
pub(crate) use render::{How, Told, told};
pub(crate) use run::run_lines;
pub(crate) use shown::Shown;
pub(crate) use words::{record_line, span, step_value, usage};
