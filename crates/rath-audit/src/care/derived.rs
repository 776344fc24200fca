//! Known copies: where what a record says is said again.
//!
//! A turn stands in the raw response before it, and its arguments in what was started and asked about; an output stands
//! in the result, and in what shows it shorter; a summary was made of what it replaced; a detached session copied its context; what was imported
//! stands in the file that it came from; a content may be named by several. What others only know (a sub-agent's task, a file that was written) is found by its words, not from here.

use std::collections::{BTreeMap, HashMap, HashSet};

use rath_core::body::{
    Asked, Assistant, Compressed, Detached, Granted, Merged, Source, ToolFinished, ToolResult, ToolStarted, Trimmed,
};
use rath_core::files::TREE;
use rath_core::store::{Cursor, Lookup, Scan};
use rath_core::{BlobRef, Digest, Kind, Point, Record, Result, SessionId, View, blob_references};

use super::Care;

/// Finds copies, and copies of those.
pub(super) struct Copies<'a> {
    care: &'a Care,
    /// Own records of the sessions that were looked at.
    lines: HashMap<SessionId, Vec<Record>>,
    /// Records that sum up or copy parts of other lines.
    makers: Option<Vec<Maker>>,
    /// Each copy, and what it is a copy of.
    pub(super) found: BTreeMap<Point, (Record, Point)>,
    blobs: HashSet<Digest>,
}

impl<'a> Copies<'a> {
    /// The copies of `originals`, without themselves.
    pub(super) async fn of(care: &'a Care, originals: &BTreeMap<Point, Record>) -> Result<Self> {
        let mut copies =
            Self { care, lines: HashMap::new(), makers: None, found: BTreeMap::new(), blobs: HashSet::new() };
        let mut open: Vec<Record> = originals.values().cloned().collect();
        let mut looked_up: HashSet<Digest> = HashSet::new();
        loop {
            while let Some(record) = open.pop() {
                let mut new = copies.on_its_line(&record).await?;
                new.extend(copies.in_files(&record).await?);
                new.extend(copies.elsewhere(&record).await?);
                copies.note_blobs(&record);
                copies.add(new, record.point(), originals, &mut open);
            }
            let fresh: HashSet<Digest> = copies.blobs.difference(&looked_up).copied().collect();
            if fresh.is_empty() {
                return Ok(copies);
            }
            for (digest, points) in copies.care.embedded.who_names(&fresh)? {
                let original =
                    points.iter().find(|point| originals.contains_key(point) || copies.found.contains_key(point));
                let Some(original) = original.copied() else { continue };
                for point in &points {
                    let records = copies.care.store.get(Lookup::At(*point)).await?;
                    let names_it = |record: &Record| {
                        let is_file = || Source::files(record).iter().any(|file| file.digest == digest);
                        record.kind().holds_content() || is_file()
                    };
                    let new = records.into_iter().filter(names_it).collect();
                    copies.add(new, original, originals, &mut open);
                }
                looked_up.insert(digest);
            }
            looked_up.extend(fresh);
        }
    }

    fn add(&mut self, new: Vec<Record>, of: Point, originals: &BTreeMap<Point, Record>, open: &mut Vec<Record>) {
        for record in new {
            let point = record.point();
            if record.body_bytes().is_some() && !originals.contains_key(&point) && !self.found.contains_key(&point) {
                self.found.insert(point, (record.clone(), of));
                open.push(record);
            }
        }
    }

    fn note_blobs(&mut self, record: &Record) {
        if record.kind().holds_content() {
            let named = record.body_bytes().map(blob_references).unwrap_or_default();
            let rules = |blob: &BlobRef| blob.media_type == rath_workspace::RULES;
            let content = named.iter().filter(|blob| blob.media_type != TREE && !rules(blob));
            self.blobs.extend(content.map(|blob| blob.digest));
        }
        // Of what others were read from, the file only: what else it names is not a copy of any one of them.
        self.blobs.extend(Source::files(record).iter().map(|file| file.digest));
    }

    async fn line(&mut self, session: SessionId) -> Result<&[Record]> {
        if !self.lines.contains_key(&session) {
            let own = View::of(&self.care.store, session, None).await?.own_as_stored().await?;
            self.lines.insert(session, own);
        }
        Ok(self.lines.get(&session).map_or(&[], Vec::as_slice))
    }

