//! Signed checkpoints: what a store was at one moment, so that what is lost or rewritten behind it shows.
//!
//! [`make`] signs the heads of all sessions with a [`SigningKey`] and writes the line on the operator session; [`chain`]
//! reads all of them back. [`audit`] holds a store against its checkpoints, and against lines that somebody kept
//! elsewhere; [`compare`] holds two copies against each other. Whoever has the key and the store can rewrite both: only a
//! line that left the machine protects against that.

mod audit;
mod compare;
mod key;
mod make;
mod stored;

pub use audit::{Audit, audit};
pub use compare::{Comparison, compare};
pub use key::{BadKey, MOST_SUCCESSIONS, SigningKey, is_signed};
pub use make::{Error, Wish, make};
pub use rath_core::checkpoint::*;
pub use stored::{Chain, Stored, chain};
