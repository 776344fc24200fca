//! The scripted model, as an agent's step meets it.

#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

mod file;
mod recordings;
mod script;
mod stream;
mod support;
