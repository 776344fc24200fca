//! Converts the records of a session to transcript entries.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rath_core::body::{
    Answered, Asked, Assistant, Block, Cancelled, Failed, Forked, Granted, Merged, ModelFailed, ModelResponded, Note,
    QuestionKind, Restored, Role, Sampled, StepEntered, StepLeft, System, ToolFinished, ToolResult, ToolStarted, User,
    Verdict,
};
use rath_core::store::Lookup;
use rath_core::{Content, Digest, Kind, Malformed, Record, RecordError, RecordId, Result, Store, Time, Usage, View};

use super::entry::MergedBranch;
use super::{ChangeSummary, Differences, EntryKind, Excerpt, Speaker, TranscriptEntry};
use crate::inspect::model_of;
use crate::inspect::steps::time_of;

/// A reader of the records of one session, in order.
pub struct Transcript {
    store: Arc<dyn Store>,
    differences: Differences,
    steps: Vec<Step>,
    calls: HashMap<String, Open>,
    /// Open questions, with their calls.
    asks: HashMap<RecordId, Option<String>>,
    /// Whether questions may have been asked before the first record.
    unknown_asks: bool,
    models: HashMap<Digest, Option<String>>,
    /// Calls that no model requested.
    by_hand: HashSet<String>,
}

/// An open step.
struct Step {
    record: RecordId,
    name: String,
    agent: bool,
    since: Time,
    turns: u64,
    usage: Usage,
}

/// A call that has no result yet.
struct Open {
    tool: String,
    /// Whether it was started and has not ended.
    running: bool,
    /// Whether its end was read.
    ended: bool,
}

/// The reason why an entry could not be made: a malformed record, or an error of the store.
enum Trouble {
    Record,
    Other(rath_core::Error),
}

impl From<RecordError> for Trouble {
    fn from(_: RecordError) -> Self {
        Self::Record
    }
}

impl From<Malformed> for Trouble {
    fn from(_: Malformed) -> Self {
        Self::Record
    }
}

impl From<rath_core::Error> for Trouble {
    fn from(error: rath_core::Error) -> Self {
        Self::Other(error)
    }
}

impl Transcript {
    /// Starts at the first record of a session.
    pub fn new(store: Arc<dyn Store>, differences: Differences) -> Self {
        let (steps, calls, asks) = (Vec::new(), HashMap::new(), HashMap::new());
        let (models, by_hand) = (HashMap::new(), HashSet::new());
        Self { store, differences, steps, calls, asks, unknown_asks: false, models, by_hand }
    }

    /// Starts after the record at `view`.
    pub async fn after(store: Arc<dyn Store>, differences: Differences, view: &View) -> Result<Self> {
        let mut transcript = Self::new(store, differences);
        let state = view.state();
        transcript.take_over(view).await?;
        for open in state.calls.iter().filter(|call| !call.inherited) {
            let running = open.started.is_some() && open.finished.is_none();
            let known = Open { tool: open.tool.clone(), running, ended: open.finished.is_some() };
            transcript.calls.insert(open.id.clone(), known);
        }
        transcript.asks = state.asks.iter().map(|ask| (ask.record, ask.call.clone())).collect();
        transcript.unknown_asks = true;
        Ok(transcript)
    }

    /// Adds the steps that are open at `view`, which finish in this session.
    async fn take_over(&mut self, view: &View) -> Result<()> {
        let state = view.state();
        for open in state.steps.iter().filter(|step| !step.inherited) {
            let entered = self.store.get(Lookup::Id(open.record)).await?;
            let Some(entered) = entered.first() else { continue };
            let before = View::of(&self.store, entered.session(), Some(entered.seq())).await?.usage();
            self.steps.push(Step {
                record: open.record,
                name: open.name.clone(),
                agent: open.run.is_some(),
                since: time_of(entered)?,
                turns: open.run.as_ref().map_or(0, |run| run.turns),
                usage: state.usage - before,
            });
        }
        Ok(())
    }

    /// The number of open steps.
    pub fn depth(&self) -> usize {
        self.steps.len()
    }

    /// The entries for the next record of the session.
    pub async fn read(&mut self, record: &Record) -> Result<Vec<TranscriptEntry>> {
        let time = time_of(record)?;
        match self.entries(record, time).await {
            Ok(entries) => Ok(entries),
            Err(Trouble::Record) => Ok(vec![self.entry(record, time, None, other(record, true))]),
            Err(Trouble::Other(error)) => Err(error),
        }
    }

    fn entry(&self, record: &Record, time: Time, call: Option<String>, what: EntryKind) -> TranscriptEntry {
        TranscriptEntry { at: record.point(), time, depth: self.steps.len(), call, what }
    }

