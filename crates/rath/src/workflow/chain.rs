//! One workflow after the other.

use std::fmt;
use std::sync::Arc;

use rath_core::body::{Role, StepEntered};
use rath_core::store::BoxFuture;
use rath_core::{BoxWorkflow, Outline, Result, Session, Workflow};

/// Runs workflows one after the other, in one step.
///
/// By default each link continues with the whole session. [`task_from_answer`](Chain::task_from_answer) and
/// [`task`](Chain::task) start the next link with a user message.
///
/// ```
/// use rath::prelude::*;
/// use rath::workflow::chain;
/// # pollster::block_on(async {
/// let agent = |name: &str, answer: &str| Agent::new(name).model(Scripted::new("scripted").say(answer));
/// let release = chain("release notes")
///     .then(agent("draft", "Fixed the login."))
///     .task_from_answer()
///     .then(agent("translate", "Login behoben."));
/// let mut session = InMemory::new().create(Actor::person("ada"));
/// session.user("Write the release notes.")?;
/// let session = release.forward(session).await?;
/// assert_eq!(session.text().await?.as_deref(), Some("Login behoben."));
/// # Ok::<(), rath::Error>(())
/// # }).unwrap();
/// ```
pub fn chain(name: impl Into<String>) -> Chain {
    Chain { name: name.into(), links: Vec::new() }
}

/// See [`chain`].
#[derive(Clone)]
pub struct Chain {
    name: String,
    links: Vec<Link>,
}

/// Computes a task from the session so far.
type TaskOf = Arc<dyn for<'a> Fn(&'a Session) -> BoxFuture<'a, Result<String>> + Send + Sync>;

#[derive(Clone)]
enum Link {
    Workflow(BoxWorkflow),
    /// A user message for the next workflow.
    Task(TaskOf),
}

impl Chain {
    /// Adds a workflow.
    #[must_use]
    pub fn then(mut self, workflow: impl Workflow + 'static) -> Self {
        self.links.push(Link::Workflow(BoxWorkflow::new(workflow)));
        self
    }

    /// Gives the last answer to the next workflow, as its task.
    #[must_use]
    pub fn task_from_answer(self) -> Self {
        self.task_of(Arc::new(|session| Box::pin(async { Ok(session.text().await?.unwrap_or_default()) })))
    }

    /// Gives a task to the next workflow that `task` computes from the session.
    #[must_use]
    pub fn task(self, task: impl Fn(&Session) -> String + Send + Sync + 'static) -> Self {
        self.task_of(Arc::new(move |session| {
            let text = task(session);
            Box::pin(async { Ok(text) })
        }))
    }

    fn task_of(mut self, task: TaskOf) -> Self {
        self.links.push(Link::Task(task));
        self
    }

    async fn run(&self, mut session: Session) -> Result<Session> {
        for link in &self.links {
            match link {
                Link::Workflow(workflow) => session = workflow.forward(session).await?,
                Link::Task(task) => {
                    let told = match task(&session).await {
                        Ok(text) => session.user(text).map(drop),
                        Err(error) => Err(error),
                    };
                    if let Err(error) = told {
                        return Err(error.with_sessions(vec![session]));
                    }
                }
            }
        }
        Ok(session)
    }
}

impl Workflow for Chain {
    async fn forward(&self, session: Session) -> Result<Session> {
        let step = StepEntered { role: Some(Role::Workflow), ..StepEntered::new(&self.name) };
        session.in_step(step, None, |session, _| self.run(session)).await
    }

    fn outline(&self) -> Outline {
        let workflows = self.links.iter().filter_map(|link| match link {
            Link::Workflow(workflow) => Some(workflow.outline()),
            Link::Task(_) => None,
        });
        let outline = Outline::leaf("chain").detail(&self.name);
        workflows.enumerate().fold(outline, |outline, (at, part)| outline.child((at + 1).to_string(), part))
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outline().fmt(f)
    }
}
