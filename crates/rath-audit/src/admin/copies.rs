//! Finds known copies: records that repeat the content of other records.
//!
//! The content of a turn is also in the raw response before it, and its arguments are in the records of calls and
//! questions. An output is also in the result, and in its shortened form. A summary is made from the records that it
//! replaced. A detached session copied its context. Imported records are also in the file that they came from. Several
//! records may refer to one blob. Content that was passed on in another form (the task of a sub-agent, a file that was
//! written) is found by searching for its text, not from here.

use std::collections::{BTreeMap, HashMap, HashSet};

use rath_core::body::{
    Asked, Assistant, Compressed, Detached, Granted, ImportSource, Merged, ToolFinished, ToolResult, ToolStarted,
    Trimmed,
};
use rath_core::files::TREE;
use rath_core::store::{Cursor, Lookup, Scan};
use rath_core::{BlobRef, Digest, Kind, Point, Record, Result, SessionId, View, blob_references};

use super::StoreAdmin;

/// Finds copies, and copies of copies.
pub(super) struct CopyFinder<'a> {
    admin: &'a StoreAdmin,
    /// The own records of sessions that were read.
    own_records: HashMap<SessionId, Vec<Record>>,
    /// Records that summarize or copy parts of other sessions. `None` until they are needed.
    copying_records: Option<Vec<CopyingRecord>>,
    /// Each copy, and the record that it is a copy of.
    pub(super) found: BTreeMap<Point, (Record, Point)>,
    blobs: HashSet<Digest>,
}

