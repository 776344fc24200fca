//! The driver of the agent loop: executes the actions of the session's state machine.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;

use rath_core::body::{Assistant, ModelFailed, StepEntered};
use rath_core::store::{BoxFuture, Lookup, Post, Scan, WatchTopic, Watcher};
use rath_core::{
    Actor, AgentAction, Cancel, Content, Entered, Error, ErrorKind, FileAccess, Kind, RecordId, Resources, Result,
    Session, Time,
};

use super::event::{Event, Observer, OnQuestion, RunEvent};
use super::output::{Checked, is_asked_for_answer};
use super::question_handler::QuestionHandler;
use super::stop::TimeLimit;
use super::{Agent, ResolvedConfig};
use crate::Workspaces;
use crate::policy::Policy;
use crate::recorder;
use crate::tools::{self, ToolWorkspace};
use crate::workspaces;

/// The driver's context during one step.
pub(super) struct StepContext {
    pub(super) resolved: Arc<ResolvedConfig>,
    /// Whether the recorded step names a configuration with other prose.
    pub(super) reworded: bool,
    pub(super) resources: Resources,
    pub(super) cancel: Cancel,
    pub(super) observer: Option<Arc<Observer>>,
    /// The session's policy, which applies to every agent.
    pub(super) session_policy: Option<Arc<Policy>>,
    pub(super) since: Time,
    /// Whether an earlier process worked on the step.
    pub(super) resumed: bool,
    /// The last turn of the model, if this process received it.
    pub(super) turn: Option<Assistant>,
    /// The workspace of tools, opened by the first call that needs it.
    pub(super) tool_workspace: Option<Arc<ToolWorkspace>>,
    /// Branches of calls that ended while other calls of the turn wait for an answer, with the index of the call.
    pub(super) branches: Vec<(usize, Session)>,
    /// Branches of calls in which an agent waits for an answer, by call. Only a resumed run can continue them.
    pub(super) waiting: HashMap<String, Session>,
    /// The time limit of the budget.
    pub(super) time_limit: Arc<TimeLimit>,
    /// Whether the model was asked in this step to give its typed answer.
    pub(super) asked_for_answer: bool,
    /// How often the request of this turn had to wait for a rate limit. Such a wait is not an attempt.
    pub(super) rate_limited: u32,
    /// Watches for posts since the inbox was last polled.
    pub(super) posts: Watcher,
}

impl StepContext {
    /// The workspaces among the resources.
    pub(super) fn workspaces(&self) -> Result<Arc<Workspaces>> {
        self.resources.get().map_err(|missing| ErrorKind::Workflow(missing.into()).into())
    }

    /// Sends an event to the observer. Without an observer, `event` is not called.
    pub(super) fn emit(&self, session: &Session, event: impl FnOnce() -> Event) {
        if let Some(observer) = &self.observer {
            observer.emit(RunEvent { session: session.id(), agent: self.resolved.name.clone(), what: event() });
        }
    }
}

impl Agent {
    /// Works until the step is done. Returns the session and the value of the step.
    pub(super) async fn drive(
        &self,
        mut session: Session,
        resolved: Arc<ResolvedConfig>,
        entered: Entered,
    ) -> Result<(Session, Option<Content>)> {
        let me = session.actor().clone();
        session.act_as(Actor::agent(&self.name));
        let resources = self.resources.over(&session.resources());
        let mut context = StepContext {
            reworded: entered == Entered::Resumed && is_reworded(&session, &resolved).await?,
            resolved,
            cancel: session.cancel_token().child(),
            observer: resources.get::<Observer>().ok(),
            session_policy: resources.get::<Policy>().ok(),
            time_limit: Arc::new(TimeLimit::under(resources.get::<TimeLimit>().ok())),
            resources,
            since: Time::now(),
            posts: session.store().watch(WatchTopic::Posts),
            rate_limited: rate_limited_before(&session).await?,
            resumed: is_begun(&session),
            asked_for_answer: is_begun(&session) && self.output.is_some() && is_asked_for_answer(&session).await?,
            turn: None,
            tool_workspace: None,
            branches: Vec::new(),
            waiting: HashMap::new(),
        };
        context.emit(&session, || Event::Started);
        let done = Box::pin(self.work(&mut session, &mut context)).await;
        if let Err(error) = &done
            && !error.leaves_the_run_open()
        {
            // No run continues these branches. If this fails, recording the step's exit fails too, and a resumed run
            // comes here again.
            let waiting = std::mem::take(&mut context.waiting);
            let _ = super::calls::abandon_branches(&mut session, waiting, &error.abandon_reason()).await;
            if error.is_cancelled() {
                // A cancel request that was seen during a turn is consumed and recorded.
                let _ = session.consume_posts().await;
            }
        }
        let cleared = self.stop_background(&mut session, &mut context).await;
        session.act_as(me);
        match done.and_then(|value| cleared.map(|()| value)) {
            Ok(value) => Ok((session, value)),
            Err(error) => Err(error.with_sessions(vec![session])),
        }
    }

