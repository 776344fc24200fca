//! Simulated power cuts. The file operations of a process are recorded
//! ([`Faults::traced`](crate::faults::Faults::traced)), and [`Trace::image`] builds a possible content of the disk
//! after a power cut at some moment.
//!
//! Synced data is always present. Unsynced data may be partly present: single sectors of 512 bytes in any order, some
//! of them torn or garbled; unsynced creations, renames and removals; a file length without its bytes. Data of a failed
//! sync may be lost even if later syncs succeed, as on Linux.

mod disk;
mod seeded_rng;
mod trace;

pub use seeded_rng::SeededRng;
pub use trace::{Cut, Trace};
