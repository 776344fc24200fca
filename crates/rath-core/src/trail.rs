//! The way files took along a line: which record changed them, from what to what.

use std::collections::HashMap;
use std::sync::Arc;

use crate::body::{CallOutcome, Merged, Placed, Resolved, Restored, StepEntered, ToolFinished, ToolStarted};
use crate::error::Result;
use crate::files::{Changes, Version};
use crate::id::{Point, RecordId, Reference};
use crate::kind::Kind;
use crate::reader::Reader;
use crate::record::{Fault, Record};
use crate::summary;
use crate::view::View;

/// The kinds that say something about files, and those that name the step.
const KINDS: &[Kind] = &[
    Kind::ToolStarted,
    Kind::ToolFinished,
    Kind::Placed,
    Kind::Restored,
    Kind::Resolved,
    Kind::Merged,
    Kind::StepEntered,
];

/// The events of one line, in order, and the names of the steps entered on it.
pub(crate) struct Trail {
    pub(crate) events: Vec<Arc<Event>>,
    pub(crate) steps: HashMap<RecordId, String>,
    /// The fork point.
    pub(crate) origin: Option<Point>,
    /// The last record looked at.
    pub(crate) to: u64,
}

/// A record that changed the files of its line.
pub(crate) struct Event {
    pub(crate) record: Record,
    pub(crate) before: Option<Version>,
    pub(crate) after: Version,
    pub(crate) changes: Changes,
    /// Where the content comes from besides the line itself.
    pub(crate) sources: Vec<Point>,
    /// Whether nothing on the line itself is a source.
    pub(crate) jumps: bool,
    /// The command of a call.
    command: Option<String>,
    pub(crate) outside: bool,
    /// Whether its body is gone: what files there were before and after is all that is known of it.
    pub(crate) erased: bool,
}

impl Event {
    /// What happened, in a line.
    pub(crate) fn what(&self) -> String {
        match &self.command {
            Some(command) => command.clone(),
            None if self.erased => "(erased)".into(),
            None if self.outside => "changed outside, before this record".into(),
            None if self.before.is_none() => "there when the session was placed".into(),
            None => summary::of(&self.record),
        }
    }
}

/// The last change to the files, and how to be where it had not happened.
#[derive(Clone, Debug)]
pub struct LastChange {
    /// The record that made it.
    pub record: Reference,
    /// What it was.
    pub what: String,
    /// The record before it.
    pub before: Point,
    /// The files after that one.
    pub version: Version,
    /// Whether somebody made it between two records.
    pub outside: bool,
}

impl View {
    /// The last record that changed the files, as one sees it who has taken back what came after: a restore counts as
    /// being at the record it restored, so asking again goes further back.
    pub async fn last_change(&self) -> Result<Option<LastChange>> {
        let mut at = self.reference().point();
        loop {
            let trail = Trail::of(&self.reader, at).await?;
            // A decision is a change even where it keeps what stands, and so is taking one back.
            let changed = |event: &&Arc<Event>| {
                *event.record.kind() == Kind::Resolved
                    || event.jumps
                    || event.before.as_ref().is_none_or(|before| !before.same_files(&event.after))
            };
            let Some(event) = trail.events.iter().rev().find(changed) else {
                match trail.origin {
                    Some(origin) => at = origin,
                    None => return Ok(None),
                }
                continue;
            };
            let record = event.record.reference();
            match (&event.before, event.sources.first()) {
                (_, Some(source)) if event.jumps => at = *source,
                (Some(version), _) if record.seq > 0 => {
                    return Ok(Some(LastChange {
                        record,
                        what: event.what(),
                        before: Point { seq: record.seq - 1, ..record.point() },
                        version: version.clone(),
                        outside: event.outside,
                    }));
                }
                _ => return Ok(None),
            }
        }
    }
}

impl Trail {
    /// Reads the events of a line up to a point.
    pub(crate) async fn of(reader: &Reader, to: Point) -> Result<Self> {
        let origin = reader.line(to.session).await?.origin.map(|origin| origin.point());
        let mut version = match origin {
            Some(origin) => reader.state_at(origin).await?.workspace,
            None => None,
        };
        let (mut events, mut steps, mut calls) = (Vec::new(), HashMap::new(), HashMap::new());
        let mut from = 0;
        loop {
            let page = reader.page(to.session, from, to.seq, KINDS).await?;
            for record in page.records {
                if *record.kind() == Kind::StepEntered {
                    if let Ok(step) = record.body::<StepEntered>() {
                        steps.insert(record.id(), step.name);
                    }
                    continue;
                }
                // What an erased body did to the files is told by the states on both sides.
                if record.body_bytes().is_none() {
                    let after = reader.state_at(record.point()).await?.workspace;
                    let changed = after
                        .as_ref()
                        .is_some_and(|after| version.as_ref().is_none_or(|before| !before.same_files(after)));
                    if let Some(after) = after.filter(|_| changed) {
                        events.push(Arc::new(erased(record, version.replace(after.clone()), after)));
                    }
                    continue;
                }
                // One that was written freely before its kind had a type says nothing.
                if let Ok(Some(event)) = event(record, &version, &mut calls) {
                    version = Some(event.after.clone());
                    events.push(Arc::new(event));
                }
            }
            if !page.more {
                return Ok(Self { events, steps, origin, to: to.seq });
            }
            from = page.position;
        }
    }
}

/// A change of which nothing is known but that it was here.
fn erased(record: Record, before: Option<Version>, after: Version) -> Event {
    Event {
        record,
        before,
        after,
        changes: Changes { total: 1, paths: Vec::new() },
        sources: Vec::new(),
        jumps: false,
        command: None,
        outside: false,
        erased: true,
    }
}

/// What a record says about files; `None` when it changes none.
fn event(
    record: Record,
    before: &Option<Version>,
    calls: &mut HashMap<String, String>,
) -> Result<Option<Event>, Fault> {
    let (mut sources, mut jumps, mut outside, mut command) = (Vec::new(), false, false, None);
    let (after, changes) = match record.kind() {
        Kind::ToolStarted => {
            let body: ToolStarted = record.body()?;
            outside = true;
            calls.insert(body.call, summary::call(&body.tool, body.arguments.as_ref()));
            (body.workspace, body.outside)
        }
        Kind::ToolFinished => {
            let body: ToolFinished = record.body()?;
            command = calls.remove(&body.call);
            if body.outcome == CallOutcome::Lost {
                // Whoever came before the next record may have done it as well.
                command = command.map(|command| format!("{command} (nobody saw it end: perhaps not this command)"));
            }
            (body.workspace, body.changed)
        }
        Kind::Placed => {
            let body: Placed = record.body()?;
            (body.workspace, Changes { total: 1, paths: Vec::new() })
        }
        Kind::Restored => {
            let body: Restored = record.body()?;
            sources.extend(body.point);
            jumps = body.point.is_some();
            (Some(body.workspace), Changes { total: 1, paths: Vec::new() })
        }
        Kind::Resolved => {
            let body: Resolved = record.body()?;
            sources.extend(body.side);
            (Some(body.workspace), body.changed)
        }
        Kind::Merged => {
            let body: Merged = record.body()?;
            let with_files = body.branches.iter().filter(|branch| !branch.without_files);
            sources.extend(with_files.map(|branch| branch.head()));
            let (workspace, changed) = body.files.map(|files| (files.workspace, files.changed)).unzip();
            (workspace, changed.unwrap_or_default())
        }
        _ => return Ok(None),
    };
    let Some(after) = after else { return Ok(None) };
    Ok(Some(Event { record, before: before.clone(), after, changes, sources, jumps, command, outside, erased: false }))
}
