//! Runs: a workflow on a session that is found again by its key.

use std::sync::Arc;

use super::{Birth, Gear, OPERATOR, Session, Voice, encode};
use crate::actor::Actor;
use crate::ancestry::Ancestry;
use crate::blob::Blob;
use crate::body::{Created, Role, StepEntered};
use crate::error::{ErrorKind, Result};
use crate::id::{Point, SessionId};
use crate::kind::Kind;
use crate::record::Extras;
use crate::store::{self, Store, Which};
use crate::workflow::Workflow;

/// The step around a run.
pub(crate) const RUN: &str = "run";

/// How a run begins or goes on.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// Who makes the records.
    pub actor: Actor,
    /// What the run is made of, where the text of a program says it: whoever resumes it finds it there.
    pub program: Option<Blob>,
    /// The name and the version of the workflow, recorded with the run. Resuming a run with another name or version than
    /// it recorded is a divergence.
    pub workflow: Option<WorkflowName>,
    /// What happens when the code no longer makes what is recorded.
    pub on_divergence: OnDivergence,
}

impl From<Actor> for Conditions {
    fn from(actor: Actor) -> Self {
        Self { actor, program: None, workflow: None, on_divergence: OnDivergence::default() }
    }
}

impl Conditions {
    /// With the name and the version of the workflow: change the version when a run that the old code began cannot go on
    /// with the new code.
    #[must_use]
    pub fn workflow(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.workflow = Some(WorkflowName { name: name.into(), version: version.into() });
        self
    }
}

/// The name and the version of a run's workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowName {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// What a run does when the code no longer makes what is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDivergence {
    /// Stops and shows both sides.
    #[default]
    Stop,
    /// Goes on live on a fork at the last record that was the same. Resuming it finds that fork again.
    Fork,
}

impl dyn Store {
    /// Runs `workflow` on the session of `run_key`: a new one that `input` prepares, or the stored one, resumed.
    ///
    /// On resume the code runs again from its beginning. Steps that were left are jumped over, forks are found again,
    /// what the code appends is held against what is recorded; an agent's step that a crash interrupted goes on from
    /// its records. `input` is not run again once the run has begun.
    pub async fn run<W: Workflow>(
        self: &Arc<Self>,
        run_key: &str,
        conditions: impl Into<Conditions>,
        workflow: &W,
        input: impl AsyncFnOnce(&mut Session) -> Result<()>,
    ) -> Result<Session> {
        let session = self.begin_run(run_key, conditions, input).await?;
        session.go_on(workflow).await
    }

    /// The session of a run, before its first step: new, or resuming. [`Session::go_on`] runs the workflow on it.
    pub async fn begin_run(
        self: &Arc<Self>,
        run_key: &str,
        conditions: impl Into<Conditions>,
        input: impl AsyncFnOnce(&mut Session) -> Result<()>,
    ) -> Result<Session> {
        let conditions = conditions.into();
        if run_key == OPERATOR {
            let why = "this key is the store's own; take another one";
            return Err(store::Error::machine("beginning a run", why).into());
        }
        let stored = self.sessions(Which::Run(run_key.into()).into()).await?.into_iter().next();
        let (mut session, begun) = match stored {
            Some(row) => Session::resume_run(self, row.id, conditions.clone()).await?,
            None => (Session::of_new_run(self, run_key, conditions.clone()), false),
        };
        if begun {
            return Ok(session);
        }
        let prepared = match input(&mut session).await {
            Ok(()) => session.publish().await,
            Err(error) => Err(error),
        };
        match prepared {
            Ok(()) => Ok(session),
            Err(error) => match error.kind() {
                // Somebody began the same run a moment ago.
                ErrorKind::Store(store::Error::RunTaken { session: taken, .. }) => {
                    Ok(Session::resume_run(self, *taken, conditions).await?.0)
                }
                _ => Err(error.with_sessions(vec![session])),
            },
        }
    }

    /// The session of a run by the id of any of its lines, resuming. [`Session::go_on`] runs the workflow on it.
    ///
    /// A line on which the run went on where the code had diverged is come to again as it was; its branches belong to
    /// the run as a whole.
    pub async fn resume(self: &Arc<Self>, line: SessionId, conditions: impl Into<Conditions>) -> Result<Session> {
        let (mut session, begun) = Session::resume_run(self, line, conditions.into()).await?;
        if !begun {
            // It was killed before its first step: what is there is its input.
            session.jump_to_the_end().await?;
        }
        Ok(session)
    }

    /// The session of a run whose work is over, at the end of one of its lines: for more words, and
    /// [`Session::go_on`] again. What the run is made of may be something else now.
    pub async fn continue_run(self: &Arc<Self>, line: SessionId, conditions: impl Into<Conditions>) -> Result<Session> {
        let (mut session, _) = Session::resume_run(self, line, conditions.into()).await?;
        session.jump_to_the_end().await?;
        match session.check_nothing_open() {
            Ok(()) => Ok(session),
            Err(error) => Err(error.with_sessions(vec![session])),
        }
    }
}

impl Session {
    fn of_new_run(store: &Arc<dyn Store>, run_key: &str, conditions: Conditions) -> Self {
        let Conditions { actor, program, workflow, on_divergence: _ } = conditions;
        let named = program.as_ref().map(|program| program.reference.clone());
        let created = Created { title: None, run: Some(run_key.into()), program: named };
        let extras = program.map(|program| Extras { blobs: vec![program], ..Extras::default() });
        let birth = Birth::root(store.clone(), Voice::new(actor));
        let mut session = Self::born(birth, Kind::Created, &encode(&created), extras);
        session.0.gear = Gear::of_run(None);
        session.0.gear.shared_mut().workflow = workflow;
        session
    }

    /// The session of a run before its first step, and whether its input was complete.
    async fn resume_run(store: &Arc<dyn Store>, line: SessionId, conditions: Conditions) -> Result<(Self, bool)> {
        let Conditions { actor, program, workflow, on_divergence } = conditions;
        let made_of = program.as_ref().map(|program| program.reference.digest);
        let ancestry = Ancestry::of(store, line).await?;
        let latest = ancestry.latest;
        let mut session = Self::resume(store, line, ancestry, Voice::new(actor), on_divergence, made_of).await?;
        session.0.gear.shared_mut().program = program;
        session.0.gear.shared_mut().workflow = workflow;
        match latest {
            Some(Point { session: line, seq }) => {
                let before = Point { session: line, seq: seq.saturating_sub(1) };
                session.jump_over(before).await?;
                Ok((session, true))
            }
            None => Ok((session, false)),
        }
    }

    /// Runs `workflow` as the run of this session.
    pub async fn go_on<W: Workflow>(self, workflow: &W) -> Result<Session> {
        let program = self.0.gear.shared().and_then(|shared| shared.program.clone());
        // The first step of a run need not say what the run's first record does. A fork has no such record.
        let program = program.filter(|_| self.0.state.entered > 0 || self.0.origin.is_some());
        let named = program.as_ref().map(|program| program.reference.clone());
        let workflow_name = self.0.gear.shared().and_then(|shared| shared.workflow.clone());
        let (name, version) = workflow_name.map(|named| (named.name, named.version)).unzip();
        let step = StepEntered {
            role: Some(Role::Workflow),
            program: named,
            workflow: name,
            version,
            ..StepEntered::new(RUN)
        };
        self.in_step(step, program, |session, _| workflow.forward(session)).await
    }
}
