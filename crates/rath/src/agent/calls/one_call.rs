//! One call: on the record as started, made, and on the record as finished.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use rath_core::body::{About, Asked, CallOutcome, Effect, ToolFinished, ToolStarted};
use rath_core::files::{Changes, Version};
use rath_core::store::{BoxFuture, Scan};
use rath_core::{
    BoxTool, Call, CallBranch, Cancel, Digest, Error, Kind, OpenCall, RecordId, Result, Session, Then, ToolOutcome,
    ToolSpec, Touches,
};

use super::super::Agent;
use super::super::drive::{Bench, of_workshop};
use super::super::event::Event;
use super::ScheduledCall;
use super::decide::{Execution, Plan};
use crate::Workshop;
use crate::pause::pause;
use crate::recorder::{self, CallRecord};
use crate::tools::{Busy, Desk, Kept, Permit};
use crate::workshop::{self, Before};

/// How long a call that was told to stop may take to do so.
const GRACE: Duration = Duration::from_secs(10);

/// A call that is on the record as started.
pub(super) struct InFlightCall {
    tool: BoxTool,
    call: Call,
    effect: Effect,
    record: CallRecord,
    /// The files before it, where it may write.
    before: Option<Version>,
    branch: Option<Arc<CallBranch>>,
    /// Where it works on files.
    desk: Option<Arc<Desk>>,
}

/// How a call ended.
pub(super) struct CallEnd {
    /// The place of the call.
    pub(super) at: usize,
    pub(super) outcome: ToolOutcome,
    /// How it ended, where the tool did not decide that.
    stopped: Option<CallOutcome>,
}

/// A call that is on the record as finished.
pub(super) struct FinishedCall {
    pub(super) record: RecordId,
    pub(super) failed: bool,
    /// Whether it asked a person.
    pub(super) asks: bool,
    /// The branch that it worked on.
    pub(super) branch: Option<Session>,
}

impl Agent {
    /// Records that a call starts. `None` if it cannot: the plan then says what the model is shown.
    pub(super) async fn start_call(
        &self,
        session: &mut Session,
        bench: &mut Bench,
        scheduled: &mut ScheduledCall,
        cancel: Cancel,
    ) -> Result<Option<InFlightCall>> {
        let Plan::Make(Execution { tool, arguments, attempt }) = &scheduled.plan else { return Ok(None) };
        let (tool, arguments, attempt) = (tool.clone(), arguments.clone(), *attempt);
        let spec = tool.spec();
        let (mut before, mut desk) = (None, None);
        if spec.touches != Touches::Nothing {
            let known = bench.desk.clone().filter(|_| spec.touches == Touches::Reads);
            desk = match known {
                Some(known) => Some(known),
                None => match self.open_desk(session, bench, spec.touches).await? {
                    Ok((opened, found)) => {
                        before = found;
                        Some(opened)
                    }
                    Err(text) => {
                        scheduled.plan = Plan::Say { text, failed: true, finished: None };
                        return Ok(None);
                    }
                },
            };
        }
        let placed = session.state().placement.as_ref();
        let isolated = match (&before, spec.touches) {
            (Some((before, _)), _) => Some(before.isolated),
            (None, Touches::Nothing) => None,
            (None, _) => placed.map(|placement| placement.isolated),
        };
        let effect = less_safe(&tool, isolated.unwrap_or(true));
        let (before, outside) = match before {
            Some((Before { version, outside, isolated, .. }, busy)) => {
                let outside = match busy.ids.is_empty() {
                    true => Changes::of(outside),
                    false => {
                        recorder::changes_in_background(session, &busy.ids, isolated, &version, outside)?;
                        Changes::default()
                    }
                };
                if let Some(desk) = &bench.desk {
                    desk.looked_at(&busy);
                }
                (Some(version), outside)
            }
            None => (None, Changes::default()),
        };
        let id = &scheduled.call.id;
        let key = key(session, &scheduled.call, attempt);
        let started = ToolStarted::new(id, &spec.name, effect);
        let started = ToolStarted { attempt, isolated, workspace: before.clone(), outside, ..started };
        let record = CallRecord::start(session, started)?;
        let mut equipment = bench.equipment.clone();
        if let Some(desk) = &desk {
            equipment = equipment.with(desk.clone());
        }
        let mut branch = None;
        if spec.branches {
            let made = match self.fork_for_call(session, bench, &scheduled.call).await {
                Ok(made) => made,
                Err(error) => {
                    if !error.leaves_the_run_open() {
                        session.append(not_started(id, &error))?;
                    }
                    return Err(error);
                }
            };
            let slot = Arc::new(CallBranch::new(made));
            equipment = equipment.with(slot.clone());
            branch = Some(slot);
        }
        let call = Call { id: id.clone(), tool: spec.name.clone(), arguments, key, attempt, cancel, equipment };
        Ok(Some(InFlightCall { tool, call, effect, record, before, branch, desk }))
    }

