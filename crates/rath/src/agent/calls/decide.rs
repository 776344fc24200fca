//! Planning a call: whether it is made, refused, needs an approval, or is over already.

use std::panic::AssertUnwindSafe;

use rath_core::body::{Asked, CallOutcome, Effect, QuestionKind, ToolFinished, Verdict};
use rath_core::store::Lookup;
use rath_core::{BoxTool, FileAccess, OpenCall, RecordId, Result, Session};

use super::super::Agent;
use super::super::drive::StepContext;
use super::super::event::Event;
use super::super::policy::{Decision, ToolDecision};
use super::one_call::{less_safe, panic_message};
use crate::policy::{ProposedCall, covers, suggest_grant};
use crate::recorder;

/// The plan for a call.
pub(super) enum Plan {
    /// The model is shown a text, and the tool is not called.
    Say {
        /// The text that the model is shown.
        text: String,
        /// Whether the result is marked as failed.
        failed: bool,
        /// The `tool_finished` of a call that asked a person.
        finished: Option<RecordId>,
    },
    /// A rule refuses the call, and the model is shown a text.
    Refuse {
        /// The text that the model is shown.
        text: String,
        /// The rule.
        by: Option<String>,
    },
    /// The call has ended. Only the result is missing.
    Report {
        /// The `tool_finished` record.
        finished: RecordId,
        /// Whether the call failed.
        failed: bool,
    },
    /// The call waits for an answer.
    Wait,
    /// The tool is called.
    Make(Execution),
}

/// The data to make a call.
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

    /// Plans a call: first by its records, then by its arguments, then by the policies.
    pub(super) async fn decide(
        &self,
        session: &mut Session,
        context: &StepContext,
        call: &OpenCall,
        arguments: String,
    ) -> Result<Plan> {
        match (call.asked, call.answered, call.finished) {
            // The tool has asked a question. The answer is its result.
            (Some(QuestionKind::Question), None, _) => return Ok(Plan::Wait),
            (Some(QuestionKind::Question), Some(answer), finished) => {
                let text = self.answer_in_words(session, answer).await?;
                return Ok(Plan::Say { text, failed: false, finished: finished.map(|(_, id)| id) });
            }
            (_, _, Some((seq, finished))) => {
                return report(session, seq, finished).await;
            }
            _ => {}
        }
        if context.resolved.answer_tool.as_ref().is_some_and(|tool| tool.name == call.tool) {
            return Ok(match self.check_call(session, context, &arguments).await? {
                Ok(text) => Plan::Say { text, failed: false, finished: None },
                Err(text) => Plan::fail(text),
            });
        }
        let Some(tool) = self.tool(&call.tool) else {
            let known: Vec<_> = self.tool_names().collect();
            return Ok(Plan::fail(match known.as_slice() {
                [] => format!("Unknown tool {:?}. No tools are available.", call.tool),
                known => format!("Unknown tool {:?}. Available tools: {}.", call.tool, known.join(", ")),
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
            return self.decide_interrupted(session, context, call, started, &arguments, make).await;
        }
        let checked = std::panic::catch_unwind(AssertUnwindSafe(|| tool.check(&arguments)));
        let checked = checked.unwrap_or_else(|panic| Err(format!("The tool panicked: {}", panic_message(&*panic))));
        if let Err(text) = checked {
            return Ok(Plan::fail(text));
        }
        let proposed = ProposedCall {
            tool: &call.tool,
            arguments: &arguments,
            effect: planned_effect(session, tool),
            spec: Some(tool.spec()),
            root: context.tool_workspace.as_ref().and_then(|tool_workspace| tool_workspace.mount_path()),
        };
        let ToolDecision { decision, by } = self.decide_tool(&proposed, context.session_policy.as_deref());
        match decision {
            Decision::Deny(why) => Ok(Plan::Refuse { text: format!("This call is not allowed: {why}"), by }),
            Decision::Allow => Ok(make(1)),
            // Asking a person needs no approval.
            Decision::Ask if tool.spec().asks => Ok(make(1)),
            Decision::Ask if session.state().granted.iter().any(|grant| covers(grant, &proposed)) => Ok(make(1)),
            Decision::Ask => {
                let always = suggest_grant(&proposed);
                let by_rule = by
                    .as_ref()
                    .filter(|_| self.policy.is_some() || context.session_policy.is_some())
                    .map(|by| format!("\nrule: {by}"));
                let shown = format!(
                    "Agent {} wants to call {}:\n{arguments}{}\nalways: {always}",
                    self.name,
                    call.tool,
                    by_rule.unwrap_or_default()
                );
                let asked = Asked::new(QuestionKind::Approval, Some(call.id.clone()), shown);
                self.ask(session, context, Asked { always: Some(Box::new(always)), policy: by, ..asked })?;
                Ok(Plan::Wait)
            }
        }
    }

    /// Records a question.
    pub(super) fn ask(&self, session: &mut Session, context: &StepContext, asked: Asked) -> Result<()> {
        context.emit(session, || Event::Asked { shown: asked.shown.to_string() });
        session.append(asked).map(|_| ())
    }

    /// Plans a call after the answer to its approval, or to whether it happened.
    async fn decide_answered(
        &self,
        session: &mut Session,
        call: &OpenCall,
        about: QuestionKind,
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
            (QuestionKind::Approval, Verdict::Yes) => make(attempt.unwrap_or(1)),
            (QuestionKind::OutcomeUnknown, Verdict::No) => make(attempt.map_or(1, |attempt| attempt + 1)),
            // An unknown answer of a later version does not confirm that the call happened.
            (QuestionKind::OutcomeUnknown, Verdict::Unknown(answer)) => {
                let remark = format!("the process ended during the call; {by} gave an answer that is {answer}");
                let words = "It is not known whether the call happened.";
                let finished = recorder::closed(&call.id, CallOutcome::Lost, Some(words), remark);
                let finished = session.append(finished)?;
                session.publish().await?;
                Plan::Report { finished, failed: true }
            }
            (QuestionKind::OutcomeUnknown, _) => {
                let words = words.unwrap_or_else(|| format!("The call happened{why}. Its output was lost."));
                let remark = format!("the process ended during the call; {by} reported the outcome");
                let finished = recorder::closed(&call.id, CallOutcome::Done, Some(&words), remark);
                let finished = session.append(finished)?;
                session.publish().await?;
                Plan::Report { finished, failed: false }
            }
            (QuestionKind::Approval | QuestionKind::Question | QuestionKind::Unknown(_), _) => {
                Plan::fail(match words {
                    Some(words) => format!("{} did not allow this call: {words}", by.name),
                    None => format!("{} did not allow this call{why}", by.name),
                })
            }
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

/// The plan for a call that has ended: its result refers to `tool_finished`. If the call ended before the fork point,
/// the result contains the text.
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

/// The effect of a call in the session's placement.
fn planned_effect(session: &Session, tool: &BoxTool) -> Effect {
    let placement = session.state().placement.as_ref();
    let isolated =
        tool.spec().file_access == FileAccess::Nothing || placement.is_none_or(|placement| placement.isolated);
    less_safe(tool, isolated)
}
