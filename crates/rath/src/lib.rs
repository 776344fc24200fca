//! Rath: a runtime for agent systems in which the **session** is the value that programs pass around.
//!
//! A [`Session`] carries the evidence of the work done on it. It moves through a program: it is used once, or
//! [forked](Session::fork); branches [merge](Session::merge) again; everything it stands on can be read, verified and
//! gone on with after a crash. [`Embedded`] keeps sessions on disk, [`Memory`] for a moment. A [`Workshop`] gives
//! sessions files under versions and commands on the record.
//!
//! ```
//! use rath::prelude::*;
//! # pollster::block_on(async {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("store");
//! let store = Embedded::create(&path)?;
//! let mut session = store.create(Actor::person("ada"));
//! session.user("Which colour for the door?")?;
//!
//! let mut warm = session.fork("warm colours");
//! warm.assistant("Red.")?;
//! let mut cold = session.fork("cold colours");
//! cold.assistant("Blue.")?;
//!
//! let kept = warm.id();
//! let session = session.merge([warm, cold], How::keep(kept, "the house is white")).await?;
//! assert_eq!(session.text().await?.as_deref(), Some("Red."));
//! # Ok::<(), rath::Error>(())
//! # }).unwrap();
//! ```

pub mod workshop;

pub use rath_core::*;
pub use rath_sandbox as sandbox;
pub use rath_store::{Embedded, FORMAT, Garbage, Health, PackHealth, workspace};
pub use workshop::Workshop;

/// What most programs need: `use rath::prelude::*;`.
pub mod prelude {
    pub use rath_core::body::{Assistant, Block, Outcome};
    pub use rath_core::{
        Actor, Content, Durability, Error, How, Memory, Message, Point, RecordId, Result, Session, SessionId, Store,
        Usage, View, Workflow,
    };
    pub use rath_store::Embedded;

    pub use crate::Workshop;
}

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
