//! Rath: a runtime for agent systems in which the **session** is the value that programs pass around.
//!
//! A [`Session`] carries the evidence of the work done on it. A program uses a session once, or
//! [forks](Session::fork) it; branches [merge](Session::merge) again. Every record behind a session can be read and
//! verified, and a run can be resumed from its records after a crash. A [`Store`] keeps sessions: [`Embedded`] on disk,
//! [`InMemory`] until the program ends. An [`Agent`] is a model with tools that works on a session. [`Workspaces`] give
//! sessions versioned files, and record the commands that run on them.
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

// Code that the macros generate names this crate `::rath`, in this crate too.
extern crate self as rath;

pub mod agent;
pub mod agent_file;
pub mod control;
pub mod inspect;
mod json_schema;
pub mod policy;
pub mod providers;
pub mod query;
mod recorder;
pub mod requests;
mod sleep;
pub mod toolkit;
pub mod tools;
pub mod worker;
pub mod workflow;
pub mod workspaces;

pub use agent::Agent;
pub use model::Scripted;
pub use rath_core::{
    Actor, Blob, Cancel, Content, Digest, Durability, Error, ErrorKind, How, InMemory, Kind, Point, Record, RecordId,
    Reference, Result, RunOptions, Session, SessionId, Store, Time, Usage, View, Workflow,
};
pub use rath_core::{body, expression, files, protocol, store, summary, verify};
pub use rath_macros::{Workflow, tool};
pub use rath_sandbox as sandbox;
pub use rath_store::Embedded;
pub use rath_workspace as workspace;
pub use workspaces::Workspaces;

/// The model trait and its types, the clients of providers, and a scripted model for tests.
pub mod model {
    pub use rath_core::{
        AnswerSchemaSupport, BoxContextView, BoxModel, ContextView, ContextViews, Delta, Encoded, EncodedBy, Failure,
        FailureKind, Injected, Injection, Injector, InputSource, Message, MessageBody, Model, ModelAnswer, ModelInput,
        Parameters, RequestSpec, StandardView, TokenCount, ToolChoice,
    };
    pub use rath_model::chat::Dialect;
    pub use rath_model::scripted::{self, Scripted, Turn};
    pub use rath_model::{
        Anthropic, ApiKey, Chat, Fallback, RequestInput, Responses, StopKind, StopReason, encode_with,
    };
}

/// The tool trait, and the types that a call takes and returns. `#[tool]` turns a function into a tool.
pub mod tool {
    pub use rath_core::{
        BoxTool, Call, CallBranch, CapturedStream, ContentPart, Evidence, FileAccess, FollowUp, IntoOutcome, IntoTools,
        Json, PathArguments, Tool, ToolOutcome, ToolSpec,
    };

    pub use crate::toolkit::Resource;
}

/// The state folded from a session's records, and the relations between sessions.
pub mod session {
    pub use rath_core::{
        AgentAction, AgentLoop, AgentPhase, Ancestor, Ancestry, BadRange, Blame, CallStart, Diverged, Divergence,
        Durability, Entered, ErasedParts, History, How, Item, ItemKind, Items, LastChange, LineOrigin, MissingResource,
        OPERATOR, OnDivergence, OpenAsk, OpenCall, OpenStep, OpenWait, Pending, Placement, RecordMeta, Resources,
        RunOptions, SNAPSHOT_EVERY, SandboxName, Session, State, UnsharedFork, View,
    };
}

/// Records as bytes: headers, limits and the errors of malformed records.
pub mod record {
    pub use rath_core::{
        BODY_LIMIT, BlobRef, ENVELOPE, Header, HeaderCache, INLINE_LIMIT, Kind, MAX_PARENTS, Malformed, NotAKind,
        NotAnId, Parents, Record, RecordError, RecordParts, Salt, blob_references, fresh_name, random_number,
    };
}

/// Reports of the store on disk: health, garbage collection, backups and erasure.
pub mod embedded {
    pub use rath_store::{
        Embedded, ErasePlan, EraseReport, FORMAT, FormatBackup, FormatUpgrade, GcReport, PackHealth, SearchHealth,
        SearchResults, StoreHealth,
    };
}

/// Full-text search over all records.
pub mod search {
    pub use rath_store::{
        ActorFilter, MatchedPassage, Passage, Pattern, PatternError, SearchHit, SearchOrder, SearchQuery,
    };
}

/// The names that most programs use: `use rath::prelude::*;`.
pub mod prelude {
    pub use rath_core::{
        Actor, Call, Error, How, InMemory, Json, Result, Session, SessionId, Store, ToolOutcome, View, Workflow,
    };
    pub use rath_macros::{Workflow, tool};
    pub use rath_model::scripted::{Scripted, Turn};
    pub use rath_store::Embedded;

    pub use crate::agent::{Agent, Budget, Decision};
    pub use crate::toolkit::Resource;
    pub use crate::tools;
    pub use crate::workspaces::{PlacementSpec, WorkspaceExt, Workspaces};
}

/// Items that code generated by the macros uses.
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
