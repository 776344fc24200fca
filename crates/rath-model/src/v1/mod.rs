//! Version 1 of the encoders, FROZEN: everything here determines the bytes of requests that are stored already.
//!
//! A store keeps only the digest of a request: its bytes are rebuilt from the records, by the encoder that the record
//! names. A change of one character here, in a text, in the order of fields, or in the names of calls, makes every
//! request that was ever recorded with `@1` *differ* instead of being *rebuilt*. `tests/it/golden.rs` compares the
//! output of this module with bytes that are checked in, and fails in that case. Do not update those bytes: add a new
//! version with its own copy of what changes.
//!
//! The input of the encoders is frozen elsewhere: the messages of `whole@1`, `own_step@1` and `last_answer@1` in
//! `rath_core::StandardView`, and how results of calls refer to outputs in `ToolFinished::shown`.

pub(crate) mod anthropic;
mod arguments;
mod attached;
pub(crate) mod chat;
mod conversation;
pub(crate) mod responses;
mod schema;

pub(crate) use arguments::as_text;
