//! Imports a bundle into a store, after everything in it was checked.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rath_core::body::{ArrivedSession, Placed};
use rath_core::store::{Chunk, Lookup, Scan, SessionFilter, Store};
use rath_core::{Actor, Blob, BlobRef, Digest, Kind, Point, Record, RecordError, Reference, SessionId};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::batch_writer::{Leases, commit};
use super::blobs::{CHUNK, LARGE};
use super::check::{self, BundleContents};
use super::gaps::Gaps;
use super::graph::{BundleGraph, SessionHead};
use super::line::Line;
use super::line_reader::LineReader;
use super::plan::ImportPlan;
use super::source::BundleSource;
use super::{BLOBS, BundleDefect, BundleError, RECORDS, fork, notes};

/// The default of [`Import::max_cached_bytes`]: 256 MiB.
pub(super) const MAX_CACHED_BYTES: usize = 256 << 20;

/// Blobs are written to the store in batches of about this many bytes.
const BLOB_BATCH: u64 = 4 << 20;

/// The options of an import.
#[derive(Clone, Debug)]
pub struct Import {
    /// Keep diverged sessions as forks, instead of rejecting the bundle.
    pub as_fork: bool,
    /// Up to this many bytes of records are kept in memory between checking and importing. The records of a larger
    /// bundle are read and checked a second time.
    pub max_cached_bytes: usize,
}

impl Default for Import {
    fn default() -> Self {
        Self { as_fork: false, max_cached_bytes: MAX_CACHED_BYTES }
    }
}

/// The result of an import.
#[derive(Clone, Debug, Serialize)]
pub struct ImportReport {
    /// The result for each session of the bundle.
    pub sessions: BTreeMap<SessionId, SessionImportOutcome>,
    /// The number of records that were added.
    pub records: u64,
    /// The number of missing blobs of existing records that the bundle filled in.
    pub filled_in: u64,
    /// Records that the store has without their bodies, which the bundle has. A record is written once, so their bodies
    /// cannot be imported.
    pub without_body: Vec<Reference>,
    /// The number of bodies in the bundle that were erased in this store, and stay erased.
    pub erased: u64,
    /// Workspaces and permissions of the imported sessions in their original store. They have no effect in this store.
    #[serde(rename = "worked")]
    pub origins: BTreeMap<SessionId, OriginWorkspace>,
    /// Whether the bundle's `verify.py` is not one that a version of rath wrote.
    pub another_verifier: bool,
    /// The content of the bundle's `graph.json`.
    #[serde(skip)]
    pub graph: BundleGraph,
}

/// Workspace and permissions of a session in the store that it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OriginWorkspace {
    /// A description of the session's last workspace.
    #[serde(rename = "place", skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Whether commands were isolated from the machine there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolated: Option<bool>,
    /// The number of permanent permissions that were granted there.
    pub granted: u64,
}

impl OriginWorkspace {
    /// Updates the entry of a record's session if the record is about its workspace or permissions.
    pub(super) fn note(origins: &mut BTreeMap<SessionId, Self>, record: &Record) {
        match record.kind() {
            Kind::Placed => {
                if let Ok(placed) = record.body::<Placed>() {
                    let of = origins.entry(record.session()).or_default();
                    (of.workspace, of.isolated) = (Some(placed.in_words()), Some(placed.isolated));
                }
            }
            Kind::Granted => origins.entry(record.session()).or_default().granted += 1,
            _ => {}
        }
    }
}

/// The result of importing a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
pub enum SessionImportOutcome {
    /// The session is new.
    New,
    /// The store had the first part of the session; the rest was added.
    Forwarded {
        /// The number of the first added record.
        from: u64,
    },
    /// The store had the whole session.
    Known,
    /// The session diverged. The bundle's version was kept as a fork.
    Forked {
        /// The fork.
        into: SessionId,
        /// The number of the last common record.
        at: u64,
    },
    /// The session depends on a diverged one. Its exact records were kept as a blob of the fork.
    Kept,
}

