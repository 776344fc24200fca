//! One call, from its `tool_started` to its `tool_finished`.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use rath_core::body::{CallOutcome, Effect, Output, SHOWN, ToolFinished, ToolStarted};
use rath_core::files::{Change, Changes, Version};
use rath_core::store::{BoxFuture, Scan};
use rath_core::{
    Blob, BoxTool, Call, Cancel, Captured, Digest, Error, ErrorKind, Evidence, INLINE_LIMIT, Kind, OpenCall, RecordId,
    Reply, Result, Session, Time, Touches,
};

use super::Agent;
use super::drive::Bench;
use super::event::Event;
use super::plan::{Make, Plan};
use super::round::Job;
use super::sub::Branch;
use crate::Workshop;
use crate::pause::pause;
use crate::tools::{Busy, Desk, Permit};
use crate::workshop::{self, Before};

/// How long a call that was told to stop may take to do so.
const GRACE: Duration = Duration::from_secs(10);

/// The stream that a tool's text is.
const RESULT: &str = "result";

/// A call that was started.
pub(super) struct Running {
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) effect: Effect,
    made: BoxTool,
    call: Call,
    began: Time,
    /// The files before it, where it may write.
    before: Option<Version>,
    isolated: Option<bool>,
    branch: Option<Arc<Branch>>,
}

/// What came of it.
pub(super) struct Ended {
    pub(super) at: usize,
    reply: Reply,
    outcome: Option<CallOutcome>,
}

impl Agent {
    /// Puts the intent on the record. `None` when the call cannot be made: the plan then says what the model is shown.
    pub(super) async fn start(
        &self,
        session: &mut Session,
        bench: &mut Bench,
        job: &mut Job,
        cancel: Cancel,
    ) -> Result<Option<Running>> {
        let Plan::Make(Make { tool, arguments, attempt }) = &job.plan else { return Ok(None) };
        let (tool, arguments, attempt) = (tool.clone(), arguments.clone(), *attempt);
        let spec = tool.spec();
        let mut equipment = bench.equipment.clone();
        let mut before = None;
        if spec.touches != Touches::Nothing {
            let known = bench.desk.clone().filter(|_| spec.touches == Touches::Reads);
            let desk = match known {
                Some(desk) => desk,
                None => match self.open_desk(session, bench, spec.touches).await? {
                    Ok((desk, found)) => {
                        before = found;
                        desk
                    }
                    Err(text) => {
                        job.plan = Plan::Say { text, failed: true };
                        return Ok(None);
                    }
                },
            };
            equipment = equipment.with(desk);
        }
        let placed = session.state().placement.as_ref();
        let isolated = match (&before, spec.touches) {
            (Some((before, _)), _) => Some(before.isolated),
            (None, Touches::Nothing) => None,
            (None, _) => placed.map(|placement| placement.isolated),
        };
        let effect = spec_effect(&tool, isolated.unwrap_or(true));
        let (version, outside) = match before {
            Some((Before { version, outside, isolated, .. }, busy)) => {
                let outside = match busy.ids.is_empty() {
                    true => Changes::of(outside),
                    false => {
                        changed_beside(session, &busy.ids, isolated, &version, outside)?;
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
        let key = key(session, job, attempt);
        session.append(ToolStarted {
            call: job.call.id.clone(),
            tool: job.call.tool.clone(),
            arguments: None,
            effect,
            attempt,
            isolated,
            workspace: version.clone(),
            outside,
        })?;
        let mut branch = None;
        if spec.branches {
            let lent = self.lend(session, bench, &job.call).await?;
            equipment = equipment.with(lent.clone());
            branch = Some(lent);
        }
        let call =
            Call { id: job.call.id.clone(), tool: job.call.tool.clone(), arguments, key, attempt, cancel, equipment };
        Ok(Some(Running {
            id: job.call.id.clone(),
            tool: job.call.tool.clone(),
            effect,
            made: tool,
            call,
            began: Time::now(),
            before: version,
            isolated,
            branch,
        }))
    }

    /// The branch for a call to work on. Where none can be made, neither is the call.
    async fn lend(&self, session: &mut Session, bench: &Bench, call: &OpenCall) -> Result<Arc<Branch>> {
        match self.branch_for(session, bench, call).await {
            Ok(mut branch) => {
                branch.equip_shared(bench.late.clone());
                Ok(Arc::new(Branch::new(branch)))
            }
            Err(error) => {
                if !error.leaves_the_run_open() {
                    session.append(not_made(&call.id, &error))?;
                }
                Err(error)
            }
        }
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
        // What ended since the last call has changed files that nobody looked at.
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
                    None if bench.resumed => desk.after(&remarks_in_step(session).await?),
                    None => desk,
                })
            }
        };
        bench.desk = Some(desk.clone());
        // What another process left has ended.
        let busy = busy.unwrap_or_else(|| desk.busy());
        Ok(Ok((desk, (touches == Touches::Writes).then_some((before, busy)))))
    }

