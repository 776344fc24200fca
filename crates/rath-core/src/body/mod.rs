//! What records of each kind say. One file a kind; the trivial ones share a file.
//!
//! A body type has a [`Kind`], serialises to the bytes that are stored, and names the [`Content`] in it that may be
//! moved out into a blob. Kinds that have no type here are carried byte for byte all the same.
//!
//! To add a kind: a file here with its [`Body`], and a row in the table below. One that changes the folded state also
//! changes `state.rs`. docs/records.md and the test vectors list every kind; tests compare.

mod arrived;
mod asked;
mod assistant;
mod awaited;
mod checkpointed;
mod compressed;
mod erased;
mod evidence;
mod granted;
mod held;
mod imported;
mod labelled;
mod lineage;
mod memory;
mod merged;
mod model;
pub(crate) mod open_enum;
mod placement;
mod replayed;
mod routed;
mod sampled;
mod steps;
mod tool;
mod trimmed;
mod validated;
mod words;

pub use arrived::{Arrived, ArrivedLine};
pub use asked::{About, Answered, Asked, Verdict};
pub use assistant::{AsSent, Assistant, Block};
pub use awaited::{Awaited, Received, WaitsFor};
pub use checkpointed::Checkpointed;
pub use compressed::{Compressed, Replaced};
pub use erased::{Erased, Removed, Stripped};
pub use evidence::EvidenceRef;
pub use granted::{Grant, Granted, MOST_GRANTS, Scope};
pub use held::{Held, Released};
pub use imported::{Imported, ImportedParent, Linked, Repair, Source, Sourced};
pub use labelled::Labelled;
pub use lineage::{Closed, CopiedLine, Created, Detached, Forked, Instead, Maker, Rejected};
pub use memory::{
    Committed, Determined, Hit, MemoryRef, MemoryScope, MemoryStatus, MemoryUsed, Recalled, Retracted, RolledBack,
};
pub use merged::{Branch, Manner, Merged, Run};
pub use model::{ModelFailed, ModelRequested, ModelResponded};
pub use open_enum::{NotKnown, UnknownName, UnknownValue, only_known};
pub use placement::{
    Choice, MergedFiles, NetDecided, Placed, Resolved, Restored, SandboxClosed, SandboxLost, SandboxOpened, Why,
};
pub use replayed::{ReplayDivergence, ReplayMode, ReplayVerdict, Replayed};
pub use routed::{Candidate, Routed};
pub use sampled::Sampled;
pub use steps::{Cancelled, Failed, Outcome, Role, StepEntered, StepLeft};
pub use tool::{
    BackgroundCommand, BackgroundStatus, CallOutcome, Effect, Exit, Output, OutputPart, OutsideEffect, Refused, SHOWN,
    Stretch, ToolFinished, ToolStarted,
};
pub use trimmed::Trimmed;
pub use validated::{CheckVerdict, Validated};
pub use words::{Attached, Note, System, ToolResult, User};

use serde::Serialize;
use serde::de::DeserializeOwned;

use std::sync::Arc;

use crate::blob::{Blob, Content};
use crate::context::Shape;
use crate::id::SessionId;
use crate::kind::{Holds, InContext, InState, OnResume, Publishes, Row, WrittenBy, kinds, parts};
use crate::record::Fault;
use crate::state::{At, State};

/// The fields of one kind of record.
pub trait Body: Serialize + DeserializeOwned {
    /// The kind.
    const KIND: Kind;

    /// What the record says, in one line. `on` is the session that it stands on.
    fn summary(&self, on: SessionId) -> String;

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
    fn summary(&self, on: SessionId) -> String;
}

impl<B: Body> Meaning for B {
    fn summary(&self, on: SessionId) -> String {
        Body::summary(self, on)
    }

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

fn typed<B: Body + 'static>(bytes: &[u8]) -> Result<Option<Box<dyn Meaning>>, Fault> {
    let body: B = serde_json::from_slice(bytes).map_err(|e| Fault::Unreadable(e.to_string()))?;
    Ok(Some(Box::new(body)))
}

