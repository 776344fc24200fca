//! Steps: named parts of a run. A resumed run does not repeat a finished step.

use std::future::Future;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Session, encode};
use crate::blob::{Blob, Content};
use crate::body::{Body as _, Cancelled, Failed, Forked, Outcome, Role, StepEntered, StepLeft};
use crate::error::{Diverged, Error, ErrorKind, Result};
use crate::fingerprint;
use crate::id::Point;
use crate::kind::Kind;
use crate::record::{Record, RecordError};
use crate::store::Scan;
use crate::summary;

/// The result of entering a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// The step is new.
    New,
    /// The step was entered before and did not finish, because of a crash for example.
    Resumed,
    /// The step finished before. The session is now after it.
    Completed {
        /// How the step ended.
        outcome: Outcome,
        /// The `step_left` record.
        left: Point,
    },
}

/// The recorded value of a step, as JSON text that is not yet parsed into the type that the caller wants.
type StepValue = Option<Content>;

impl Session {
    /// Runs `work` as a step called `name`. A resumed run does not repeat a finished step.
    pub async fn step<F, Fut>(self, name: impl Into<String>, work: F) -> Result<Session>
    where
        F: FnOnce(Session) -> Fut,
        Fut: Future<Output = Result<Session>>,
    {
        let step = StepEntered { role: Some(Role::Workflow), ..StepEntered::new(name) };
        self.in_step(step, None, |session, _| work(session)).await
    }

    /// Runs `work` as a step called `name` that returns a value. The value is recorded as JSON of any size. A resumed
    /// run does not repeat a finished step and returns its recorded value. Later code can read it by the step's name:
    /// [`Session::value`].
    ///
    /// ```
    /// # use rath_core::{Actor, InMemory, Session};
    /// # pollster::block_on(async {
    /// # let session = Session::create(&InMemory::new(), Actor::person("ada"));
    /// let (session, words) = session.step_value("count", async |session| Ok((session, 42_u32))).await?;
    /// assert_eq!(words, 42);
    /// assert_eq!(session.value::<u32>("count").await?, Some(42));
    /// # Ok::<(), rath_core::Error>(()) }).unwrap();
    /// ```
    pub async fn step_value<T, F, Fut>(self, name: impl Into<String>, work: F) -> Result<(Session, T)>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce(Session) -> Fut,
        Fut: Future<Output = Result<(Session, T)>>,
    {
        self.step_value_as(Role::Workflow, name, work).await
    }

    /// Like [`step_value`](Self::step_value), for a step with another role.
    pub async fn step_value_as<T, F, Fut>(self, role: Role, name: impl Into<String>, work: F) -> Result<(Session, T)>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce(Session) -> Fut,
        Fut: Future<Output = Result<(Session, T)>>,
    {
        let name = name.into();
        let step = StepEntered { role: Some(role), ..StepEntered::new(name.clone()) };
        let work = async move |session: Session, _| {
            let (session, value) = work(session).await?;
            match value_to_text::<T>(&value) {
                Ok(text) => Ok((session, Some(Content::Text(text)))),
                Err(why) => {
                    let why = format!("the value of step {name:?} cannot be recorded: {why}");
                    Err(Error::from(ErrorKind::BadBody { kind: "step_left".into(), why }).with_sessions(vec![session]))
                }
            }
        };
        let (session, left) = self.in_step_with_value(step, None, work).await?;
        match session.typed_value(left).await {
            Ok(value) => Ok((session, value)),
            Err(error) => Err(error.with_sessions(vec![session])),
        }
    }

    /// Runs `work` as the step that `step` describes. `config` is the blob that `step` names.
    pub async fn in_step<F, Fut>(self, step: StepEntered, config: Option<Blob>, work: F) -> Result<Session>
    where
        F: FnOnce(Session, Entered) -> Fut,
        Fut: Future<Output = Result<Session>>,
    {
        let work = async move |session, entered| Ok((work(session, entered).await?, None));
        Ok(self.in_step_with_value(step, config, work).await?.0)
    }

