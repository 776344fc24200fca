//! Steps: spans of a line that a resumed run does not run twice.

use std::future::Future;

use super::{Session, encode};
use crate::blob::Blob;
use crate::body::{Body as _, Cancelled, Failed, Outcome, Role, StepEntered, StepLeft};
use crate::error::{Diverged, Error, ErrorKind, Result};
use crate::fingerprint;
use crate::id::Point;
use crate::kind::Kind;
use crate::record::Record;
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

    /// Runs `work` as the step that `step` describes. `config` is the blob that it names.
    pub async fn in_step<F, Fut>(mut self, step: StepEntered, config: Option<Blob>, work: F) -> Result<Session>
    where
        F: FnOnce(Session, Entered) -> Fut,
        Fut: Future<Output = Result<Session>>,
    {
        let name = step.name.clone();
        let entering = (step.clone(), config.clone());
        let entered = match self.enter_step(step, config).await {
            Ok(Entered::Over { outcome: Outcome::Done, .. }) => return Ok(self),
            Ok(Entered::Over { outcome, left }) => {
                let error = match self.recorded_failure(left, outcome).await {
                    Ok(why) => ErrorKind::Ended { step: name, outcome, why }.into(),
                    Err(error) => error,
                };
                return Err(error.recorded().with_sessions(vec![self]));
            }
            Ok(entered) => entered,
            Err(error) => return Err(error.with_sessions(vec![self])),
        };
        let (id, store, actor) = (self.id(), self.0.store.clone(), self.0.actor.actor.clone());
        let gear = self.0.gear.kept();
        let depth = self.0.state.steps.len();
        match work(self, entered).await {
            Ok(mut session) => match session.leave_step(depth, Outcome::Done).await {
                Ok(()) => Ok(session),
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
                let told = session.fail(depth, &mut error).await;
                let error = match told {
                    Ok(()) => error.recorded(),
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
        let Some(record) = self.unless_diverged(taken)? else { return self.enter_anew(&step, config) };
        let point = record.point();
        let body: StepEntered = record.body().map_err(|why| ErrorKind::Record { point, why })?;
        if body.fingerprint() != step.fingerprint() {
            let changed = self.what_changed(&body, &step, config.as_ref()).await;
            if !changed.is_empty() {
                let recorded = summary::of(&record);
                let now = format!("step_entered: {}, which is not the same", step.name);
                let diverged = ErrorKind::Diverged(Box::new(Diverged { point, recorded, now, changed }));
                self.unless_diverged(Err(diverged.into()))?;
                return self.enter_anew(&step, config);
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
        self.0.gear.step_entered();
        match step.role {
            Some(Role::Agent) => self.jump_to_the_end().await?,
            _ => self.look_ahead().await?,
        }
        Ok(Entered::Again)
    }

    fn enter_anew(&mut self, step: &StepEntered, config: Option<Blob>) -> Result<Entered> {
        self.push(StepEntered::KIND, &encode(step), &[], config.into_iter().collect(), step)?;
        self.0.gear.step_entered();
        Ok(Entered::Fresh)
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
        while self.0.state.steps.len() >= depth {
            let Some(step) = self.0.state.steps.last().filter(|step| !step.inherited) else { break };
            let hand_off = step.run.as_ref().and_then(|run| run.hand_off.clone()).filter(|_| outcome == Outcome::Done);
            self.append(StepLeft { step: step.record, outcome, hand_off })?;
            self.0.gear.step_left();
        }
        self.settle().await
    }

    /// Says on the record that the step at `depth` failed: once, by the innermost.
    async fn fail(&mut self, depth: usize, error: &mut Error) -> Result<()> {
        self.jump_to_the_end().await?;
        let stopped =
            matches!(error.kind(), ErrorKind::Cancelled { .. } | ErrorKind::Ended { outcome: Outcome::Cancelled, .. });
        let calls = self.pending().calls;
        let open = self.end_calls(calls)?;
        if stopped && !error.is_recorded() || !open.is_empty() {
            self.append(Cancelled { calls: open, why: error.why_given_up() })?;
        }
        if !stopped && !error.is_recorded() {
            self.append(Failed { why: error.to_string(), code: Some(error.code().into()) })?;
        }
        self.leave_step(depth, if stopped { Outcome::Cancelled } else { Outcome::Failed }).await?;
        self.publish().await
    }

    /// Why a step that was jumped over did not do what it was for.
    async fn recorded_failure(&self, left: Point, outcome: Outcome) -> Result<String> {
        let kind = if outcome == Outcome::Cancelled { Kind::Cancelled } else { Kind::Failed };
        let scan = Scan::session(left.session, 0, left.seq).kinds(&[kind]).backwards().limit(1);
        let page = self.0.store.scan(scan).await?;
        let Some(record) = page.records.first() else { return Ok(String::new()) };
        let why = match outcome {
            Outcome::Cancelled => record.body::<Cancelled>().map(|body| body.reason().to_owned()),
            _ => record.body::<Failed>().map(|body| body.why),
        };
        Ok(why.unwrap_or_else(|_| summary::of(record)))
    }

    /// The differences between what a step was and what it is; none where only prose differs.
    async fn what_changed(&self, then: &StepEntered, now: &StepEntered, config: Option<&Blob>) -> Vec<String> {
        let mut changed = Vec::new();
        if then.version != now.version {
            let say = |version: &Option<String>| version.clone().unwrap_or("none".into());
            changed.push(format!("version: {} was recorded, now it is {}", say(&then.version), say(&now.version)));
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
