//! Keeps the bundle's version of a diverged session as a fork at the last common record.
//!
//! A record cannot be moved to another session: its header contains session and number. So the fork repeats the content
//! of the diverged records in records of its own, each with its source, and the exact records are kept as a blob.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use rath_core::body::{
    Assistant, Body, Forked, ImportSource as Origin, ImportedTail, Note, Sourced, System, ToolFinished, ToolResult,
    User,
};
use rath_core::store::{Lookup, SessionFilter, Store};
use rath_core::{Actor, BlobRef, Digest, Kind, Point, Record, RecordId, Reference, Session, SessionId, View};

use super::blobs::LARGE;
use super::check::BundleContents;
use super::import::{ImportReport, Records, SessionImportOutcome, put_large};
use super::source::BundleSource;
use super::{BundleError, line};

/// The media type of the blob with the exact records.
const LINES: &str = "application/x-ndjson";

/// The records that the store lacks: in a diverged session those from the first that differs, in other sessions those
/// from the first new one.
pub(super) struct UnsharedRecords<'a> {
    pub(super) diverged_at: &'a BTreeMap<SessionId, u64>,
    pub(super) known: &'a HashMap<SessionId, u64>,
}

impl UnsharedRecords<'_> {
    pub(super) fn has(&self, point: Point) -> bool {
        let from = self.diverged_at.get(&point.session).or_else(|| self.known.get(&point.session));
        from.is_none_or(|from| point.seq >= *from)
    }
}

/// Fails if an earlier fork of a diverged session may have been erased: an erased fork cannot be recognized, and it
/// must not come back.
pub(super) async fn refuse_erased(
    store: &Arc<dyn Store>,
    diverged_at: &BTreeMap<SessionId, u64>,
) -> Result<(), BundleError> {
    for (session, from) in diverged_at {
        for row in store.sessions(SessionFilter::ChildrenOf(*session).into()).await? {
            let first = store.get(Lookup::At(Point { session: row.id, seq: 0 })).await?;
            let at = row.origin.map(|origin| origin.seq + 1);
            if at == Some(*from) && first.first().is_some_and(|first| first.body_bytes().is_none()) {
                let point = Point { session: *session, seq: *from };
                let why = format!(
                    "fork {} from there was erased in this store, and it may contain these records",
                    row.id.short()
                );
                return Err(BundleError::CannotFork { point, why });
            }
        }
    }
    Ok(())
}

/// Keeps the records that cannot be imported, as forks.
pub(super) async fn keep_as_forks(
    store: &Arc<dyn Store>,
    actor: &Actor,
    source: &mut BundleSource,
    contents: &BundleContents,
    unshared: &UnsharedRecords<'_>,
    imported: &mut ImportReport,
) -> Result<(), BundleError> {
    let diverged_at = unshared.diverged_at;
    if let Some((session, _)) = diverged_at.iter().find(|(_, seq)| **seq == 0) {
        let point = Point { session: *session, seq: 0 };
        return Err(BundleError::CannotFork { point, why: "the two versions have no record in common".into() });
    }
    let diverged = DivergedRecords::read(source, contents, unshared, &imported.sessions)?;
    let records = diverged.put(store).await?;
    for (session, from) in diverged_at {
        let head = contents.graph.sessions.iter().find(|head| head.session == *session);
        let Some(head) = head.map(|head| Reference { session: *session, seq: head.seq, id: head.head }) else {
            continue;
        };
        let into = match copy_of(store, head).await? {
            Some(known) => known,
            None => {
                let not_converted = diverged.of(*session).filter(|(_, record)| !is_repeated(record)).count() as u64;
                let blobs = diverged.blobs.clone();
                let copied = ImportedTail { head, from: *from, records: records.clone(), blobs, not_converted };
                let view = View::of(store, *session, Some(from - 1)).await?;
                let mut fork = view.fork_for_copy(actor.clone(), "diverged in another store", copied)?;
                for (line, record) in diverged.of(*session) {
                    diverged.repeat(&mut fork, record, Origin { blob: records.digest, line, time: time_of(record) })?;
                }
                fork.publish().await?;
                imported.records += fork.head().seq + 1;
                fork.id()
            }
        };
        imported.sessions.insert(*session, SessionImportOutcome::Forked { into, at: from - 1 });
    }
    Ok(())
}