    /// Where workspace tools work; in words for the model, why there is no such place.
    async fn open_desk(
        &self,
        session: &mut Session,
        bench: &mut Bench,
        touches: Touches,
    ) -> Result<Result<(Arc<Desk>, Option<(Before, Busy)>), String>> {
        let workshop = match bench.equipment.get::<Workshop>() {
            Ok(workshop) => workshop,
            Err(missing) => return Ok(Err(missing.to_string())),
        };
        // What ended since the last call has changed files that no call has looked at.
        let busy = bench.desk.as_ref().map(|desk| desk.busy());
        let quiet = busy.as_ref().is_none_or(|busy| busy.ids.is_empty());
        let before = match workshop.before_call(session, quiet).await {
            Ok(before) => before,
            Err(workshop::Error::NotPlaced(_)) => {
                return Ok(Err("This session has no files: it was not placed anywhere.".into()));
            }
            Err(error) => return Err(of_workshop(error)),
        };
        let same = bench.desk.as_ref().filter(|desk| Arc::ptr_eq(desk.sandbox(), &before.sandbox));
        let desk = match same {
            Some(desk) => desk.clone(),
            None => {
                let desk = Desk::new(before.sandbox.clone(), Some(before.appears_at.clone()));
                let rules = self.rules.clone().map(Arc::new).into_iter().chain(bench.house.clone());
                let desk = desk.with_ceiling(before.ceiling.clone()).with_permit(Permit::of(rules));
                Arc::new(match &bench.desk {
                    // Its sandbox is lost, with what ran there.
                    Some(lost) => desk.instead_of(lost).await,
                    None if bench.resumed => desk.after(&kept_in_step(session).await?),
                    None => desk,
                })
            }
        };
        bench.desk = Some(desk.clone());
        // What another process left has ended.
        let busy = busy.unwrap_or_else(|| desk.busy());
        Ok(Ok((desk, (touches == Touches::Writes).then_some((before, busy)))))
    }

    /// Records what came of a call.
    pub(super) async fn finish_call(
        &self,
        session: &mut Session,
        bench: &Bench,
        call: InFlightCall,
        end: CallEnd,
    ) -> Result<FinishedCall> {
        let mut outcome = self.checked(end.outcome);
        let branch = outcome.branch.take().or_else(|| call.branch.as_ref().and_then(|slot| slot.take()));
        let mut evidence = outcome.evidence.take().map(|evidence| *evidence).unwrap_or_default();
        let how = end.stopped.or(evidence.outcome.take());
        let how = how.unwrap_or(if outcome.failed { CallOutcome::Failed } else { CallOutcome::Done });
        let failed = how != CallOutcome::Done;
        let asks = !failed && outcome.then == Then::Ask;
        if asks {
            let question = Asked::new(About::Question, Some(call.call.id.clone()), outcome.text());
            self.ask(session, bench, question)?;
            outcome.content.clear();
        }
        let mut finished = call.record.end(&**session.store(), how, &outcome.content, evidence).await?;
        if let (false, Then::HandOff(to)) = (failed, outcome.then) {
            finished.hand_off = Some(to);
        }
        if let Some(desk) = &bench.desk {
            let beside: Vec<_> = desk.beside().into_iter().filter(|live| *live != finished.call).collect();
            if !beside.is_empty() && call.before.is_some() {
                finished.remarks.push(format!("changes may be of calls in the background too: {}", beside.join(", ")));
            }
        }
        let mut workshop = None;
        if let Some(before) = &call.before {
            let found = bench.workshop()?;
            match found.after_call(session, before).await {
                Ok(after) => {
                    finished.workspace = Some(after.version);
                    finished.changed = Changes::of(after.changed);
                    finished.remarks.extend(after.remarks);
                }
                Err(error) => {
                    // How it ended is known even where its files cannot be.
                    finished.remarks.push(format!("the files were not saved: {error}"));
                    session.append(finished)?;
                    let _ = session.publish().await;
                    return Err(of_workshop(error));
                }
            }
            workshop = Some(found);
        }
        let tool = &call.call.tool;
        bench.tell(session, || Event::CallFinished { tool: tool.clone(), finished: Box::new(finished.clone()) });
        let record = session.append(finished)?;
        if let Some(workshop) = workshop {
            workshop.noted(session).map_err(of_workshop)?;
        }
        Ok(FinishedCall { record, failed, asks, branch })
    }

    /// An outcome that hands off to an agent which is not known is a failure.
    fn checked(&self, outcome: ToolOutcome) -> ToolOutcome {
        match &outcome.then {
            Then::HandOff(to) if !self.hand_offs.iter().any(|(name, _)| name == to) => {
                let known: Vec<&str> = self.hand_offs.iter().map(|(name, _)| name.as_str()).collect();
                let known = if known.is_empty() { "nobody".to_owned() } else { known.join(", ") };
                let text = format!("Cannot hand off to {to:?}: this agent hands off to {known}.");
                ToolOutcome { branch: outcome.branch, evidence: outcome.evidence, ..ToolOutcome::failed(text) }
            }
            _ => outcome,
        }
    }
}

impl InFlightCall {
    pub(super) fn id(&self) -> &str {
        &self.call.id
    }

    pub(super) fn event(&self) -> Event {
        let Call { id, tool, arguments, .. } = &self.call;
        Event::CallStarted { id: id.clone(), tool: tool.clone(), arguments: arguments.clone() }
    }