    /// Puts on the record what came of a call.
    pub(super) async fn finish(
        &self,
        session: &mut Session,
        bench: &Bench,
        call: Running,
        ended: Ended,
    ) -> Result<(RecordId, bool, Option<Session>)> {
        let Reply { text, failed, evidence } = ended.reply;
        let evidence = evidence.map(|evidence| *evidence).unwrap_or_default();
        let outcome = ended.outcome.or(evidence.outcome);
        let outcome = outcome.unwrap_or(if failed { CallOutcome::Failed } else { CallOutcome::Done });
        let mut finished = ToolFinished::new(&call.id, outcome);
        let Evidence { outcome: _, exit, streams, order, effects, left_behind, refused, beyond, remarks } = evidence;
        finished.output = outputs(session, text, streams).await?;
        finished.exit = exit;
        finished.order = order;
        finished.effects = effects;
        finished.left_behind = left_behind;
        finished.refused = refused;
        finished.beyond = beyond;
        finished.remarks = remarks;
        finished.duration_us = Some(Time::now().micros_since(call.began));
        finished.isolated = call.isolated;
        if let Some(desk) = &bench.desk {
            let beside: Vec<_> = desk.beside().into_iter().filter(|live| *live != finished.call).collect();
            if !beside.is_empty() && call.before.is_some() {
                finished.remarks.push(format!("changes may be of calls in the background too: {}", beside.join(", ")));
            }
        }
        let mut workshop = None;
        if let Some(before) = &call.before {
            let found = bench.equipment.get::<Workshop>().map_err(|missing| ErrorKind::Workflow(missing.into()))?;
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
        let failed = outcome != CallOutcome::Done;
        bench.tell(session, || Event::CallFinished { tool: call.tool.clone(), finished: Box::new(finished.clone()) });
        let record = session.append(finished)?;
        if let Some(workshop) = workshop {
            workshop.noted(session).map_err(of_workshop)?;
        }
        Ok((record, failed, call.branch()))
    }
}

impl Running {
    pub(super) fn arguments(&self) -> &str {
        &self.call.arguments
    }

    /// Why the work on its branch could not go on, where that says nothing about the work.
    pub(super) fn left_open(&self) -> Option<Error> {
        self.branch.as_ref().and_then(|branch| branch.left_open())
    }

    /// Whether it works on a branch, and the branch waits for a person.
    pub(super) fn waits(&self) -> bool {
        self.branch.as_ref().is_some_and(|branch| branch.waits())
    }

    /// The branch that it worked on.
    pub(super) fn branch(&self) -> Option<Session> {
        self.branch.as_ref().and_then(|branch| branch.take_back())
    }

    /// Sets the call going.
    pub(super) fn begin(&self, at: usize, alone: bool) -> BoxFuture<'static, Ended> {
        let (tool, call) = (self.made.clone(), self.call.clone());
        let working = async move {
            let (cancel, timeout) = (call.cancel.clone(), tool.spec().timeout);
            let working = AssertUnwindSafe(async { tool.call(&call).await }).catch_unwind();
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
                    Ok(reply) if cancel.is_cancelled() && reply.failed => (reply, Some(CallOutcome::Cancelled)),
                    Ok(reply) => (reply, None),
                    Err(panic) => (Reply::failed(format!("The tool broke down: {}", words_of(&*panic))), None),
                },
                () = late => {
                    let seconds = timeout.unwrap_or_default().as_secs_f64();
                    (Reply::failed(format!("The call was stopped after {seconds} s.")), Some(CallOutcome::TimedOut))
                }
                () = stop => (Reply::failed("The call was stopped."), Some(CallOutcome::Cancelled)),
            }
        };
        // Alone it runs here; several run on whatever threads there are.
        match tokio::runtime::Handle::try_current() {
            Ok(handle) if !alone => {
                let task = Stopping(handle.spawn(working));
                Box::pin(async move {
                    let (reply, outcome) = match task.await {
                        Ok(done) => done,
                        Err(why) => (Reply::failed(format!("The tool broke down: {why}")), None),
                    };
                    Ended { at, reply, outcome }
                })
            }
            _ => Box::pin(async move {
                let (reply, outcome) = working.await;
                Ended { at, reply, outcome }
            }),
        }
    }
}

/// A task that ends with whoever waits for it.
struct Stopping<T>(tokio::task::JoinHandle<T>);

