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

// The macros write `::rath` also here.
extern crate self as rath;

pub mod agent;
pub mod agent_file;
pub mod bundle;
pub mod care;
pub mod checkpoint;
pub mod control;
pub mod import;
pub mod inspect;
mod needle;
mod operator;
mod pause;
pub mod policy;
pub mod toolkit;
pub mod tools;
pub mod workshop;

pub use agent::Agent;
pub use operator::operator;
pub use rath_core::*;
pub use rath_macros::{Workflow, tool};
pub use rath_model::chat::Dialect;
pub use rath_model::scripted::{self, Scripted};
pub use rath_model::{Anthropic, Chat, Fallback, Key, Responses, Stop, Talk, Why as StopWhy, encode_with};
pub use rath_sandbox as sandbox;
pub use rath_store::{
    Backup, By, Destroyed, Doomed, Embedded, FORMAT, Found, Garbage, Health, Hit, Matched, NotAPattern, Order,
    PackHealth, Passage, Pattern, Question, Raised, SearchHealth,
};
pub use rath_workspace as workspace;
pub use workshop::Workshop;

/// What most programs need: `use rath::prelude::*;`.
pub mod prelude {
    pub use rath_core::body::{Assistant, Block, Outcome};
    pub use rath_core::{
        Actor, Call, Cancel, Content, Durability, Error, How, Json, Memory, Message, Point, RecordId, Reply, Result,
        Rule, Session, SessionId, Store, Tool, Usage, View, Workflow, seq,
    };
    pub use rath_macros::{Workflow, tool};
    pub use rath_model::scripted::{Scripted, Turn};
    pub use rath_store::Embedded;

    pub use crate::agent::{Agent, Budget, Decision};
    pub use crate::toolkit::State;
    pub use crate::{Workshop, tools};
}

/// What the macros' code uses.
#[doc(hidden)]
pub mod __private {
    pub use schemars;
    pub use serde;
    pub use serde_json;

    pub use crate::toolkit::*;
}

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