    /// Fails if the session was imported, its workspace was in another store, and the agent has tools that use files.
    async fn check_placement(&self, session: &mut Session) -> Result<()> {
        let works_on_files = self.tools.iter().any(|tool| tool.spec().file_access != FileAccess::Nothing);
        if !works_on_files || !session.state().arrived {
            return Ok(());
        }
        session.publish().await?;
        match rath_core::last_placement(session.store(), session.head().point()).await? {
            Some(placed) => Err(ErrorKind::NotPlacedHere { session: session.id(), was: placed.in_words() }.into()),
            None => Ok(()),
        }
    }

    async fn work(&self, session: &mut Session, context: &mut StepContext) -> Result<Option<Content>> {
        self.check_placement(session).await?;
        loop {
            self.poll_inbox(session, context).await?;
            match session.state().next() {
                Some(AgentAction::CallModel) => match self.accepted_answer(session, context).await? {
                    Some(answer) => drop(session.append(Assistant::text(answer))?),
                    None => self.take_turn(session, context).await?,
                },
                Some(AgentAction::RecoverRequest) => {
                    let why = "the process that sent the request ended before the response";
                    session.append(ModelFailed { retried: true, lost: true, ..ModelFailed::new(why) })?;
                }
                Some(AgentAction::CallTools(calls)) => self.make_calls(session, context, calls).await?,
                Some(AgentAction::Done) => {
                    if let Checked::Done(value) = self.check_answer(session, context).await? {
                        return Ok(value);
                    }
                }
                Some(AgentAction::Failed) => return Err(self.model_failure(session).await?),
                None => return Err(ErrorKind::NoStep(session.id()).into()),
            }
        }
    }

    /// Consumes the posts in the inbox. Fails if the run was cancelled.
    async fn poll_inbox(&self, session: &mut Session, context: &StepContext) -> Result<()> {
        // Posts that arrive from now on wake the next wait.
        context.posts.mark();
        if let Some(why) = session.consume_posts().await? {
            return Err(ErrorKind::Cancelled { why }.into());
        }
        match context.cancel.why() {
            Some(why) => Err(ErrorKind::Cancelled { why: why.to_string() }.into()),
            None => Ok(()),
        }
    }