    /// Like [`in_step`](Self::in_step), for a step that may return a value. The value is JSON text, which
    /// [`value`](Self::value) and [`output`](Self::output) read. A resumed run gets the recorded value.
    pub async fn in_step_with_value<F, Fut>(
        mut self,
        step: StepEntered,
        config: Option<Blob>,
        work: F,
    ) -> Result<(Session, Option<Content>)>
    where
        F: FnOnce(Session, Entered) -> Fut,
        Fut: Future<Output = Result<(Session, Option<Content>)>>,
    {
        let name = step.name.clone();
        let entered = match self.enter_step(step, config).await {
            Ok(Entered::Completed { outcome, left }) => {
                return match self.recorded_outcome(&name, outcome, left).await {
                    Ok(value) => Ok((self, value)),
                    Err(error) => Err(error.with_sessions(vec![self])),
                };
            }
            Ok(entered) => entered,
            Err(error) => return Err(error.with_sessions(vec![self])),
        };
        let (id, store, actor) = (self.id(), self.0.store.clone(), self.0.actor.actor.clone());
        let run_context = self.0.run_context.for_reopening();
        let depth = self.0.state.steps.len();
        // If the code drops the session, what was recorded up to here is still published.
        let tails = self.fork_base();
        // Boxed, because the futures of nested steps would contain each other, and unoptimised builds copy them.
        match Box::pin(work(self, entered)).await {
            Ok((mut session, value)) => match session.leave_steps(depth, Outcome::Done, value.clone(), None).await {
                Ok(()) => Ok((session, value)),
                Err(error) => Err(error.with_sessions(vec![session])),
            },
            Err(error) if error.leaves_the_run_open() => Err(error),
            Err(mut error) => {
                // The run may have continued on another session.
                let now = run_context.tree().map_or(id, |tree| tree.current_session(id));
                let (moved, id) = (now != id, now);
                // Either the error carries the session, or the code dropped it and it must be opened from the store.
                let found = match error.take_session(id) {
                    Some(session) => Ok(session),
                    None => match Session::publish_tails(&store, &tails).await {
                        Ok(()) => Session::open(&store, id, actor).await.map(|mut session| {
                            session.0.run_context = if moved { run_context.inherited() } else { run_context };
                            session
                        }),
                        Err(error) => Err(error),
                    },
                };
                let mut session = match found {
                    Ok(session) => session,
                    Err(why) => return Err(error.not_recorded(&why)),
                };
                // No code returns to the branches of a failed step. If this fails, users can cancel them with `rath
                // cancel`.
                let why = error.abandon_reason();
                for branch in error.sessions_mut() {
                    let _ = branch.abandon(&why).await;
                }
                let _ = session.abandon_branches(depth, &why).await;
                let outcome = if error.is_cancelled() { Outcome::Cancelled } else { Outcome::Failed };
                let error = match session.fail(depth, outcome, &error).await {
                    Ok(at) => error.recorded(at).leaving(name, outcome),
                    Err(why) => error.not_recorded(&why),
                };
                Err(error.with_sessions(vec![session]))
            }
        }
    }

    /// The name of the agent or workflow that the step handed the session off to. Call it directly after the step.
    pub async fn handed_off(&self) -> Result<Option<String>> {
        let record = self.record_at(self.head().seq).await?;
        Ok(record.body::<StepLeft>().ok().and_then(|left| left.hand_off))
    }

    /// Enters a step. On replay the step may have been entered, or finished, before.
    pub async fn enter_step(&mut self, step: StepEntered, config: Option<Blob>) -> Result<Entered> {
        self.read_ahead().await?;
        let named = |record: &Record| record.body::<StepEntered>().is_ok_and(|body| body.name == step.name);
        let now = || format!("step_entered: {}", step.name);
        let recorded = self.take_recorded(&Kind::StepEntered, named).map_err(|error| error.now(now()));
        let Some(record) = self.fork_if_diverged(recorded)? else { return self.enter_new_step(step, config).await };
        let point = record.point();
        let body: StepEntered = record.body().map_err(|why| ErrorKind::Record { point, why })?;
        if !body.may_be_entered_as(&step) {
            let changed = self.differences_between(&body, &step, config.as_ref()).await;
            if !changed.is_empty() {
                let recorded = summary::of(&record);
                let now = format!("step_entered: {}, with a different definition", step.name);
                let diverged = ErrorKind::Diverged(Box::new(Diverged { point, recorded, now, changed }));
                self.fork_if_diverged(Err(diverged.into()))?;
                return self.enter_new_step(step, config).await;
            }
        }
        let id = record.id();
        let left = self.step_left_at(&id);
        self.advance_over(record)?;
        if let Some(left) = left {
            let body: StepLeft =
                self.jump_to(left).await?.body().map_err(|why| ErrorKind::Record { point: left, why })?;
            return Ok(Entered::Completed { outcome: body.outcome, left });
        }
        self.open_branches_of(id).await?;
        self.0.run_context.step_entered();
        match step.role {
            Some(Role::Agent) => self.jump_to_end().await?,
            _ => self.read_ahead().await?,
        }
        Ok(Entered::Resumed)
    }

