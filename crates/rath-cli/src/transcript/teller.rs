//! Says what the records of a line mean, one after the other.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use anyhow::Result;
use rath::body::{
    Answered, Asked, Assistant, Block, Cancelled, Failed, Forked, Granted, Merged, ModelFailed, ModelResponded, Note,
    Restored, Sampled, StepEntered, StepLeft, System, ToolFinished, ToolResult, ToolStarted, User,
};
use rath::store::Lookup;
use rath::{Fault, Kind, Record, RecordId, Store, View};

use super::model::COLUMN;
use super::step::{Config, Step};
use super::{call, files, model, people, step};
use crate::commands::log::clip;
use crate::output::{self, style};

/// What is shown.
#[derive(Clone, Debug)]
pub(crate) struct How {
    /// Whether differences are shown.
    pub(crate) diff: bool,
    /// Whether they are shown whole.
    pub(crate) whole: bool,
    /// Whether lines come as they happen, and so each names its call.
    pub(crate) live: bool,
}

/// Lines that one record gave.
pub(crate) struct Entry {
    /// The call that they are about.
    pub(crate) call: Option<String>,
    /// Whether they begin its block.
    pub(crate) begins: bool,
    pub(crate) lines: Vec<String>,
}

/// A call that has no result yet.
struct Open {
    tool: String,
    /// Whether it was started and has not ended.
    running: bool,
    /// Whether its end was told.
    told: bool,
}

/// Says what the records of a line mean.
pub(crate) struct Teller {
    store: Arc<dyn Store>,
    how: How,
    steps: Vec<Step>,
    calls: HashMap<String, Open>,
    /// Open questions and their calls.
    asks: HashMap<RecordId, Option<String>>,
    /// Questions that were asked before the first record told.
    unknown_asks: bool,
    models: HashMap<rath::Digest, Option<String>>,
    /// Calls that were begun without a model.
    by_hand: HashSet<String>,
}

impl Teller {
    pub(crate) fn new(store: Arc<dyn Store>, how: How) -> Self {
        let (steps, calls, asks) = (Vec::new(), HashMap::new(), HashMap::new());
        let (models, by_hand) = (HashMap::new(), HashSet::new());
        Self { store, how, steps, calls, asks, unknown_asks: false, models, by_hand }
    }

    /// One that begins in the middle of a line, after `view`.
    pub(crate) async fn after(store: Arc<dyn Store>, how: How, view: &View) -> Result<Self> {
        let mut teller = Self::new(store.clone(), how);
        let state = view.state();
        teller.take_over(view).await?;
        for open in state.calls.iter().filter(|call| !call.inherited) {
            let running = open.started.is_some() && open.finished.is_none();
            let known = Open { tool: open.tool.clone(), running, told: open.finished.is_some() };
            teller.calls.insert(open.id.clone(), known);
        }
        teller.asks = state.asks.iter().map(|ask| (ask.record, ask.call.clone())).collect();
        teller.unknown_asks = true;
        Ok(teller)
    }

