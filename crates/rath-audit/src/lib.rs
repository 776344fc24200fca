//! What keeps a store of sessions accountable.
//!
//! [`bundle`] exports sessions as files that somebody else can check without Rath, and imports them; [`import`] reads
//! conversations of other systems. [`care`] erases, holds and collects records. [`checkpoint`] signs the state of a store,
//! and holds a store against what was signed. What is done to a store is recorded on its [`operator`] session.

pub mod bundle;
pub mod care;
pub mod checkpoint;
pub mod import;
mod needle;
mod operator;

pub use operator::operator;