    async fn enter_new_step(&mut self, mut step: StepEntered, config: Option<Blob>) -> Result<Entered> {
        step.adopts_calls = step.role == Some(Role::Agent) && self.may_adopt_calls().await?;
        self.push(StepEntered::KIND, &encode(&step), &[], config.into_iter().collect(), &step)?;
        self.0.run_context.step_entered();
        Ok(Entered::New)
    }

    /// Whether a run on this session finishes the calls that were open at the fork point: only if a person made the
    /// fork, in the middle of a turn. Branches that a run forks leave the open calls to the session they were forked
    /// from.
    async fn may_adopt_calls(&self) -> Result<bool> {
        if !self.0.run_context.is_in_run()
            || !self.0.state.calls.iter().any(|call| call.inherited && !call.user_started)
        {
            return Ok(false);
        }
        let first = self.reader().record(Point { session: self.id(), seq: 0 }).await?;
        Ok(first.body::<Forked>().is_ok_and(|forked| !forked.is_of_run() && forked.continued_from.is_none()))
    }

    /// Leaves the step at `depth` and all steps inside it.
    pub async fn leave_step(&mut self, depth: usize, outcome: Outcome) -> Result<()> {
        self.leave_steps(depth, outcome, None, None).await
    }

    /// Leaves the step at `depth`, recording `value`, and all steps inside it.
    async fn leave_steps(
        &mut self,
        depth: usize,
        outcome: Outcome,
        mut value: StepValue,
        because: Option<Point>,
    ) -> Result<()> {
        while self.0.state.steps.len() >= depth {
            let is_last = self.0.state.steps.len() == depth;
            let Some(step) = self.0.state.steps.last().filter(|step| !step.inherited) else { break };
            let value = if is_last { value.take() } else { None };
            let hand_off = step.run.as_ref().and_then(|run| run.hand_off.clone()).filter(|_| outcome == Outcome::Done);
            self.append(StepLeft { step: step.record, outcome, value, because, hand_off })?;
            self.0.run_context.step_left();
        }
        self.publish_if_due().await
    }

    /// Records that the step at `depth` failed. The reason is recorded once, by the innermost step. Returns the point
    /// of the record with the reason.
    async fn fail(&mut self, depth: usize, outcome: Outcome, error: &Error) -> Result<Point> {
        self.jump_to_end().await?;
        let stopped = outcome == Outcome::Cancelled;
        let calls = self.pending().calls;
        let open = self.close_lost_calls(calls)?;
        let mut because = error.recorded_at();
        if stopped && because.is_none() || !open.is_empty() {
            self.append(Cancelled { calls: open, why: error.abandon_reason() })?;
            because = because.or(stopped.then(|| self.point()));
        }
        let because = match because {
            Some(because) => because,
            None => {
                let (why, code) = (error.to_string(), Some(error.code().into()));
                self.append(Failed { why, code, transient: error.is_transient() })?;
                self.point()
            }
        };
        self.leave_steps(depth, outcome, None, Some(because)).await?;
        self.publish().await?;
        Ok(because)
    }

