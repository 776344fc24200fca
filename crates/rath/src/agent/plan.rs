//! What is done about a call of the model's.

use std::panic::AssertUnwindSafe;

use rath_core::body::{About, Asked, CallOutcome, Effect, ToolFinished, Verdict};
use rath_core::store::Lookup;
use rath_core::{BoxTool, OpenCall, RecordId, Result, Session, Touches};

use super::Agent;
use super::call::{spec_effect, words_of};
use super::drive::Bench;
use super::event::Event;
use super::policy::{Decision, Ruled};
use crate::policy::{Wish, covers, offer};
use crate::tools::ASK_HUMAN;

/// What is done about a call.
pub(super) enum Plan {
    /// The model gets this, and nothing is called.
    Say {
        /// What it is shown.
        text: String,
        /// Whether it is told that the call failed.
        failed: bool,
    },
    /// A rule refuses it: the model gets this.
    Refuse {
        /// What it is shown.
        text: String,
        /// The rule.
        by: Option<String>,
    },
    /// It ended; only the result is missing.
    Report(RecordId, bool),
    /// A person has been asked.
    Wait,
    /// It is made.
    Make(Make),
}

/// A call that is to be made.
pub(super) struct Make {
    pub(super) tool: BoxTool,
    pub(super) arguments: String,
    pub(super) attempt: u32,
}

impl Agent {
    /// What is to be done about a call.
    pub(super) async fn plan(
        &self,
        session: &mut Session,
        bench: &Bench,
        call: &OpenCall,
        arguments: String,
    ) -> Result<Plan> {
        if let Some((seq, finished)) = call.finished {
            return self.plan_finished(session, seq, finished).await;
        }
        let Some(tool) = self.tools.iter().find(|tool| tool.spec().name == call.tool) else {
            let known: Vec<_> = self.tools.iter().map(|tool| tool.spec().name.as_str()).collect();
            let text = match known.as_slice() {
                [] => format!("There is no tool {:?}: there are none.", call.tool),
                known => format!("There is no tool {:?}. There are: {}.", call.tool, known.join(", ")),
            };
            return Ok(Plan::Say { text, failed: true });
        };
        let make = |attempt: u32| Plan::Make(Make { tool: tool.clone(), arguments: arguments.clone(), attempt });
        if let (Some(about), Some(seq)) = (call.asked, call.answered) {
            return self.plan_answered(session, call, about, seq, make).await;
        }
        if call.asked.is_some() {
            return Ok(Plan::Wait);
        }
        if let Some(started) = &call.started {
            return self.plan_in_doubt(session, bench, call, started, &arguments, make).await;
        }
        let checked = std::panic::catch_unwind(AssertUnwindSafe(|| tool.check(&arguments)));
        let checked = checked.unwrap_or_else(|panic| Err(format!("The tool broke down: {}", words_of(&*panic))));
        if let Err(text) = checked {
            return Ok(Plan::Say { text, failed: true });
        }
        let wish = Wish {
            tool: &call.tool,
            arguments: &arguments,
            effect: planned_effect(session, tool),
            root: bench.desk.as_ref().and_then(|desk| desk.appears_at()),
        };
        let Ruled { decision, by } = self.rule_on(&wish, bench.house.as_deref());
        match decision {
            Decision::Deny(why) => Ok(Plan::Refuse { text: format!("This call is not allowed: {why}"), by }),
            // A question needs no permission of whoever answers it.
            Decision::Allow | Decision::Ask if call.tool == ASK_HUMAN => {
                let question = crate::tools::question_of(&arguments).unwrap_or(arguments);
                self.ask(session, bench, Asked::new(About::Question, Some(call.id.clone()), question))
            }
            Decision::Allow => Ok(make(1)),
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
                self.ask(session, bench, Asked { always: Some(Box::new(always)), policy: by, ..asked })
            }
        }
    }

    pub(super) fn ask(&self, session: &mut Session, bench: &Bench, asked: Asked) -> Result<Plan> {
        bench.tell(session, || Event::Asked { shown: asked.shown.to_string() });
        session.append(asked)?;
        Ok(Plan::Wait)
    }

    /// A person answered: the call is made, or not, or the answer is the result.
    async fn plan_answered(
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
        Ok(match (about, answered.verdict) {
            (About::Approval, Verdict::Yes) => make(call.started.as_ref().map_or(1, |started| started.attempt)),
            (About::Approval, verdict) => {
                let said = match (verdict, words) {
                    (_, Some(words)) => format!("{} did not allow this call: {words}", by.name),
                    _ => format!("{} did not allow this call{why}", by.name),
                };
                Plan::Say { text: said, failed: true }
            }
            (About::Question, verdict) => {
                let said = match (verdict, words) {
                    (_, Some(words)) => words,
                    (Verdict::Yes, _) => format!("yes{why}"),
                    _ => format!("no{why}"),
                };
                Plan::Say { text: said, failed: false }
            }
            // It did not happen: making it now repeats nothing.
            (About::InDoubt, Verdict::No) => make(call.started.as_ref().map_or(1, |started| started.attempt + 1)),
            (About::InDoubt, _) => {
                let words = words.unwrap_or_else(|| format!("The call had happened{why}. Its output was lost."));
                let mut finished = ToolFinished::new(&call.id, CallOutcome::Done);
                finished.output.push(super::call::in_words(&words));
                finished.remarks.push(format!("the process ended in the middle; {by} said what came of it"));
                let finished = session.append(finished)?;
                session.publish().await?;
                Plan::Report(finished, false)
            }
        })
    }

    /// A call that ended: its result refers to the record of its end. One that ended before the fork has it in words.
    async fn plan_finished(&self, session: &Session, seq: u64, id: RecordId) -> Result<Plan> {
        let here = match seq <= session.head().seq {
            true => Some(session.record_at(seq).await?).filter(|record| record.id() == id),
            false => None,
        };
        let failed = |body: &ToolFinished| body.outcome != CallOutcome::Done;
        if let Some(finished) = here {
            return Ok(Plan::Report(id, finished.body().map_or(true, |body| failed(&body))));
        }
        let finished = session.store().get(Lookup::Id(id)).await?.into_iter().next();
        let body = finished.and_then(|record| record.body::<ToolFinished>().ok());
        let text = match body.as_ref().and_then(ToolFinished::shown) {
            Some(shown) => session.view().await?.content(&shown).await?,
            None => String::new(),
        };
        Ok(Plan::Say { text, failed: body.is_none_or(|body| failed(&body)) })
    }
}

/// What a call would mean where the session is placed.
fn planned_effect(session: &Session, tool: &BoxTool) -> Effect {
    let placement = session.state().placement.as_ref();
    let isolated = tool.spec().touches == Touches::Nothing || placement.is_none_or(|placement| placement.isolated);
    spec_effect(tool, isolated)
}
