//! A tool call, from its start to its end.

use serde::{Deserialize, Deserializer, Serialize};

use super::open_enum::open_enum;
use super::{Attached, Body, UnknownValue};
use crate::blob::{BlobRef, Content};
use crate::files::{Changes, Version};
use crate::id::SessionId;
use crate::kind::Kind;
use crate::state::{At, OpenCall, Started, State};
use crate::summary::{self, changed, join};

/// A call begins. What it may do to the world happens after this record is durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolStarted {
    /// The id of the call.
    pub call: String,
    /// The tool.
    pub tool: String,
    /// The arguments, as JSON, where no `assistant` block has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Content>,
    /// What happens if it is done twice.
    pub effect: Effect,
    /// Counts the attempts that were not merely interrupted. The key of the call is made of it.
    #[serde(default = "first", skip_serializing_if = "is_first")]
    pub attempt: u32,
    /// Whether the sandbox keeps it away from the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated: Option<bool>,
    /// The files before the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Version>,
    /// What changed since the last record without one of ours: a person's edits, another program's.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub outside: Changes,
}

impl ToolStarted {
    /// A call that starts for the first time, and nothing else to say.
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
    /// How.
    pub outcome: CallOutcome,
    /// How its process ended, as the system said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// What it wrote, stream by stream.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<Output>,
    /// In which order the streams were written, as far as it was seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<Stretch>,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    /// Whether it was kept away from the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated: Option<bool>,
    /// The files after the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Version>,
    /// What it changed in them.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub changed: Changes,
    /// What it changed elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<OutsideEffect>,
    /// Processes it left behind, which were killed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_behind: u64,
    /// What it tried and its sandbox refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// The limit for which it was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beyond: Option<String>,
    /// Commands that run on in the background, and what was found of them. Early records say it in `remarks` alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<BackgroundCommand>,
    /// Ids under which the rest of an output that was shortened can be read. Early records say it in `remarks` alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub continued: Vec<String>,
    /// The agent or workflow that goes on with the session after this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_off: Option<String>,
    /// What should be known, for people: files that could not be saved, limits that were hit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

impl Effect {
    /// Whether a call cannot be taken back, or is not known to be: then a person decides.
    pub fn is_irreversible(self) -> bool {
        self >= Effect::Irreversible
    }
}

/// A command in the background, as a call left or found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundCommand {
    /// Its id, by which a model names it.
    pub id: String,
    /// How it is.
    pub status: BackgroundStatus,
}

open_enum! {
    /// How a command in the background is. A status that this version does not know is not running.
    pub enum BackgroundStatus {
        /// It runs on.
        Running = "running",
        /// It has ended.
        Ended = "ended",
        /// It ended with the process that started it.
        LostWithProcess = "lost_with_process",
        /// It ended with its sandbox.
        LostWithSandbox = "lost_with_sandbox",
    }
}

impl ToolFinished {
    /// A call that ended, and nothing else to say.
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
            left_behind: 0,
            refused: Vec::new(),
            beyond: None,
            background: Vec::new(),
            continued: Vec::new(),
            hand_off: None,
            remarks: Vec::new(),
        }
    }
}

/// The stream that holds what the model is shown, where that is not what the call put out.
pub const SHOWN: &str = "shown";

impl ToolFinished {
    /// The text that the model is shown: of the stream of that name, else of all of them.
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

    /// The pictures and files that the model is shown.
    pub fn attached(&self) -> Vec<Attached> {
        let parts = self.parts().filter(|output| !output.is_text());
        let attached = parts
            .filter_map(|output| output.blob.clone().map(|content| Attached { content, name: output.name.clone() }));
        attached.collect()
    }

    /// What the model is shown.
    fn parts(&self) -> impl Iterator<Item = &Output> {
        let has_shown = self.output.iter().any(|output| output.stream == SHOWN);
        self.output.iter().filter(move |output| !has_shown || output.stream == SHOWN)
    }
}

impl ToolFinished {
    /// The limit that the call was stopped for.
    fn limit_exceeded(&self) -> String {
        let limit = self.beyond.as_deref().unwrap_or_default();
        format!("stopped beyond its limit of {}", limit.split(':').next().unwrap_or(limit))
    }