    async fn entries(&mut self, record: &Record, time: Time) -> Result<Vec<TranscriptEntry>, Trouble> {
        let (mut call, store) = (None, self.store.clone());
        let what = match record.kind() {
            Kind::Created | Kind::ModelRequested => return Ok(Vec::new()),
            Kind::System => said(Speaker::System, record.body::<System>()?.text, Vec::new()),
            Kind::User => {
                let User { text, attached, .. } = record.body()?;
                said(Speaker::User, text, attached.iter().map(ToString::to_string).collect())
            }
            Kind::Note => said(Speaker::Note, record.body::<Note>()?.text, Vec::new()),
            Kind::Assistant => return self.turn(record, time),
            Kind::ModelResponded => {
                let ModelResponded { usage, latency_us, stop, .. } = record.body()?;
                self.steps.iter_mut().for_each(|step| step.usage += usage);
                let Some(step) = self.steps.last_mut() else { return Ok(Vec::new()) };
                step.turns += 1;
                EntryKind::TurnFinished { turn: step.turns, latency_us, usage, stop }
            }
            Kind::ModelFailed => {
                let ModelFailed { why, status, lost, retried, partial, .. } = record.body()?;
                let partial = partial.map(|partial| Excerpt::of_text(&partial.to_string()));
                EntryKind::ModelFailed { why, status, lost, retried, partial }
            }
            Kind::StepEntered => return Ok(vec![self.entered(record, time).await?]),
            Kind::StepLeft => match self.left(&record.body()?, time) {
                Some(left) => left,
                None => other(record, true),
            },
            Kind::ToolStarted => {
                let body: ToolStarted = record.body()?;
                call = Some(body.call.clone());
                self.started(body)
            }
            Kind::ToolFinished => {
                let finished: Box<ToolFinished> = Box::new(record.body()?);
                let tool = self.finished(&finished);
                call = Some(finished.call.clone());
                let changed = ChangeSummary::of(&store, &finished.changed, self.differences).await;
                let shown = excerpt(&store, finished.shown().as_ref()).await?;
                EntryKind::CallFinished { tool, finished, changed, shown }
            }
            Kind::ToolResult => {
                let body: ToolResult = record.body()?;
                let open = self.calls.remove(&body.call);
                if open.as_ref().is_some_and(|open| open.ended) && body.shown.is_none() {
                    return Ok(Vec::new());
                }
                let shown = excerpt(&store, body.shown.as_ref()).await?;
                call = Some(body.call);
                let tool = open.map(|open| open.tool).unwrap_or_default();
                EntryKind::CallResult { tool, failed: body.failed, shown }
            }
            Kind::Asked => {
                let (body, header) = (record.body::<Asked>()?, record.header()?);
                self.asks.insert(record.id(), body.call.clone());
                // An approval shows only its call.
                let is_call = body.about == QuestionKind::Approval && body.call.is_some();
                let shown = excerpt(&store, Some(&body.shown).filter(|_| !is_call)).await?;
                call = body.call;
                EntryKind::Asked { by: header.actor, about: body.about, shown, rule: body.policy }
            }
            Kind::Answered => {
                let (body, header) = (record.body::<Answered>()?, record.header()?);
                let asked = self.asks.remove(&body.asked);
                let late = asked.is_none() && !self.unknown_asks;
                call = asked.flatten();
                let words = match &body.verdict {
                    Verdict::Text(text) => Some(text),
                    Verdict::Yes | Verdict::No | Verdict::Unknown(_) => None,
                };
                let text = excerpt(&store, words).await?;
                EntryKind::Answered { by: header.actor, verdict: body.verdict, text, why: body.why, late }
            }
            Kind::Granted => {
                EntryKind::Granted { by: record.header()?.actor, allows: record.body::<Granted>()?.allows }
            }
            Kind::Failed => {
                let Failed { why, code, .. } = record.body()?;
                EntryKind::Failed { why, code }
            }
            Kind::Cancelled => {
                let body: Cancelled = record.body()?;
                let mut entries = Vec::new();
                for id in &body.calls {
                    self.calls.remove(id);
                    entries.push(self.entry(record, time, Some(id.clone()), EntryKind::CallGivenUp));
                }
                self.asks.clear();
                let why = body.reason().to_owned();
                entries.push(self.entry(record, time, None, EntryKind::Cancelled { why }));
                return Ok(entries);
            }
            Kind::Forked => {
                let Forked { from, why, continued_from, .. } = record.body()?;
                let diverged = continued_from.map(|left| left.diverged);
                let continues = diverged.is_some();
                let entry = self.entry(record, time, None, EntryKind::Forked { from, why, diverged });
                if continues {
                    let view = View::of(&store, record.session(), Some(0)).await?;
                    self.take_over(&view).await?;
                }
                return Ok(vec![entry]);
            }
            Kind::Merged => {
                let Merged { branches, usage, files, .. } = record.body()?;
                self.steps.iter_mut().for_each(|step| step.usage += usage);
                let branches = branches.into_iter().map(|branch| MergedBranch {
                    session: branch.session,
                    why: branch.why,
                    without_files: branch.without_files,
                });
                let (changed, conflicts) = match files {
                    Some(files) => (ChangeSummary::of(&store, &files.changed, self.differences).await, files.conflicts),
                    None => (ChangeSummary::default(), Vec::new()),
                };
                EntryKind::Merged { branches: branches.collect(), changed, conflicts }
            }
            Kind::Restored => {
                let Restored { why, changed, .. } = record.body()?;
                EntryKind::Restored { why, changed: ChangeSummary::of(&store, &changed, Differences::None).await }
            }
            Kind::Sampled => {
                let Sampled { what, value, .. } = record.body()?;
                EntryKind::Sampled { what: what.to_string(), value: value.to_string() }
            }
            _ => other(record, false),
        };
        Ok(vec![self.entry(record, time, call, what)])
    }

