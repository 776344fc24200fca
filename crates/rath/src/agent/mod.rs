//! Agents: a model with tools, in a loop, as a workflow on sessions.
//!
//! An [`Agent`] is a step. What it does next is decided by the machine in the session's folded state
//! ([`rath_core::Run`]); the driver here does the IO: it asks the model, makes the calls, records both, and publishes
//! before anything happens that cannot be taken back. There is one driver: a run that goes on after a crash takes the
//! same way as one that was never interrupted.

mod asker;
mod budget;
mod calls;
mod config;
mod drive;
mod event;
mod json_answer;
mod policy;
mod retry;
mod stop;
mod sub_agent;
mod turn;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rath_core::body::{Role, StepEntered};
use rath_core::{
    Blob, BoxContextView, BoxModel, BoxTool, BoxWorkflow, ContextView, Equipment, Injector, IntoTools, Model, Outline,
    Parameters, Result, Session, StandardView, ToolSpec, Workflow,
};

pub use asker::{Answer, Asker, Question, Response};
pub use budget::Budget;
pub use config::AgentConfig;
pub use event::{Event, Listener, Patience, RunEvent, RunEvents};
pub use json_answer::answer_of;
pub use policy::Decision;
pub use sub_agent::SubAgent;

use crate::policy::Policy;
use policy::ByTool;
use schemars::JsonSchema;

/// A model with tools, in a loop.
///
/// ```
/// use rath::prelude::*;
/// # pollster::block_on(async {
/// let agent = Agent::new("greeter").prompt("Greet the user.").model(Scripted::new("scripted").say("Good morning."));
/// let store = Memory::new();
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
    by_tool: ByTool,
    rules: Option<Policy>,
    hand_offs: Vec<(String, BoxWorkflow)>,
    equipment: Equipment,
    retries: u32,
    backoff: Duration,
    sealed: OnceLock<Arc<Sealed>>,
}

/// What does not change any more once the agent works.
pub(crate) struct Sealed {
    name: Arc<str>,
    specs: Vec<ToolSpec>,
    blob: Blob,
}

impl Agent {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of its model.
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
            by_tool: ByTool::default(),
            rules: None,
            hand_offs: Vec::new(),
            equipment: Equipment::new(),
            retries: retry::RETRIES,
            backoff: retry::FIRST_WAIT,
            sealed: OnceLock::new(),
        }
    }

    /// What the model is told before the conversation.
    #[must_use]
    pub fn prompt(self, prompt: impl Into<String>) -> Self {
        self.change(|agent| agent.prompt = prompt.into())
    }

    /// The model.
    #[must_use]
    pub fn model(self, model: impl Model) -> Self {
        self.change(|agent| agent.model = Some(Arc::new(model)))
    }

    /// The model, where its type is forgotten already.
    #[must_use]
    pub fn shared_model(self, model: BoxModel) -> Self {
        self.change(|agent| agent.model = Some(model))
    }

    /// Adds tools: one, a tuple or list of them, or an object whose methods are tools. It can call no others.
    #[must_use]
    pub fn tools(self, tools: impl IntoTools) -> Self {
        self.change(|agent| agent.tools.extend(tools.into_tools()))
    }

    /// An agent or workflow that goes on with the session when a call of a tool says so:
    /// [`ToolOutcome::hand_off`](rath_core::ToolOutcome::hand_off) with this name. This agent's step is then over, and
    /// the other one works in a step of its own, behind it.
    #[must_use]
    pub fn hands_off_to(self, name: impl Into<String>, to: impl Workflow + 'static) -> Self {
        self.change(|agent| agent.hand_offs.push((name.into(), BoxWorkflow::new(to))))
    }

    /// Chooses the messages that the model is shown. Unless set, it is shown the whole context.
    #[must_use]
    pub fn view(self, view: impl ContextView) -> Self {
        self.change(|agent| agent.view = Arc::new(view))
    }

    /// Adds messages to each request, after those of injectors before it. A request records them by reference.
    #[must_use]
    pub fn inject(self, injector: impl Injector) -> Self {
        self.change(|agent| agent.injectors.push(Arc::new(injector)))
    }

    /// What is asked of the model besides. A [tool choice](rath_core::ToolChoice) that forces a call holds for the first
    /// turn of a step.
    #[must_use]
    pub fn parameters(self, parameters: Parameters) -> Self {
        self.change(|agent| agent.parameters = parameters)
    }

    /// Its answers are JSON of this type. [`answer_of`] reads them.
    #[must_use]
    pub fn answers<T: JsonSchema>(self) -> Self {
        let schema = schemars::schema_for!(T).to_value();
        self.change(|agent| agent.parameters.answer_schema = Some(schema))
    }

    /// What it may use up in one step.
    #[must_use]
    pub fn budget(self, budget: Budget) -> Self {
        self.change(|agent| agent.budget = budget)
    }

    /// What is done when the model wants to call a tool of this name: the default is what the [rules](Self::rules) say,
    /// and to allow it where there are none.
    #[must_use]
    pub fn policy(self, tool: impl Into<String>, decision: Decision) -> Self {
        self.change(|agent| agent.by_tool.set(tool.into(), decision))
    }

    /// Which calls are made, asked about or refused, by tool, path, command and effect. What no rule matches is decided
    /// safely: what cannot be taken back is asked about. They are part of the agent: a run is not resumed with others.
    /// Rules of whoever runs it come with the session, `session.equip(policy)`, and may change.
    #[must_use]
    pub fn rules(self, rules: Policy) -> Self {
        self.change(|agent| agent.rules = Some(rules))
    }

    /// Something that its tools may use, by type.
    #[must_use]
    pub fn with<T: Send + Sync + 'static>(self, value: T) -> Self {
        self.with_shared(Arc::new(value))
    }

    /// As [`with`](Self::with), with something that others have too.
    #[must_use]
    pub fn with_shared<T: Send + Sync + 'static>(self, value: Arc<T>) -> Self {
        self.change(|agent| agent.equipment = std::mem::take(&mut agent.equipment).with(value))
    }

    /// How often a request is sent again when the model fails for the moment, and how long to wait before the first
    /// time; the wait doubles.
    #[must_use]
    pub fn retries(self, times: u32, wait: Duration) -> Self {
        self.change(|agent| (agent.retries, agent.backoff) = (times, wait))
    }

    /// What its configuration calls itself. Resuming a run with another version stops.
    #[must_use]
    pub fn version(self, version: impl Into<String>) -> Self {
        self.change(|agent| agent.version = Some(version.into()))
    }

    /// The names of its tools.
    pub fn tool_names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|tool| tool.spec().name.as_str())
    }

    fn change(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self.sealed = OnceLock::new();
        self
    }

    fn sealed(&self) -> Arc<Sealed> {
        self.sealed.get_or_init(|| Arc::new(config::seal(self))).clone()
    }
}

impl Workflow for Agent {
    async fn forward(&self, session: Session) -> Result<Session> {
        let sealed = self.sealed();
        let step = StepEntered {
            role: Some(Role::Agent),
            version: self.version.clone(),
            config: Some(sealed.blob.reference.clone()),
            ..StepEntered::new(&self.name)
        };
        let blob = sealed.blob.clone();
        let session =
            session.in_step(step, Some(blob), |session, entered| self.drive(session, sealed, entered)).await?;
        if self.hand_offs.is_empty() {
            return Ok(session);
        }
        // What the step was left with is on the record: a resumed run that jumps over the step finds it too.
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