    /// What the call was refused, in a few words.
    fn what_was_refused(&self) -> String {
        const SHOWN: usize = 3;
        let mut calls: Vec<_> =
            self.refused.iter().take(SHOWN).map(|refused| format!("{} ×{}", refused.what, refused.times)).collect();
        match self.refused.len() {
            0 => return String::new(),
            count if count > SHOWN => calls.push(format!("{} more", count - SHOWN)),
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
    /// What it means to do a call twice. A later one is less safe, and one that this version does not know is the least safe.
    pub enum Effect {
        /// Nothing changes.
        Pure = "pure",
        /// The second time changes nothing.
        Idempotent = "idempotent",
        /// Undone by restoring the files.
        Workspace = "workspace",
        /// Cannot be taken back.
        Irreversible = "irreversible",
    }
}

open_enum! {
    /// How a call ended. A way that this version does not know is not done.
    pub enum CallOutcome {
        /// It did what it was for.
        Done = "done",
        /// It did not.
        Failed = "failed",
        /// It took too long and was stopped.
        TimedOut = "timed_out",
        /// Somebody stopped it.
        Cancelled = "cancelled",
        /// Nobody saw how it ended.
        Lost = "lost",
    }
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// In a way of a later version.
    #[serde(untagged, deserialize_with = "unknown_exit")]
    Unknown(UnknownValue),
}

fn unknown_exit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UnknownValue, D::Error> {
    UnknownValue::keyed(deserializer, &["code", "signal"])
}

/// What a call wrote to one stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// `stdout`, `stderr`, `result` (what a tool returned) or `shown`.
    pub stream: String,
    /// The text, where it is short and is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The bytes, where they are many or no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<BlobRef>,
    /// How many bytes there were, where not all were kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_from: Option<u64>,
    /// What it is, if not plain text or the bytes of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<OutputPart>,
    /// The name of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

open_enum! {
    /// What a part of a tool's output is. Something that this version does not know is shown as a file.
    pub enum OutputPart {
        /// A JSON value.
        Json = "json",
        /// A picture.
        Image = "image",
        /// A file.
        File = "file",
    }
}

impl Output {
    /// Nothing yet, of this stream.
    pub fn new(stream: impl Into<String>) -> Self {
        Self { stream: stream.into(), text: None, blob: None, cut_from: None, part: None, name: None }
    }

    /// Whether it is text, or bytes that are shown as text.
    pub fn is_text(&self) -> bool {
        matches!(self.part, None | Some(OutputPart::Json))
    }
}

/// Something that a sandbox refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// What was tried: a system call, mostly.
    pub what: String,
    /// How often.
    pub times: u64,
}

/// So many bytes of one stream, before the other one follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// `stdout` or `stderr`.
    pub stream: String,
    /// How many.
    pub bytes: u64,
}

/// A change to something that is not in the workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideEffect {
    /// Which system.
    pub system: String,
    /// Which thing in it.
    pub object: String,
    /// What it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Whether it can be taken back.
    pub reversible: bool,
}

impl Body for ToolStarted {
    const KIND: Kind = Kind::ToolStarted;
    fn summary(&self, _: SessionId) -> String {
        let place = if self.isolated == Some(false) { "(not isolated)" } else { "" };
        let outside = match self.outside.total {
            0 => String::new(),
            paths => format!("(after {paths} changed outside)"),
        };
        join(&join(&summary::call(&self.tool, self.arguments.as_ref()), place), &outside)
    }
    fn fold(&self, at: &At, state: &mut State) {
        // A call that a model made is open already, and ends with its result.
        // Ids come again: what a fork began with may have the same one, and stands before it.
        match state.calls.iter_mut().rev().find(|open| open.id == self.call) {
            Some(open) => {
                open.started = Some(Box::new(Started {
                    seq: at.seq,
                    effect: self.effect,
                    attempt: self.attempt,
                    before: self.workspace.clone(),
                }));
                (open.finished, open.asked, open.answered, open.hand_off) = (None, None, None, None);
            }
            None => state.calls.push(OpenCall { own: true, ..OpenCall::new(at.id, &self.call, &self.tool) }),
        }
        if let Some(version) = &self.workspace {
            state.workspace = Some(version.clone());
        }
    }
    fn is_pure(&self, _: &State) -> bool {
        self.effect == Effect::Pure
    }
    fn contents(&mut self, each: &mut dyn FnMut(&mut Content)) {
        self.arguments.iter_mut().for_each(each);
    }
}

impl Body for ToolFinished {
    const KIND: Kind = Kind::ToolFinished;
    fn summary(&self, _: SessionId) -> String {
        let ended = match (self.outcome, &self.exit) {
            _ if self.beyond.is_some() => self.limit_exceeded(),
            (CallOutcome::Lost, _) => "nobody saw it end".to_owned(),
            (CallOutcome::TimedOut, _) => "timed out".to_owned(),
            (CallOutcome::Cancelled, _) => "stopped".to_owned(),
            (_, Some(Exit::Code(code))) => format!("exit {code}"),
            (_, Some(Exit::Signal(signal))) => format!("killed by signal {signal}"),
            (_, Some(Exit::Unknown(way))) => way.to_string(),
            (CallOutcome::Done, None) => "done".to_owned(),
            (CallOutcome::Failed, None) => "failed".to_owned(),
            (outcome @ CallOutcome::Unknown(_), None) => outcome.to_string(),
        };
        join(&join(&ended, &changed(&self.changed)), &self.what_was_refused())
    }
    fn is_pure(&self, state: &State) -> bool {
        let open = state.calls.iter().rev().find(|open| open.id == self.call);
        open.and_then(|open| open.started.as_ref()).is_some_and(|started| started.effect == Effect::Pure)
    }
    fn fold(&self, at: &At, state: &mut State) {
        state.calls.retain(|open| !(open.own && open.id == self.call));
        if let Some(open) = state.calls.iter_mut().rev().find(|open| open.id == self.call) {
            open.finished = Some((at.seq, at.id));
            open.hand_off.clone_from(&self.hand_off);
        }
        if let Some(version) = &self.workspace {
            state.workspace = Some(version.clone());
        }
    }
}
