//! What a tool is: a name, a description and a schema for the model; an effect class for the runtime; a call.

mod branch;
mod outcome;
mod paths;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::body::Effect;
use crate::cancel::Cancel;
use crate::equipment::{Equipment, Missing};
use crate::id::Digest;
use crate::session::Session;
use crate::store::BoxFuture;

pub use branch::CallBranch;
pub use outcome::{Captured, ContentPart, Evidence, IntoOutcome, Json, Then, ToolOutcome};
pub use paths::PathArguments;

/// A thing that a model can call.
///
/// Written by hand, or by `#[tool]` on a function or an impl block. Bad arguments, failures, panics and timeouts are
/// outcomes that the model reads, not errors of the run.
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
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ToolOutcome>;
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
    /// Whether all it does is ask a person: then no rule has a person asked before. Not stored with the tool.
    #[serde(skip)]
    pub asks: bool,
    /// Whether a call works on a branch of the session, which the runtime makes before the call and merges after it:
    /// [`Call::branch`].
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
            asks: false,
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

    /// The branch of the session that this call works on, for a tool with [`branches`](ToolSpec::branches). It can be
    /// taken once. It is a session as any other: an agent may work on it, it may be forked and merged. Give it back with
    /// [`ToolOutcome::with_branch`]; the runtime merges it into the caller's session: its files and its usage, not its
    /// conversation.
    ///
    /// A call that a crash interrupted is made again with the same branch, which then replays what is recorded on it.
    pub fn branch(&self) -> Option<Session> {
        let mut branch = self.get::<CallBranch>().ok()?.take()?;
        branch.stop_with(self.cancel.clone());
        Some(branch)
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