impl Import {
    /// Reads the bundle at `path`, checks all of it, and imports it. `progress` is called with the number of records
    /// done so far.
    pub async fn read(
        &self,
        store: &Arc<dyn Store>,
        actor: &Actor,
        path: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<ImportReport, BundleError> {
        let mut source = BundleSource::open(path)?;
        let rows = stored(store, &mut source).await?;
        let watched = rows.iter().map(|(session, (seq, _))| Point { session: *session, seq: *seq }).collect();
        let mut contents = check::check(&mut source, &watched, self.max_cached_bytes, progress)?;
        let mut plan = ImportPlan::new(store, &contents, &rows).await?;
        if let Some((session, at)) = plan.diverged.iter().next() {
            let (session, at) = (*session, *at);
            let diverged_at = first_difference(store, &mut source, &contents, session, at).await?;
            if !self.as_fork {
                let [here, there] = diverged_at;
                return Err(BundleError::Diverged { here: Box::new(here), there: Box::new(there) });
            }
        }
        let mut diverged_at = BTreeMap::new();
        for (session, at) in plan.diverged.clone() {
            let [here, _] = first_difference(store, &mut source, &contents, session, at).await?;
            diverged_at.insert(session, here.seq);
        }
        plan.keep_dependents(&contents, &diverged_at);
        fork::refuse_erased(store, &diverged_at).await?;
        let unshared = fork::UnsharedRecords { diverged_at: &diverged_at, known: &plan.known };
        let gaps = Gaps::of(store, &mut source, &contents, &unshared).await?;
        let mut imported = ImportReport {
            sessions: plan.outcomes.clone(),
            records: 0,
            filled_in: gaps.blobs.len() as u64,
            without_body: gaps.bodies,
            erased: gaps.erased,
            origins: BTreeMap::new(),
            another_verifier: contents.another_verifier,
            graph: contents.graph.clone(),
        };
        let filled = gaps.blobs;
        let mut wanted = filled.clone();
        if plan.outcomes.values().any(|outcome| *outcome != SessionImportOutcome::Known) {
            wanted.extend(plan.blobs(&mut source, &contents, &diverged_at)?);
            wanted.sort_unstable();
            wanted.dedup();
        } else if wanted.is_empty() {
            return Ok(imported);
        }
        let leases = Leases::take(store, &plan).await?;
        import_blobs(store, &mut source, wanted).await?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        if !filled.is_empty() {
            notes::filled(store, actor, name.clone(), &filled).await?;
        }
        let expected = plan.new_records(&contents.graph);
        if expected > 0 {
            // Recorded before the first record is added, so that the session never counts as made in this store.
            let comes = |head: &&SessionHead| {
                matches!(
                    plan.outcomes.get(&head.session),
                    Some(SessionImportOutcome::New | SessionImportOutcome::Forwarded { .. })
                )
            };
            let arriving = contents.graph.sessions.iter().filter(comes);
            let arriving: Vec<_> =
                arriving.map(|head| ArrivedSession { session: head.session, to: head.seq }).collect();
            // The omissions are recorded before the first record that they concern.
            notes::remember(store, actor, name.clone(), &contents.graph, &arriving, notes::STARTED).await?;
        }
        // The records in memory are needed again only if some are kept as forks.
        let records = match contents.records.take_if(|_| diverged_at.is_empty()) {
            Some(records) => Records::Owned(records.into_iter()),
            None => Records::new(&mut source, &contents)?,
        };
        let (taken, origins) = (&mut imported.records, &mut imported.origins);
        let committed = commit(store, records, &contents.graph, &plan, &leases, taken, origins, progress).await;
        committed.map_err(|error| match as_changed(error) {
            changed @ BundleError::Changed(_) => changed,
            other => BundleError::Interrupted { taken: imported.records, of: expected, why: Box::new(other) },
        })?;
        if imported.records != expected {
            return Err(as_changed(changed(RECORDS)));
        }
        if !diverged_at.is_empty() {
            fork::keep_as_forks(store, actor, &mut source, &contents, &unshared, &mut imported)
                .await
                .map_err(as_changed)?;
        }
        if imported.records > 0 || imported.filled_in > 0 {
            notes::remember(store, actor, name, &imported.graph, &[], notes::FINISHED).await?;
        }
        Ok(imported)
    }
}

/// The sessions of the bundle that the store has: by session, the number of the last record that both may have, and the
/// store's record there.
async fn stored(
    store: &Arc<dyn Store>,
    source: &mut BundleSource,
) -> Result<HashMap<SessionId, (u64, Reference)>, BundleError> {
    let heads = check::heads(source)?;
    let mut rows = HashMap::new();
    for SessionHead { session, seq, .. } in heads {
        let Some(row) = store.sessions(SessionFilter::Id(session).into()).await?.into_iter().next() else { continue };
        let at = row.seq.min(seq);
        let here = match at == row.seq {
            true => row.head_reference(),
            false => {
                let found = store.get(Lookup::At(Point { session, seq: at })).await?;
                let missing = || rath_core::store::Error::NotFound(format!("record {session}@{at}"));
                found.first().map(Record::reference).ok_or_else(missing)?
            }
        };
        rows.insert(session, (at, here));
    }
    Ok(rows)
}

/// The first record that differs, in the store and in the bundle.
async fn first_difference(
    store: &Arc<dyn Store>,
    source: &mut BundleSource,
    contents: &BundleContents,
    session: SessionId,
    until: u64,
) -> Result<[Reference; 2], BundleError> {
    let mut here: VecDeque<Record> = VecDeque::new();
    let mut records = Records::new(source, contents)?;
    while let Some(there) = records.next()? {
        if there.session() != session {
            continue;
        }
        if here.is_empty() {
            here = store.scan(Scan::session(session, there.seq(), until)).await?.records.into();
        }
        match here.pop_front() {
            Some(here) if here.id() == there.id() => {}
            Some(here) => return Ok([here.reference(), there.reference()]),
            None => break,
        }
    }
    let point = Point { session, seq: until };
    Err(rath_core::store::Error::Tampered { point, why: RecordError::Chain }.into())
}

/// The records of a checked bundle again: from memory, or read and checked a second time.
pub(super) enum Records<'s> {
    Cached(std::slice::Iter<'s, Record>),
    /// Records in memory that are not needed again. Each one is dropped after its import.
    Owned(std::vec::IntoIter<Record>),
    Read(Box<LineReader<Box<dyn Read + 's>>>, &'s BundleContents, u64),
}

impl<'s> Records<'s> {
    pub(super) fn new(source: &'s mut BundleSource, contents: &'s BundleContents) -> Result<Self, BundleDefect> {
        Ok(match &contents.records {
            Some(records) => Self::Cached(records.iter()),
            None => Self::Read(Box::new(LineReader::new(source)?), contents, 0),
        })
    }

