//! What a tool is: a name, a description and a schema for the model; an effect class for the runtime; a call.

mod paths;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::body::{CallOutcome, Effect, Exit, OutsideEffect, Refused, Stretch};
use crate::cancel::Cancel;
use crate::equipment::{Equipment, Missing};
use crate::id::Digest;
use crate::store::BoxFuture;

pub use paths::PathArguments;

/// A thing that a model can call.
///
/// Written by hand, or by `#[tool]` on a function or an impl block. Bad arguments, failures, panics and timeouts are
/// replies that the model reads, not errors of the run.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool",
    note = "put `#[tool]` on an async function or on an impl block, or implement `Tool`"
)]
pub trait Tool: Send + Sync + 'static {
    /// What models and the runtime know of it. The same at every call.
    fn spec(&self) -> &ToolSpec;

    /// Whether these arguments can be used; the reason is for the model. Asked before the call begins, so that a call
    /// with bad arguments has no effect that somebody would have to think about.
    fn check(&self, arguments: &str) -> Result<(), String> {
        let _ = arguments;
        Ok(())
    }

    /// Does what `call` asks for.
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Reply>;
}

/// A tool, its type forgotten.
pub type BoxTool = Arc<dyn Tool>;

/// What is known of a tool before it is called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// What models call it.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON schema of its arguments: an object.
    pub schema: Value,
    /// The version of what it does. A run is not resumed with another one; prose in description and schema may change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What can be done about a call of which nobody knows whether it happened.
    pub effect: Effect,
    /// What it does with the session's files.
    #[serde(default)]
    pub touches: Touches,
    /// Which of its arguments are paths: what policy rules about paths go by. Not stored with the tool: models are not
    /// shown it, and an agent's fingerprint does not have it.
    #[serde(skip)]
    pub paths: PathArguments,
    /// Whether a call works on a branch of the session, which the runtime makes and takes in again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub branches: bool,
    /// How long a call may take; the runtime stops it then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// The configuration of the agent that it is, for a tool that is one: whoever changes that changes the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Value>,
}

impl ToolSpec {
    /// A tool of which nothing else is known: it cannot be taken back, and its paths are unknown.
    pub fn new(name: impl Into<String>, description: impl Into<String>, schema: Value) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            schema,
            version: None,
            effect: Effect::Irreversible,
            touches: Touches::Nothing,
            paths: PathArguments::Unknown,
            branches: false,
            timeout: None,
            agent: None,
        }
    }
}

/// What a tool does with the session's files. Calls of one turn run together, but for one that writes: it waits for
/// those before it, and those after it wait for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Touches {
    /// It does not come near them.
    #[default]
    Nothing,
    /// It looks at them.
    Reads,
    /// It may change them.
    Writes,
}

/// One call of a tool.
#[derive(Clone, Debug)]
pub struct Call {
    /// The call's id, as the model gave it.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// The arguments: the model's JSON text. May be empty, which is an object without fields.
    pub arguments: String,
    /// The same whenever this call is made again after a crash, and on no other call: what makes a call to another
    /// system idempotent.
    pub key: Digest,
    /// Counts how often the call was made. The first is 1.
    pub attempt: u32,
    /// Says stop.
    pub cancel: Cancel,
    /// What the tool may use, by type.
    pub equipment: Equipment,
}

impl Call {
    /// Something the tool needs, by type: of the agent's, else of the session's.
    pub fn get<T: Send + Sync + 'static>(&self) -> Result<Arc<T>, Missing> {
        self.equipment.get()
    }
}

/// What came of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// What the model is shown.
    pub text: String,
    /// Whether the model is told that the call failed.
    pub failed: bool,
    /// What is recorded besides the text.
    pub evidence: Option<Box<Evidence>>,
}

