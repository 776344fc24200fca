//! The start and the end of a tool call.

use serde::{Deserialize, Deserializer, Serialize};

use super::open_enum::open_enum;
use super::{Attachment, Body, UnknownValue};
use crate::blob::{BlobRef, Content};
use crate::files::{Changes, Version};
use crate::id::SessionId;
use crate::kind::Kind;
use crate::state::{CallStart, OpenCall, RecordMeta, State};
use crate::summary::{self, changed, join};

/// A call is about to start. Its side effects happen only after this record is durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolStarted {
    /// The id of the call.
    pub call: String,
    /// The name of the tool.
    pub tool: String,
    /// The arguments, as JSON; `None` when an `assistant` record contains them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Content>,
    /// What happens if the call is made twice.
    pub effect: Effect,
    /// The number of the attempt, from 1. An attempt that was only interrupted does not count. The idempotency key of
    /// the call contains the number.
    #[serde(default = "first", skip_serializing_if = "is_first")]
    pub attempt: u32,
    /// Whether the sandbox isolates the call from the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated: Option<bool>,
    /// The files before the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Version>,
    /// Changes since the last record that were made outside the session, by a person or another program.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub outside: Changes,
}

impl ToolStarted {
    /// The first attempt at a call, with all optional fields empty.
    pub fn new(call: impl Into<String>, tool: impl Into<String>, effect: Effect) -> Self {
        Self {
            call: call.into(),
            tool: tool.into(),
            arguments: None,
            effect,
            attempt: 1,
            isolated: None,
            workspace: None,
            outside: Changes::default(),
        }
    }
}

/// A call has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolFinished {
    /// The id of the call.
    pub call: String,
    /// How the call ended.
    pub outcome: CallOutcome,
    /// How its process ended, as the operating system reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// The output, one entry per stream.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<Output>,
    /// The order in which the streams were written, as far as it was observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<StreamChunk>,
    /// The duration in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    /// Whether the sandbox isolated the call from the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated: Option<bool>,
    /// The files after the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Version>,
    /// The changes that the call made to the files.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub changed: Changes,
    /// The changes that the call made outside the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<OutsideEffect>,
    /// The number of processes that outlived the call and were killed.
    #[serde(rename = "left_behind", default, skip_serializing_if = "is_zero")]
    pub killed_orphans: u64,
    /// What the call attempted and the sandbox denied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<SandboxDenial>,
    /// The exceeded limit for which the call was stopped.
    #[serde(rename = "beyond", default, skip_serializing_if = "Option::is_none")]
    pub limit_exceeded: Option<String>,
    /// Background commands and their status. Early records have this only as text in `remarks`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<BackgroundCommand>,
    /// The ids under which the rest of a shortened output can be read. Early records have this only as text in
    /// `remarks`.
    #[serde(rename = "continued", default, skip_serializing_if = "Vec::is_empty")]
    pub rest_ids: Vec<String>,
    /// The agent or workflow that continues the session after this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_off: Option<String>,
    /// Remarks for people, such as files that could not be saved and limits that were reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

impl Effect {
    /// Whether the effect of the call cannot be undone, or is unknown. A person then decides about recovery.
    pub fn is_irreversible(self) -> bool {
        self >= Effect::Irreversible
    }
}

/// A background command, as it was at the end of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundCommand {
    /// The id by which a model refers to it.
    pub id: String,
    /// The status.
    pub status: BackgroundStatus,
}

open_enum! {
    /// The status of a background command. A status that this version does not know does not count as running.
    pub enum BackgroundStatus {
        /// The command is running.
        Running = "running",
        /// The command has ended.
        Ended = "ended",
        /// The command was lost when the process that started it ended.
        LostWithProcess = "lost_with_process",
        /// The command was lost when its sandbox was lost.
        LostWithSandbox = "lost_with_sandbox",
    }
}

impl ToolFinished {
    /// The end of a call, with all optional fields empty.
    pub fn new(call: impl Into<String>, outcome: CallOutcome) -> Self {
        Self {
            call: call.into(),
            outcome,
            exit: None,
            output: Vec::new(),
            order: Vec::new(),
            duration_us: None,
            isolated: None,
            workspace: None,
            changed: Changes::default(),
            effects: Vec::new(),
            killed_orphans: 0,
            refused: Vec::new(),
            limit_exceeded: None,
            background: Vec::new(),
            rest_ids: Vec::new(),
            hand_off: None,
            remarks: Vec::new(),
        }
    }
}

