//! Version 1 of the encoders, FROZEN: everything here determines the bytes of requests that are stored already.
//!
//! A stored request is only a digest: its bytes are made again of the records, by the encoder that its record names. So a
//! change to one character here, in a text, in the order of fields, in how calls are named, turns every request that was
//! ever recorded with `@1` from *rebuilt* into *differs*. `tests/it/golden.rs` compares what this module makes with bytes
//! that are checked in, and fails then. Do not update those bytes: make a new version that has its own copy of what changes.
//!
//! What an encoder is given is frozen elsewhere: the messages of `whole@1`, `own_step@1` and `last_answer@1` in
//! `rath_core::StandardView`, and how results of calls refer to outputs in `ToolFinished::shown`.

pub(crate) mod anthropic;
mod arguments;
mod attached;
pub(crate) mod chat;
mod lines;
pub(crate) mod responses;
mod schema;

pub(crate) use arguments::as_text;