/// What is recorded of a call besides what the model is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// How it ended, where that is neither done nor failed.
    pub outcome: Option<CallOutcome>,
    /// The exit code or signal of a command.
    pub exit: Option<Exit>,
    /// The whole output, by stream. Without any, the output is what the model is shown.
    pub streams: Vec<Captured>,
    /// In which order the streams were written.
    pub order: Vec<Stretch>,
    /// What changed outside the session's files.
    pub effects: Vec<OutsideEffect>,
    /// Processes that outlived it and were killed.
    pub left_behind: u64,
    /// What the sandbox refused.
    pub refused: Vec<Refused>,
    /// The limit that was reached.
    pub beyond: Option<String>,
    /// What should be known.
    pub remarks: Vec<String>,
}

/// What a stream held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Its name: `stdout`, `stderr`.
    pub stream: String,
    /// What was kept of it.
    pub bytes: Vec<u8>,
    /// How long it was, where not all was kept.
    pub cut_from: Option<u64>,
}

impl Reply {
    /// It did what was asked.
    pub fn done(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// It did not, and this says why in words that a model can act on.
    pub fn failed(text: impl Into<String>) -> Self {
        Self { text: text.into(), failed: true, evidence: None }
    }

    /// With something that changed outside the session's files.
    #[must_use]
    pub fn with_effect(mut self, effect: OutsideEffect) -> Self {
        self.evidence.get_or_insert_default().effects.push(effect);
        self
    }
}

/// What a tool's function may return.
#[diagnostic::on_unimplemented(
    message = "a tool cannot return `{Self}`",
    note = "return text, `()`, `Json(value)`, a `Reply`, or a `Result` of one of these whose error is text or an error type"
)]
pub trait IntoReply {
    /// As a reply.
    fn into_reply(self) -> Reply;
}

/// A value that the model is shown as JSON.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

impl IntoReply for Reply {
    fn into_reply(self) -> Reply {
        self
    }
}

impl IntoReply for String {
    fn into_reply(self) -> Reply {
        Reply::done(self)
    }
}

impl IntoReply for &str {
    fn into_reply(self) -> Reply {
        Reply::done(self)
    }
}

impl IntoReply for () {
    fn into_reply(self) -> Reply {
        Reply::done("done")
    }
}

impl<T: Serialize> IntoReply for Json<T> {
    fn into_reply(self) -> Reply {
        match serde_json::to_string(&self.0) {
            Ok(text) => Reply::done(text),
            Err(error) => Reply::failed(format!("the result cannot be written as JSON: {error}")),
        }
    }
}

impl<T: IntoReply, E: std::fmt::Display> IntoReply for Result<T, E> {
    fn into_reply(self) -> Reply {
        match self {
            Ok(value) => value.into_reply(),
            Err(error) => Reply::failed(error.to_string()),
        }
    }
}

/// What can be given to an agent as tools: one, several, or an object whose methods are tools.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool, nor a set of tools",
    note = "put `#[tool]` on an async function or on an impl block; several of different types go into a tuple"
)]
pub trait IntoTools {
    /// As a list.
    fn into_tools(self) -> Vec<BoxTool>;
}

impl<T: Tool> IntoTools for T {
    fn into_tools(self) -> Vec<BoxTool> {
        vec![Arc::new(self)]
    }
}

impl IntoTools for BoxTool {
    fn into_tools(self) -> Vec<BoxTool> {
        vec![self]
    }
}

impl IntoTools for Vec<BoxTool> {
    fn into_tools(self) -> Vec<BoxTool> {
        self
    }
}

impl<T: IntoTools, const N: usize> IntoTools for [T; N] {
    fn into_tools(self) -> Vec<BoxTool> {
        self.into_iter().flat_map(IntoTools::into_tools).collect()
    }
}

macro_rules! tuples {
    ($($name:ident)+) => {
        impl<$($name: IntoTools),+> IntoTools for ($($name,)+) {
            #[allow(non_snake_case, reason = "one name for the type and its value")]
            fn into_tools(self) -> Vec<BoxTool> {
                let ($($name,)+) = self;
                let mut all = Vec::new();
                $(all.extend($name.into_tools());)+
                all
            }
        }
    };
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);
