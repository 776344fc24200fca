//! The entries of a transcript.

use rath_core::body::{Assistant, Grant, Outcome, QuestionKind, RestoreReason, Role, ToolFinished, Verdict};
use rath_core::files::Conflict;
use rath_core::{Actor, Content, Kind, Point, SessionId, Time, Usage};
use serde::Serialize;

use super::{ChangeSummary, Excerpt};

/// An entry for a record. Some records have no entry, and some have several.
#[derive(Clone, Debug, Serialize)]
pub struct TranscriptEntry {
    /// The record.
    pub at: Point,
    /// When it was made.
    pub time: Time,
    /// The number of open steps around it.
    pub depth: usize,
    /// The call that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The content of the entry.
    #[serde(flatten)]
    pub what: EntryKind,
}

/// The speaker of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// The session's standing instructions.
    System,
    /// A person.
    User,
    /// A note that no model is shown.
    Note,
}

/// The content of an entry.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EntryKind {
    /// A message.
    Message {
        /// The speaker.
        speaker: Speaker,
        /// The text.
        text: Content,
        /// Descriptions of attached images and documents.
        attached: Vec<String>,
    },
    /// A turn of the model. Its calls follow as separate entries.
    Turn {
        /// The text.
        turn: Assistant,
    },
    /// The model requests a tool call.
    CallRequested {
        /// The name of the tool.
        tool: String,
        /// The arguments, as JSON.
        arguments: Content,
        /// Whether the turn has no text, and this is its first call.
        opens_turn: bool,
    },
    /// The usage of a turn.
    TurnFinished {
        /// The number of the turn in its step.
        turn: u64,
        /// The duration of the request in microseconds.
        latency_us: Option<u64>,
        /// The tokens and the cost of the turn.
        usage: Usage,
        /// The provider's stop reason.
        stop: Option<String>,
    },
    /// A request to the model failed.
    ModelFailed {
        /// The error.
        why: String,
        /// The HTTP status.
        status: Option<u16>,
        /// Whether the process ended before the response.
        lost: bool,
        /// Whether the request was sent again.
        retried: bool,
        /// The part of the answer that was received.
        partial: Option<Excerpt>,
    },
    /// A step starts: the step of a run, a workflow or an agent.
    StepEntered {
        /// Its name; for a run also the name and version of its workflow.
        name: String,
        /// Whether an agent or a workflow works in it.
        role: Option<Role>,
        /// The agent's model.
        model: Option<String>,
        /// The version in its configuration.
        version: Option<String>,
    },
    /// A step finished.
    StepLeft {
        /// Its name.
        name: String,
        /// How it ended.
        outcome: Outcome,
        /// The duration in microseconds.
        duration_us: u64,
        /// The number of model answers, in an agent's step.
        turns: Option<u64>,
        /// The tokens and the cost, including inner steps.
        usage: Usage,
        /// The value that it returned, as JSON text.
        value: Option<Content>,
    },
    /// The runtime starts a tool call.
    CallStarted {
        /// The name of the tool.
        tool: String,
        /// The command line or arguments, if no model requested the call. Then this entry starts the call.
        by_hand: Option<String>,
        /// Whether the call is repeated after an interruption.
        again: bool,
        /// The number of attempts.
        attempt: u32,
        /// The number of external edits before it.
        outside: u64,
    },
    /// A call ended.
    CallFinished {
        /// The tool; empty if it started before the first record that was read.
        tool: String,
        /// The body of the record.
        finished: Box<ToolFinished>,
        /// The file changes.
        changed: ChangeSummary,
        /// The text that the model was shown. `None` if there are several streams that are stored as blobs.
        shown: Option<Excerpt>,
    },
    /// The result of a call without an end: a refusal, an answer, invalid arguments.
    CallResult {
        /// The name of the tool.
        tool: String,
        /// Whether the call failed.
        failed: bool,
        /// The text of the result.
        shown: Option<Excerpt>,
    },
    /// A call was abandoned because the run was cancelled.
    CallGivenUp,
    /// A question to a person.
    Asked {
        /// The actor that asks.
        by: Actor,
        /// What the question is about: an approval, a call with an unknown outcome, or anything else in words.
        about: QuestionKind,
        /// The text. `None` if it is only the call itself.
        shown: Option<Excerpt>,
        /// The policy rule that requires the approval.
        rule: Option<String>,
    },
    /// An answer.
    Answered {
        /// The person.
        by: Actor,
        /// The answer.
        verdict: Verdict,
        /// The text of a text answer.
        text: Option<Excerpt>,
        /// The reason.
        why: Option<String>,
        /// Whether another answer came first, so that this one has no effect.
        late: bool,
    },
    /// A grant: some calls need no approval from here on.
    Granted {
        /// The person who granted it.
        by: Actor,
        /// The calls that need no approval.
        allows: Grant,
    },
    /// The run failed.
    Failed {
        /// The error.
        why: String,
        /// The error's code.
        code: Option<String>,
    },
    /// The run was cancelled.
    Cancelled {
        /// The reason.
        why: String,
    },
    /// The session was forked.
    Forked {
        /// The fork point.
        from: Point,
        /// The reason.
        why: String,
        /// The divergence, if the run continues on this fork because its code changed.
        diverged: Option<String>,
    },
    /// Branches were merged.
    Merged {
        /// The merged branches, each with the reason for its fork.
        branches: Vec<MergedBranch>,
        /// The file changes.
        changed: ChangeSummary,
        /// Merge conflicts.
        conflicts: Vec<Conflict>,
    },
    /// Files were restored.
    Restored {
        /// What caused the restore.
        why: RestoreReason,
        /// The file changes.
        changed: ChangeSummary,
    },
    /// The clock, a random number or the environment was read.
    Sampled {
        /// The source.
        what: String,
        /// The value that was read.
        value: String,
    },
    /// Any other record, and a record that cannot be read.
    Other {
        /// Its kind.
        #[serde(serialize_with = "as_name")]
        kind: Kind,
        /// Its text on one line.
        summary: String,
        /// Whether its body cannot be read.
        unreadable: bool,
    },
}

/// A branch that was merged.
#[derive(Clone, Debug, Serialize)]
pub struct MergedBranch {
    /// The session of the branch.
    pub session: SessionId,
    /// The reason for the fork.
    pub why: Option<String>,
    /// Whether its files were not merged.
    pub without_files: bool,
}

impl TranscriptEntry {
    /// Whether it is the first entry of its call.
    pub fn starts_call(&self) -> bool {
        matches!(self.what, EntryKind::CallRequested { .. } | EntryKind::CallStarted { by_hand: Some(_), .. })
    }
}

fn as_name<S: serde::Serializer>(kind: &Kind, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(kind.as_str())
}