    /// Waits for the answer to an open question, or fails with `Waiting`.
    pub(super) async fn await_answer(&self, session: &mut Session, context: &StepContext) -> Result<()> {
        session.publish().await?;
        let left_waiting = ErrorKind::Waiting(session.id()).into();
        let open = |session: &Session| session.state().asks.iter().filter(|ask| !ask.inherited).count();
        // A question on a branch is answered on the branch, not in this session.
        let is_asked_elsewhere = !context.waiting.is_empty() || open(session) == 0;
        if context.time_limit.is_reached() || is_asked_elsewhere && !context.cancel.is_cancelled() {
            return Err(left_waiting);
        }
        let mut time = pin!(self.time_is_over(context));
        let waiting = open(session);
        self.poll_inbox(session, context).await?;
        let question_handler = context.resources.get::<QuestionHandler>().ok();
        let on_question = context.resources.get::<OnQuestion>().map(|on_question| *on_question).unwrap_or_default();
        let mut asking: Option<BoxFuture<'static, Option<Post>>> = None;
        while open(session) == waiting {
            if let (None, Some(question_handler)) = (&asking, &question_handler) {
                asking = question_handler.next(session).await?.map(|question| question_handler.put(question));
            }
            if asking.is_none() && on_question == OnQuestion::Leave {
                return Err(left_waiting);
            }
            let answer = async {
                match &mut asking {
                    Some(asking) => asking.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = context.cancel.cancelled() => {}
                () = &mut time => return Err(left_waiting),
                post = answer => {
                    asking = None;
                    if let Some(post) = post {
                        session.consume_post(&post)?;
                    }
                }
                () = context.time_limit.reached() => return Err(left_waiting),
                () = context.posts.changed() => {}
            }
            if context.time_limit.is_reached() {
                return Err(left_waiting);
            }
            self.poll_inbox(session, context).await?;
        }
        Ok(())
    }

    /// The turn of the model in this record: the last one, in this session or before its fork point.
    pub(super) async fn turn(
        &self,
        session: &mut Session,
        context: &mut StepContext,
        record: RecordId,
    ) -> Result<Assistant> {
        if let Some(turn) = context.turn.take() {
            return Ok(turn);
        }
        session.publish().await?;
        let found = session.store().get(Lookup::Id(record)).await?;
        let Some(record) = found.first() else { return Ok(Assistant::default()) };
        let point = record.point();
        record.body().map_err(|why| ErrorKind::Record { point, why }.into())
    }

    async fn model_failure(&self, session: &Session) -> Result<Error> {
        let scan = Scan::session(session.id(), 0, session.head().seq).kinds(&[Kind::ModelFailed]).backwards().limit(1);
        let found = session.store().scan(scan).await?.records;
        let failed = found.first().and_then(|record| record.body::<ModelFailed>().ok());
        let transient = failed.as_ref().is_some_and(|failed| failed.transient);
        let why = failed.map_or_else(|| "the record of the failure is missing".into(), |failed| failed.why);
        let model = self.model.as_ref().map_or_else(String::new, |model| model.name().into());
        Ok(ErrorKind::Model { model, why, transient }.into())
    }

    /// Stops background commands, and records the changes that they made.
    async fn stop_background(&self, session: &mut Session, context: &mut StepContext) -> Result<()> {
        let Some(tool_workspace) = context.tool_workspace.take() else { return Ok(()) };
        let gone = tool_workspace.take_gone();
        if !gone.is_empty() {
            let words: Vec<_> = gone.iter().map(tools::describe_background).collect();
            session.note(words.join(", "))?;
        }
        let stopped = tool_workspace.stop_all().await;
        if !stopped.is_empty() {
            session.note(format!("stopped background commands: {}", stopped.join(", ")))?;
        }
        let dirty = tool_workspace.dirty().ids;
        match (session.state().workspace.clone(), context.workspaces()) {
            (Some(before), Ok(workspaces)) if !dirty.is_empty() => {
                let after = workspaces.after_call(session, &before).await.map_err(workspace_error)?;
                let isolated = tool_workspace.sandbox().capabilities().isolated;
                recorder::changes_in_background(session, &dirty, isolated, &after.version, after.changed)?;
                session.publish().await?;
                workspaces.note_seen(session).map_err(workspace_error)
            }
            _ => Ok(()),
        }
    }
}

/// Whether the open step names another configuration than `resolved`.
async fn is_reworded(session: &Session, resolved: &ResolvedConfig) -> Result<bool> {
    let entered = session.view().await?.last_of(&Kind::StepEntered).await?;
    let step = entered.and_then(|entered| entered.record().body::<StepEntered>().ok());
    let config = step.and_then(|step| step.config);
    Ok(config.is_some_and(|config| config.digest != resolved.blob.reference.digest))
}

/// How often the request of the interrupted turn has waited for a rate limit.
async fn rate_limited_before(session: &Session) -> Result<u32> {
    if session.state().run().is_none_or(|run| run.attempts == 0) {
        return Ok(0);
    }
    let records = session.own_records(&[Kind::ModelFailed, Kind::ModelResponded]).await?;
    let last = records.iter().rev().map_while(|record| record.body::<ModelFailed>().ok());
    Ok(last.filter(|failed| failed.retried && failed.status == Some(429)).count() as u32)
}

/// Whether a request was sent in the open step.
fn is_begun(session: &Session) -> bool {
    let run = session.state().steps.last().and_then(|step| step.run.as_ref());
    run.is_some_and(|run| run.turns > 0 || run.request.is_some())
}

/// Converts an error of the workspaces.
pub(super) fn workspace_error(error: workspaces::Error) -> Error {
    match error {
        workspaces::Error::Session(error) => error,
        error => ErrorKind::Coded { code: error.code().into(), why: Box::new(error) }.into(),
    }
}
