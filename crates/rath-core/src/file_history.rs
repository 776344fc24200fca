//! The history of a session's files: the records that changed them, with the versions before and after.

use std::collections::HashMap;
use std::sync::Arc;

use crate::body::{CallOutcome, Merged, Placed, Resolved, Restored, StepEntered, ToolFinished, ToolStarted};
use crate::error::Result;
use crate::files::{Changes, Version};
use crate::id::{Point, RecordId, Reference};
use crate::kind::Kind;
use crate::reader::Reader;
use crate::record::{Record, RecordError};
use crate::summary;
use crate::view::View;

/// The kinds of records that affect files, and the kind that names a step.
const KINDS: &[Kind] = &[
    Kind::ToolStarted,
    Kind::ToolFinished,
    Kind::Placed,
    Kind::Restored,
    Kind::Resolved,
    Kind::Merged,
    Kind::StepEntered,
];

/// The file events of one session, in order, and the names of its steps.
pub(crate) struct FileHistory {
    pub(crate) events: Vec<Arc<FileEvent>>,
    pub(crate) steps: HashMap<RecordId, String>,
    /// The fork point of the session.
    pub(crate) origin: Option<Point>,
    /// The sequence number up to which the session was read.
    pub(crate) to: u64,
}

/// A record that changed the files of its session.
pub(crate) struct FileEvent {
    pub(crate) record: Record,
    pub(crate) before: Option<Version>,
    pub(crate) after: Version,
    pub(crate) changes: Changes,
    /// Other records whose files are a source of the content: merged heads, restored records.
    pub(crate) sources: Vec<Point>,
    /// Whether the session's own previous version is not a source, as after a restore.
    pub(crate) jumps: bool,
    /// The command, for a tool call.
    command: Option<String>,
    pub(crate) outside: bool,
    /// Whether the body is erased. Then only the versions before and after are known.
    pub(crate) erased: bool,
}

impl FileEvent {
    /// Describes the event in one line.
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

/// The last change to the files, and the version to restore to undo it.
#[derive(Clone, Debug)]
pub struct LastChange {
    /// The record that made the change.
    pub record: Reference,
    /// A description of the change.
    pub what: String,
    /// The record before the change.
    pub before: Point,
    /// The files at that record.
    pub version: Version,
    /// Whether the change was made outside the session, between two records.
    pub outside: bool,
}

impl View {
    /// Finds the last change to the files that was not undone. After a restore, the search continues at the restored
    /// record, so repeated undo goes further back each time.
    pub async fn last_change(&self) -> Result<Option<LastChange>> {
        let mut at = self.reference().point();
        loop {
            let history = FileHistory::of(&self.reader, at).await?;
            // Resolving a conflict and undoing a change count as changes even if the files stay the same.
            let changed = |event: &&Arc<FileEvent>| {
                *event.record.kind() == Kind::Resolved
                    || event.jumps
                    || event.before.as_ref().is_none_or(|before| !before.same_files(&event.after))
            };
            let Some(event) = history.events.iter().rev().find(changed) else {
                match history.origin {
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

impl FileHistory {
    /// Reads the events of a session up to a point.
    pub(crate) async fn of(reader: &Reader, to: Point) -> Result<Self> {
        let origin = reader.session_start(to.session).await?.origin.map(|origin| origin.point());
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
                // The effect of an erased record is the difference between the states before and after it.
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
                // A free-form body from before its kind had a body type is ignored.
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

/// The event of an erased record.
fn erased(record: Record, before: Option<Version>, after: Version) -> FileEvent {
    FileEvent {
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

/// The event of a record; `None` when it changes no files.
fn event(
    record: Record,
    before: &Option<Version>,
    calls: &mut HashMap<String, String>,
) -> Result<Option<FileEvent>, RecordError> {
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
                // Another program may have changed the files before the next record.
                command = command.map(|command| format!("{command} (outcome unknown: perhaps not this command)"));
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
    Ok(Some(FileEvent {
        record,
        before: before.clone(),
        after,
        changes,
        sources,
        jumps,
        command,
        outside,
        erased: false,
    }))
}
