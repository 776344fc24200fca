//! Choosing between workflows.

use std::fmt;
use std::sync::Arc;

use rath_core::body::{Candidate, Role, Routed, StepEntered};
use rath_core::{BoxWorkflow, ErrorKind, Outline, Result, Session, Workflow};

/// A condition on a session.
pub(super) type Predicate = Arc<dyn Fn(&Session) -> bool + Send + Sync>;

/// Runs the workflow of the first case whose predicate holds. The predicates are evaluated once; the choice is recorded,
/// and a resumed run uses the recorded one. Without a match the session passes unchanged, or through
/// [`otherwise`](Choose::otherwise).
///
/// ```
/// use rath::prelude::*;
/// use rath::workflow::choose;
/// # pollster::block_on(async {
/// let answer = |text: &str| Agent::new("answer").model(Scripted::new("scripted").say(text));
/// let route = choose("by title")
///     .when("billing", |session| session.title() == Some("billing"), answer("The invoice was wrong."))
///     .otherwise(answer("Please say more."));
/// let mut session = InMemory::new().create(Actor::person("ada"));
/// session.set_title("billing")?;
/// session.user("Why was I charged twice?")?;
/// let session = route.forward(session).await?;
/// assert_eq!(session.text().await?.as_deref(), Some("The invoice was wrong."));
/// # Ok::<(), rath::Error>(())
/// # }).unwrap();
/// ```
pub fn choose(name: impl Into<String>) -> Choose {
    Choose { name: name.into(), cases: Vec::new(), otherwise: None }
}

/// Runs `workflow` if `predicate` holds: [`choose`] with one case.
pub fn when(
    name: impl Into<String>,
    predicate: impl Fn(&Session) -> bool + Send + Sync + 'static,
    workflow: impl Workflow + 'static,
) -> Choose {
    choose(name).when("then", predicate, workflow)
}

/// See [`choose`].
#[derive(Clone)]
pub struct Choose {
    name: String,
    cases: Vec<(String, Predicate, BoxWorkflow)>,
    otherwise: Option<BoxWorkflow>,
}

/// The name of the case that runs if no other does.
const OTHERWISE: &str = "otherwise";

impl Choose {
    /// Adds a case. Its name is recorded when it is chosen.
    #[must_use]
    pub fn when(
        mut self,
        name: impl Into<String>,
        predicate: impl Fn(&Session) -> bool + Send + Sync + 'static,
        workflow: impl Workflow + 'static,
    ) -> Self {
        self.cases.push((name.into(), Arc::new(predicate), BoxWorkflow::new(workflow)));
        self
    }

    /// Sets the workflow that runs if no case matches.
    #[must_use]
    pub fn otherwise(mut self, workflow: impl Workflow + 'static) -> Self {
        self.otherwise = Some(BoxWorkflow::new(workflow));
        self
    }

    async fn run(&self, mut session: Session) -> Result<Session> {
        let routed = match session.append_once(async |session: &mut Session| Ok(self.decide(session))).await {
            Ok(routed) => routed,
            Err(error) => return Err(error.with_sessions(vec![session])),
        };
        let Some(chosen) = routed.chosen.first() else { return Ok(session) };
        let case = self.cases.iter().find(|(name, ..)| name == chosen).map(|(_, _, workflow)| workflow);
        match case.or(self.otherwise.as_ref().filter(|_| chosen == OTHERWISE)) {
            Some(workflow) => workflow.forward(session).await,
            None => {
                let why = format!("the recorded choice {chosen:?} of {:?} is not a case of the code", self.name);
                Err(rath_core::Error::new(ErrorKind::Workflow(why.into()), vec![session]))
            }
        }
    }

    fn decide(&self, session: &Session) -> Routed {
        let names = self.cases.iter().map(|(name, ..)| name.clone());
        let names = names.chain(self.otherwise.iter().map(|_| OTHERWISE.to_owned()));
        let matching = self.cases.iter().find(|(_, predicate, _)| predicate(session)).map(|(name, ..)| name.clone());
        let chosen = matching.or(self.otherwise.as_ref().map(|_| OTHERWISE.into()));
        Routed {
            candidates: names.map(|name| Candidate { name, ..Candidate::default() }).collect(),
            chosen: chosen.into_iter().collect(),
            why: None,
            by: Some("predicate".into()),
            evidence: Vec::new(),
        }
    }
}

impl Workflow for Choose {
    async fn forward(&self, session: Session) -> Result<Session> {
        let step = StepEntered { role: Some(Role::Workflow), ..StepEntered::new(&self.name) };
        session.in_step(step, None, |session, _| self.run(session)).await
    }

    fn outline(&self) -> Outline {
        let outline = Outline::leaf("choose").detail(&self.name);
        let outline =
            self.cases.iter().fold(outline, |outline, (name, _, workflow)| outline.child(name, workflow.outline()));
        self.otherwise.iter().fold(outline, |outline, workflow| outline.child(OTHERWISE, workflow.outline()))
    }
}

impl fmt::Debug for Choose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outline().fmt(f)
    }
}
