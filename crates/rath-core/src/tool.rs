//! [`Tool`]: a function that models can call, with its description for the model and its effect class for the runtime.

mod branch;
mod outcome;
mod paths;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::body::Effect;
use crate::cancel::Cancel;
use crate::id::Digest;
use crate::resources::{MissingResource, Resources};
use crate::session::Session;
use crate::store::BoxFuture;

pub use branch::CallBranch;
pub use outcome::{CapturedStream, ContentPart, Evidence, FollowUp, IntoOutcome, Json, ToolOutcome};
pub use paths::PathArguments;

/// A tool that a model can call.
///
/// Implement it by hand, or put `#[tool]` on a function or an impl block. Bad arguments, failures, panics and timeouts
/// are outcomes that the model reads, not errors of the run.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool",
    note = "put `#[tool]` on an async function or on an impl block, or implement `Tool`"
)]
pub trait Tool: Send + Sync + 'static {
    /// The tool's specification. Must be the same on every call.
    fn spec(&self) -> &ToolSpec;

    /// Checks the arguments before the call starts, so that a call with bad arguments certainly has no effect. The
    /// error text is shown to the model.
    fn check(&self, arguments: &str) -> Result<(), String> {
        let _ = arguments;
        Ok(())
    }

    /// Executes `call`.
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ToolOutcome>;
}

/// A shared tool of any type.
pub type BoxTool = Arc<dyn Tool>;

/// The specification of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The tool's name.
    pub name: String,
    /// What the tool does, written for the model.
    pub description: String,
    /// The JSON schema of its arguments. It must describe an object.
    pub schema: Value,
    /// The version of the tool's behaviour. Resuming a run with another version is a divergence. Prose in `description`
    /// and `schema` may change without a new version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How to recover a call whose outcome is unknown.
    pub effect: Effect,
    /// How it accesses the session's files.
    #[serde(default, rename = "touches")]
    pub file_access: FileAccess,
    /// Which of its arguments are paths, for policy rules about paths. Not serialized: neither models nor an agent's
    /// fingerprint see it.
    #[serde(skip)]
    pub paths: PathArguments,
    /// Whether the tool only asks a person. Then policy rules do not ask for approval before. Not serialized.
    #[serde(skip)]
    pub asks: bool,
    /// Whether a call works on a branch of the session, see [`Call::branch`]. The runtime forks the branch before the
    /// call and merges it after.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub branches: bool,
    /// The timeout of a call. After it the runtime cancels the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// For a tool that is an agent: that agent's configuration. A change of it also changes the calling agent's
    /// fingerprint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Value>,
}

impl ToolSpec {
    /// A specification with defaults for everything else: irreversible effect, no access to files, unknown path
    /// arguments.
    pub fn new(name: impl Into<String>, description: impl Into<String>, schema: Value) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            schema,
            version: None,
            effect: Effect::Irreversible,
            file_access: FileAccess::Nothing,
            paths: PathArguments::Unknown,
            asks: false,
            branches: false,
            timeout: None,
            agent: None,
        }
    }
}

/// How a tool accesses the session's files. The calls of one turn run concurrently, except that a call that writes
/// waits for all calls before it, and calls after it wait for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileAccess {
    /// The call does not access the files.
    #[default]
    Nothing,
    /// The call reads the files.
    Reads,
    /// The call may change the files.
    Writes,
}

/// One call of a tool.
#[derive(Clone, Debug)]
pub struct Call {
    /// The call's id, as given by the model.
    pub id: String,
    /// The name of the tool.
    pub tool: String,
    /// The arguments as the model's JSON text. An empty text means an object without fields.
    pub arguments: String,
    /// An idempotency key: the same whenever this call is repeated after a crash, and different for all other calls.
    pub key: Digest,
    /// The number of this attempt, starting at 1.
    pub attempt: u32,
    /// Cancelled when the call should stop.
    pub cancel: Cancel,
    /// Resources that the tool can use.
    pub resources: Resources,
}

impl Call {
    /// A resource by its type: the agent's, or else the session's.
    pub fn get<T: Send + Sync + 'static>(&self) -> Result<Arc<T>, MissingResource> {
        self.resources.get()
    }

    /// The branch of the session that this call works on, for a tool with [`branches`](ToolSpec::branches). `None` if
    /// it was taken before. It is an ordinary session: run agents on it, fork it, merge it. Return it with
    /// [`ToolOutcome::with_branch`]. The runtime then merges its files and usage, but not its conversation, into the
    /// caller's session.
    ///
    /// A call that a crash interrupted is repeated with the same branch, which then replays its records.
    pub fn branch(&self) -> Option<Session> {
        let mut branch = self.get::<CallBranch>().ok()?.take()?;
        branch.stop_with(self.cancel.clone());
        Some(branch)
    }
}

/// What an agent accepts as tools: one tool, several, or an object whose methods are tools.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool, nor a set of tools",
    note = "put `#[tool]` on an async function or on an impl block; several of different types go into a tuple"
)]
pub trait IntoTools {
    /// Converts into a list of tools.
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