impl<'a> CopyFinder<'a> {
    /// The copies of `originals`, without the originals themselves.
    pub(super) async fn of(admin: &'a StoreAdmin, originals: &BTreeMap<Point, Record>) -> Result<Self> {
        let mut copies = Self {
            admin,
            own_records: HashMap::new(),
            copying_records: None,
            found: BTreeMap::new(),
            blobs: HashSet::new(),
        };
        let mut open: Vec<Record> = originals.values().cloned().collect();
        let mut looked_up: HashSet<Digest> = HashSet::new();
        loop {
            while let Some(record) = open.pop() {
                let mut new = copies.in_same_session(&record).await?;
                new.extend(copies.in_files(&record).await?);
                new.extend(copies.in_other_records(&record).await?);
                copies.note_blobs(&record);
                copies.add(new, record.point(), originals, &mut open);
            }
            let fresh: HashSet<Digest> = copies.blobs.difference(&looked_up).copied().collect();
            if fresh.is_empty() {
                return Ok(copies);
            }
            for (digest, points) in copies.admin.embedded.blob_referrers(&fresh)? {
                let original =
                    points.iter().find(|point| originals.contains_key(point) || copies.found.contains_key(point));
                let Some(original) = original.copied() else { continue };
                for point in &points {
                    let records = copies.admin.store.get(Lookup::At(*point)).await?;
                    let names_it = |record: &Record| {
                        let is_file = || ImportSource::files(record).iter().any(|file| file.digest == digest);
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
        // Of an import, only the file: other blobs of the record are not copies of a single record.
        self.blobs.extend(ImportSource::files(record).iter().map(|file| file.digest));
    }

    async fn session_records(&mut self, session: SessionId) -> Result<&[Record]> {
        if !self.own_records.contains_key(&session) {
            let own = View::of(&self.admin.store, session, None).await?.own_records_unchecked().await?;
            self.own_records.insert(session, own);
        }
        Ok(self.own_records.get(&session).map_or(&[], Vec::as_slice))
    }

    /// Records that refer to the files that the record was imported from: the first file, and each that replaced it
    /// when it grew.
    async fn in_files(&mut self, record: &Record) -> Result<Vec<Record>> {
        match ImportSource::of(record) {
            Ok(Some(_)) => {
                let records = self.session_records(record.session()).await?;
                Ok(records.iter().filter(|record| !ImportSource::files(record).is_empty()).cloned().collect())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Copies in the same session.
    async fn in_same_session(&mut self, record: &Record) -> Result<Vec<Record>> {
        const CONVERSATION_AND_CALLS: &[Kind] = &[
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
        if !CONVERSATION_AND_CALLS.contains(record.kind()) {
            return Ok(Vec::new());
        }
        let records = self.session_records(record.session()).await?;
        let at = record.seq() as usize;
        let (before, after) = (records.get(..at).unwrap_or_default(), records.get(at + 1..).unwrap_or_default());
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
            // The partial turn of a stopped answer directly follows the failure.
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

    /// Copies made by summaries, merges, shortenings and detached sessions.
    async fn in_other_records(&mut self, record: &Record) -> Result<Vec<Record>> {
        let of_context = record.kind().is_conversation()
            || matches!(record.kind(), Kind::Compressed | Kind::Trimmed | Kind::ToolFinished | Kind::Detached);
        if !of_context && *record.kind() != Kind::Forked {
            return Ok(Vec::new());
        }
        let copying_records = match self.copying_records.take() {
            Some(copying_records) => copying_records,
            None => self.read_makers().await?,
        };
        let mut found = Vec::new();
        for copying in copying_records.iter().filter(|copying| copying.record.id() != record.id()) {
            let copies = match &copying.copies {
                CopyKind::Shorter(result) => record.point() == *result,
                CopyKind::Summary { first, last } => of_context && is_between(record.point(), *first, *last),
                // The reason of a fork is repeated at its merge.
                CopyKind::Markers(branches) => *record.kind() == Kind::Forked && branches.contains(&record.session()),
                CopyKind::Context { from, bodies, calls } => {
                    let said = record.body_bytes().map(|body| String::from_utf8_lossy(body).into_owned());
                    said.is_some_and(|said| bodies.contains(&said))
                        || call_of(record).is_some_and(|call| calls.contains(&call))
                            && self.is_in_history(record.point(), *from).await?
                }
            };
            if copies {
                found.push(copying.record.clone());
            }
        }
        self.copying_records = Some(copying_records);
        Ok(found)
    }

    async fn read_makers(&self) -> Result<Vec<CopyingRecord>> {
        let (mut copying_records, mut after) = (Vec::new(), Cursor::start());
        loop {
            let kinds = [Kind::Compressed, Kind::Detached, Kind::Merged, Kind::Trimmed];
            let page = self.admin.store.scan(Scan::store(after).kinds(&kinds)).await?;
            for record in page.records {
                let copies = match record.kind() {
                    Kind::Compressed => record
                        .body::<Compressed>()
                        .ok()
                        .map(|body| CopyKind::Summary { first: body.replaces.first, last: body.replaces.last }),
                    Kind::Trimmed => record.body::<Trimmed>().ok().map(|body| CopyKind::Shorter(body.result)),
                    Kind::Merged => record.body::<Merged>().ok().map(|body| {
                        let with_reason = body.branches.into_iter().filter(|branch| branch.why.is_some());
                        CopyKind::Markers(with_reason.map(|branch| branch.session).collect())
                    }),
                    _ => match record.body::<Detached>() {
                        Ok(body) => self.read_context(&body).await?,
                        Err(_) => None,
                    },
                };
                copying_records.extend(copies.map(|copies| CopyingRecord { record, copies }));
            }
            if !page.more {
                return Ok(copying_records);
            }
            after = page.cursor;
        }
    }

    /// The content that a detached session copied.
    async fn read_context(&self, detached: &Detached) -> Result<Option<CopyKind>> {
        let Some(copied) = self.admin.store.blob_get(detached.context.digest).await? else { return Ok(None) };
        let Ok(copied) = serde_json::from_slice::<Vec<Copied>>(&copied) else { return Ok(None) };
        // A result is copied together with the output that it refers to, so its text differs.
        let results = copied.iter().filter(|copy| copy.kind == Kind::ToolResult.as_str());
        let results = results.filter_map(|copy| serde_json::from_str::<ToolResult>(copy.body.as_deref()?).ok());
        let calls = results.map(|result| result.call).collect();
        let bodies = copied.into_iter().filter_map(|copy| copy.body).collect();
        Ok(Some(CopyKind::Context { from: detached.from.point(), bodies, calls }))
    }

    /// Whether `point` is in the history of `at`.
    async fn is_in_history(&self, point: Point, at: Point) -> Result<bool> {
        // The session that was copied from may be gone.
        let Ok(view) = View::of(&self.admin.store, at.session, Some(at.seq)).await else { return Ok(false) };
        let lineage = view.lineage().await?;
        Ok(lineage.iter().any(|part| part.session == point.session && point.seq <= part.to))
    }
}

/// A record that repeats the content of others.
struct CopyingRecord {
    record: Record,
    copies: CopyKind,
}

enum CopyKind {
    /// A shortened tool result.
    Shorter(Point),
    /// A summary of context items.
    Summary { first: Point, last: Point },
    /// A copy of a context: the bodies, and the ids of calls whose results it contains.
    Context { from: Point, bodies: HashSet<String>, calls: HashSet<String> },
    /// Markers that repeat the reasons of these forks.
    Markers(HashSet<SessionId>),
}

/// An item of a copied context.
#[derive(serde::Deserialize)]
struct Copied {
    kind: String,
    #[serde(default)]
    body: Option<String>,
}

/// The id of the call that an output or a result belongs to.
fn call_of(record: &Record) -> Option<String> {
    match record.kind() {
        Kind::ToolFinished => record.body::<ToolFinished>().ok().map(|body| body.call),
        Kind::ToolResult => record.body::<ToolResult>().ok().map(|body| body.call),
        _ => None,
    }
}

/// The latest turn that made a call.
fn turn_of(before: &[Record], call: &str) -> Vec<Record> {
    let made = |record: &&Record| record.body::<Assistant>().is_ok_and(|turn| turn.calls().any(|(id, _)| id == call));
    before.iter().rev().find(made).cloned().into_iter().collect()
}

/// Later records that repeat the arguments of these calls.
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
            // Providers reuse call ids: a later turn with the same id makes another call.
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

/// Whether a range of context items from `first` to `last` may contain `point`.
fn is_between(point: Point, first: Point, last: Point) -> bool {
    let behind = point.session == first.session && point.seq >= first.seq;
    let before = point.session == last.session && point.seq <= last.seq;
    match first.session == last.session {
        true => behind && before,
        false => behind || before,
    }
}
