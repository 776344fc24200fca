//! What records of each kind say. One file a kind; the trivial ones share a file.
//!
//! A body type has a [`Kind`], serialises to the bytes that are stored, and names the [`Content`] in it that may be
//! moved out into a blob. Kinds that have no type here are carried byte for byte all the same.

mod arrived;
mod asked;
mod assistant;
mod checkpointed;
mod compressed;
mod erased;
mod granted;
mod held;
mod imported;
mod labelled;
mod lineage;
mod merged;
mod model;
mod placement;
mod sampled;
mod steps;
mod tool;
mod words;

pub use arrived::{Arrived, ArrivedLine};
pub use asked::{About, Answered, Asked, Verdict};
pub use assistant::{AsSent, Assistant, Block};
pub use checkpointed::Checkpointed;
pub use compressed::{Compressed, Replaced};
pub use erased::{Erased, Removed, Stripped};
pub use granted::{Grant, Granted, MOST_GRANTS, Scope};
pub use held::{Held, Released};
pub use imported::{Imported, ImportedParent, Linked, Repair, Source, Sourced};
pub use labelled::Labelled;
pub use lineage::{Closed, CopiedLine, Created, Detached, Forked, Instead, Maker, Rejected};
pub use merged::{Branch, Manner, Merged, Run};
pub use model::{ModelFailed, ModelRequested, ModelResponded};
pub use placement::{Choice, MergedFiles, Placed, Resolved, Restored, SandboxClosed, SandboxLost, SandboxOpened, Why};
pub use sampled::Sampled;
pub use steps::{Cancelled, Failed, Outcome, Role, StepEntered, StepLeft};
pub use tool::{
    BackgroundCommand, BackgroundStatus, CallOutcome, Effect, Exit, Output, OutputPart, OutsideEffect, Refused, SHOWN,
    Stretch, ToolFinished, ToolStarted,
};
pub use words::{Attached, Note, System, ToolResult, User};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::blob::{Blob, Content};
use crate::context::Shape;
use crate::kind::Kind;
use crate::record::Fault;
use crate::state::{At, State};

/// The fields of one kind of record.
pub trait Body: Serialize + DeserializeOwned {
    /// The kind.
    const KIND: Kind;

    /// What the record changes in the session's folded state. `at` is the record that says this.
    fn fold(&self, at: &At, state: &mut State) {
        let _ = (at, state);
    }

    /// What the record is in the context; `None` when no model sees it.
    fn shape(&self) -> Option<Shape> {
        None
    }

    /// Whether the call that the record is about does nothing but compute: losing it costs nothing.
    fn is_pure(&self, state: &State) -> bool {
        let _ = state;
        false
    }

    /// Hands over the blob that the body names, when it brings one.
    fn brought(&mut self) -> Option<Blob> {
        None
    }

    /// Shows the parts that may be long to `each`.
    fn contents(&mut self, each: &mut dyn FnMut(&mut Content)) {
        let _ = each;
    }
}

/// A body whose type is forgotten: what it does to state and context.
pub(crate) trait Meaning {
    fn fold(&self, at: &At, state: &mut State);
    fn shape(&self) -> Option<Shape>;
    fn is_pure(&self, state: &State) -> bool;
}

impl<B: Body> Meaning for B {
    fn fold(&self, at: &At, state: &mut State) {
        Body::fold(self, at, state);
    }

    fn shape(&self) -> Option<Shape> {
        Body::shape(self)
    }

    fn is_pure(&self, state: &State) -> bool {
        Body::is_pure(self, state)
    }
}

/// Reads a body by its kind; `None` for kinds without a type.
pub(crate) fn read(kind: &Kind, bytes: &[u8]) -> Result<Option<Box<dyn Meaning>>, Fault> {
    fn typed<B: Body + 'static>(bytes: &[u8]) -> Result<Option<Box<dyn Meaning>>, Fault> {
        let body: B = serde_json::from_slice(bytes).map_err(|e| Fault::Unreadable(e.to_string()))?;
        Ok(Some(Box::new(body)))
    }
    match kind {
        Kind::Created => typed::<Created>(bytes),
        Kind::Forked => typed::<Forked>(bytes),
        Kind::Detached => typed::<Detached>(bytes),
        Kind::Merged => typed::<Merged>(bytes),
        Kind::Imported => typed::<Imported>(bytes),
        Kind::Linked => typed::<Linked>(bytes),
        Kind::Closed => typed::<Closed>(bytes),
        Kind::Rejected => typed::<Rejected>(bytes),
        Kind::Labelled => typed::<Labelled>(bytes),
        Kind::System => typed::<System>(bytes),
        Kind::User => typed::<User>(bytes),
        Kind::Assistant => typed::<Assistant>(bytes),
        Kind::ToolResult => typed::<ToolResult>(bytes),
        Kind::ModelResponded => typed::<ModelResponded>(bytes),
        Kind::Compressed => typed::<Compressed>(bytes),
        Kind::StepEntered => typed::<StepEntered>(bytes),
        Kind::StepLeft => typed::<StepLeft>(bytes),
        Kind::Cancelled => typed::<Cancelled>(bytes),
        Kind::Note => typed::<Note>(bytes),
        Kind::ModelRequested => typed::<ModelRequested>(bytes),
        Kind::ModelFailed => typed::<ModelFailed>(bytes),
        Kind::Asked => typed::<Asked>(bytes),
        Kind::Answered => typed::<Answered>(bytes),
        Kind::Granted => typed::<Granted>(bytes),
        Kind::Sampled => typed::<Sampled>(bytes),
        Kind::Failed => typed::<Failed>(bytes),
        Kind::ToolStarted => typed::<ToolStarted>(bytes),
        Kind::ToolFinished => typed::<ToolFinished>(bytes),
        Kind::Placed => typed::<Placed>(bytes),
        Kind::SandboxOpened => typed::<SandboxOpened>(bytes),
        Kind::SandboxClosed => typed::<SandboxClosed>(bytes),
        Kind::SandboxLost => typed::<SandboxLost>(bytes),
        Kind::Restored => typed::<Restored>(bytes),
        Kind::Resolved => typed::<Resolved>(bytes),
        Kind::Arrived => typed::<Arrived>(bytes),
        Kind::Checkpointed => typed::<Checkpointed>(bytes),
        Kind::Erased => typed::<Erased>(bytes),
        Kind::Held => typed::<Held>(bytes),
        Kind::Released => typed::<Released>(bytes),
        _ => Ok(None),
    }
}