    fn turn(&mut self, record: &Record, time: Time) -> Result<Vec<TranscriptEntry>, Trouble> {
        let turn: Assistant = record.body()?;
        let mut opens_turn = turn.blocks.iter().all(|block| matches!(block, Block::ToolUse { .. }));
        let mut entries = Vec::new();
        for block in &turn.blocks {
            let Block::ToolUse { id, name, arguments } = block else { continue };
            self.calls.insert(id.clone(), Open { tool: name.clone(), running: false, ended: false });
            let opens_turn = std::mem::take(&mut opens_turn);
            let what = EntryKind::CallRequested { tool: name.clone(), arguments: arguments.clone(), opens_turn };
            entries.push(self.entry(record, time, Some(id.clone()), what));
        }
        entries.insert(0, self.entry(record, time, None, EntryKind::Turn { turn }));
        Ok(entries)
    }

    async fn entered(&mut self, record: &Record, time: Time) -> Result<TranscriptEntry, Trouble> {
        let body: StepEntered = record.body()?;
        let model = match &body.config {
            Some(blob) => match self.models.get(&blob.digest) {
                Some(known) => known.clone(),
                None => {
                    let model = model_of(&self.store, Some(blob)).await?;
                    self.models.insert(blob.digest, model.clone());
                    model
                }
            },
            None => None,
        };
        let (name, role, version) = (body.title(), body.role, body.version.filter(|_| body.workflow.is_none()));
        let entry = self.entry(record, time, None, EntryKind::StepEntered { name: name.clone(), role, model, version });
        let agent = role == Some(Role::Agent);
        self.steps.push(Step { record: record.id(), name, agent, since: time, turns: 0, usage: Usage::default() });
        Ok(entry)
    }

    fn left(&mut self, body: &StepLeft, now: Time) -> Option<EntryKind> {
        let place = self.steps.iter().rposition(|step| step.record == body.step)?;
        self.steps.truncate(place + 1);
        let Step { name, agent, since, turns, usage, .. } = self.steps.pop()?;
        let (duration_us, turns) = (now.micros_since(since), agent.then_some(turns));
        let (outcome, value) = (body.outcome, body.value.clone());
        Some(EntryKind::StepLeft { name, outcome, duration_us, turns, usage, value })
    }

    fn started(&mut self, body: ToolStarted) -> EntryKind {
        let (again, by_hand) = match self.calls.get_mut(&body.call) {
            Some(open) => (std::mem::replace(&mut open.running, true), None),
            None => {
                self.by_hand.insert(body.call.clone());
                self.calls.insert(body.call.clone(), Open { tool: body.tool.clone(), running: true, ended: false });
                (false, Some(command_line(body.arguments.as_ref())))
            }
        };
        let ToolStarted { tool, attempt, outside, .. } = body;
        EntryKind::CallStarted { tool, by_hand, again, attempt, outside: outside.total }
    }

    fn finished(&mut self, body: &ToolFinished) -> String {
        let mut tool = String::new();
        if let Some(open) = self.calls.get_mut(&body.call) {
            (open.running, open.ended) = (false, true);
            tool.clone_from(&open.tool);
        }
        if self.by_hand.remove(&body.call) {
            self.calls.remove(&body.call);
        }
        tool
    }
}

fn said(speaker: Speaker, text: Content, attached: Vec<String>) -> EntryKind {
    EntryKind::Message { speaker, text, attached }
}

fn other(record: &Record, unreadable: bool) -> EntryKind {
    EntryKind::Other { kind: record.kind().clone(), summary: rath_core::summary::of(record), unreadable }
}

async fn excerpt(store: &Arc<dyn Store>, content: Option<&Content>) -> Result<Option<Excerpt>> {
    match content {
        Some(content) => Ok(Some(Excerpt::of(store, content).await?)),
        None => Ok(None),
    }
}

/// The command line of a call that no model requested, or its arguments as JSON.
fn command_line(arguments: Option<&Content>) -> String {
    #[derive(serde::Deserialize)]
    struct Line {
        argv: Option<Vec<String>>,
        shell: Option<String>,
    }
    let text = arguments.map(ToString::to_string).unwrap_or_default();
    match serde_json::from_str::<Line>(&text) {
        Ok(Line { shell: Some(shell), .. }) => shell,
        Ok(Line { argv: Some(argv), .. }) => argv.join(" "),
        _ => text,
    }
}