impl<T> Future for Stopping<T> {
    type Output = std::result::Result<T, tokio::task::JoinError>;
    fn poll(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for Stopping<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(super) fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".into())
}

/// Puts on the record what changed while commands ran in the background: of them all, because nobody knows of which.
pub(super) fn changed_beside(
    session: &mut Session,
    busy: &[String],
    isolated: bool,
    version: &Version,
    changed: Vec<Change>,
) -> Result<()> {
    if changed.is_empty() {
        return Ok(());
    }
    let call = format!("beside-{}", session.head().seq + 1);
    session.append(ToolStarted {
        call: call.clone(),
        tool: "shell".into(),
        arguments: None,
        effect: Effect::Workspace,
        attempt: 1,
        isolated: Some(isolated),
        workspace: session.state().workspace.clone(),
        outside: Changes::default(),
    })?;
    let mut finished = ToolFinished::new(call, CallOutcome::Done);
    finished.isolated = Some(isolated);
    finished.workspace = Some(version.clone());
    finished.changed = Changes::of(changed);
    finished.remarks.push(format!("changed while {} ran in the background", busy.join(", ")));
    session.append(finished)?;
    Ok(())
}

/// What calls of the open step left as remarks, oldest first.
async fn remarks_in_step(session: &Session) -> Result<Vec<String>> {
    let entered = session.state().steps.last().map_or(0, |step| step.generation);
    let mut remarks = Vec::new();
    let mut to = session.head().seq;
    loop {
        let scan = Scan::session(session.id(), 0, to).kinds(&[Kind::ToolFinished]).backwards();
        let page = session.store().scan(scan).await?;
        let in_step = page.records.iter().take_while(|record| record.generation() > entered);
        let mut count = 0;
        for record in in_step {
            count += 1;
            // Of what was erased nothing is known.
            let finished = record.body::<ToolFinished>().ok();
            remarks.extend(finished.into_iter().flat_map(|finished| finished.remarks.into_iter().rev()));
        }
        if !page.more || count < page.records.len() {
            remarks.reverse();
            return Ok(remarks);
        }
        to = page.position;
    }
}

/// The key of a call: the same when it is made again after a crash, and on no other call.
fn key(session: &Session, job: &Job, attempt: u32) -> Digest {
    let step = session.state().steps.last().map(|step| step.key.hex().as_str().to_owned()).unwrap_or_default();
    Digest::of_parts(&[
        session.id().to_string().as_bytes(),
        step.as_bytes(),
        job.call.record.to_string().as_bytes(),
        job.call.id.as_bytes(),
        &attempt.to_be_bytes(),
    ])
}

/// The streams of a call as they are recorded: short ones in place, long ones as blobs.
async fn outputs(session: &Session, text: String, streams: Vec<Captured>) -> Result<Vec<Output>> {
    if streams.is_empty() {
        return Ok(match text.len() {
            0 => Vec::new(),
            _ => vec![output(session, RESULT, text.into_bytes(), None).await?],
        });
    }
    let mut outputs = Vec::with_capacity(streams.len() + 1);
    let said_by_streams = match streams.as_slice() {
        [one] => one.bytes == text.as_bytes(),
        _ => false,
    };
    for Captured { stream, bytes, cut_from } in streams {
        if !bytes.is_empty() {
            outputs.push(output(session, &stream, bytes, cut_from).await?);
        }
    }
    if !said_by_streams {
        outputs.push(output(session, SHOWN, text.into_bytes(), None).await?);
    }
    Ok(outputs)
}

async fn output(session: &Session, stream: &str, bytes: Vec<u8>, cut_from: Option<u64>) -> Result<Output> {
    let stream = stream.to_owned();
    match String::from_utf8(bytes) {
        Ok(text) if text.len() <= INLINE_LIMIT => Ok(Output { stream, text: Some(text), blob: None, cut_from }),
        other => {
            let (bytes, media_type) = match other {
                Ok(text) => (text.into_bytes(), "text/plain; charset=utf-8"),
                Err(error) => (error.into_bytes(), "application/octet-stream"),
            };
            let blob = Blob::new(bytes, media_type);
            let reference = blob.reference.clone();
            session.store().blob_put(vec![blob]).await?;
            Ok(Output { stream, text: None, blob: Some(reference), cut_from })
        }
    }
}

/// The end of a call that is on the record as started, and never was.
pub(super) fn not_made(call: &str, error: &Error) -> ToolFinished {
    let mut finished = ToolFinished::new(call, CallOutcome::Cancelled);
    finished.output.push(in_words("The call was not made."));
    finished.remarks.push(format!("it could not begin: {error}"));
    finished
}

/// What can be done about a call of which nobody knows whether it happened: the less safe of the tool's and the place's.
pub(super) fn spec_effect(tool: &BoxTool, isolated: bool) -> Effect {
    // What a command does outside the files can be taken back only where it cannot get there.
    match tool.spec().effect {
        Effect::Workspace if !isolated => Effect::Irreversible,
        effect => effect,
    }
}

/// Words as a call's whole output.
pub(super) fn in_words(words: &str) -> Output {
    Output { stream: RESULT.into(), text: Some(words.into()), blob: None, cut_from: None }
}

/// An error of the workshop as one of the run.
pub(super) fn of_workshop(error: workshop::Error) -> Error {
    match error {
        workshop::Error::Session(error) => error,
        error => ErrorKind::Coded { code: error.code().into(), why: Box::new(error) }.into(),
    }
}
