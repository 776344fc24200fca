//! One tool call: recording its start, calling the tool, and recording its end.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use rath_core::body::{Asked, CallOutcome, Effect, QuestionKind, ToolFinished, ToolStarted};
use rath_core::files::{Changes, Version};
use rath_core::store::{BoxFuture, Scan};
use rath_core::{
    BoxTool, Call, CallBranch, Cancel, Digest, Error, FileAccess, FollowUp, Kind, OpenCall, RecordId, Result, Session,
    ToolOutcome, ToolSpec,
};

use super::super::Agent;
use super::super::drive::{StepContext, workspace_error};
use super::super::event::Event;
use super::ScheduledCall;
use super::decide::{Execution, Plan};
use crate::Workspaces;
use crate::recorder::{self, CallRecord};
use crate::sleep::sleep;
use crate::tools::{DirtyCommands, PathPolicy, RetainedByCall, ToolWorkspace};
use crate::workspaces::{self, BeforeCall};

/// The time that a cancelled call may take to stop.
const GRACE: Duration = Duration::from_secs(10);

/// A call whose start is recorded.
pub(super) struct InFlightCall {
    tool: BoxTool,
    call: Call,
    effect: Effect,
    record: CallRecord,
    /// The version before the call, if the call may write files.
    before: Option<Version>,
    branch: Option<Arc<CallBranch>>,
    /// The workspace, if the call uses files.
    tool_workspace: Option<Arc<ToolWorkspace>>,
}

/// How a call ended.
pub(super) struct CallEnd {
    /// The index of the call.
    pub(super) at: usize,
    pub(super) outcome: ToolOutcome,
    /// The outcome, if the call was stopped.
    stopped: Option<CallOutcome>,
}

/// A call whose end is recorded.
pub(super) struct FinishedCall {
    pub(super) record: RecordId,
    pub(super) failed: bool,
    /// Whether the tool asked a question.
    pub(super) asks: bool,
    /// The branch that the tool worked on.
    pub(super) branch: Option<Session>,
}