// Codes are stored: one that was given never changes, and a kind that leaves the table leaves its code unused.
// See docs/decisions/040-one-row-a-kind.md for the columns, and for what comes after code 61.
kinds! {
//  kind           on the wire        code state        resume   publishes       context writer    holds   lost with its body
    Created        "created"          0  Folds           Compared Never           Edits   Beginning Facts   [NAMES];
    Forked         "forked"           1  Folds           Compared Never           Edits   Beginning Facts   [OWNERS];
    Detached       "detached"         2  Inert           Compared Never           Edits   Beginning Content [];
    Merged         "merged"           3  Folds           Compared Always          Edits   Operation Facts   [USAGE RUNS WORKSPACE CONFLICTS];
    Imported       "imported"         4  Inert           Compared Never           Edits   Beginning Facts   [];
    Closed         "closed"           5  Folds           Compared Never           Hidden  Operation Facts   [];
    Rejected       "rejected"         6  Inert           Compared Never           Hidden  Program   Facts   [];
    Labelled       "labelled"         7  Folds           Ignored  Never           Hidden  Program   Facts   [NAMES];
    Linked         "linked"           8  Inert           Ignored  Never           Hidden  Program   Facts   [];
    System         "system"           9  Inert           Compared Never           Message Program   Facts   [];
    User           "user"             10 Folds           Compared Never           Message Program   Content [];
    Assistant      "assistant"        11 Folds           Compared Never           Message Program   Content [CALLS RUNS OPENS];
    ToolResult     "tool_result"      12 Folds           Compared Never           Message Program   Content [CALLS RUNS];
    ModelRequested "model_requested"  13 FoldsIfReadable Compared Always          Hidden  Program   Facts   [RUNS];
    ModelResponded "model_responded"  14 Folds           Compared Never           Hidden  Program   Content [USAGE RUNS];
    ModelFailed    "model_failed"     15 FoldsIfReadable Compared Never           Hidden  Program   Content [RUNS];
    ToolStarted    "tool_started"     16 FoldsIfReadable Ignored  UnlessPure      Hidden  Program   Content [CALLS RUNS WORKSPACE OPENS];
    ToolFinished   "tool_finished"    17 FoldsIfReadable Ignored  UnlessPure      Needed  Program   Content [CALLS RUNS WORKSPACE];
    Placed         "placed"           18 FoldsIfReadable Compared Never           Hidden  Program   Facts   [WORKSPACE BASE SANDBOX PLACE];
    SandboxOpened  "sandbox_opened"   19 FoldsIfReadable Ignored  Never           Hidden  Program   Facts   [SANDBOX];
    SandboxClosed  "sandbox_closed"   20 FoldsIfReadable Ignored  Never           Hidden  Program   Facts   [SANDBOX];
    SandboxLost    "sandbox_lost"     21 FoldsIfReadable Ignored  Never           Hidden  Program   Facts   [SANDBOX];
    NetDecided     "net_decided"      22 Inert           Ignored  Never           Hidden  Program   Facts   [];
    Restored       "restored"         23 FoldsIfReadable Ignored  Always          Hidden  Program   Facts   [WORKSPACE CONFLICTS];
    Resolved       "resolved"         24 FoldsIfReadable Compared Always          Hidden  Program   Facts   [WORKSPACE CONFLICTS];
    Recalled       "recalled"         25 Inert           Compared Never           Hidden  Program   Content [];
    Committed      "committed"        26 Inert           Compared Never           Hidden  Program   Content [];
    Retracted      "retracted"        27 Inert           Compared Never           Hidden  Program   Facts   [];
    RolledBack     "rolled_back"      28 Inert           Compared Never           Hidden  Program   Facts   [];
    MemoryUsed     "memory_used"      29 Inert           Compared Never           Hidden  Program   Facts   [];
    Compressed     "compressed"       30 Inert           Compared Never           Edits   Operation Content [];
    StepEntered    "step_entered"     31 Folds           Compared Never           Needed  Program   Facts   [STEPS RUNS CALLS OPENS];
    StepLeft       "step_left"        32 Folds           Compared AtOutermostStep Hidden  Program   Facts   [STEPS RUNS];
    Routed         "routed"           33 Inert           Compared Never           Hidden  Program   Facts   [];
    Validated      "validated"        34 Inert           Compared Never           Hidden  Program   Facts   [];
    Asked          "asked"            35 FoldsIfReadable Compared Always          Hidden  Program   Content [ASKS CALLS OPENS];
    Answered       "answered"         36 FoldsIfReadable Ignored  Never           Hidden  Program   Content [ASKS CALLS];
    Granted        "granted"          37 FoldsIfReadable Ignored  Never           Hidden  Program   Facts   [GRANTS];
    Cancelled      "cancelled"        38 Folds           Compared Never           Hidden  Program   Facts   [CALLS ASKS RUNS WAITS];
    Failed         "failed"           39 Inert           Compared Never           Hidden  Program   Facts   [];
    Sampled        "sampled"          40 Inert           Compared Never           Hidden  Program   Facts   [];
    Note           "note"             41 Inert           Ignored  Never           Hidden  Program   Content [];
    Erased         "erased"           42 Inert           Compared Never           Hidden  Program   Facts   [];
    Held           "held"             43 Inert           Compared Never           Hidden  Program   Facts   [];
    Released       "released"         44 Inert           Compared Never           Hidden  Program   Facts   [];
    Checkpointed   "checkpointed"     45 Inert           Compared Never           Hidden  Program   Facts   [];
    Replayed       "replayed"         46 Inert           Ignored  Never           Hidden  Program   Facts   [];
    Awaited        "awaited"          47 FoldsIfReadable Compared Always          Hidden  Program   Facts   [WAITS OPENS];
    Received       "received"         48 FoldsIfReadable Ignored  Never           Hidden  Program   Content [WAITS];
    Trimmed        "trimmed"          49 Inert           Compared Never           Edits   Operation Content [];
    Arrived        "arrived"          56 Folds           Ignored  Never           Hidden  Program   Facts   [];
}
