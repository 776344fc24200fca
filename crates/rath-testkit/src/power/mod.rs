//! Power cuts: what a process did to its files is written down ([`Faults::traced`](crate::faults::Faults::traced)), and
//! images are built of what the disk may hold when the power goes at some moment ([`Trace::image`]).
//!
//! What was synced is there. Of what was not, any part may be: single sectors of 512 bytes, in any order, some of them
//! torn or garbled; new names, renames and removals that nobody synced; a length without its bytes. What a failed sync
//! was about may be lost whatever later ones say, as on Linux.

mod chance;
mod disk;
mod trace;

pub use chance::Chance;
pub use trace::{Cut, Trace};
