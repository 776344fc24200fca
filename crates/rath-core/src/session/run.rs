//! Runs: executing a workflow on a session that is identified by a run key, and resuming it.

use std::sync::Arc;

use super::{CachedActor, OPERATOR, RunContext, Session, SessionInit, encode};
use crate::actor::Actor;
use crate::ancestry::Ancestry;
use crate::blob::Blob;
use crate::body::{Created, Role, StepEntered};
use crate::error::{ErrorKind, Result};
use crate::id::{Point, SessionId};
use crate::kind::Kind;
use crate::record::PendingData;
use crate::store::{self, SessionFilter, Store};
use crate::workflow::Workflow;

/// The name of the outermost step of a run.
pub(crate) const RUN: &str = "run";

/// Options for starting or resuming a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The actor of the records.
    pub actor: Actor,
    /// The source of the program, if it has one. It is stored with the run, so that resume can read it.
    pub program: Option<Blob>,
    /// The name and version of the workflow, recorded with the run. Resuming with another name or version is a
    /// divergence.
    pub workflow: Option<WorkflowName>,
    /// What to do when the code no longer makes what is recorded.
    pub on_divergence: OnDivergence,
}

impl From<Actor> for RunOptions {
    fn from(actor: Actor) -> Self {
        Self { actor, program: None, workflow: None, on_divergence: OnDivergence::default() }
    }
}

impl RunOptions {
    /// Sets the name and version of the workflow. Change the version when runs that the old code started cannot
    /// continue with the new code.
    #[must_use]
    pub fn workflow(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.workflow = Some(WorkflowName { name: name.into(), version: version.into() });
        self
    }
}

/// The name and version of a run's workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowName {
    /// The workflow's name.
    pub name: String,
    /// The workflow's version.
    pub version: String,
}

/// What a run does when the code no longer makes what is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDivergence {
    /// Fail with an error that shows both sides.
    #[default]
    Stop,
    /// Continue on a fork at the last record that was the same. Resume finds that fork again.
    Fork,
}

impl dyn Store {
    /// Runs `workflow` on the session of `run_key`: on a new one that `input` prepares, or on the stored one, resumed.
    ///
    /// On resume the code runs again from its start. Finished steps are skipped, forks are found again, and what the
    /// code appends is compared with what is recorded. An agent's step that a crash interrupted continues from its
    /// records. `input` is not run again once the run has started its first step.
    pub async fn run<W: Workflow>(
        self: &Arc<Self>,
        run_key: &str,
        options: impl Into<RunOptions>,
        workflow: &W,
        input: impl AsyncFnOnce(&mut Session) -> Result<()>,
    ) -> Result<Session> {
        let session = self.begin_run(run_key, options, input).await?;
        session.execute(workflow).await
    }

    /// The session of a run before its first step, new or resumed. [`Session::execute`] runs the workflow on it.
    pub async fn begin_run(
        self: &Arc<Self>,
        run_key: &str,
        options: impl Into<RunOptions>,
        input: impl AsyncFnOnce(&mut Session) -> Result<()>,
    ) -> Result<Session> {
        let options = options.into();
        if run_key == OPERATOR {
            let why = "this run key is reserved for the operator session: choose another one";
            return Err(store::Error::machine("beginning a run", why).into());
        }
        let stored = self.sessions(SessionFilter::Run(run_key.into()).into()).await?.into_iter().next();
        let (mut session, started) = match stored {
            Some(row) => Session::resume_run(self, row.id, options.clone()).await?,
            None => (Session::of_new_run(self, run_key, options.clone()), false),
        };
        if started {
            return Ok(session);
        }
        let prepared = match input(&mut session).await {
            Ok(()) => session.publish().await,
            Err(error) => Err(error),
        };
        match prepared {
            Ok(()) => Ok(session),
            Err(error) => match error.kind() {
                // Another process started the same run at the same time.
                ErrorKind::Store(store::Error::RunTaken { session: existing, .. }) => {
                    Ok(Session::resume_run(self, *existing, options).await?.0)
                }
                _ => Err(error.with_sessions(vec![session])),
            },
        }
    }

    /// Resumes a run by the id of any of its sessions. [`Session::execute`] runs the workflow on the returned session.
    ///
    /// If `session` is a fork on which the run continued after a divergence, the run continues there again.
    pub async fn resume(self: &Arc<Self>, session: SessionId, options: impl Into<RunOptions>) -> Result<Session> {
        let (mut session, started) = Session::resume_run(self, session, options.into()).await?;
        if !started {
            // The run ended before its first step: all its records are input.
            session.jump_to_end().await?;
        }
        Ok(session)
    }

    /// Reopens a finished run at the last record of one of its sessions, to append more messages and call
    /// [`Session::execute`] again. The program of the run may have changed. Fails if something is open.
    pub async fn continue_run(self: &Arc<Self>, session: SessionId, options: impl Into<RunOptions>) -> Result<Session> {
        let (mut session, _) = Session::resume_run(self, session, options.into()).await?;
        session.jump_to_end().await?;
        match session.check_nothing_open() {
            Ok(()) => Ok(session),
            Err(error) => Err(error.with_sessions(vec![session])),
        }
    }
}

impl Session {
    fn of_new_run(store: &Arc<dyn Store>, run_key: &str, options: RunOptions) -> Self {
        let RunOptions { actor, program, workflow, on_divergence: _ } = options;
        let named = program.as_ref().map(|program| program.reference.clone());
        let created = Created { title: None, run: Some(run_key.into()), program: named };
        let extras = program.map(|program| PendingData { blobs: vec![program], ..PendingData::default() });
        let init = SessionInit::root(store.clone(), CachedActor::new(actor));
        let mut session = Self::start(init, Kind::Created, &encode(&created), extras);
        session.0.run_context = RunContext::of_run(None);
        session.0.run_context.shared_mut().workflow = workflow;
        session
    }

    /// The session of a run before its first step, and whether the run has entered that step, so that its input is
    /// complete.
    async fn resume_run(store: &Arc<dyn Store>, session_id: SessionId, options: RunOptions) -> Result<(Self, bool)> {
        let RunOptions { actor, program, workflow, on_divergence } = options;
        let made_of = program.as_ref().map(|program| program.reference.digest);
        let ancestry = Ancestry::of(store, session_id).await?;
        let latest = ancestry.latest;
        let mut session =
            Self::resume(store, session_id, ancestry, CachedActor::new(actor), on_divergence, made_of).await?;
        session.0.run_context.shared_mut().program = program;
        session.0.run_context.shared_mut().workflow = workflow;
        match latest {
            Some(Point { session: started_on, seq }) => {
                let before = Point { session: started_on, seq: seq.saturating_sub(1) };
                session.jump_to(before).await?;
                Ok((session, true))
            }
            None => Ok((session, false)),
        }
    }

    /// Runs `workflow` as this session's run.
    pub async fn execute<W: Workflow>(self, workflow: &W) -> Result<Session> {
        let program = self.0.run_context.shared().and_then(|shared| shared.program.clone());
        // The first step of a run does not repeat the program that the run's first record names. A fork has no such
        // record.
        let program = program.filter(|_| self.0.state.entered > 0 || self.0.origin.is_some());
        let named = program.as_ref().map(|program| program.reference.clone());
        let workflow_name = self.0.run_context.shared().and_then(|shared| shared.workflow.clone());
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
