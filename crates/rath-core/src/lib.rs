//! The values and contracts of Rath.
//!
//! A [`Session`] is a line of [`Record`]s with one head. It is a value that moves: it is used once, or
//! [forked](Session::fork). Appending makes records in memory, [publishing](Session::publish) makes them durable in
//! a [`Store`]. A [`View`] looks at a session as it was after any of its records; [`verify`] re-derives every hash.
//! This crate has no runtime and does no IO: stores, models and sandboxes live in crates of their own.
//!
//! ```
//! use rath_core::{Actor, How, Memory, Session};
//! # pollster::block_on(async {
//! let store = Memory::new();
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
mod equipment;
mod error;
pub mod expression;
pub mod files;
mod fingerprint;
mod hash;
mod header;
mod history;
mod id;
mod injected;
mod kind;
mod list;
mod memory;
mod message;
mod model;
pub mod protocol;
mod reader;
mod record;
mod run;
mod session;
mod shown;
mod state;
pub mod store;
pub mod summary;
mod tool;
mod trail;
mod trouble;
mod usage;
pub mod verify;
mod view;
mod workflow;

pub use actor::Actor;
pub use ancestry::Ancestry;
pub use arrivals::last_place;
pub use blame::{Blame, Origin};
pub use blob::{Blob, BlobRef, Content, INLINE_LIMIT, references as blob_references};
pub use cancel::Cancel;
pub use clock::Time;
pub use context::{BadRange, Item, Items, Shape};
pub use context_view::{BoxContextView, ContextView, ContextViews, StandardView};
pub use divergence::Divergence;
pub use entropy::{Salt, fresh_name, random_number};
pub use equipment::{Equipment, Missing};
pub use error::{Diverged, Error, ErrorKind, Result};
pub use header::{ENVELOPE, Header, MAX_PARENTS, Malformed, Parents, Recurring};
pub use history::History;
pub use id::{Digest, NotAnId, Point, RecordId, Reference, SessionId};
pub use injected::{Injected, Injection, Injector};
pub use kind::{Kind, NotAKind, mask as kind_mask};
pub use memory::Memory;
pub use message::{Message, Said};
pub use model::{
    Answer, BoxModel, Delta, Encoded, Failure, FailureKind, MadeBy, Model, Parameters, TokenCount, ToolChoice,
};
pub use record::{Fault, Parts, Record};
pub use run::{Next, Phase, Run};
pub use session::{BODY_LIMIT, Conditions, Durability, Entered, How, OPERATOR, OnDivergence, Session, WorkflowName};
pub use shown::{Asking, Shown, Source};
pub use state::{
    At, FOLD, Gone, OpenAsk, OpenCall, OpenStep, OpenWait, OtherFold, Pending, Placement, Refold, SNAPSHOT_EVERY,
    SandboxName, Started, State, StoredState,
};
pub use store::{Blobs, Store};
pub use tool::{
    BoxTool, Call, CallBranch, Captured, ContentPart, Evidence, IntoOutcome, IntoTools, Json, PathArguments, Then,
    Tool, ToolOutcome, ToolSpec, Touches,
};
pub use trail::LastChange;
pub use usage::Usage;
pub use view::{Ancestor, View};
pub use workflow::{BoxWorkflow, Outline, Sequence, Workflow, seq};
