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
pub mod control;
pub mod inspect;
mod pause;
pub mod policy;
pub mod providers;
pub mod query;
mod recorder;
pub mod requests;
pub mod toolkit;
pub mod tools;
pub mod workshop;

pub use agent::Agent;
pub use model::Scripted;
pub use rath_core::{
    Actor, Blob, Cancel, Conditions, Content, Digest, Durability, Error, ErrorKind, How, Kind, Memory, Point, Record,
    RecordId, Reference, Result, Session, SessionId, Store, Time, Usage, View, Workflow, seq,
};
pub use rath_core::{body, expression, files, protocol, store, summary, verify};
pub use rath_macros::{Workflow, tool};
pub use rath_sandbox as sandbox;
pub use rath_store::Embedded;
pub use rath_workspace as workspace;
pub use workshop::Workshop;

// Every name below stands in one of the modules, which is where the documentation shows it. Programs that were written
// before the modules find it here too.
#[doc(hidden)]
pub use rath_core::*;
#[doc(hidden)]
pub use {embedded::*, model::*, search::*};

/// Models: the contract, the clients of providers, and a scripted model for tests.
pub mod model {
    pub use rath_core::{
        Answer, Asking, BoxContextView, BoxModel, ContextView, ContextViews, Delta, Encoded, Failure, FailureKind,
        Injected, Injection, Injector, MadeBy, Message, Model, Parameters, Said, Shown, StandardView, TokenCount,
        ToolChoice,
    };
    pub use rath_model::chat::Dialect;
    pub use rath_model::scripted::{self, Scripted, Turn};
    pub use rath_model::{Anthropic, Chat, Fallback, Key, Responses, Stop, Talk, Why as StopWhy, encode_with};
}

/// Tools: the contract, and what a call is given and returns. `#[tool]` makes one of a function.
pub mod tool {
    pub use rath_core::{
        BoxTool, Call, CallBranch, Captured, ContentPart, Evidence, IntoOutcome, IntoTools, Json, PathArguments, Then,
        Tool, ToolOutcome, ToolSpec, Touches,
    };

    pub use crate::toolkit::State;
}

/// Workflows: what maps one session to another.
pub mod workflow {
    pub use rath_core::{BoxWorkflow, Outline, Sequence, Workflow, seq};
}

/// What is folded of a session's records, and how sessions are related.
pub mod session {
    pub use rath_core::{
        Ancestor, Ancestry, At, BadRange, Blame, Conditions, Diverged, Divergence, Durability, Entered, Equipment,
        Gone, History, How, Item, Items, LastChange, Missing, Next, OPERATOR, OnDivergence, OpenAsk, OpenCall,
        OpenStep, OpenWait, Origin, Pending, Phase, Placement, Run, SandboxName, Session, Shape, Started, State, View,
    };
}

/// Records as bytes: headers, limits and what can be wrong with them.
pub mod record {
    pub use rath_core::{
        BODY_LIMIT, BlobRef, ENVELOPE, Fault, Header, INLINE_LIMIT, Kind, MAX_PARENTS, Malformed, NotAKind, NotAnId,
        Parents, Parts, Record, Recurring, Salt, blob_references, fresh_name, random_number,
    };
}

/// The store on disk: its health, garbage collection, backups and erasure.
pub mod embedded {
    pub use rath_store::{
        Backup, Destroyed, Doomed, Embedded, FORMAT, Found, Garbage, Health, PackHealth, Raised, SearchHealth,
    };
}

/// Searching the words of all records.
pub mod search {
    pub use rath_store::{By, Hit, Matched, NotAPattern, Order, Passage, Pattern, Question};
}

/// What most programs need: `use rath::prelude::*;`.
pub mod prelude {
    pub use rath_core::body::{Assistant, Block, Outcome};
    pub use rath_core::{
        Actor, Call, Cancel, Content, Durability, Error, How, Json, Memory, Message, Point, RecordId, Result, Session,
        SessionId, StandardView, Store, Tool, ToolOutcome, Usage, View, Workflow, seq,
    };
    pub use rath_macros::{Workflow, tool};
    pub use rath_model::scripted::{Scripted, Turn};
    pub use rath_store::Embedded;

    pub use crate::agent::{Agent, Budget, Decision};
    pub use crate::toolkit::State;
    pub use crate::workshop::PlaceSession;
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
