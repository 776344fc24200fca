//! What a record means to a reader.

use rath_core::body::{About, Assistant, Grant, Outcome, Role, ToolFinished, Verdict, Why};
use rath_core::files::Conflict;
use rath_core::{Actor, Content, Kind, Point, SessionId, Time, Usage};
use serde::Serialize;

use super::{ChangeSummary, Excerpt};

/// What one record means. Some records have no entry, and some have several.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The record.
    pub at: Point,
    /// When it was made.
    pub time: Time,
    /// How many steps of the session are open around it.
    pub depth: usize,
    /// The call that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// What it means.
    #[serde(flatten)]
    pub what: EntryKind,
}

/// Who says something in a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// The session's standing instructions.
    System,
    /// A person.
    User,
    /// A remark that no model is shown.
    Note,
}

/// What a record means.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EntryKind {
    /// Something was said.
    Message {
        /// Who says it.
        speaker: Speaker,
        /// The text.
        text: Content,
        /// Pictures and documents that came with it, in words.
        attached: Vec<String>,
    },
    /// The model's turn. Its calls follow, an entry each.
    Turn {
        /// What it said.
        turn: Assistant,
    },
    /// The model wants to call a tool.
    CallRequested {
        /// The tool.
        tool: String,
        /// The arguments, as JSON.
        arguments: Content,
        /// Whether the turn has no text, and this is its first call.
        opens_turn: bool,
    },
    /// What the model's turn cost.
    TurnFinished {
        /// The number of the turn in its step.
        turn: u64,
        /// How long the answer took, in microseconds.
        latency_us: Option<u64>,
        /// What it used.
        usage: Usage,
        /// Why it ended, in the provider's word.
        stop: Option<String>,
    },
    /// The model failed.
    ModelFailed {
        /// What happened.
        why: String,
        /// The HTTP status.
        status: Option<u16>,
        /// Whether the process ended before there was an answer.
        lost: bool,
        /// Whether the request was sent again.
        retried: bool,
        /// What had arrived of the answer.
        partial: Option<Excerpt>,
    },
    /// A step was entered.
    StepEntered {
        /// Its name; for a run also the name and version of its workflow.
        name: String,
        /// Who works in it.
        role: Option<Role>,
        /// The agent's model.
        model: Option<String>,
        /// The version that its configuration names.
        version: Option<String>,
    },
    /// A step was left.
    StepLeft {
        /// Its name.
        name: String,
        /// How it ended.
        outcome: Outcome,
        /// How long it took, in microseconds.
        duration_us: u64,
        /// The answers of the model, in an agent's step.
        turns: Option<u64>,
        /// What was used in it.
        usage: Usage,
        /// The value that it left, as JSON text.
        value: Option<Content>,
    },
    /// A call started.
    CallStarted {
        /// The tool.
        tool: String,
        /// What it is asked, if no model requested it: a command line, or arguments. This entry begins the call.
        by_hand: Option<String>,
        /// Whether it was interrupted, and is made again.
        again: bool,
        /// How often it was made.
        attempt: u32,
        /// How many paths had changed outside before it.
        outside: u64,
    },
    /// A call ended.
    CallFinished {
        /// The tool; empty if it started before the first record that was read.
        tool: String,
        /// The body of the record.
        finished: Box<ToolFinished>,
        /// What it changed in the files.
        changed: ChangeSummary,
        /// What the model was shown; none if there are several streams too long to be recorded in place.
        shown: Option<Excerpt>,
    },
    /// What the model was told of a call that did not end: a refusal, an answer, unusable arguments.
    CallResult {
        /// The tool.
        tool: String,
        /// Whether the call failed.
        failed: bool,
        /// What the model was told.
        shown: Option<Excerpt>,
    },
    /// A call was given up: the run was cancelled.
    CallGivenUp,
    /// A person is asked.
    Asked {
        /// Who asks.
        by: Actor,
        /// What about.
        about: About,
        /// What is shown; none if that is the call itself.
        shown: Option<Excerpt>,
        /// The policy rule for which a person is asked.
        rule: Option<String>,
    },
    /// A person answered.
    Answered {
        /// Who.
        by: Actor,
        /// The answer.
        verdict: Verdict,
        /// The words of an answer in words.
        text: Option<Excerpt>,
        /// The reason.
        why: Option<String>,
        /// Whether another answer came first: this one changes nothing.
        late: bool,
    },
    /// Some calls are allowed from here on.
    Granted {
        /// Who allows them.
        by: Actor,
        /// Which.
        allows: Grant,
    },
    /// The work failed.
    Failed {
        /// What happened.
        why: String,
        /// The error's code.
        code: Option<String>,
    },
    /// The work was cancelled.
    Cancelled {
        /// Why.
        why: String,
    },
    /// The session was forked.
    Forked {
        /// The fork point.
        from: Point,
        /// Why.
        why: String,
        /// How the code had changed, if the run continues on this fork for that reason.
        diverged: Option<String>,
    },
    /// Branches were merged.
    Merged {
        /// The branches.
        branches: Vec<MergedBranch>,
        /// What that changed in the files.
        changed: ChangeSummary,
        /// Conflicts between files.
        conflicts: Vec<Conflict>,
    },
    /// Files were restored.
    Restored {
        /// Why.
        why: Why,
        /// What that changed in the files.
        changed: ChangeSummary,
    },
    /// A clock, a random number or the environment was read.
    Sampled {
        /// What was read.
        what: String,
        /// The value.
        value: String,
    },
    /// Any other record, and a record that cannot be read.
    Other {
        /// Its kind.
        #[serde(serialize_with = "as_name")]
        kind: Kind,
        /// What it says, in a line.
        summary: String,
        /// Whether its body cannot be read.
        unreadable: bool,
    },
}

/// A branch that was merged.
#[derive(Clone, Debug, Serialize)]
pub struct MergedBranch {
    /// The session.
    pub session: SessionId,
    /// Why it was forked.
    pub why: Option<String>,
    /// Whether its files were left out.
    pub without_files: bool,
}

impl Entry {
    /// Whether it begins the call that it is about.
    pub fn begins_call(&self) -> bool {
        matches!(self.what, EntryKind::CallRequested { .. } | EntryKind::CallStarted { by_hand: Some(_), .. })
    }
}

fn as_name<S: serde::Serializer>(kind: &Kind, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(kind.as_str())
}
