//! The rules by which a store decides what it accepts, separate from how it stores that.
//!
//! [`Rules`] are pure functions of a store's state and a [`Proposal`]: whether the records follow the head, whether the
//! fencing token is current, which records are stored already, which process gets a lease, and how a post's status
//! changes. [`commit`] applies them to a batch and writes the result to a [`CommitBackend`], the storage of one store.
//! All stores use these functions, and the simulator in `rath-testkit` runs the same ones through seeded schedules, so
//! its results hold for the stores.

mod commit;
mod inbox;
mod proposal;
mod rules;

pub use commit::{CommitBackend, Propose, commit};
pub use inbox::PostStatus;
pub use proposal::{ChainEntry, Proposal, StoredHead};
pub use rules::{Protocol, Rules};
