//! Where sessions are kept.
//!
//! [`Embedded`] is the default: one directory with a SQLite database for records and append-only packs for blobs.
//! Any number of processes may read it; each session has one writer at a time; writers of different sessions work
//! side by side. A published tail is one row, a *segment*; commits of several sessions share one sync.
//! [`Question`]s are answered from an index of words that catches up when somebody asks.
//!
//! ```
//! use rath_core::{Actor, Session};
//! use rath_store::Embedded;
//! # pollster::block_on(async {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("store");
//! let store = Embedded::create(&path)?;
//! let mut session = Session::create(&store, Actor::person("ada"));
//! session.user("Remember this.")?;
//! session.publish().await?; // acknowledged: it survives the process and the machine
//! let id = session.id();
//! drop((session, store)); // a store that goes has given back what its sessions held
//!
//! let again = Embedded::open(&path)?;
//! let session = Session::open(&again, id, Actor::person("ada")).await?;
//! assert_eq!(session.head().seq, 1);
//! # Ok::<(), rath_core::Error>(())
//! # }).unwrap();
//! ```

mod embedded;
mod packing;
mod packs;
mod pool;
mod projection;
mod search;
pub mod segment;
mod squeeze;

pub use embedded::{Backup, Destroyed, Doomed, Embedded, FORMAT, Garbage, Health, Kept, PackHealth, Quiet, Raised};
pub use search::{By, Found, Hit, Matched, NotAPattern, Order, Passage, Pattern, Question, SearchHealth};