/// The name of the stream that contains what the model is shown, if that differs from the output of the call.
pub const SHOWN_STREAM: &str = "shown";

impl ToolFinished {
    /// The text that the model is shown: the stream `shown` if there is one, otherwise all text streams joined by line
    /// feeds.
    pub fn shown(&self) -> Option<Content> {
        let content = |output: &Output| match (&output.text, &output.blob) {
            (Some(text), _) => Some(Content::Text(text.clone())),
            (None, Some(blob)) => Some(Content::Blob(blob.clone())),
            (None, None) => None,
        };
        let texts: Vec<&Output> = self.parts().filter(|output| output.is_text()).collect();
        match texts.as_slice() {
            [] => Some(Content::Text(String::new())),
            [one] => content(one),
            several => {
                let texts: Option<Vec<&str>> = several.iter().map(|output| output.text.as_deref()).collect();
                texts.map(|texts| Content::Text(texts.join("\n")))
            }
        }
    }

    /// The images and files that the model is shown.
    pub fn attached(&self) -> Vec<Attachment> {
        let parts = self.parts().filter(|output| !output.is_text());
        let attached = parts
            .filter_map(|output| output.blob.clone().map(|content| Attachment { content, name: output.name.clone() }));
        attached.collect()
    }

    /// The outputs that the model is shown.
    fn parts(&self) -> impl Iterator<Item = &Output> {
        let has_shown = self.output.iter().any(|output| output.stream == SHOWN_STREAM);
        self.output.iter().filter(move |output| !has_shown || output.stream == SHOWN_STREAM)
    }
}

impl ToolFinished {
    fn limit_summary(&self) -> String {
        let limit = self.limit_exceeded.as_deref().unwrap_or_default();
        format!("stopped, limit exceeded: {}", limit.split(':').next().unwrap_or(limit))
    }

    fn denials_summary(&self) -> String {
        const MAX_SHOWN: usize = 3;
        let mut calls: Vec<_> =
            self.refused.iter().take(MAX_SHOWN).map(|refused| format!("{} ×{}", refused.what, refused.times)).collect();
        match self.refused.len() {
            0 => return String::new(),
            count if count > MAX_SHOWN => calls.push(format!("{} more", count - MAX_SHOWN)),
            _ => {}
        }
        format!("(refused: {})", calls.join(", "))
    }
}

fn first() -> u32 {
    1
}

fn is_first(attempt: &u32) -> bool {
    *attempt == 1
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

open_enum! {
    /// What happens if a call is made twice. The values are ordered from the safest to the least safe. A value that
    /// this version does not know is the least safe.
    pub enum Effect {
        /// The call changes nothing.
        Pure = "pure",
        /// The second call changes nothing.
        Idempotent = "idempotent",
        /// The call changes only files of the workspace, so restoring them undoes it.
        Workspace = "workspace",
        /// The call cannot be undone.
        Irreversible = "irreversible",
    }
}

open_enum! {
    /// How a call ended. An outcome that this version does not know does not count as done.
    pub enum CallOutcome {
        /// The call succeeded.
        Done = "done",
        /// The call failed.
        Failed = "failed",
        /// The call exceeded its time limit and was stopped.
        TimedOut = "timed_out",
        /// The call was stopped by a cancellation.
        Cancelled = "cancelled",
        /// The outcome is unknown: the process that ran the call ended first.
        Lost = "lost",
    }
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// The process exited with this code.
    Code(i32),
    /// The process was killed by this signal.
    Signal(i32),
    /// A way to end that only a later version knows.
    #[serde(untagged, deserialize_with = "unknown_exit")]
    Unknown(UnknownValue),
}

fn unknown_exit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UnknownValue, D::Error> {
    UnknownValue::keyed(deserializer, &["code", "signal"])
}

/// The output of a call on one stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// `stdout`, `stderr`, `result` (what a tool returned) or `shown`.
    pub stream: String,
    /// The output, if it is short and valid text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The output, if it is long or not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<BlobRef>,
    /// The original length in bytes, if the output was shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_from: Option<u64>,
    /// The type of the output, if it is not plain text or the bytes of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<OutputPart>,
    /// The file name, for a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

open_enum! {
    /// The type of a part of a tool's output. A type that this version does not know is shown as a file.
    pub enum OutputPart {
        /// A JSON value.
        Json = "json",
        /// An image.
        Image = "image",
        /// A file.
        File = "file",
    }
}

impl Output {
    /// An empty output of this stream.
    pub fn new(stream: impl Into<String>) -> Self {
        Self { stream: stream.into(), text: None, blob: None, cut_from: None, part: None, name: None }
    }

    /// Whether it is text, or bytes that are shown as text.
    pub fn is_text(&self) -> bool {
        matches!(self.part, None | Some(OutputPart::Json))
    }
}

/// An action that a sandbox denied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxDenial {
    /// What was attempted, usually a system call.
    pub what: String,
    /// How many times.
    pub times: u64,
}

