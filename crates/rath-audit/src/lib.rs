//! Audit and administration of a store of sessions.
//!
//! [`bundle`] exports sessions as bundles, which can be verified without Rath, and imports them. [`import`] reads
//! conversations of other systems. [`admin`] holds, erases and collects records through
//! [`StoreAdmin`](admin::StoreAdmin). [`checkpoint`] signs the state of a store, and verifies a store against what was
//! signed. Everything that is done to a store is recorded in its [`operator`] session.

pub mod admin;
pub mod bundle;
pub mod checkpoint;
pub mod import;
mod operator;
mod text_pattern;

pub use operator::operator;
