//! Agents: a model with tools, in a loop, as a workflow on sessions.
//!
//! An [`Agent`] works in a step of the session. The state machine in the session's folded state
//! ([`AgentLoop`](rath_core::AgentLoop)) decides what it does next. The driver in this module does the IO: it sends
//! requests to the model, makes tool calls, records both, and publishes records before an irreversible effect. A
//! resumed run uses the same driver as one that was never interrupted.

mod budget;
mod calls;
mod config;
mod drive;
mod event;
mod output;
mod policy;
mod question_handler;
mod rate_limit;
mod retry;
mod stop;
mod sub_agent;
mod turn;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rath_core::body::{Role, StepEntered};
use rath_core::{
    Blob, BoxContextView, BoxModel, BoxTool, BoxWorkflow, ContextView, Injector, IntoTools, Model, Outline, Parameters,
    Resources, Result, Session, StandardView, ToolSpec, Workflow,
};

pub use budget::Budget;
pub(crate) use calls::panic_message;
pub use config::AgentConfig;
pub use event::{Event, Observer, OnQuestion, RunEvent, RunEvents};
pub use policy::Decision;
pub use question_handler::{Answer, HumanReply, Question, QuestionHandler};
pub use sub_agent::SubAgent;

use crate::policy::Policy;
use output::{AnswerTool, OutputType};
use policy::ToolDecisions;

/// A model with tools, in a loop.
///
/// ```
/// use rath::prelude::*;
/// # pollster::block_on(async {
/// let agent = Agent::new("greeter").prompt("Greet the user.").model(Scripted::new("scripted").say("Good morning."));
/// let store = InMemory::new();
/// let mut session = store.create(Actor::person("ada"));
/// session.user("Hello.")?;
/// let session = agent.forward(session).await?;
/// assert_eq!(session.text().await?.as_deref(), Some("Good morning."));
/// # Ok::<(), rath::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Agent {
    name: String,
    version: Option<String>,
    prompt: String,
    model: Option<BoxModel>,
    tools: Vec<BoxTool>,
    view: BoxContextView,
    injectors: Vec<Arc<dyn Injector>>,
    parameters: Parameters,
    budget: Budget,
    tool_decisions: ToolDecisions,
    policy: Option<Policy>,
    hand_offs: Vec<(String, BoxWorkflow)>,
    resources: Resources,
    retries: u32,
    backoff: Duration,
    output: Option<Arc<OutputType>>,
    output_retries: u32,
    resolved: OnceLock<Arc<ResolvedConfig>>,
}

/// The configuration of an agent, fixed when its step starts.
pub(crate) struct ResolvedConfig {
    name: Arc<str>,
    /// The tools that requests list, with the one to answer with.
    specs: Vec<ToolSpec>,
    /// The parameters of requests.
    parameters: Parameters,
    /// The tool to answer with, if the output is typed and the model's API takes no schema.
    answer_tool: Option<AnswerTool>,
    blob: Blob,
}

impl Agent {
    /// The agent's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the agent's model.
    pub fn model_name(&self) -> Option<&str> {
        self.model.as_ref().map(|model| model.name())
    }

