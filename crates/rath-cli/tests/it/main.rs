//! The tests of the command line, in one binary.

#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "tests run the binary")]

mod agents;
mod aliases;
mod auth;
mod background;
mod care;
mod checkpoint;
mod config;
mod continuing;
mod crash;
mod doctor;
mod documentation;
mod elsewhere;
mod errors;
mod faults;
mod hostile;
mod idle;
mod json;
mod local;
mod person;
mod policy;
mod requests;
mod runs;
mod search;
mod server;
mod shell;
mod transcript;
mod transcripts;
mod workflows;
mod workspace;
