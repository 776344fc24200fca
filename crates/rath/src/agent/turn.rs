//! One request to the model, and recording its answer.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use rath_core::body::{Assistant, Block, ModelFailed, ModelRequested, ModelResponded};
use rath_core::{
    Blob, Delta, Digest, EncodedBy, Error, ErrorKind, Failure, Injected, Injection, ModelAnswer, ModelInput,
    Parameters, RequestSpec, Result, Session, Time, ToolChoice, random_number,
};

use super::Agent;
use super::drive::StepContext;
use super::event::{Event, RunEvent};
use super::rate_limit;
use super::retry::{LONGEST_WAIT, wait};
use crate::sleep::sleep;
use crate::workflow::SharedBudget;

impl Agent {
    pub(super) async fn take_turn(&self, session: &mut Session, context: &mut StepContext) -> Result<()> {
        let Some(model) = &self.model else {
            let why = format!("agent {:?} has no model: give it one with `.model(…)`", self.name);
            return Err(ErrorKind::Workflow(why.into()).into());
        };
        let run = session.state().run().cloned().unwrap_or_default();
        if let Some(spent) = self.budget.spent(&run, session.usage(), context.since) {
            return Err(ErrorKind::Budget { agent: self.name.clone(), spent }.into());
        }
        if let Ok(shared) = context.resources.get::<SharedBudget>() {
            shared.note(session);
            if let Some(spent) = shared.spent() {
                return Err(ErrorKind::Budget { agent: self.name.clone(), spent }.into());
            }
        }
        let limit = model.rate_limit_key(run.attempts + 1);
        while let Some(left) = limit.and_then(rate_limit::time_left) {
            // A request with the same key was told to wait.
            tokio::select! {
                biased;
                () = sleep(left) => {}
                () = self.stop(session, context) => return self.stopped(context).map_or(Ok(()), Err),
            }
        }
        let resolved = context.resolved.clone();
        let injected = self.injected(session).await?;
        let changed = self.changed_parameters(context, run.turns);
        let asking = RequestSpec {
            agent: &self.name,
            prompt: &self.prompt,
            tools: &resolved.specs,
            parameters: changed.as_ref().unwrap_or(&resolved.parameters),
            view: &*self.view,
            injected: &injected,
            config: resolved.blob.reference.digest,
        };
        let encoded = model.encode(&ModelInput::of(&*session, asking)).await;
        let encoded = match encoded {
            Ok(encoded) => encoded,
            Err(failure) => return self.failed(session, context, failure, run.attempts, limit).await,
        };
        let by = encoded.by.clone();
        let EncodedBy { model: asked, encoder } =
            by.unwrap_or_else(|| EncodedBy { model: model.name().into(), encoder: model.encoder().into() });
        let config = context.reworded.then(|| resolved.blob.clone());
        if let Some(config) = &config {
            session.store().blob_put_soon(vec![config.clone()]).await?;
        }
        session.append(ModelRequested {
            config: config.map(|config| config.reference),
            injected: injected.clone(),
            parameters: changed.clone(),
            previous: run.request,
            attempt: (run.attempts > 0).then_some(run.attempts + 1),
            ..ModelRequested::new(asked, self.view.name(), encoder, encoded.digest)
        })?;
        session.publish_if_due().await?;
        let began = Time::now();
        // The text received so far, for the case that the request is stopped.
        let words = Mutex::new(String::new());
        let answer = {
            let shown = ModelInput::of(&*session, asking);
            let words = &words;
            let (session_id, agent_name, observer) = (session.id(), resolved.name.clone(), context.observer.clone());
            let on_delta = |delta| {
                if let Delta::Text(text) = &delta {
                    words.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
                }
                if let Some(observer) = &observer {
                    let (session, agent) = (session_id, agent_name.clone());
                    observer.emit(RunEvent { session, agent, what: Event::Delta { delta } });
                }
            };
            let sending = model.send(&shown, &encoded, &on_delta);
            tokio::select! {
                biased;
                answer = sending => Some(answer),
                () = self.stop(session, context) => None,
            }
        };
        match (answer, self.stopped(context)) {
            (Some(Ok(answer)), _) => self.answered(session, context, answer, began).await,
            (Some(Err(failure)), _) => self.failed(session, context, failure, run.attempts, limit).await,
            (None, Some(error)) => {
                let words = words.into_inner().unwrap_or_else(PoisonError::into_inner);
                record_interruption(session, context, ModelFailed::new(""), words, error)
            }
            (None, None) => Ok(()),
        }
    }

    /// The parameters of the next request, if they differ from the configured ones.
    fn changed_parameters(&self, context: &StepContext, turns: u64) -> Option<Parameters> {
        let configured = &context.resolved.parameters;
        let choice = match &context.resolved.answer_tool {
            Some(tool) if tool.is_only || context.asked_for_answer => Some(ToolChoice::Tool(tool.name.clone())),
            // A forced tool choice applies to the first turn only: otherwise the model could never answer.
            _ => configured.tool_choice.clone().filter(|choice| turns == 0 || !choice.is_forced()),
        };
        (choice != configured.tool_choice).then(|| Parameters { tool_choice: choice, ..configured.clone() })
    }

