//! One request to the model, and its answer on the record.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use rath_core::body::{Assistant, Block, ModelFailed, ModelRequested, ModelResponded};
use rath_core::{
    Answer, Asking, Blob, Delta, Error, ErrorKind, Failure, Injected, Injection, MadeBy, Parameters, Result, Session,
    Shown, Time, ToolChoice, random_number,
};

use super::Agent;
use super::drive::Bench;
use super::event::{Event, RunEvent};
use super::retry::{LONGEST_WAIT, wait};
use crate::pause::pause;

impl Agent {
    pub(super) async fn take_turn(&self, session: &mut Session, bench: &mut Bench) -> Result<()> {
        let Some(model) = &self.model else {
            let why = format!("agent {:?} has no model: give it one with `.model(…)`", self.name);
            return Err(ErrorKind::Workflow(why.into()).into());
        };
        let run = session.state().run().cloned().unwrap_or_default();
        if let Some(spent) = self.budget.spent(&run, session.usage(), bench.since) {
            return Err(ErrorKind::Budget { agent: self.name.clone(), spent }.into());
        }
        let sealed = bench.sealed.clone();
        let injected = self.injected(session).await?;
        // Otherwise the model could never give its answer.
        let forced = self.parameters.tool_choice.as_ref().is_some_and(ToolChoice::is_forced);
        let unforced = (run.turns > 0 && forced).then(|| Parameters { tool_choice: None, ..self.parameters.clone() });
        let asking = Asking {
            agent: &self.name,
            prompt: &self.prompt,
            tools: &sealed.specs,
            parameters: unforced.as_ref().unwrap_or(&self.parameters),
            view: &*self.view,
            injected: &injected,
            config: sealed.blob.reference.digest,
        };
        let encoded = model.encode(&Shown::of(&*session, asking)).await;
        let encoded = match encoded {
            Ok(encoded) => encoded,
            Err(failure) => return self.failed(session, bench, failure, run.attempts).await,
        };
        let by = encoded.by.clone();
        let MadeBy { model: asked, encoder } =
            by.unwrap_or_else(|| MadeBy { model: model.name().into(), encoder: model.encoder().into() });
        let config = bench.reworded.then(|| sealed.blob.clone());
        if let Some(config) = &config {
            session.store().blob_put_soon(vec![config.clone()]).await?;
        }
        session.append(ModelRequested {
            config: config.map(|config| config.reference),
            injected: injected.clone(),
            parameters: unforced.clone(),
            previous: run.request,
            attempt: (run.attempts > 0).then_some(run.attempts + 1),
            ..ModelRequested::new(asked, self.view.name(), encoder, encoded.digest)
        })?;
        session.settle().await?;
        let began = Time::now();
        // What came of an answer that nobody waits for any more.
        let words = Mutex::new(String::new());
        let answer = {
            let shown = Shown::of(&*session, asking);
            let words = &words;
            let (session_id, agent_name, listener) = (session.id(), sealed.name.clone(), bench.listener.clone());
            let heard = |delta| {
                if let Delta::Text(text) = &delta {
                    words.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
                }
                if let Some(listener) = &listener {
                    let (session, agent) = (session_id, agent_name.clone());
                    listener.tell(RunEvent { session, agent, what: Event::Delta { delta } });
                }
            };
            let sending = model.send(&shown, &encoded, &heard);
            tokio::select! {
                biased;
                answer = sending => Some(answer),
                () = self.stop(session, bench) => None,
            }
        };
        match (answer, self.stopped(bench)) {
            (Some(Ok(answer)), _) => self.answered(session, bench, answer, began).await,
            (Some(Err(failure)), _) => self.failed(session, bench, failure, run.attempts).await,
            (None, Some(error)) => {
                let words = words.into_inner().unwrap_or_else(PoisonError::into_inner);
                cut_off(session, bench, ModelFailed::new(""), words, error)
            }
            (None, None) => Ok(()),
        }
    }

    /// The messages to inject into the next request. New blobs are stored with its record.
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

    async fn answered(&self, session: &mut Session, bench: &mut Bench, answer: Answer, began: Time) -> Result<()> {
        let Answer { mut blocks, stop, model, usage, prices, sent, raw } = answer;
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
        // Results go by the new names, which the turn as it was sent does not know.
        let turn = Assistant { blocks, sent: sent.filter(|_| !renamed) };
        bench.turn = Some(turn.clone());
        session.append(turn)?;
        bench.tell(session, || Event::TurnFinished { usage, stop });
        Ok(())
    }

    async fn failed(&self, session: &mut Session, bench: &Bench, failure: Failure, attempts: u32) -> Result<()> {
        let Failure { mut why, retry, after, status, partial, raw, kind: _ } = failure;
        if let Some(raw) = &raw {
            session.store().blob_put(vec![Blob::clone(raw)]).await?;
        }
        let raw = raw.map(|raw| raw.reference);
        if let Some(cancelled) = bench.cancel.why() {
            let error = ErrorKind::Cancelled { why: cancelled.to_string() }.into();
            let failed = ModelFailed { status, raw, ..ModelFailed::new(why) };
            return cut_off(session, bench, failed, partial.unwrap_or_default(), error);
        }
        let mut retried = retry && attempts < self.retries;
        if let Some(after) = after.filter(|after| retried && *after > LONGEST_WAIT) {
            let (asks, most) = (after.as_secs(), LONGEST_WAIT.as_secs());
            why = format!("{why}; it asks to wait {asks} s, and nobody waits longer than {most} s here");
            retried = false;
        }
        let partial = partial.map(Into::into);
        session.append(ModelFailed { status, retried, transient: retry, partial, raw, ..ModelFailed::new(&*why) })?;
        if !retried {
            session.publish().await?;
            return Ok(());
        }
        bench.tell(session, || Event::Retrying { why });
        let wait = wait(after, self.backoff, attempts, random_number());
        if wait.is_zero() {
            return Ok(());
        }
        tokio::select! {
            biased;
            () = pause(wait) => Ok(()),
            () = self.stop(session, bench) => self.stopped(bench).map_or(Ok(()), Err),
        }
    }
}

/// Puts on the record that nobody waits for the answer any more, and what came of it. Who stopped it has read that far
/// and goes on from there, and so the model is shown it as what it said.
fn cut_off(session: &mut Session, bench: &Bench, failed: ModelFailed, words: String, error: Error) -> Result<()> {
    let stopped = bench.cancel.is_cancelled();
    let why = if stopped { "stopped" } else { "the time of the budget is over" };
    let said = stopped && !words.trim().is_empty();
    let partial = (!said && !words.is_empty()).then(|| words.clone().into());
    session.append(ModelFailed { why: why.into(), partial, ..failed })?;
    if said {
        session.append(Assistant::text(words))?;
    }
    Err(error)
}

/// Sees to it that every call of a turn has a name of its own. A call without one gets one that no other turn has. Says
/// whether a name is new.
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