    pub(super) fn effect(&self) -> Effect {
        self.effect
    }

    /// Records that the call did not start after all.
    pub(super) fn did_not_start(&self, session: &mut Session, error: &Error) -> Result<RecordId> {
        session.append(not_started(self.id(), error))
    }

    /// Calls the tool: until it ends, its time is over, or the grace after a stop is over.
    pub(super) fn run(&self, at: usize, alone: bool) -> BoxFuture<'static, CallEnd> {
        let (tool, call) = (self.tool.clone(), self.call.clone());
        let (desk, effect) = (self.desk.clone(), self.effect);
        let working = async move {
            let (cancel, timeout) = (call.cancel.clone(), tool.spec().timeout);
            let working = AssertUnwindSafe(call_tool(&tool, &call, desk, effect)).catch_unwind();
            let stop = async {
                cancel.cancelled().await;
                pause(GRACE).await;
            };
            let late = async {
                match timeout {
                    Some(timeout) => pause(timeout).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                done = working => match done {
                    // What succeeded in spite of it has happened.
                    Ok(outcome) if cancel.is_cancelled() && outcome.failed => (outcome, Some(CallOutcome::Cancelled)),
                    Ok(outcome) => (outcome, None),
                    Err(panic) => (broke_down(panic_message(&*panic)), None),
                },
                () = late => {
                    let seconds = timeout.unwrap_or_default().as_secs_f64();
                    let text = format!("The call was stopped after {seconds} s.");
                    (ToolOutcome::failed(text), Some(CallOutcome::TimedOut))
                }
                () = stop => (ToolOutcome::failed("The call was stopped."), Some(CallOutcome::Cancelled)),
            }
        };
        // One call runs here; several run on whatever threads there are.
        match tokio::runtime::Handle::try_current() {
            Ok(handle) if !alone => {
                let task = AbortOnDrop(handle.spawn(working));
                Box::pin(async move {
                    let (outcome, stopped) = match task.await {
                        Ok(done) => done,
                        Err(why) => (broke_down(why), None),
                    };
                    CallEnd { at, outcome, stopped }
                })
            }
            _ => Box::pin(async move {
                let (outcome, stopped) = working.await;
                CallEnd { at, outcome, stopped }
            }),
        }
    }
}

/// Calls the tool, unless the rules forbid what its paths lead to.
async fn call_tool(tool: &BoxTool, call: &Call, desk: Option<Arc<Desk>>, effect: Effect) -> ToolOutcome {
    let spec: &ToolSpec = tool.spec();
    if let Some(desk) = desk
        && let Err(why) = desk.check_links(spec, effect, &call.arguments).await
    {
        return ToolOutcome::failed(why);
    }
    tool.call(call).await
}

fn broke_down(why: impl std::fmt::Display) -> ToolOutcome {
    ToolOutcome::failed(format!("The tool broke down: {why}"))
}

/// A task that is aborted when the future that waits for it is dropped.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Future for AbortOnDrop<T> {
    type Output = std::result::Result<T, tokio::task::JoinError>;
    fn poll(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(super) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".into())
}

/// What calls of the open step left running or unread, oldest first.
async fn kept_in_step(session: &Session) -> Result<Vec<Kept>> {
    let entered = session.state().steps.last().map_or(0, |step| step.generation);
    let mut kept = Vec::new();
    let mut to = session.head().seq;
    loop {
        let scan = Scan::session(session.id(), 0, to).kinds(&[Kind::ToolFinished]).backwards();
        let page = session.store().scan(scan).await?;
        let in_step = page.records.iter().take_while(|record| record.generation() > entered);
        let mut count = 0;
        for record in in_step {
            count += 1;
            // An erased body says nothing.
            kept.extend(record.body::<ToolFinished>().ok().map(|finished| Kept::of(&finished)));
        }
        if !page.more || count < page.records.len() {
            kept.reverse();
            return Ok(kept);
        }
        to = page.position;
    }
}

/// The key of a call: the same when it is made again after a crash, and on no other call.
fn key(session: &Session, call: &OpenCall, attempt: u32) -> Digest {
    let step = session.state().steps.last().map(|step| step.key.hex().as_str().to_owned()).unwrap_or_default();
    Digest::of_parts(&[
        session.id().to_string().as_bytes(),
        step.as_bytes(),
        call.record.to_string().as_bytes(),
        call.id.as_bytes(),
        &attempt.to_be_bytes(),
    ])
}

/// The end of a call that is on the record as started, and never was.
fn not_started(call: &str, error: &Error) -> ToolFinished {
    let remark = format!("it could not begin: {error}");
    recorder::closed(call, CallOutcome::Cancelled, Some("The call was not made."), remark)
}

/// How to recover the call if its outcome is unknown: the less safe of the tool's effect and the place's.
pub(super) fn less_safe(tool: &BoxTool, isolated: bool) -> Effect {
    // What a command does outside the files can be taken back only where it cannot get there.
    match tool.spec().effect {
        Effect::Workspace if !isolated => Effect::Irreversible,
        effect => effect,
    }
}