    /// An agent called `name`, without a model.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: None,
            prompt: String::new(),
            model: None,
            tools: Vec::new(),
            view: Arc::new(StandardView::default()),
            injectors: Vec::new(),
            parameters: Parameters::default(),
            budget: Budget::default(),
            tool_decisions: ToolDecisions::default(),
            policy: None,
            hand_offs: Vec::new(),
            resources: Resources::new(),
            retries: retry::RETRIES,
            backoff: retry::FIRST_WAIT,
            output: None,
            output_retries: output::RETRIES,
            resolved: OnceLock::new(),
        }
    }

    /// Sets the prompt, which the model gets before the conversation.
    #[must_use]
    pub fn prompt(self, prompt: impl Into<String>) -> Self {
        self.change(|agent| agent.prompt = prompt.into())
    }

    /// Sets the model.
    #[must_use]
    pub fn model(self, model: impl Model) -> Self {
        self.change(|agent| agent.model = Some(Arc::new(model)))
    }

    /// Sets a model that is already shared.
    #[must_use]
    pub fn shared_model(self, model: BoxModel) -> Self {
        self.change(|agent| agent.model = Some(model))
    }

    /// Adds tools: one, a tuple or list of tools, or an object whose methods are tools. The model can call no others.
    #[must_use]
    pub fn tools(self, tools: impl IntoTools) -> Self {
        self.change(|agent| agent.tools.extend(tools.into_tools()))
    }

    /// Adds an agent or workflow that continues the session when a tool call returns
    /// [`ToolOutcome::hand_off`](rath_core::ToolOutcome::hand_off) with this name. This agent's step ends, and the
    /// other agent works in a new step after it.
    #[must_use]
    pub fn hands_off_to(self, name: impl Into<String>, to: impl Workflow + 'static) -> Self {
        self.change(|agent| agent.hand_offs.push((name.into(), BoxWorkflow::new(to))))
    }

    /// Sets the view that selects the messages for the model. Default: the whole context.
    #[must_use]
    pub fn view(self, view: impl ContextView) -> Self {
        self.change(|agent| agent.view = Arc::new(view))
    }

    /// Adds an injector, whose messages are added to each request after those of earlier injectors. A request records
    /// them by reference.
    #[must_use]
    pub fn inject(self, injector: impl Injector) -> Self {
        self.change(|agent| agent.injectors.push(Arc::new(injector)))
    }

    /// Sets the parameters of requests. A [tool choice](rath_core::ToolChoice) that forces a call applies only to the
    /// first turn of a step.
    #[must_use]
    pub fn parameters(self, parameters: Parameters) -> Self {
        self.change(|agent| agent.parameters = parameters)
    }

    /// Limits what the agent may use in one step.
    #[must_use]
    pub fn budget(self, budget: Budget) -> Self {
        self.change(|agent| agent.budget = budget)
    }

    /// Sets the decision for calls of one tool. Without it the [policy](Self::policy) decides, or if there is no policy
    /// the call is allowed.
    #[must_use]
    pub fn tool_policy(self, tool: impl Into<String>, decision: Decision) -> Self {
        self.change(|agent| agent.tool_decisions.set(tool.into(), decision))
    }

    /// Sets the policy, which allows, asks about or denies calls by tool, path, command and effect. Irreversible calls
    /// that no rule matches need an approval. The policy is part of the agent's configuration: a run is not resumed
    /// with another one. A policy given to the session with `session.provide(policy)` applies too, and may change
    /// between runs.
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        self.change(|agent| agent.policy = Some(policy))
    }

    /// Adds a resource for the agent's tools, which they get by its type.
    #[must_use]
    pub fn with<T: Send + Sync + 'static>(self, value: T) -> Self {
        self.with_shared(Arc::new(value))
    }

    /// As [`with`](Self::with), with a value that is already shared.
    #[must_use]
    pub fn with_shared<T: Send + Sync + 'static>(self, value: Arc<T>) -> Self {
        self.change(|agent| agent.resources = std::mem::take(&mut agent.resources).with(value))
    }

    /// Sets how often a request is sent again after a transient failure, and the wait before the first retry. The wait
    /// doubles with each retry. Default: 3 retries, 500 ms.
    ///
    /// A wait for a rate limit is not a retry: when the provider answers with status 429 and `Retry-After`, all requests of
    /// this process with the same address and API key wait.
    #[must_use]
    pub fn retries(self, times: u32, wait: Duration) -> Self {
        self.change(|agent| (agent.retries, agent.backoff) = (times, wait))
    }

    /// Sets the version of the agent. Resuming a run with another version fails with a divergence.
    #[must_use]
    pub fn version(self, version: impl Into<String>) -> Self {
        self.change(|agent| agent.version = Some(version.into()))
    }

    /// The names of the agent's tools.
    pub fn tool_names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|tool| tool.spec().name.as_str())
    }

    fn change(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self.resolved = OnceLock::new();
        self
    }

    fn resolved(&self) -> Arc<ResolvedConfig> {
        self.resolved.get_or_init(|| Arc::new(config::resolve(self))).clone()
    }
}

impl Workflow for Agent {
    async fn forward(&self, session: Session) -> Result<Session> {
        let resolved = self.resolved();
        let step = StepEntered {
            role: Some(Role::Agent),
            version: self.version.clone(),
            config: Some(resolved.blob.reference.clone()),
            ..StepEntered::new(&self.name)
        };
        let blob = resolved.blob.clone();
        let work = |session, entered| self.drive(session, resolved, entered);
        let (session, _) = session.in_step_with_value(step, Some(blob), work).await?;
        if self.hand_offs.is_empty() {
            return Ok(session);
        }
        // The hand-off is read from the records, so a resumed run that skips the finished step finds it too.
        let to = match session.handed_off().await {
            Ok(to) => to,
            Err(error) => return Err(error.with_sessions(vec![session])),
        };
        match to.and_then(|to| self.hand_offs.iter().find(|(name, _)| *name == to)) {
            Some((_, workflow)) => workflow.forward(session).await,
            None => Ok(session),
        }
    }

    fn outline(&self) -> Outline {
        let tools: Vec<_> = self.tools.iter().map(|tool| tool.spec().name.as_str()).collect();
        let model = self.model.as_ref().map_or("none", |model| model.name());
        let outline = Outline::leaf("Agent");
        let outline = outline.detail(format!("{}, model={model}, tools=[{}]", self.name, tools.join(", ")));
        self.hand_offs.iter().fold(outline, |outline, (name, to)| outline.child(name, to.outline()))
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outline().fmt(f)
    }
}