/// Consecutive bytes of one stream, before output on the other stream follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamChunk {
    /// `stdout` or `stderr`.
    pub stream: String,
    /// The number of bytes.
    pub bytes: u64,
}

/// A change outside the workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideEffect {
    /// The external system.
    pub system: String,
    /// The object that changed.
    pub object: String,
    /// The value before the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The value after the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Whether the change can be undone.
    pub reversible: bool,
}

impl Body for ToolStarted {
    const KIND: Kind = Kind::ToolStarted;
    fn summary(&self, _: SessionId) -> String {
        let isolation = if self.isolated == Some(false) { "(not isolated)" } else { "" };
        let outside = match self.outside.total {
            0 => String::new(),
            paths => format!("(after {paths} changed outside)"),
        };
        join(&join(&summary::call(&self.tool, self.arguments.as_ref()), isolation), &outside)
    }
    fn fold(&self, at: &RecordMeta, state: &mut State) {
        // A call made by a model is open already and ends with its result. Ids may repeat: a fork can inherit an open
        // call with the same id. That one comes earlier, so the search is from the end.
        match state.calls.iter_mut().rev().find(|open| open.id == self.call) {
            Some(open) => {
                open.started = Some(Box::new(CallStart {
                    seq: at.seq,
                    effect: self.effect,
                    attempt: self.attempt,
                    before: self.workspace.clone(),
                }));
                (open.finished, open.asked, open.answered, open.hand_off) = (None, None, None, None);
            }
            None => state.calls.push(OpenCall { user_started: true, ..OpenCall::new(at.id, &self.call, &self.tool) }),
        }
        if let Some(version) = &self.workspace {
            state.workspace = Some(version.clone());
        }
    }
    fn is_pure(&self, _: &State) -> bool {
        self.effect == Effect::Pure
    }
    fn visit_text(&mut self, each: &mut dyn FnMut(&mut Content)) {
        self.arguments.iter_mut().for_each(each);
    }
}

impl Body for ToolFinished {
    const KIND: Kind = Kind::ToolFinished;
    fn summary(&self, _: SessionId) -> String {
        let ended = match (self.outcome, &self.exit) {
            _ if self.limit_exceeded.is_some() => self.limit_summary(),
            (CallOutcome::Lost, _) => "outcome unknown".to_owned(),
            (CallOutcome::TimedOut, _) => "timed out".to_owned(),
            (CallOutcome::Cancelled, _) => "cancelled".to_owned(),
            (_, Some(Exit::Code(code))) => format!("exit {code}"),
            (_, Some(Exit::Signal(signal))) => format!("killed by signal {signal}"),
            (_, Some(Exit::Unknown(way))) => way.to_string(),
            (CallOutcome::Done, None) => "done".to_owned(),
            (CallOutcome::Failed, None) => "failed".to_owned(),
            (outcome @ CallOutcome::Unknown(_), None) => outcome.to_string(),
        };
        join(&join(&ended, &changed(&self.changed)), &self.denials_summary())
    }
    fn is_pure(&self, state: &State) -> bool {
        let open = state.calls.iter().rev().find(|open| open.id == self.call);
        open.and_then(|open| open.started.as_ref()).is_some_and(|started| started.effect == Effect::Pure)
    }
    fn fold(&self, at: &RecordMeta, state: &mut State) {
        state.calls.retain(|open| !(open.user_started && open.id == self.call));
        if let Some(open) = state.calls.iter_mut().rev().find(|open| open.id == self.call) {
            open.finished = Some((at.seq, at.id));
            open.hand_off.clone_from(&self.hand_off);
        }
        if let Some(version) = &self.workspace {
            state.workspace = Some(version.clone());
        }
    }
}