/// The fork that an earlier import of the same records made, if there is one.
async fn copy_of(store: &Arc<dyn Store>, head: Reference) -> Result<Option<SessionId>, BundleError> {
    for row in store.sessions(SessionFilter::ChildrenOf(head.session).into()).await? {
        let first = store.get(Lookup::At(Point { session: row.id, seq: 0 })).await?;
        let copied = first.first().and_then(|first| first.body::<Forked>().ok()?.imported_tail);
        if copied.is_some_and(|copied| copied.head == head) {
            return Ok(Some(row.id));
        }
    }
    Ok(None)
}

fn time_of(record: &Record) -> Option<String> {
    record.time().ok().map(|time| time.to_string())
}

fn is_repeated(record: &Record) -> bool {
    (record.kind().is_conversation() || *record.kind() == Kind::Note) && record.body_bytes().is_some()
}

/// The records that cannot be imported.
struct DivergedRecords {
    lines: Vec<Record>,
    bytes: Vec<u8>,
    blobs: Vec<BlobRef>,
    finished: HashMap<RecordId, usize>,
}

impl DivergedRecords {
    fn read(
        source: &mut BundleSource,
        contents: &BundleContents,
        unshared: &UnsharedRecords<'_>,
        outcomes: &BTreeMap<SessionId, SessionImportOutcome>,
    ) -> Result<Self, BundleError> {
        let (mut diverged, mut seen) = (
            Self { lines: Vec::new(), bytes: Vec::new(), blobs: Vec::new(), finished: HashMap::new() },
            BTreeSet::new(),
        );
        let mut records = Records::new(source, contents)?;
        while let Some(record) = records.next()? {
            let kept = outcomes.get(&record.session()) == Some(&SessionImportOutcome::Kept);
            if !kept || !unshared.has(record.point()) {
                continue;
            }
            let unfit =
                |why: std::io::Error| BundleError::NotExportable { point: record.point(), why: why.to_string() };
            line::write_in_strings(&record, &mut diverged.bytes).map_err(unfit)?;
            for blob in rath_core::blob_references(record.body_bytes().unwrap_or_default()) {
                if seen.insert(blob.digest) {
                    diverged.blobs.push(blob);
                }
            }
            if *record.kind() == Kind::ToolFinished {
                diverged.finished.insert(record.id(), diverged.lines.len());
            }
            diverged.lines.push(record);
        }
        Ok(diverged)
    }

    async fn put(&self, store: &Arc<dyn Store>) -> Result<BlobRef, BundleError> {
        let bytes = self.bytes.len() as u64;
        let whole = BlobRef { digest: Digest::of(&self.bytes), bytes, media_type: LINES.into() };
        match bytes > LARGE {
            true => put_large(store, whole.clone(), &mut &self.bytes[..], "the diverged records").await?,
            false => store.blob_put(vec![rath_core::Blob::new(self.bytes.clone(), LINES)]).await?,
        }
        Ok(whole)
    }

    /// The records of one session, each with its line number in the blob.
    fn of(&self, session: SessionId) -> impl Iterator<Item = (u64, &Record)> {
        (1..).zip(&self.lines).filter(move |(_, record)| record.session() == session)
    }

    /// Repeats the content of a record in the fork.
    fn repeat(&self, fork: &mut Session, record: &Record, source: Origin) -> Result<(), BundleError> {
        fn append<B: Body>(fork: &mut Session, body: B, source: Origin) -> Result<(), BundleError> {
            fork.append(Sourced { body, source })?;
            Ok(())
        }
        let unfit =
            |why: rath_core::RecordError| BundleError::NotExportable { point: record.point(), why: why.to_string() };
        if !is_repeated(record) {
            return Ok(());
        }
        match record.kind() {
            Kind::System => append(fork, record.body::<System>().map_err(unfit)?, source),
            Kind::User => append(fork, record.body::<User>().map_err(unfit)?, source),
            Kind::Assistant => append(fork, record.body::<Assistant>().map_err(unfit)?, source),
            Kind::Note => append(fork, record.body::<Note>().map_err(unfit)?, source),
            Kind::ToolResult => {
                let mut body = record.body::<ToolResult>().map_err(unfit)?;
                // The record that the result refers to is not in the fork.
                let finished = body.finished.take().and_then(|id| self.lines.get(*self.finished.get(&id)?));
                if let Some(finished) = finished.and_then(|finished| finished.body::<ToolFinished>().ok()) {
                    body.show(&finished);
                }
                append(fork, body, source)
            }
            _ => Ok(()),
        }
    }
}
