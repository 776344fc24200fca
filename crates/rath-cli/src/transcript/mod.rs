//! A session's transcript on the terminal.
//!
//! [`rath::inspect::transcript`] interprets the records; [`render`] turns its entries into lines, and [`Blocks`] groups the
//! lines of one call.

mod blocks;
mod branches;
mod call;
mod changes;
mod context;
mod model;
mod questions;
mod render;
mod run;
mod step;
mod text;

pub(crate) use blocks::Blocks;
pub(crate) use changes::{difference, paths};
pub(crate) use context::ShownContext;
pub(crate) use model::unusual_end;
pub(crate) use render::{CallLines, RenderOptions, render};
pub(crate) use run::run_lines;
pub(crate) use text::{record_line, span, step_value, usage};