    /// Takes over the steps that are open at `view`: they are left on this line.
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
                since: entered.time()?,
                turns: open.run.as_ref().map_or(0, |run| run.turns),
                usage: state.usage - before,
            });
        }
        Ok(())
    }

    /// How many steps are open.
    pub(crate) fn depth(&self) -> usize {
        self.steps.len()
    }

    /// What the next record of the line means. What cannot be read is one dim line.
    pub(crate) async fn tell(&mut self, record: &Record) -> Result<Vec<Entry>> {
        match self.read(record).await {
            Ok(entries) => Ok(entries),
            Err(error) if error.is::<Fault>() => Ok(self.plain(style::dim(clip(&rath::summary::of(record), 100)))),
            Err(error) => Err(error),
        }
    }

    fn indent(&self) -> usize {
        self.steps.len() * 2
    }

    fn plain(&self, line: String) -> Vec<Entry> {
        let indent = self.indent();
        vec![Entry { call: None, begins: false, lines: vec![format!("{:indent$}{line}", "")] }]
    }

    async fn read(&mut self, record: &Record) -> Result<Vec<Entry>> {
        let (at, time) = (record.point(), record.time()?);
        let indent = self.indent();
        let lines = |lines: Vec<String>| vec![Entry { call: None, begins: false, lines }];
        Ok(match record.kind() {
            Kind::Created | Kind::ModelRequested => Vec::new(),
            Kind::System => lines(model::say("system", &record.body::<System>()?.text, indent, at)),
            Kind::User => {
                let User { text, attached, .. } = record.body()?;
                let mut said = model::say("user", &text, indent, at);
                said.extend(attached.iter().map(|attached| format!("{:1$}{attached}", "", indent + COLUMN)));
                lines(said)
            }
            Kind::Note => lines(model::say("note", &record.body::<Note>()?.text, indent, at)),
            Kind::Assistant => self.turn(record)?,
            Kind::ModelResponded => {
                let answer: ModelResponded = record.body()?;
                self.steps.iter_mut().for_each(|step| step.usage += answer.usage);
                let Some(step) = self.steps.last_mut() else { return Ok(Vec::new()) };
                step.turns += 1;
                let cost = model::cost(&answer, step.turns, at);
                self.plain(cost)
            }
            Kind::ModelFailed => lines(model::failed(&record.body::<ModelFailed>()?, indent, at)),
            Kind::StepEntered => {
                let body: StepEntered = record.body()?;
                let model = self.model_of(&body).await?;
                let line = step::entered(&body, model.as_deref(), time, at);
                let entry = self.plain(line);
                let agent = body.role == Some(rath::body::Role::Agent);
                let (record, name) = (record.id(), body.title());
                self.steps.push(Step { record, name, agent, since: time, turns: 0, usage: Default::default() });
                entry
            }
            Kind::StepLeft => {
                let body: StepLeft = record.body()?;
                match self.steps.iter().rposition(|step| step.record == body.step) {
                    Some(place) => {
                        self.steps.truncate(place + 1);
                        let left = self.steps.pop();
                        left.map_or_else(Vec::new, |left| self.plain(step::left(&left, &body, time)))
                    }
                    None => self.plain(style::dim(clip(&rath::summary::of(record), 100))),
                }
            }
            Kind::ToolStarted => self.started(record)?,
            Kind::ToolFinished => {
                let body: ToolFinished = record.body()?;
                let mut tool = String::new();
                if let Some(open) = self.calls.get_mut(&body.call) {
                    (open.running, open.told) = (false, true);
                    tool.clone_from(&open.tool);
                }
                if self.by_hand.remove(&body.call) {
                    self.calls.remove(&body.call);
                }
                let whose = self.how.live.then_some((tool.as_str(), body.call.as_str()));
                let lines = call::finished(&self.store, &body, &self.how, whose, indent + COLUMN, at).await?;
                vec![Entry { call: Some(body.call), begins: false, lines }]
            }
            Kind::ToolResult => {
                let body: ToolResult = record.body()?;
                let open = self.calls.remove(&body.call);
                if open.as_ref().is_some_and(|open| open.told) && body.shown.is_none() {
                    return Ok(Vec::new());
                }
                let tool = open.map(|open| open.tool).unwrap_or_default();
                let whose = self.how.live.then_some((tool.as_str(), body.call.as_str()));
                let lines = call::result(&self.store, &body, whose, indent + COLUMN, at).await?;
                vec![Entry { call: Some(body.call), begins: false, lines }]
            }
            Kind::Asked => {
                let (body, header) = (record.body::<Asked>()?, record.header()?);
                self.asks.insert(record.id(), body.call.clone());
                let column = if body.call.is_some() { indent + COLUMN } else { indent };
                let lines = people::asked(&self.store, &body, (&header.actor, time), column, at).await?;
                vec![Entry { call: body.call, begins: false, lines }]
            }
            Kind::Answered => {
                let (body, header) = (record.body::<Answered>()?, record.header()?);
                let asked = self.asks.remove(&body.asked);
                let late = asked.is_none() && !self.unknown_asks;
                let call = asked.flatten();
                let column = if call.is_some() { indent + COLUMN } else { indent };
                let lines = people::answered(&self.store, &body, late, (&header.actor, time), column, at).await?;
                vec![Entry { call, begins: false, lines }]
            }
            Kind::Granted => {
                let (body, header) = (record.body::<Granted>()?, record.header()?);
                self.plain(people::granted(&body, &header.actor, at))
            }
            Kind::Failed => {
                let body: Failed = record.body()?;
                let code = body.code.map(|code| format!(" (rath explain {code})")).unwrap_or_default();
                self.plain(format!(
                    "{}{}",
                    style::bad(output::harmless(&format!("✗ failed: {}", body.why))),
                    style::dim(code)
                ))
            }
            Kind::Cancelled => {
                let body: Cancelled = record.body()?;
                let mut entries: Vec<Entry> = body.calls.iter().map(|call| self.given_up(call)).collect();
                body.calls.iter().for_each(|call| drop(self.calls.remove(call)));
                self.asks.clear();
                entries.extend(self.plain(style::label(output::harmless(&format!("✗ cancelled: {}", body.reason())))));
                entries
            }
            Kind::Forked => {
                let body: Forked = record.body()?;
                let told = self.plain(files::forked(&body));
                if body.instead.is_some() {
                    let view = View::of(&self.store, record.session(), Some(0)).await?;
                    self.take_over(&view).await?;
                }
                told
            }
            Kind::Merged => {
                let body: Merged = record.body()?;
                self.steps.iter_mut().for_each(|step| step.usage += body.usage);
                let told = files::merged(&self.store, &body, &self.how).await?;
                lines(told.into_iter().map(|line| format!("{:indent$}{line}", "")).collect())
            }
            Kind::Restored => self.plain(files::restored(&self.store, &record.body::<Restored>()?, &self.how).await?),
            Kind::Sampled => {
                let body: Sampled = record.body()?;
                self.plain(style::dim(clip(&format!("sampled {} = {}", body.what, body.value), 100)))
            }
            Kind::SandboxLost => self.plain(style::label(clip(&rath::summary::of(record), 160))),
            _ => self.plain(style::dim(clip(&rath::summary::of(record), 160))),
        })
    }

    fn turn(&mut self, record: &Record) -> Result<Vec<Entry>> {
        let (turn, at, indent) = (record.body::<Assistant>()?, record.point(), self.indent());
        let column = indent + COLUMN;
        let mut entries = Vec::new();
        let words = model::turn(&turn, indent, at);
        let mut silent = words.is_empty();
        entries.push(Entry { call: None, begins: false, lines: words });
        for block in &turn.blocks {
            let Block::ToolUse { id, name, arguments } = block else { continue };
            let made = call::made(name, arguments, id);
            let line = match std::mem::take(&mut silent) {
                true => format!("{:indent$}{}  {made}", "", style::record("assistant")),
                false => format!("{:column$}{made}", ""),
            };
            self.calls.insert(id.clone(), Open { tool: name.clone(), running: false, told: false });
            entries.push(Entry { call: Some(id.clone()), begins: true, lines: vec![line] });
        }
        Ok(entries)
    }

    fn started(&mut self, record: &Record) -> Result<Vec<Entry>> {
        let body: ToolStarted = record.body()?;
        let column = self.indent() + COLUMN;
        let mut lines = Vec::new();
        let mut begins = false;
        let again = match self.calls.get_mut(&body.call) {
            Some(open) => std::mem::replace(&mut open.running, true),
            None => {
                begins = true;
                self.by_hand.insert(body.call.clone());
                self.calls.insert(body.call.clone(), Open { tool: body.tool.clone(), running: true, told: false });
                lines.push(format!("{:column$}{}", "", call::made_by_hand(&body)));
                false
            }
        };
        let below = column + 2;
        let whose =
            if self.how.live { style::dim(output::harmless(&format!("[{}] ", body.call))) } else { String::new() };
        lines.extend(call::started(&body, again).into_iter().map(|line| format!("{:below$}{whose}{line}", "")));
        Ok(vec![Entry { call: Some(body.call), begins, lines }])
    }

    fn given_up(&self, id: &str) -> Entry {
        let column = self.indent() + COLUMN;
        let whose = if self.how.live { output::harmless(&format!("[{id}] ")) } else { String::new() };
        let lines = vec![format!("{:column$}← {whose}{}", "", style::label("given up"))];
        Entry { call: Some(id.to_owned()), begins: false, lines }
    }

    /// The model of an agent's step.
    async fn model_of(&mut self, step: &StepEntered) -> Result<Option<String>> {
        let Some(blob) = &step.config else { return Ok(None) };
        if let Some(known) = self.models.get(&blob.digest) {
            return Ok(known.clone());
        }
        let model = Config::read(&self.store, Some(blob)).await?.and_then(|config| config.model);
        self.models.insert(blob.digest, model.clone());
        Ok(model)
    }
}