    /// The recorded result of a skipped step: its value, or the error that it ended with.
    async fn recorded_outcome(&self, name: &str, outcome: Outcome, left: Point) -> Result<StepValue> {
        let reader = self.reader();
        let body: StepLeft = match reader.record(left).await?.body() {
            Ok(body) => body,
            Err(RecordError::Erased) if outcome == Outcome::Done => return Ok(None),
            Err(why) => return Err(ErrorKind::Record { point: left, why }.into()),
        };
        if outcome == Outcome::Done {
            return Ok(body.value);
        }
        let record = match body.because {
            Some(because) => Some(reader.record(because).await?),
            // Earlier versions did not name the record. It is the last one of its kind before `left`.
            None => {
                let kind = if outcome == Outcome::Cancelled { Kind::Cancelled } else { Kind::Failed };
                let scan = Scan::session(left.session, 0, left.seq).kinds(&[kind]).backwards().limit(1);
                self.0.store.scan(scan).await?.records.into_iter().next()
            }
        };
        let (mut why, mut code, mut transient) = (String::new(), String::new(), false);
        if let Some(record) = &record {
            why = summary::of(record);
            if let Ok(body) = record.body::<Cancelled>() {
                (why, code) = (body.reason().to_owned(), "cancelled".into());
            } else if let Ok(body) = record.body::<Failed>() {
                (why, code, transient) = (body.why, body.code.unwrap_or_default(), body.transient);
            }
        }
        let kind = ErrorKind::Ended { step: name.into(), outcome, why, code, transient };
        Err(Error::replayed(kind, record.map_or(left, |record| record.point())))
    }

    /// The value of the last step called `name` in this session, or else in the branches merged into it, or else, before
    /// its fork point, in the session it was forked from. Rejected branches are not searched. `None` if no step of that
    /// name finished with a value.
    pub async fn value<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        self.view().await?.value(name).await
    }

    /// Parses a recorded value into the type that the caller wants.
    async fn typed_value<T: DeserializeOwned>(&self, left: StepValue) -> Result<T> {
        let text = match left {
            Some(content) => self.reader().text(&content).await?,
            None => "null".into(),
        };
        typed(self.point(), &text)
    }

    /// The differences between the recorded step and the current one. Empty if only prose differs.
    async fn differences_between(&self, then: &StepEntered, now: &StepEntered, config: Option<&Blob>) -> Vec<String> {
        let mut changed = Vec::new();
        for (what, then, now) in [("version", &then.version, &now.version), ("workflow", &then.workflow, &now.workflow)]
        {
            if then != now {
                let say = |it: &Option<String>| it.clone().unwrap_or("none".into());
                changed.push(format!("{what}: {} was recorded, now it is {}", say(then), say(now)));
            }
        }
        let read = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap_or_default();
        let recorded = match &then.config {
            Some(blob) => match self.reader().blob(blob.digest).await {
                Ok(bytes) => read(&bytes),
                Err(_) => serde_json::Value::Null,
            },
            None => serde_json::Value::Null,
        };
        let config = config.map_or(serde_json::Value::Null, |blob| read(&blob.bytes));
        if recorded.is_object() && config.is_object() {
            let (recorded, config) = (fingerprint::of_config(recorded), fingerprint::of_config(config));
            summary::differences(&recorded, &config, "", &mut changed);
        } else if then.fingerprint().1 != now.fingerprint().1 {
            // One configuration cannot be read, so prose cannot be told apart from the rest.
            let say = |step: &StepEntered| step.fingerprint().1.map_or("none".into(), |digest| digest.to_string());
            changed.push(format!("config: {} was recorded, now it is {}", say(then), say(now)));
        }
        changed
    }
}

/// Serializes a value as JSON and checks that it can be deserialized again, because a resumed run gets the deserialized
/// value.
pub(super) fn value_to_text<T: Serialize + DeserializeOwned>(value: &T) -> std::result::Result<String, String> {
    let text = serde_json::to_string(value).map_err(|why| why.to_string())?;
    let read: std::result::Result<T, _> = serde_json::from_str(&text);
    read.map(|_| text).map_err(|why| format!("cannot be deserialized from its own JSON: {why}"))
}

/// Parses a recorded value into the type that the caller wants. If that fails, the code has changed: a divergence.
pub(crate) fn typed<T: DeserializeOwned>(point: Point, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|why| {
        let now = format!("a value of type {}: {why}", std::any::type_name::<T>());
        let recorded = format!("the value {}", summary::one_line(text));
        ErrorKind::Diverged(Box::new(Diverged { point, recorded, now, changed: Vec::new() })).into()
    })
}
