//! Whether a call is made, refused, asked about, or over already.

use std::panic::AssertUnwindSafe;

use rath_core::body::{About, Asked, CallOutcome, Effect, ToolFinished, Verdict};
use rath_core::store::Lookup;
use rath_core::{BoxTool, OpenCall, RecordId, Result, Session, Touches};

use super::super::Agent;
use super::super::drive::Bench;
use super::super::event::Event;
use super::super::policy::{Decision, Ruled};
use super::one_call::{less_safe, panic_message};
use crate::policy::{Wish, covers, offer};
use crate::recorder;

/// What is done about a call.
pub(super) enum Plan {
    /// The model gets this, and the tool is not called.
    Say {
        /// What it is shown.
        text: String,
        /// Whether it is told that the call failed.
        failed: bool,
        /// What was recorded of the call, if it asked a person.
        finished: Option<RecordId>,
    },
    /// A rule refuses it: the model gets this.
    Refuse {
        /// What it is shown.
        text: String,
        /// The rule.
        by: Option<String>,
    },
    /// It ended; only the result is missing.
    Report {
        /// Its `tool_finished`.
        finished: RecordId,
        /// Whether it failed.
        failed: bool,
    },
    /// A person was asked.
    Wait,
    /// It is made.
    Make(Execution),
}

/// A call that is to be made.
pub(super) struct Execution {
    pub(super) tool: BoxTool,
    pub(super) arguments: String,
    pub(super) attempt: u32,
}

impl Plan {
    fn fail(text: String) -> Self {
        Self::Say { text, failed: true, finished: None }
    }
}

impl Agent {
    /// The tool of this name.
    pub(super) fn tool(&self, name: &str) -> Option<&BoxTool> {
        self.tools.iter().find(|tool| tool.spec().name == name)
    }

    /// What is to be done about a call: first by what is recorded of it, then by its arguments, then by the rules.
    pub(super) async fn decide(
        &self,
        session: &mut Session,
        bench: &Bench,
        call: &OpenCall,
        arguments: String,
    ) -> Result<Plan> {
        match (call.asked, call.answered, call.finished) {
            // The tool asked: its part is over, and the answer is the result.
            (Some(About::Question), None, _) => return Ok(Plan::Wait),
            (Some(About::Question), Some(answer), finished) => {
                let text = self.answer_in_words(session, answer).await?;
                return Ok(Plan::Say { text, failed: false, finished: finished.map(|(_, id)| id) });
            }
            (_, _, Some((seq, finished))) => {
                return report(session, seq, finished).await;
            }
            _ => {}
        }
        let Some(tool) = self.tool(&call.tool) else {
            let known: Vec<_> = self.tool_names().collect();
            return Ok(Plan::fail(match known.as_slice() {
                [] => format!("There is no tool {:?}: there are none.", call.tool),
                known => format!("There is no tool {:?}. There are: {}.", call.tool, known.join(", ")),
            }));
        };
        let make = |attempt: u32| Plan::Make(Execution { tool: tool.clone(), arguments: arguments.clone(), attempt });
        if let (Some(about), Some(seq)) = (call.asked, call.answered) {
            return self.decide_answered(session, call, about, seq, make).await;
        }
        if call.asked.is_some() {
            return Ok(Plan::Wait);
        }
        if let Some(started) = &call.started {
            return self.decide_in_doubt(session, bench, call, started, &arguments, make).await;
        }
        let checked = std::panic::catch_unwind(AssertUnwindSafe(|| tool.check(&arguments)));
        let checked = checked.unwrap_or_else(|panic| Err(format!("The tool broke down: {}", panic_message(&*panic))));
        if let Err(text) = checked {
            return Ok(Plan::fail(text));
        }
        let wish = Wish {
            tool: &call.tool,
            arguments: &arguments,
            effect: planned_effect(session, tool),
            spec: Some(tool.spec()),
            root: bench.desk.as_ref().and_then(|desk| desk.appears_at()),
        };
        let Ruled { decision, by } = self.rule_on(&wish, bench.house.as_deref());
        match decision {
            Decision::Deny(why) => Ok(Plan::Refuse { text: format!("This call is not allowed: {why}"), by }),
            Decision::Allow => Ok(make(1)),
            // A question needs no permission of the person who answers it.
            Decision::Ask if tool.spec().asks => Ok(make(1)),
            Decision::Ask if session.state().granted.iter().any(|grant| covers(grant, &wish)) => Ok(make(1)),
            Decision::Ask => {
                let always = offer(&wish);
                let by_rule = by
                    .as_ref()
                    .filter(|_| self.rules.is_some() || bench.house.is_some())
                    .map(|by| format!("\nrule: {by}"));
                let shown = format!(
                    "Agent {} wants to call {}:\n{arguments}{}\nalways: {always}",
                    self.name,
                    call.tool,
                    by_rule.unwrap_or_default()
                );
                let asked = Asked::new(About::Approval, Some(call.id.clone()), shown);
                self.ask(session, bench, Asked { always: Some(Box::new(always)), policy: by, ..asked })?;
                Ok(Plan::Wait)
            }
        }
    }