    /// What names the files that it was imported from: the file of its day, and each that it has grown to since.
    async fn in_files(&mut self, record: &Record) -> Result<Vec<Record>> {
        match Source::of(record) {
            Ok(Some(_)) => {
                let line = self.line(record.session()).await?;
                Ok(line.iter().filter(|record| !Source::files(record).is_empty()).cloned().collect())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Copies in the same session.
    async fn on_its_line(&mut self, record: &Record) -> Result<Vec<Record>> {
        const OF_CALLS: &[Kind] = &[
            Kind::Assistant,
            Kind::ModelResponded,
            Kind::ModelFailed,
            Kind::ToolStarted,
            Kind::Asked,
            Kind::Granted,
            Kind::ToolFinished,
            Kind::ToolResult,
            Kind::Trimmed,
        ];
        if !OF_CALLS.contains(record.kind()) {
            return Ok(Vec::new());
        }
        let line = self.line(record.session()).await?;
        let at = record.seq() as usize;
        let (before, after) = (line.get(..at).unwrap_or_default(), line.get(at + 1..).unwrap_or_default());
        Ok(match record.kind() {
            Kind::Assistant => {
                let answers = before.iter().rev().take_while(|record| {
                    matches!(record.kind(), Kind::ModelResponded | Kind::ModelFailed | Kind::ModelRequested)
                });
                let mut found: Vec<Record> =
                    answers.filter(|record| *record.kind() != Kind::ModelRequested).cloned().collect();
                if let Ok(turn) = record.body::<Assistant>() {
                    let calls: HashSet<&str> = turn.calls().map(|(id, _)| id).collect();
                    found.extend(with_arguments(after, &calls));
                }
                found
            }
            Kind::ModelResponded => {
                after.iter().find(|record| *record.kind() == Kind::Assistant).cloned().into_iter().collect()
            }
            // What came of an answer that was stopped stands right behind it.
            Kind::ModelFailed => {
                after.first().filter(|next| *next.kind() == Kind::Assistant).cloned().into_iter().collect()
            }
            Kind::ToolStarted => match record.body::<ToolStarted>() {
                Ok(body) if body.arguments.is_some() => turn_of(before, &body.call),
                _ => Vec::new(),
            },
            Kind::Asked => {
                record.body::<Asked>().ok().and_then(|body| body.call).map_or(Vec::new(), |call| turn_of(before, &call))
            }
            Kind::Granted => {
                let asked = record.body::<Granted>().ok().map(|body| body.asked);
                before.iter().filter(|record| Some(record.id()) == asked).cloned().collect()
            }
            Kind::ToolFinished => {
                let results = after
                    .iter()
                    .filter(|result| result.body::<ToolResult>().is_ok_and(|body| body.finished == Some(record.id())));
                results.cloned().collect()
            }
            Kind::Trimmed => {
                let result = record.body::<Trimmed>().ok().map(|body| body.result);
                before.iter().filter(|record| Some(record.point()) == result).cloned().collect()
            }
            _ => {
                let finished = record.body::<ToolResult>().ok().and_then(|body| body.finished);
                before.iter().filter(|record| finished == Some(record.id())).cloned().collect()
            }
        })
    }

    /// Copies that other records made of it, on this line or another.
    async fn elsewhere(&mut self, record: &Record) -> Result<Vec<Record>> {
        let of_context = record.kind().is_conversation()
            || matches!(record.kind(), Kind::Compressed | Kind::Trimmed | Kind::ToolFinished | Kind::Detached);
        if !of_context && *record.kind() != Kind::Forked {
            return Ok(Vec::new());
        }
        let makers = match self.makers.take() {
            Some(makers) => makers,
            None => self.read_makers().await?,
        };
        let mut found = Vec::new();
        for maker in makers.iter().filter(|maker| maker.record.id() != record.id()) {
            let copies = match &maker.makes {
                Makes::Shorter(result) => record.point() == *result,
                Makes::Summary { first, last } => of_context && is_between(record.point(), *first, *last),
                // Why a branch was forked is repeated where it is merged.
                Makes::Markers(branches) => *record.kind() == Kind::Forked && branches.contains(&record.session()),
                Makes::Context { from, bodies, calls } => {
                    let said = record.body_bytes().map(|body| String::from_utf8_lossy(body).into_owned());
                    said.is_some_and(|said| bodies.contains(&said))
                        || call_of(record).is_some_and(|call| calls.contains(&call))
                            && self.is_behind(record.point(), *from).await?
                }
            };
            if copies {
                found.push(maker.record.clone());
            }
        }
        self.makers = Some(makers);
        Ok(found)
    }

    async fn read_makers(&self) -> Result<Vec<Maker>> {
        let (mut makers, mut after) = (Vec::new(), Cursor::start());
        loop {
            let kinds = [Kind::Compressed, Kind::Detached, Kind::Merged, Kind::Trimmed];
            let page = self.care.store.scan(Scan::store(after).kinds(&kinds)).await?;
            for record in page.records {
                let makes = match record.kind() {
                    Kind::Compressed => record
                        .body::<Compressed>()
                        .ok()
                        .map(|body| Makes::Summary { first: body.replaces.first, last: body.replaces.last }),
                    Kind::Trimmed => record.body::<Trimmed>().ok().map(|body| Makes::Shorter(body.result)),
                    Kind::Merged => record.body::<Merged>().ok().map(|body| {
                        let told = body.branches.into_iter().filter(|branch| branch.why.is_some());
                        Makes::Markers(told.map(|branch| branch.session).collect())
                    }),
                    _ => match record.body::<Detached>() {
                        Ok(body) => self.read_context(&body).await?,
                        Err(_) => None,
                    },
                };
                makers.extend(makes.map(|makes| Maker { record, makes }));
            }
            if !page.more {
                return Ok(makers);
            }
            after = page.cursor;
        }
    }

    /// What a detached session copied.
    async fn read_context(&self, detached: &Detached) -> Result<Option<Makes>> {
        let Some(copied) = self.care.store.blob_get(detached.context.digest).await? else { return Ok(None) };
        let Ok(copied) = serde_json::from_slice::<Vec<Copied>>(&copied) else { return Ok(None) };
        // A result is copied together with the output that it refers to, and so not word for word.
        let results = copied.iter().filter(|copy| copy.kind == Kind::ToolResult.as_str());
        let results = results.filter_map(|copy| serde_json::from_str::<ToolResult>(copy.body.as_deref()?).ok());
        let calls = results.map(|result| result.call).collect();
        let bodies = copied.into_iter().filter_map(|copy| copy.body).collect();
        Ok(Some(Makes::Context { from: detached.from.point(), bodies, calls }))
    }

    /// Whether `point` is history at `at`.
    async fn is_behind(&self, point: Point, at: Point) -> Result<bool> {
        // What it was copied from may be gone.
        let Ok(view) = View::of(&self.care.store, at.session, Some(at.seq)).await else { return Ok(false) };
        let lines = view.lineage().await?;
        Ok(lines.iter().any(|line| line.session == point.session && point.seq <= line.to))
    }
}

/// A record that says what others said.
struct Maker {
    record: Record,
    makes: Makes,
}

enum Makes {
    /// A tool result, shown shorter.
    Shorter(Point),
    /// A summary of context items.
    Summary { first: Point, last: Point },
    /// A copy of a context: bodies, and the calls whose results are in it.
    Context { from: Point, bodies: HashSet<String>, calls: HashSet<String> },
    /// Markers that repeat why these were forked.
    Markers(HashSet<SessionId>),
}

/// An item as `detached` copies it.
#[derive(serde::Deserialize)]
struct Copied {
    kind: String,
    #[serde(default)]
    body: Option<String>,
}

/// The call that an output or a result is of.
fn call_of(record: &Record) -> Option<String> {
    match record.kind() {
        Kind::ToolFinished => record.body::<ToolFinished>().ok().map(|body| body.call),
        Kind::ToolResult => record.body::<ToolResult>().ok().map(|body| body.call),
        _ => None,
    }
}

/// The turn before these that made a call.
fn turn_of(before: &[Record], call: &str) -> Vec<Record> {
    let made = |record: &&Record| record.body::<Assistant>().is_ok_and(|turn| turn.calls().any(|(id, _)| id == call));
    before.iter().rev().find(made).cloned().into_iter().collect()
}

/// What says the arguments of these calls again.
fn with_arguments(after: &[Record], calls: &HashSet<&str>) -> Vec<Record> {
    let mut asked = HashSet::new();
    let mut found = Vec::new();
    for record in after {
        let says = match record.kind() {
            Kind::ToolStarted => record
                .body::<ToolStarted>()
                .is_ok_and(|body| body.arguments.is_some() && calls.contains(body.call.as_str())),
            Kind::Asked => {
                let about = record.body::<Asked>().ok().and_then(|body| body.call);
                about.is_some_and(|call| calls.contains(call.as_str())) && asked.insert(record.id())
            }
            Kind::Granted => record.body::<Granted>().is_ok_and(|body| asked.contains(&body.asked)),
            // Providers use ids again: the next turn with the same is another call.
            Kind::Assistant
                if record.body::<Assistant>().is_ok_and(|turn| turn.calls().any(|(id, _)| calls.contains(id))) =>
            {
                break;
            }
            _ => false,
        };
        if says {
            found.push(record.clone());
        }
    }
    found
}

/// Whether a range of context items from `first` to `last` may have had `point`.
fn is_between(point: Point, first: Point, last: Point) -> bool {
    let behind = point.session == first.session && point.seq >= first.seq;
    let before = point.session == last.session && point.seq <= last.seq;
    match first.session == last.session {
        true => behind && before,
        false => behind || before,
    }
}
