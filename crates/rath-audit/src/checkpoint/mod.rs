//! Signed checkpoints of a store, which reveal if records were lost or rewritten later.
//!
//! [`make`] signs the heads of all sessions with a [`SigningKey`] and records the checkpoint in the operator session;
//! [`chain`] reads all checkpoints of a store. [`audit`] verifies a store against its checkpoints, and against copies
//! of checkpoints that were kept elsewhere. [`compare`] compares two copies of a store. Someone with the key and the
//! store can rewrite both; only a copy of a checkpoint outside the machine protects against that.

mod audit;
mod compare;
mod key;
mod make;
mod stored;

pub use audit::{AuditReport, audit};
pub use compare::{StoreComparison, compare};
pub use key::{InvalidKey, MOST_SUCCESSIONS, SigningKey, is_signed};
pub use make::{CheckpointError, CheckpointOptions, make};
pub use rath_core::checkpoint::*;
pub use stored::{CheckpointChain, StoredCheckpoint, chain};
