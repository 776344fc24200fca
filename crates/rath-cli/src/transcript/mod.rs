//! A session's records as a person reads them: steps, words, calls with what they changed, questions, crashes.
//!
//! A [`Teller`] is told the records of one line in order and says what each of them means, in [`Entry`]s. [`Blocks`]
//! puts what belongs to one call together.

mod blocks;
mod call;
mod changes;
mod files;
mod model;
mod people;
mod request;
mod run;
mod shown;
mod step;
mod teller;
mod tree;
mod words;

pub(crate) use blocks::Blocks;
pub(crate) use changes::changed_files;
pub(crate) use model::unusual_end;
pub(crate) use request::{Remade, Verdict, nearest as nearest_request};
pub(crate) use run::run_lines;
pub(crate) use shown::Shown;
pub(crate) use step::Config;
pub(crate) use teller::{Entry, How, Teller};
pub(crate) use tree::{Node, of as steps};
pub(crate) use words::{record_line, span, step_value, usage};
