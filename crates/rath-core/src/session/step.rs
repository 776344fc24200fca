//! Steps: spans of a line that a resumed run does not run twice.

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
use crate::record::{Fault, Record};
use crate::store::Scan;
use crate::summary;

/// What entering a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// It is new.
    Fresh,
    /// It was entered before a crash, and never left.
    Again,
    /// It was left: the session stands behind it.
    Over {
        /// How.
        outcome: Outcome,
        /// Its `step_left`.
        left: Point,
    },
}

/// The value that a step leaves, as JSON text, before it is known to fit the type that the code wants.
type Left = Option<Content>;

impl Session {
    /// Runs `work` as a step called `name`. When the run is resumed, a step that was left is not run again.
    pub async fn step<F, Fut>(self, name: impl Into<String>, work: F) -> Result<Session>
    where
        F: FnOnce(Session) -> Fut,
        Fut: Future<Output = Result<Session>>,
    {
        let step = StepEntered { role: Some(Role::Workflow), ..StepEntered::new(name) };
        self.in_step(step, None, |session, _| work(session)).await
    }

    /// Runs `work` as a step called `name` that leaves a value: a verdict, a choice, an answer of a type. The value is
    /// recorded as JSON, of any size. When the run is resumed, a step that was left is not run again, and its recorded
    /// value is returned. Later code finds it by the step's name: [`Session::value`].
    ///
    /// ```
    /// # use rath_core::{Actor, Memory, Session};
    /// # pollster::block_on(async {
    /// # let session = Session::create(&Memory::new(), Actor::person("ada"));
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
        let name = name.into();
        let step = StepEntered { role: Some(Role::Workflow), ..StepEntered::new(name.clone()) };
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
        match session.read_left(left).await {
            Ok(value) => Ok((session, value)),
            Err(error) => Err(error.with_sessions(vec![session])),
        }
    }

    /// Runs `work` as the step that `step` describes. `config` is the blob that it names.
    pub async fn in_step<F, Fut>(self, step: StepEntered, config: Option<Blob>, work: F) -> Result<Session>
    where
        F: FnOnce(Session, Entered) -> Fut,
        Fut: Future<Output = Result<Session>>,
    {
        let work = async move |session, entered| Ok((work(session, entered).await?, None));
        Ok(self.in_step_with_value(step, config, work).await?.0)
    }

    async fn in_step_with_value<F, Fut>(
        mut self,
        step: StepEntered,
        config: Option<Blob>,
        work: F,
    ) -> Result<(Session, Left)>
    where
        F: FnOnce(Session, Entered) -> Fut,
        Fut: Future<Output = Result<(Session, Left)>>,
    {
        let name = step.name.clone();
        let entering = (step.clone(), config.clone());
        let entered = match self.enter_step(step, config).await {
            Ok(Entered::Over { outcome, left }) => {
                return match self.how_it_ended(&name, outcome, left).await {
                    Ok(value) => Ok((self, value)),
                    Err(error) => Err(error.with_sessions(vec![self])),
                };
            }
            Ok(entered) => entered,
            Err(error) => return Err(error.with_sessions(vec![self])),
        };
        let (id, store, actor) = (self.id(), self.0.store.clone(), self.0.actor.actor.clone());
        let gear = self.0.gear.kept();
        let depth = self.0.state.steps.len();
        // On the heap: where steps nest, futures would otherwise hold each other, and an unoptimised build copies them.
        match Box::pin(work(self, entered)).await {
            Ok((mut session, value)) => match session.leave_to(depth, Outcome::Done, value.clone(), None).await {
                Ok(()) => Ok((session, value)),
                Err(error) => Err(error.with_sessions(vec![session])),
            },
            Err(error) if error.leaves_the_run_open() => Err(error),
            Err(mut error) => {
                // The run may have gone on on another line.
                let now = gear.tree().map_or(id, |tree| tree.now(id));
                let (moved, id) = (now != id, now);
                // The error has the session of the line, or the code dropped it and the store has it.
                let found = match error.take_session(id) {
                    Some(session) => Ok(session),
                    None => Session::open(&store, id, actor).await.and_then(|mut session| {
                        session.0.gear = if moved { gear.inherited() } else { gear };
                        session.enter_again(depth, entering)?;
                        Ok(session)
                    }),
                };
                let mut session = match found {
                    Ok(session) => session,
                    Err(why) => return Err(error.not_recorded(&why)),
                };
                // Nobody comes back to its branches. What fails here is done by hand, with `rath cancel`.
                let why = error.why_given_up();
                for branch in error.sessions_mut() {
                    let _ = branch.give_up(&why).await;
                }
                let _ = session.give_up_branches(depth, &why).await;
                let outcome = if error.is_cancelled() { Outcome::Cancelled } else { Outcome::Failed };
                let error = match session.fail(depth, outcome, &error).await {
                    Ok(at) => error.recorded(at).leaving(name, outcome),
                    Err(why) => error.not_recorded(&why),
                };
                Err(error.with_sessions(vec![session]))
            }
        }
    }

    /// What the step that was left last handed this session off to, directly after it was left or jumped over.
    pub async fn handed_off(&self) -> Result<Option<String>> {
        let record = self.record_at(self.head().seq).await?;
        Ok(record.body::<StepLeft>().ok().and_then(|left| left.hand_off))
    }

    /// Enters a step, or finds it entered and perhaps left.
    pub async fn enter_step(&mut self, step: StepEntered, config: Option<Blob>) -> Result<Entered> {
        self.look_ahead().await?;
        let named = |record: &Record| record.body::<StepEntered>().is_ok_and(|body| body.name == step.name);
        let now = || format!("step_entered: {}", step.name);
        let taken = self.take_recorded(&Kind::StepEntered, named).map_err(|error| error.now(now()));
        let Some(record) = self.unless_diverged(taken)? else { return self.enter_anew(step, config).await };
        let point = record.point();
        let body: StepEntered = record.body().map_err(|why| ErrorKind::Record { point, why })?;
        if !body.may_be_entered_as(&step) {
            let changed = self.what_changed(&body, &step, config.as_ref()).await;
            if !changed.is_empty() {
                let recorded = summary::of(&record);
                let now = format!("step_entered: {}, which is not the same", step.name);
                let diverged = ErrorKind::Diverged(Box::new(Diverged { point, recorded, now, changed }));
                self.unless_diverged(Err(diverged.into()))?;
                return self.enter_anew(step, config).await;
            }
        }
        let id = record.id();
        let left = self.was_left(&id);
        self.absorb(record)?;
        if let Some(left) = left {
            let body: StepLeft =
                self.jump_over(left).await?.body().map_err(|why| ErrorKind::Record { point: left, why })?;
            return Ok(Entered::Over { outcome: body.outcome, left });
        }
        self.open_branches_of(id).await?;
        self.0.gear.step_entered();
        match step.role {
            Some(Role::Agent) => self.jump_to_the_end().await?,
            _ => self.look_ahead().await?,
        }
        Ok(Entered::Again)
    }

    async fn enter_anew(&mut self, mut step: StepEntered, config: Option<Blob>) -> Result<Entered> {
        step.adopts_calls = step.role == Some(Role::Agent) && self.may_adopt_calls().await?;
        self.push(StepEntered::KIND, &encode(&step), &[], config.into_iter().collect(), &step)?;
        self.0.gear.step_entered();
        Ok(Entered::Fresh)
    }

    /// Whether a run on a fork finishes the calls that were open at the fork point: where a person forked in the middle of
    /// a turn. The branches that a run forks leave the calls around them to their caller.
    async fn may_adopt_calls(&self) -> Result<bool> {
        if !self.0.gear.is_in_run() || !self.0.state.calls.iter().any(|call| call.inherited && !call.own) {
            return Ok(false);
        }
        let first = self.reader().record(Point { session: self.id(), seq: 0 }).await?;
        Ok(first.body::<Forked>().is_ok_and(|forked| !forked.is_of_run() && forked.instead.is_none()))
    }

    /// Enters the step at `depth` on a session that was opened again, if the record of it was lost with the session that
    /// the code dropped.
    fn enter_again(&mut self, depth: usize, (step, config): (StepEntered, Option<Blob>)) -> Result<()> {
        match depth.saturating_sub(self.0.state.steps.len()) {
            0 => Ok(()),
            1 => self.push(StepEntered::KIND, &encode(&step), &[], config.into_iter().collect(), &step).map(|_| ()),
            // With it went the step around it, which will say so.
            _ => Err(ErrorKind::NoStep(self.id()).into()),
        }
    }

    /// Leaves the step at `depth`, with all inside it.
    pub async fn leave_step(&mut self, depth: usize, outcome: Outcome) -> Result<()> {
        self.leave_to(depth, outcome, None, None).await
    }

    /// Leaves the step at `depth`, which leaves `value`, with all steps inside it.
    async fn leave_to(
        &mut self,
        depth: usize,
        outcome: Outcome,
        mut value: Left,
        because: Option<Point>,
    ) -> Result<()> {
        while self.0.state.steps.len() >= depth {
            let is_last = self.0.state.steps.len() == depth;
            let Some(step) = self.0.state.steps.last().filter(|step| !step.inherited) else { break };
            let value = if is_last { value.take() } else { None };
            let hand_off = step.run.as_ref().and_then(|run| run.hand_off.clone()).filter(|_| outcome == Outcome::Done);
            self.append(StepLeft { step: step.record, outcome, value, because, hand_off })?;
            self.0.gear.step_left();
        }
        self.settle().await
    }

    /// Says on the record that the step at `depth` failed: once, by the innermost. Returns the record that says why.
    async fn fail(&mut self, depth: usize, outcome: Outcome, error: &Error) -> Result<Point> {
        self.jump_to_the_end().await?;
        let stopped = outcome == Outcome::Cancelled;
        let calls = self.pending().calls;
        let open = self.end_calls(calls)?;
        let mut because = error.recorded_at();
        if stopped && because.is_none() || !open.is_empty() {
            self.append(Cancelled { calls: open, why: error.why_given_up() })?;
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
        self.leave_to(depth, outcome, None, Some(because)).await?;
        self.publish().await?;
        Ok(because)
    }

    /// What a step that was jumped over left: its value, or the error that it ended with.
    async fn how_it_ended(&self, name: &str, outcome: Outcome, left: Point) -> Result<Left> {
        let reader = self.reader();
        let body: StepLeft = match reader.record(left).await?.body() {
            Ok(body) => body,
            Err(Fault::Erased) if outcome == Outcome::Done => return Ok(None),
            Err(why) => return Err(ErrorKind::Record { point: left, why }.into()),
        };
        if outcome == Outcome::Done {
            return Ok(body.value);
        }
        let record = match body.because {
            Some(because) => Some(reader.record(because).await?),
            // Recorded by a version that did not name the record: it is the last one before.
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
        Err(Error::read_back(kind, record.map_or(left, |record| record.point())))
    }

    /// The value that the step called `name` left: the last one of that name on this line, or before a fork on the line
    /// that it was forked from. `None` where no such step ended here with a value.
    pub async fn value<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        self.view().await?.value(name).await
    }

    /// A recorded value as the type that the code wants.
    async fn read_left<T: DeserializeOwned>(&self, left: Left) -> Result<T> {
        let text = match left {
            Some(content) => self.reader().text(&content).await?,
            None => "null".into(),
        };
        typed(self.point(), &text)
    }

    /// The differences between what a step was and what it is; none where only prose differs.
    async fn what_changed(&self, then: &StepEntered, now: &StepEntered, config: Option<&Blob>) -> Vec<String> {
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
            // One of them cannot be read: nothing tells prose from the rest.
            let say = |step: &StepEntered| step.fingerprint().1.map_or("none".into(), |digest| digest.to_string());
            changed.push(format!("config: {} was recorded, now it is {}", say(then), say(now)));
        }
        changed
    }
}

/// The JSON text of a value, if it can be read back as that type: what the code has now and what it has when the run is
/// resumed must not differ.
pub(super) fn value_to_text<T: Serialize + DeserializeOwned>(value: &T) -> std::result::Result<String, String> {
    let text = serde_json::to_string(value).map_err(|why| why.to_string())?;
    let read: std::result::Result<T, _> = serde_json::from_str(&text);
    read.map(|_| text).map_err(|why| format!("it does not survive JSON: {why}"))
}

/// A recorded value as the type that the code wants. Code that wants another type has changed.
pub(crate) fn typed<T: DeserializeOwned>(point: Point, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|why| {
        let now = format!("a value of type {}: {why}", std::any::type_name::<T>());
        let recorded = format!("the value {}", summary::one_line(text));
        ErrorKind::Diverged(Box::new(Diverged { point, recorded, now, changed: Vec::new() })).into()
    })
}
