//! The values and contracts of Rath. This crate has no runtime and does no I/O: stores, models and sandboxes live in
//! crates of their own.
//!
//! A [`Session`] is a chain of [`Record`]s with one head, held as a value that moves: to continue in two directions,
//! [fork](Session::fork) it. Appending adds records in memory; [publishing](Session::publish) makes them durable in a
//! [`Store`] such as [`InMemory`]. A [`View`] reads a session as it was after any of its records, and [`verify`]
//! recomputes every hash. A [`Workflow`] maps a session to a session; a run executes one under a key and can be
//! resumed. [`Model`] and [`Tool`] are the interfaces that an agent calls.
//!
//! ```
//! use rath_core::{Actor, How, InMemory, Session};
//! # pollster::block_on(async {
//! let store = InMemory::new();
//! let mut session = Session::create(&store, Actor::person("ada"));
//! session.user("Name a sorting algorithm.")?;
//!
//! let mut quick = session.fork("fast on average");
//! quick.assistant("Quicksort.")?;
//! let mut merge = session.fork("stable");
//! merge.assistant("Merge sort.")?;
//!
//! let session = session.merge([quick, merge], How::Append).await?;
//! assert_eq!(session.context().await?.len(), 5); // the question, two markers, two answers: no prefix twice
//! # Ok::<(), rath_core::Error>(())
//! # }).unwrap();
//! ```

mod actor;
mod agent_loop;
mod ancestry;
mod arrivals;
mod blame;
mod blob;
pub mod body;
mod cancel;
pub mod checkpoint;
mod clock;
mod context;
mod context_view;
mod divergence;
mod entropy;
mod error;
pub mod expression;
mod file_history;
pub mod files;
mod fingerprint;
mod hash;
mod header;
mod history;
mod id;
mod in_memory;
mod injected;
mod io_error_kind;
mod kind;
mod list;
mod message;
mod model;
mod model_input;
pub mod protocol;
mod reader;
mod record;
mod resources;
mod session;
mod state;
pub mod store;
pub mod summary;
mod tool;
mod usage;
pub mod verify;
mod view;
mod workflow;

pub use actor::Actor;
pub use agent_loop::{AgentAction, AgentLoop, AgentPhase};
pub use ancestry::Ancestry;
pub use arrivals::last_placement;
pub use blame::{Blame, LineOrigin};
pub use blob::{Blob, BlobRef, Content, INLINE_LIMIT, references as blob_references};
pub use cancel::Cancel;
pub use clock::Time;
pub use context::{BadRange, Item, ItemKind, Items};
pub use context_view::{BoxContextView, ContextView, ContextViews, StandardView};
pub use divergence::Divergence;
pub use entropy::{Salt, fresh_name, random_number};
pub use error::{Diverged, Error, ErrorKind, Result};
pub use file_history::LastChange;
pub use header::{ENVELOPE, Header, HeaderCache, MAX_PARENTS, Malformed, Parents};
pub use history::History;
pub use id::{Digest, NotAnId, Point, RecordId, Reference, SessionId};
pub use in_memory::InMemory;
pub use injected::{Injected, Injection, Injector};
pub use kind::{Kind, NotAKind, mask as kind_mask};
pub use message::{Message, MessageBody};
pub use model::{
    AnswerSchemaSupport, BoxModel, Delta, Encoded, EncodedBy, Failure, FailureKind, Model, ModelAnswer, Parameters,
    TokenCount, ToolChoice,
};
pub use model_input::{InputSource, ModelInput, RequestSpec};
pub use record::{Record, RecordError, RecordParts};
pub use resources::{MissingResource, Resources};
pub use session::{
    BODY_LIMIT, BranchMerge, Durability, Entered, How, OPERATOR, OnDivergence, RunOptions, Session, UnsharedFork,
    WorkflowName,
};
pub use state::{
    CallStart, ErasedParts, FOLD, OpenAsk, OpenCall, OpenStep, OpenWait, OtherFold, Pending, Placement, RecordMeta,
    Refold, SNAPSHOT_EVERY, SandboxName, State, StoredState,
};
pub use store::{Blobs, Store};
pub use tool::{
    BoxTool, Call, CallBranch, CapturedStream, ContentPart, Evidence, FileAccess, FollowUp, IntoOutcome, IntoTools,
    Json, PathArguments, Tool, ToolOutcome, ToolSpec,
};
pub use usage::Usage;
pub use view::{Ancestor, View};
pub use workflow::{BoxWorkflow, Outline, Workflow};
