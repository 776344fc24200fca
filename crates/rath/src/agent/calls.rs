//! The calls of one turn, from the model's wish to the results that it is shown.

use rath_core::body::{Assistant, Block, ToolResult};
use rath_core::{Content, OpenCall, Result, Session, Touches};

use super::Agent;
use super::brought::with_words;
use super::drive::Bench;
use super::event::Event;
use super::plan::Plan;
use super::round::{Job, Round};

impl Agent {
    /// Makes the calls of the last turn, or what is left of them, and gives the model their results.
    pub(super) async fn make_calls(
        &self,
        session: &mut Session,
        bench: &mut Bench,
        calls: Vec<OpenCall>,
    ) -> Result<()> {
        let Some(record) = calls.first().map(|call| call.record) else { return Ok(()) };
        let turn = self.turn(session, bench, record).await?;
        let mut jobs = Vec::with_capacity(calls.len());
        for call in calls {
            let arguments = arguments_of(session, &turn, &call.id).await?;
            let plan = self.plan(session, bench, &call, arguments).await?;
            let touches = self.touches(&call.tool);
            jobs.push(Job::new(call, plan, touches));
        }
        let mut branches = std::mem::take(&mut bench.branches);
        branches.extend(Round::new(self, session, bench, &mut jobs).run().await?);
        if jobs.iter().any(|job| matches!(job.plan, Plan::Wait)) {
            (bench.turn, bench.branches) = (Some(turn), branches);
            return self.await_answer(session, bench).await;
        }
        let brought = self.take_in(session, &jobs, branches).await?;
        for (at, Job { call, plan, .. }) in jobs.into_iter().enumerate() {
            if let Plan::Say { text, failed: true } | Plan::Refuse { text, .. } = &plan {
                bench.tell(session, || Event::CallRefused { tool: call.tool.clone(), why: text.clone() });
            }
            let (finished, shown, failed, policy) = match plan {
                Plan::Say { text, failed } => (None, Some(text.into()), failed, None),
                Plan::Refuse { text, by } => (None, Some(text.into()), true, by),
                Plan::Report(finished, failed) => {
                    let told =
                        brought.iter().find(|brought| brought.at == at).and_then(|brought| brought.told(session));
                    let shown = match told {
                        Some(told) => Some(with_words(session, finished, &told).await?.into()),
                        None => None,
                    };
                    (Some(finished), shown, failed, None)
                }
                Plan::Wait | Plan::Make(_) => continue,
            };
            session.append(ToolResult { call: call.id, finished, shown, failed, policy })?;
        }
        Ok(())
    }

    /// What a call does with the files. One that works on a branch begins with a copy of them.
    fn touches(&self, tool: &str) -> Touches {
        let spec = self.tools.iter().map(|known| known.spec()).find(|spec| spec.name == tool);
        match spec {
            Some(spec) if spec.branches && spec.touches == Touches::Nothing => Touches::Reads,
            Some(spec) => spec.touches,
            None => Touches::Nothing,
        }
    }
}

/// The arguments of a call, as the model wrote them.
async fn arguments_of(session: &Session, turn: &Assistant, call: &str) -> Result<String> {
    let found = turn.blocks.iter().find_map(|block| match block {
        Block::ToolUse { id, arguments, .. } if id == call => Some(arguments),
        _ => None,
    });
    match found {
        Some(Content::Text(text)) => Ok(text.clone()),
        Some(blob) => session.view().await?.content(blob).await,
        None => Ok(String::new()),
    }
}