    pub(super) fn next(&mut self) -> Result<Option<Record>, BundleDefect> {
        match self {
            Self::Cached(records) => Ok(records.next().cloned()),
            Self::Owned(records) => Ok(records.next()),
            Self::Read(rows, contents, count) => {
                *count += 1;
                let changed = |why: String| BundleDefect::Line {
                    line: *count,
                    why: format!("the bundle changed during the import: {why}"),
                };
                let Some(row) = rows.next()? else { return Ok(None) };
                let line = Line::read(row).map_err(changed)?;
                let header = line.header().map_err(changed)?;
                let bytes = Bytes::copy_from_slice(row);
                let record = line.record(&header, 0, &bytes, 0).map_err(changed)?;
                let unknown = || changed("its id is different".into());
                let indexed = contents.index.get(&record.id()).ok_or_else(unknown)?;
                let record = record.with_generation(indexed.generation);
                if record.body_bytes().is_some() != indexed.has_body {
                    return Err(changed("its body was added or removed".into()));
                }
                record.check_body().map_err(|why| changed(why.to_string()))?;
                let origin = match (record.kind(), record.body_bytes(), header.parents.first()) {
                    (Kind::Forked, None, Some(parent)) => contents.index.get(parent).map(|at| Reference {
                        session: at.point.session,
                        seq: at.point.seq,
                        id: *parent,
                    }),
                    _ => None,
                };
                Ok(Some(match origin {
                    Some(origin) => record.with_origin(origin),
                    None => record,
                }))
            }
        }
    }
}

/// Writes these blobs to the store, long ones in chunks.
async fn import_blobs(
    store: &Arc<dyn Store>,
    source: &mut BundleSource,
    wanted: Vec<Digest>,
) -> Result<(), BundleError> {
    let (mut batch, mut size) = (Vec::new(), 0);
    for digest in wanted {
        let name = format!("{BLOBS}{digest}");
        let bytes = source.names.get(&name).copied().unwrap_or(0);
        if bytes > LARGE {
            let mut reader = source.read(&name)?;
            put_large(store, BlobRef { digest, bytes, media_type: OCTETS.into() }, &mut reader, &name).await?;
            continue;
        }
        let blob = Blob::new(source.whole(&name, LARGE)?, OCTETS);
        if blob.reference.digest != digest {
            return Err(changed(&name));
        }
        size += bytes;
        batch.push(blob);
        if size >= BLOB_BATCH {
            store.blob_put(std::mem::take(&mut batch)).await?;
            size = 0;
        }
    }
    Ok(store.blob_put(batch).await?)
}

/// The media type of bytes of an unknown type.
pub(crate) const OCTETS: &str = "application/octet-stream";

/// A defect found during the import means that the bundle changed after it was checked.
fn as_changed(error: BundleError) -> BundleError {
    match error {
        BundleError::Invalid(broken) => BundleError::Changed(broken),
        other => other,
    }
}

pub(super) fn changed(name: &str) -> BundleError {
    BundleDefect::File { name: name.into(), why: "the file changed while it was read".into() }.into()
}

/// Writes a long blob in chunks.
pub(crate) async fn put_large(
    store: &Arc<dyn Store>,
    whole: BlobRef,
    reader: &mut (dyn Read + '_),
    name: &str,
) -> Result<(), BundleError> {
    if store.blob_chunks(whole.digest).await?.is_some() {
        return Ok(());
    }
    let (mut hash, mut length, mut chunks) = (Sha256::new(), 0u64, Vec::new());
    loop {
        let mut chunk = Vec::with_capacity(CHUNK);
        let at = |error: std::io::Error| BundleError::Io { doing: format!("reading {name}"), cause: error };
        reader.take(CHUNK as u64).read_to_end(&mut chunk).map_err(at)?;
        if chunk.is_empty() {
            break;
        }
        hash.update(&chunk);
        length += chunk.len() as u64;
        let blob = Blob::new(chunk, OCTETS);
        chunks.push(Chunk { digest: blob.reference.digest, bytes: blob.reference.bytes });
        store.blob_put(vec![blob]).await?;
    }
    if length != whole.bytes || Digest(hash.finalize().into()) != whole.digest {
        return Err(changed(name));
    }
    Ok(store.blob_join(whole, chunks).await?)
}
