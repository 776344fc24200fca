//! Tests of the scripted model, the encoders, the decoders and the clients.

#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

mod chat;
mod decoders;
mod encoders;
mod file;
mod golden;
mod messages;
mod pieces;
mod recordings;
mod responses;
mod script;
mod stream;
mod support;
mod wire;
