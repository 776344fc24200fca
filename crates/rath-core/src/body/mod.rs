//! The bodies of records: one type per kind, one file per kind or group of small kinds.
//!
//! A body type implements [`Body`]: it has a [`Kind`], serializes to the stored bytes, and lists the [`Content`] fields
//! that may be moved to a blob. Records of kinds without a type here are kept byte for byte.
//!
//! To add a kind, add a file with its [`Body`] and a row to the table below. A kind that changes the folded state also
//! needs a change in `state.rs`. docs/reference/records.md and the test vectors list every kind; tests compare the
//! lists.

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

pub use arrived::{Arrived, ArrivedSession};
pub use asked::{Answered, Asked, QuestionKind, Verdict};
pub use assistant::{Assistant, Block, NativeTurn};
pub use awaited::{Awaited, Received, WaitKind};
pub use checkpointed::Checkpointed;
pub use compressed::{Compressed, Replaced};
pub use erased::{Erased, ErasedRange, RemovedSession};
pub use evidence::EvidenceRef;
pub use granted::{Grant, Granted, MAX_GRANTS, Scope};
pub use held::{Held, Released};
pub use imported::{ImportSource, Imported, ImportedParent, Linked, Repair, Sourced};
pub use labelled::Labelled;
pub use lineage::{Closed, ContinuedFrom, Created, Detached, Forked, ForkedBy, ImportedTail, Rejected};
pub use memory::{
    Committed, Determined, MemoryHit, MemoryRef, MemoryScope, MemoryStatus, MemoryUsed, Recalled, Retracted, RolledBack,
};
pub use merged::{Branch, BranchContext, MergeStrategy, Merged, RecordRange};
pub use model::{ModelFailed, ModelRequested, ModelResponded};
pub use open_enum::{NotKnown, UnknownName, UnknownValue, only_known};
pub use placement::{
    Choice, MergedFiles, NetDecided, Placed, Resolved, RestoreReason, Restored, SandboxClosed, SandboxLost,
    SandboxOpened,
};
pub use replayed::{ReplayDivergence, ReplayMode, ReplayVerdict, Replayed};
pub use routed::{Candidate, Routed};
pub use sampled::Sampled;
pub use steps::{Cancelled, Failed, Outcome, Role, StepEntered, StepLeft};
pub use tool::{
    BackgroundCommand, BackgroundStatus, CallOutcome, Effect, Exit, Output, OutputPart, OutsideEffect, SHOWN_STREAM,
    SandboxDenial, StreamChunk, ToolFinished, ToolStarted,
};
pub use trimmed::Trimmed;
pub use validated::{CheckVerdict, Validated};
pub use words::{Attachment, Note, System, ToolResult, User};

use serde::Serialize;
use serde::de::DeserializeOwned;

use std::sync::Arc;

use crate::blob::{Blob, Content};
use crate::context::ItemKind;
use crate::id::SessionId;
use crate::kind::{Holds, InContext, InState, OnResume, Publishes, Row, WrittenBy, kinds, parts};
use crate::record::RecordError;
use crate::state::{RecordMeta, State};

/// The body of one kind of record.
pub trait Body: Serialize + DeserializeOwned {
    /// The kind.
    const KIND: Kind;

    /// Describes the record in one line. `on` is the session that contains it.
    fn summary(&self, on: SessionId) -> String;

    /// Applies the record to the session's folded state. `at` is the position and id of the record.
    fn fold(&self, at: &RecordMeta, state: &mut State) {
        let _ = (at, state);
    }

    /// What the record is in a model's context; `None` when models do not see it.
    fn item_kind(&self) -> Option<ItemKind> {
        None
    }

    /// Whether the record is about a pure tool call. Such a record need not be durable, because the call can be
    /// repeated.
    fn is_pure(&self, state: &State) -> bool {
        let _ = state;
        false
    }

    /// Takes the blob that the new body carries for its record, if it carries one.
    fn take_blob(&mut self) -> Option<Blob> {
        None
    }

    /// Calls `each` for every text that may be long and so may be moved to a blob.
    fn visit_text(&mut self, each: &mut dyn FnMut(&mut Content)) {
        let _ = each;
    }
}

/// A body as a trait object: [`Body`] without the parts that need the type.
pub(crate) trait DynBody {
    fn fold(&self, at: &RecordMeta, state: &mut State);
    fn item_kind(&self) -> Option<ItemKind>;
    fn is_pure(&self, state: &State) -> bool;
    fn summary(&self, on: SessionId) -> String;
}

impl<B: Body> DynBody for B {
    fn summary(&self, on: SessionId) -> String {
        Body::summary(self, on)
    }

    fn fold(&self, at: &RecordMeta, state: &mut State) {
        Body::fold(self, at, state);
    }

    fn item_kind(&self) -> Option<ItemKind> {
        Body::item_kind(self)
    }

    fn is_pure(&self, state: &State) -> bool {
        Body::is_pure(self, state)
    }
}

fn typed<B: Body + 'static>(bytes: &[u8]) -> Result<Option<Box<dyn DynBody>>, RecordError> {
    let body: B = serde_json::from_slice(bytes).map_err(|e| RecordError::Unreadable(e.to_string()))?;
    Ok(Some(Box::new(body)))
}

// Codes are stored: a code never changes, and the code of a removed kind is never used again.
// docs/decisions/040-one-row-a-kind.md explains the columns, and what happens after code 61.
kinds! {
//  kind           on the wire        code state        resume   publishes       context writer    holds   lost with its body
    Created        "created"          0  Folds           Compared Never           Edits   Start     Facts   [NAMES];
    Forked         "forked"           1  Folds           Compared Never           Edits   Start     Facts   [OWNERS];
    Detached       "detached"         2  Inert           Compared Never           Edits   Start     Content [];
    Merged         "merged"           3  Folds           Compared Always          Edits   Operation Facts   [USAGE RUNS WORKSPACE CONFLICTS];
    Imported       "imported"         4  Inert           Compared Never           Edits   Start     Facts   [];
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
    Placed         "placed"           18 FoldsIfReadable Compared Never           Hidden  Program   Facts   [WORKSPACE BASE SANDBOX PLACEMENT];
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