    /// The messages to inject into the next request. Their blobs are stored with its record.
    async fn injected(&self, session: &Session) -> Result<Vec<Injected>> {
        let mut injected = Vec::new();
        if self.injectors.is_empty() {
            return Ok(injected);
        }
        let view = session.view().await?;
        for injector in &self.injectors {
            for Injection { injected: message, blob } in injector.inject(&view).await? {
                session.store().blob_put_soon(blob.into_iter().collect()).await?;
                injected.push(message);
            }
        }
        Ok(injected)
    }

    async fn answered(
        &self,
        session: &mut Session,
        context: &mut StepContext,
        answer: ModelAnswer,
        began: Time,
    ) -> Result<()> {
        let ModelAnswer { mut blocks, stop, model, usage, prices, sent, raw } = answer;
        if let Some(raw) = &raw {
            session.store().blob_put(vec![raw.clone()]).await?;
        }
        session.append(ModelResponded {
            model,
            stop: stop.clone(),
            usage,
            prices,
            latency_us: Some(Time::now().micros_since(began)),
            raw: raw.map(|raw| raw.reference),
        })?;
        let renamed = name_calls(&mut blocks, session.state().run().map_or(0, |run| run.turns));
        // Results refer to the new ids, which the recorded raw turn does not contain.
        let turn = Assistant { blocks, sent: sent.filter(|_| !renamed) };
        context.turn = Some(turn.clone());
        session.append(turn)?;
        context.rate_limited = 0;
        context.emit(session, || Event::TurnFinished { usage, stop });
        Ok(())
    }

    async fn failed(
        &self,
        session: &mut Session,
        context: &mut StepContext,
        failure: Failure,
        attempts: u32,
        limit: Option<Digest>,
    ) -> Result<()> {
        let Failure { mut why, retry, after, status, partial, raw, kind: _ } = failure;
        if let Some(raw) = &raw {
            session.store().blob_put(vec![Blob::clone(raw)]).await?;
        }
        let raw = raw.map(|raw| raw.reference);
        if let Some(cancelled) = context.cancel.why() {
            let error = ErrorKind::Cancelled { why: cancelled.to_string() }.into();
            let failed = ModelFailed { status, raw, ..ModelFailed::new(why) };
            return record_interruption(session, context, failed, partial.unwrap_or_default(), error);
        }
        let attempts = attempts.saturating_sub(context.rate_limited);
        // A wait for the rate limit of a key is not an attempt.
        let is_limited = retry && self.retries > 0 && limit.is_some() && status == Some(429);
        let is_limited = is_limited && context.rate_limited < rate_limit::MOST_WAITS;
        let is_limited = is_limited && after.is_some_and(|after| !after.is_zero());
        let mut retried = retry && (is_limited || attempts < self.retries);
        if let Some(after) = after.filter(|after| retried && *after > LONGEST_WAIT) {
            let (asks, most) = (after.as_secs(), LONGEST_WAIT.as_secs());
            why = format!("{why}; the provider asks to wait {asks} s, longer than the limit of {most} s");
            retried = false;
        }
        let partial = partial.map(Into::into);
        session.append(ModelFailed { status, retried, transient: retry, partial, raw, ..ModelFailed::new(&*why) })?;
        if !retried {
            session.publish().await?;
            return Ok(());
        }
        context.emit(session, || Event::Retrying { why });
        if let Some((key, after)) = limit.zip(after).filter(|_| is_limited) {
            context.rate_limited += 1;
            rate_limit::hold_back(key, after);
        }
        let wait = wait(after, self.backoff, attempts, random_number());
        if wait.is_zero() {
            return Ok(());
        }
        tokio::select! {
            biased;
            () = sleep(wait) => Ok(()),
            () = self.stop(session, context) => self.stopped(context).map_or(Ok(()), Err),
        }
    }
}

/// Records an interrupted request. After a stop by the user, partial text becomes an `assistant` record, because the
/// user has read it.
fn record_interruption(
    session: &mut Session,
    context: &StepContext,
    failed: ModelFailed,
    words: String,
    error: Error,
) -> Result<()> {
    let stopped = context.cancel.is_cancelled();
    let why = if stopped { "stopped" } else { "the time limit of the budget is reached" };
    let said = stopped && !words.trim().is_empty();
    let partial = (!said && !words.is_empty()).then(|| words.clone().into());
    session.append(ModelFailed { why: why.into(), partial, ..failed })?;
    if said {
        session.append(Assistant::text(words))?;
    }
    Err(error)
}

/// Makes the call ids of a turn unique. A call without an id gets one that is unique in the session. Returns whether an
/// id was changed.
fn name_calls(blocks: &mut [Block], turn: u64) -> bool {
    let mut renamed = false;
    let mut names: HashSet<String> = HashSet::new();
    for (at, block) in blocks.iter_mut().enumerate() {
        let Block::ToolUse { id, .. } = block else { continue };
        if id.is_empty() || names.contains(id) {
            let base = if id.is_empty() { format!("call-{turn}") } else { id.clone() };
            let free = (at..).map(|number| format!("{base}~{number}")).find(|name| !names.contains(name));
            *id = free.unwrap_or(base);
            renamed = true;
        }
        names.insert(id.clone());
    }
    renamed
}