impl Agent {
    /// Records the start of a call. Returns `None` if it cannot start; the plan is then the text for the model.
    pub(super) async fn start_call(
        &self,
        session: &mut Session,
        context: &mut StepContext,
        scheduled: &mut ScheduledCall,
        cancel: Cancel,
    ) -> Result<Option<InFlightCall>> {
        let Plan::Make(Execution { tool, arguments, attempt }) = &scheduled.plan else { return Ok(None) };
        let (tool, arguments, attempt) = (tool.clone(), arguments.clone(), *attempt);
        let spec = tool.spec();
        let (mut before, mut tool_workspace) = (None, None);
        if spec.file_access != FileAccess::Nothing {
            let known = context.tool_workspace.clone().filter(|_| spec.file_access == FileAccess::Reads);
            tool_workspace = match known {
                Some(known) => Some(known),
                None => match self.open_tool_workspace(session, context, spec.file_access).await? {
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
        let isolated = match (&before, spec.file_access) {
            (Some((before, _)), _) => Some(before.isolated),
            (None, FileAccess::Nothing) => None,
            (None, _) => placed.map(|placement| placement.isolated),
        };
        let effect = less_safe(&tool, isolated.unwrap_or(true));
        let (before, outside) = match before {
            Some((BeforeCall { version, outside, isolated, .. }, dirty)) => {
                let outside = match dirty.ids.is_empty() {
                    true => Changes::of(outside),
                    false => {
                        recorder::changes_in_background(session, &dirty.ids, isolated, &version, outside)?;
                        Changes::default()
                    }
                };
                if let Some(tool_workspace) = &context.tool_workspace {
                    tool_workspace.mark_saved(&dirty);
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
        let mut resources = context.resources.clone();
        if let Some(tool_workspace) = &tool_workspace {
            resources = resources.with(tool_workspace.clone());
        }
        let mut branch = None;
        if spec.branches {
            let made = match self.fork_for_call(session, context, &scheduled.call).await {
                Ok(made) => made,
                Err(error) => {
                    if !error.leaves_the_run_open() {
                        session.append(not_started(id, &error))?;
                    }
                    return Err(error);
                }
            };
            let slot = Arc::new(CallBranch::new(made));
            resources = resources.with(slot.clone());
            branch = Some(slot);
        }
        let call = Call { id: id.clone(), tool: spec.name.clone(), arguments, key, attempt, cancel, resources };
        Ok(Some(InFlightCall { tool, call, effect, record, before, branch, tool_workspace }))
    }

    /// Opens the workspace for a call. The inner error is for the model.
    async fn open_tool_workspace(
        &self,
        session: &mut Session,
        context: &mut StepContext,
        file_access: FileAccess,
    ) -> Result<Result<(Arc<ToolWorkspace>, Option<(BeforeCall, DirtyCommands)>), String>> {
        let workspaces = match context.resources.get::<Workspaces>() {
            Ok(workspaces) => workspaces,
            Err(missing) => return Ok(Err(missing.to_string())),
        };
        // Background commands that ended since the last call may have unsaved changes.
        let dirty = context.tool_workspace.as_ref().map(|tool_workspace| tool_workspace.dirty());
        let quiet = dirty.as_ref().is_none_or(|dirty| dirty.ids.is_empty());
        let before = match workspaces.before_call(session, quiet).await {
            Ok(before) => before,
            Err(workspaces::Error::NotPlaced(_)) => {
                return Ok(Err("This session has no workspace, so it has no files.".into()));
            }
            Err(error) => return Err(workspace_error(error)),
        };
        let same = context
            .tool_workspace
            .as_ref()
            .filter(|tool_workspace| Arc::ptr_eq(tool_workspace.sandbox(), &before.sandbox));
        let tool_workspace = match same {
            Some(tool_workspace) => tool_workspace.clone(),
            None => {
                let tool_workspace = ToolWorkspace::new(before.sandbox.clone(), Some(before.mount_path.clone()));
                let rules = self.policy.clone().map(Arc::new).into_iter().chain(context.session_policy.clone());
                let tool_workspace =
                    tool_workspace.with_ceiling(before.ceiling.clone()).with_path_policy(PathPolicy::of(rules));
                Arc::new(match &context.tool_workspace {
                    // The old sandbox is lost, with its background commands.
                    Some(lost) => tool_workspace.instead_of(lost).await,
                    None if context.resumed => tool_workspace.after(&retained_in_step(session).await?),
                    None => tool_workspace,
                })
            }
        };
        context.tool_workspace = Some(tool_workspace.clone());
        // Background commands of an earlier process have ended.
        let dirty = dirty.unwrap_or_else(|| tool_workspace.dirty());
        Ok(Ok((tool_workspace, (file_access == FileAccess::Writes).then_some((before, dirty)))))
    }

    /// Records the end of a call.
    pub(super) async fn finish_call(
        &self,
        session: &mut Session,
        context: &StepContext,
        call: InFlightCall,
        end: CallEnd,
    ) -> Result<FinishedCall> {
        let mut outcome = self.checked(end.outcome);
        let branch = outcome.branch.take().or_else(|| call.branch.as_ref().and_then(|slot| slot.take()));
        let mut evidence = outcome.evidence.take().map(|evidence| *evidence).unwrap_or_default();
        let how = end.stopped.or(evidence.outcome.take());
        let how = how.unwrap_or(if outcome.failed { CallOutcome::Failed } else { CallOutcome::Done });
        let failed = how != CallOutcome::Done;
        let asks = !failed && outcome.then == FollowUp::Ask;
        if asks {
            let question = Asked::new(QuestionKind::Question, Some(call.call.id.clone()), outcome.text());
            self.ask(session, context, question)?;
            outcome.content.clear();
        }
        let mut finished = call.record.end(&**session.store(), how, &outcome.content, evidence).await?;
        if let (false, FollowUp::HandOff(to)) = (failed, outcome.then) {
            finished.hand_off = Some(to);
        }
        if let Some(tool_workspace) = &context.tool_workspace {
            let beside: Vec<_> =
                tool_workspace.unsaved_calls().into_iter().filter(|live| *live != finished.call).collect();
            if !beside.is_empty() && call.before.is_some() {
                finished
                    .remarks
                    .push(format!("may include changes by background commands of calls {}", beside.join(", ")));
            }
        }
        let mut workspaces = None;
        if let Some(before) = &call.before {
            let found = context.workspaces()?;
            match found.after_call(session, before).await {
                Ok(after) => {
                    finished.workspace = Some(after.version);
                    finished.changed = Changes::of(after.changed);
                    finished.remarks.extend(after.remarks);
                }
                Err(error) => {
                    // The outcome is recorded even though the files could not be saved.
                    finished.remarks.push(format!("the files were not saved: {error}"));
                    session.append(finished)?;
                    let _ = session.publish().await;
                    return Err(workspace_error(error));
                }
            }
            workspaces = Some(found);
        }
        let tool = &call.call.tool;
        context.emit(session, || Event::CallFinished { tool: tool.clone(), finished: Box::new(finished.clone()) });
        let record = session.append(finished)?;
        if let Some(workspaces) = workspaces {
            workspaces.note_seen(session).map_err(workspace_error)?;
        }
        Ok(FinishedCall { record, failed, asks, branch })
    }

    /// Turns a hand-off to an unknown agent into a failure.
    fn checked(&self, outcome: ToolOutcome) -> ToolOutcome {
        match &outcome.then {
            FollowUp::HandOff(to) if !self.hand_offs.iter().any(|(name, _)| name == to) => {
                let known: Vec<&str> = self.hand_offs.iter().map(|(name, _)| name.as_str()).collect();
                let known = if known.is_empty() { "no other agent".to_owned() } else { known.join(", ") };
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

    /// Records that the tool was not called.
    pub(super) fn record_not_started(&self, session: &mut Session, error: &Error) -> Result<RecordId> {
        session.append(not_started(self.id(), error))
    }

    /// Calls the tool. The call ends when the tool returns, when its timeout expires, or 10 s after it was cancelled.
    pub(super) fn run(&self, at: usize, alone: bool) -> BoxFuture<'static, CallEnd> {
        let (tool, call) = (self.tool.clone(), self.call.clone());
        let (tool_workspace, effect) = (self.tool_workspace.clone(), self.effect);
        let working = async move {
            let (cancel, timeout) = (call.cancel.clone(), tool.spec().timeout);
            let working = AssertUnwindSafe(call_tool(&tool, &call, tool_workspace, effect)).catch_unwind();
            let stop = async {
                cancel.cancelled().await;
                sleep(GRACE).await;
            };
            let time_limit = async {
                match timeout {
                    Some(timeout) => sleep(timeout).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                done = working => match done {
                    // A call that succeeded despite the cancellation stays a success.
                    Ok(outcome) if cancel.is_cancelled() && outcome.failed => (outcome, Some(CallOutcome::Cancelled)),
                    Ok(outcome) => (outcome, None),
                    Err(panic) => (tool_panicked(panic_message(&*panic)), None),
                },
                () = time_limit => {
                    let seconds = timeout.unwrap_or_default().as_secs_f64();
                    let text = format!("The call was stopped after {seconds} s.");
                    (ToolOutcome::failed(text), Some(CallOutcome::TimedOut))
                }
                () = stop => (ToolOutcome::failed("The call was stopped."), Some(CallOutcome::Cancelled)),
            }
        };
        // A single call runs on this task; concurrent calls run on tasks of their own.
        match tokio::runtime::Handle::try_current() {
            Ok(handle) if !alone => {
                let task = AbortOnDrop(handle.spawn(working));
                Box::pin(async move {
                    let (outcome, stopped) = match task.await {
                        Ok(done) => done,
                        Err(why) => (tool_panicked(why), None),
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

/// Calls the tool, unless a policy forbids a file that its paths link to.
async fn call_tool(
    tool: &BoxTool,
    call: &Call,
    tool_workspace: Option<Arc<ToolWorkspace>>,
    effect: Effect,
) -> ToolOutcome {
    let spec: &ToolSpec = tool.spec();
    if let Some(tool_workspace) = tool_workspace
        && let Err(why) = tool_workspace.check_links(spec, effect, &call.arguments).await
    {
        return ToolOutcome::failed(why);
    }
    tool.call(call).await
}

fn tool_panicked(why: impl std::fmt::Display) -> ToolOutcome {
    ToolOutcome::failed(format!("The tool panicked: {why}"))
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

pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".into())
}

/// The state that calls of the open step left for later calls, oldest first.
async fn retained_in_step(session: &Session) -> Result<Vec<RetainedByCall>> {
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
            // The body may be erased.
            kept.extend(record.body::<ToolFinished>().ok().map(|finished| RetainedByCall::of(&finished)));
        }
        if !page.more || count < page.records.len() {
            kept.reverse();
            return Ok(kept);
        }
        to = page.position;
    }
}

/// The idempotency key of a call: equal when the call is repeated after a crash, and different for every other call.
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

/// The `tool_finished` of a call whose start is recorded but whose tool was not called.
fn not_started(call: &str, error: &Error) -> ToolFinished {
    let remark = format!("it could not start: {error}");
    recorder::closed(call, CallOutcome::Cancelled, Some("The call was not made."), remark)
}

/// The effect of a call: the less safe of the tool's own and the one that its placement implies.
pub(super) fn less_safe(tool: &BoxTool, isolated: bool) -> Effect {
    // Effects outside the files are ruled out only by isolation.
    match tool.spec().effect {
        Effect::Workspace if !isolated => Effect::Irreversible,
        effect => effect,
    }
}
