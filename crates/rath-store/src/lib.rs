//! The store on disk.
//!
//! [`Embedded`] is the default store: one directory with a SQLite database for records and append-only packs for blobs.
//! Any number of processes may read it. Each session has one writer at a time, and different sessions can be written
//! concurrently. The records of one publish are one row, a *segment*; commits of several sessions share one sync.
//! [`Embedded::search`] answers a [`SearchQuery`] from a full-text index, which is updated when a search needs it.
//! [`Embedded::collect`] removes unreferenced blobs, and [`Embedded::destroy`] carries out an [`ErasePlan`].
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
//! session.publish().await?; // durable: it survives a crash of the process or the machine
//! let id = session.id();
//! drop((session, store)); // closing the store releases the leases of its sessions
//!
//! let again = Embedded::open(&path)?;
//! let session = Session::open(&again, id, Actor::person("ada")).await?;
//! assert_eq!(session.head().seq, 1);
//! # Ok::<(), rath_core::Error>(())
//! # }).unwrap();
//! ```

mod compress;
mod embedded;
mod packing;
mod packs;
mod pool;
mod projection;
mod search;
pub mod segment;

pub use embedded::{
    Embedded, EraseLock, ErasePlan, EraseReport, FORMAT, FormatBackup, FormatUpgrade, GcReport, KeptBlob, PackHealth,
    StoreHealth,
};
pub use search::{
    ActorFilter, MatchedPassage, Passage, Pattern, PatternError, SearchHealth, SearchHit, SearchOrder, SearchQuery,
    SearchResults,
};