    /// Puts a question on the record.
    pub(super) fn ask(&self, session: &mut Session, bench: &Bench, asked: Asked) -> Result<()> {
        bench.tell(session, || Event::Asked { shown: asked.shown.to_string() });
        session.append(asked).map(|_| ())
    }

    /// A person answered whether the call may be made, or whether it happened.
    async fn decide_answered(
        &self,
        session: &mut Session,
        call: &OpenCall,
        about: About,
        seq: u64,
        make: impl Fn(u32) -> Plan,
    ) -> Result<Plan> {
        let (answered, by) = session.answer_at(seq).await?;
        let why = answered.why.map(|why| format!(": {why}")).unwrap_or_default();
        let words = match &answered.verdict {
            Verdict::Text(text) => Some(session.view().await?.content(text).await?),
            _ => None,
        };
        let attempt = call.started.as_ref().map(|started| started.attempt);
        Ok(match (about, answered.verdict) {
            (About::Approval, Verdict::Yes) => make(attempt.unwrap_or(1)),
            (About::InDoubt, Verdict::No) => make(attempt.map_or(1, |attempt| attempt + 1)),
            // An answer of a later version does not say here that it happened.
            (About::InDoubt, Verdict::Unknown(answer)) => {
                let remark = format!("the process ended in the middle; {by} gave an answer that is {answer}");
                let words = "It is not known whether the call happened.";
                let finished = recorder::closed(&call.id, CallOutcome::Lost, Some(words), remark);
                let finished = session.append(finished)?;
                session.publish().await?;
                Plan::Report { finished, failed: true }
            }
            (About::InDoubt, _) => {
                let words = words.unwrap_or_else(|| format!("The call had happened{why}. Its output was lost."));
                let remark = format!("the process ended in the middle; {by} said what came of it");
                let finished = recorder::closed(&call.id, CallOutcome::Done, Some(&words), remark);
                let finished = session.append(finished)?;
                session.publish().await?;
                Plan::Report { finished, failed: false }
            }
            (About::Approval | About::Question | About::Unknown(_), _) => Plan::fail(match words {
                Some(words) => format!("{} did not allow this call: {words}", by.name),
                None => format!("{} did not allow this call{why}", by.name),
            }),
        })
    }

    /// The answer to a question of a tool.
    async fn answer_in_words(&self, session: &Session, seq: u64) -> Result<String> {
        let (answered, _) = session.answer_at(seq).await?;
        let why = answered.why.map(|why| format!(": {why}")).unwrap_or_default();
        Ok(match &answered.verdict {
            Verdict::Text(text) => session.view().await?.content(text).await?,
            Verdict::Yes => format!("yes{why}"),
            Verdict::No => format!("no{why}"),
            Verdict::Unknown(answer) => format!("(an answer that is {answer}){why}"),
        })
    }
}

/// A call that ended: its result refers to the record of its end. One that ended before the fork is told in words.
async fn report(session: &Session, seq: u64, id: RecordId) -> Result<Plan> {
    let here = match seq <= session.head().seq {
        true => Some(session.record_at(seq).await?).filter(|record| record.id() == id),
        false => None,
    };
    let failed = |body: &ToolFinished| body.outcome != CallOutcome::Done;
    if let Some(finished) = here {
        return Ok(Plan::Report { finished: id, failed: finished.body().map_or(true, |body| failed(&body)) });
    }
    let finished = session.store().get(Lookup::Id(id)).await?.into_iter().next();
    let body = finished.and_then(|record| record.body::<ToolFinished>().ok());
    let text = match body.as_ref().and_then(ToolFinished::shown) {
        Some(shown) => session.view().await?.content(&shown).await?,
        None => String::new(),
    };
    Ok(Plan::Say { text, failed: body.is_none_or(|body| failed(&body)), finished: None })
}

/// What a call would mean where the session is placed.
fn planned_effect(session: &Session, tool: &BoxTool) -> Effect {
    let placement = session.state().placement.as_ref();
    let isolated = tool.spec().touches == Touches::Nothing || placement.is_none_or(|placement| placement.isolated);
    less_safe(tool, isolated)
}
