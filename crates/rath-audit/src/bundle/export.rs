//! Exports sessions as a bundle.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use rath_core::body::{Detached, ImportSource};
use rath_core::files::{TREE, Tree};
use rath_core::store::{self, Lookup, SessionFilter, Store};
use rath_core::{BlobRef, Digest, Kind, Point, Record, RecordError, RecordId, SessionId};
use sha2::{Digest as _, Sha256};

use super::blobs::{self, NamedBlob, NamedBlobs};
use super::bundle_writer::{BundleWriter, Entry};
use super::graph::{BundleGraph, ERASED, MergedHeads, OmittedBlob, OmittedRecord, SessionHead};
use super::omissions::Omissions;
use super::ordered_workers::OrderedWorkers;
use super::redact::{Finder, Redaction};
use super::walk::{self, Step, Walk};
use super::{BLOBS, BundleError, FORMAT, GRAPH, README, RECORDS, VERIFIER, VERIFY_PY, io_error, line};

/// The bundle's `README.md`, which explains how to verify the bundle by hand.
const READ_ME: &str = include_str!("readme.md");

/// Records are encoded and written in batches of about this many bytes.
const BATCH_BYTES: usize = 1 << 20;

/// The rule name for blobs that the store does not have.
const NOT_IN_STORE: &str = "not in the store";

/// The options of an export.
#[derive(Clone, Debug, Default)]
pub struct Export {
    /// The sessions to export, each up to a record; `None`: up to its head.
    pub of: BTreeMap<SessionId, Option<u64>>,
    /// Whether to export every session of their family, with all records.
    pub graph: bool,
    /// What to omit.
    pub redaction: Redaction,
}

/// The result of an export.
#[derive(Clone, Debug)]
pub struct Exported {
    /// The content of the bundle's `graph.json`.
    pub graph: BundleGraph,
}

impl Export {
    /// Exports one session with everything it depends on, up to the record `seq` or up to its head.
    pub fn of(session: SessionId, seq: Option<u64>) -> Self {
        Self { of: BTreeMap::from([(session, seq)]), ..Self::default() }
    }

    /// Writes the bundle to `path`: a zip if the name ends in `.zip`, otherwise a directory. `progress` is called with
    /// the number of records written so far.
    pub async fn write(
        &self,
        store: &Arc<dyn Store>,
        path: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Exported, BundleError> {
        let heads = self.heads(store).await?;
        let mut target = BundleWriter::create(path)?;
        let mut work = Exporter::new(self, Omissions::of(store).await?);
        work.records(store, heads, &mut target, progress).await?;
        work.blobs(store, &mut target).await?;
        let graph = work.graph;
        target.file(GRAPH, &graph.to_bytes())?;
        target.file(README, READ_ME.as_bytes())?;
        target.file(VERIFIER, VERIFY_PY.as_bytes())?;
        target.finish()?;
        Ok(Exported { graph })
    }

    /// The last record of each session, with its id if the store knows it without reading the record.
    async fn heads(&self, store: &Arc<dyn Store>) -> Result<Vec<(Point, Option<RecordId>)>, BundleError> {
        if self.graph {
            let of: Vec<_> = self.of.keys().copied().collect();
            let family = walk::family(store, &of).await?;
            return Ok(family.into_iter().map(|head| (head.point(), Some(head.id))).collect());
        }
        let mut heads = Vec::new();
        for (session, seq) in &self.of {
            let row = store.sessions(SessionFilter::Id(*session).into()).await?.into_iter().next();
            let row = row.ok_or_else(|| store::Error::NotFound(format!("session {session}")))?;
            let seq = seq.unwrap_or(row.seq);
            if seq > row.seq {
                return Err(store::Error::NotFound(format!("record {}@{seq}", session.short())).into());
            }
            let id = match seq == row.seq {
                true => Some(row.head),
                false => {
                    let next = store.get(Lookup::At(Point { session: *session, seq: seq + 1 })).await?;
                    next.first().and_then(Record::first_parent)
                }
            };
            heads.push((Point { session: *session, seq }, id));
        }
        Ok(heads)
    }
}

/// A batch of records to encode.
#[derive(Default)]
struct Batch {
    records: Vec<Record>,
    /// The estimated length of their lines, in bytes.
    size: usize,
}

/// An encoded batch.
struct EncodedBatch {
    bytes: Vec<u8>,
    /// The blobs that the records refer to.
    names: Vec<(Point, BlobRef)>,
}

impl Batch {
    fn push(&mut self, record: Record) {
        self.size += record.size() + line::AROUND;
        self.records.push(record);
    }

    fn lines(self) -> Result<EncodedBatch, BundleError> {
        let mut lines = EncodedBatch { bytes: Vec::with_capacity(self.size), names: Vec::new() };
        for record in &self.records {
            let unfit =
                |why: std::io::Error| BundleError::NotExportable { point: record.point(), why: why.to_string() };
            line::write(record, &mut lines.bytes).map_err(unfit)?;
            let named = rath_core::blob_references(record.body_bytes().unwrap_or_default());
            lines.names.extend(named.into_iter().map(|blob| (record.point(), blob)));
        }
        Ok(lines)
    }
}

/// The state of an export.
struct Exporter<'a> {
    redaction: &'a Redaction,
    /// Records that are to be omitted and have not been reached yet.
    not_yet_omitted: BTreeSet<Point>,
    /// What the store itself lacks.
    before: Omissions,
    graph: BundleGraph,
    sessions: BTreeMap<SessionId, SessionHead>,
    /// The hash over the ids of the records so far.
    order: Sha256,
    names: NamedBlobs,
    /// Source files of imported records, and copied contexts, by session.
    files: HashMap<SessionId, Vec<Digest>>,
    /// Sessions with an omitted record whose content is also in one of `files`.
    content_in_files: HashSet<SessionId>,
}

impl<'a> Exporter<'a> {
    fn new(export: &'a Export, before: Omissions) -> Self {
        let graph = BundleGraph {
            bundle: FORMAT,
            of: export.of.keys().copied().collect::<BTreeSet<_>>().into_iter().collect(),
            graph: export.graph,
            sessions: Vec::new(),
            merges: Vec::new(),
            records: 0,
            order: None,
            without_body: 0,
            blobs: 0,
            blob_bytes: 0,
            reason: export.redaction.reason.clone(),
            omitted_records: Vec::new(),
            omitted_blobs: Vec::new(),
        };
        Self {
            redaction: &export.redaction,
            not_yet_omitted: export.redaction.records.clone(),
            before,
            graph,
            sessions: BTreeMap::new(),
            order: Sha256::new(),
            names: NamedBlobs::default(),
            files: HashMap::new(),
            content_in_files: HashSet::new(),
        }
    }

    async fn records(
        &mut self,
        store: &Arc<dyn Store>,
        heads: Vec<(Point, Option<RecordId>)>,
        target: &mut BundleWriter,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), BundleError> {
        let mut walk = Walk::new(store, heads.iter().map(|(head, _)| *head));
        let mut entry = target.start_unlisted(RECORDS)?;
        let mut encoder =
            OrderedWorkers::new("rath-encode", [Batch::lines]).map_err(io_error("cannot start a thread"))?;
        let mut batch = Batch::default();
        while let Some(step) = walk.next().await? {
            batch.push(self.record(step));
            if batch.size >= BATCH_BYTES {
                if let Some(lines) = encoder.give(std::mem::take(&mut batch)) {
                    self.write(lines?, &mut entry)?;
                }
                progress(self.graph.records);
            }
        }
        if let Some(lines) = encoder.give(batch) {
            self.write(lines?, &mut entry)?;
        }
        while let Some(lines) = encoder.take() {
            self.write(lines?, &mut entry)?;
        }
        entry.end()?;
        progress(self.graph.records);
        for (point, id) in heads {
            let is = self.sessions.get(&point.session).filter(|head| head.seq == point.seq).map(|head| head.head);
            if id.is_some_and(|id| is.is_some_and(|is| is != id)) {
                return Err(store::Error::Tampered { point, why: RecordError::Chain }.into());
            }
        }
        self.graph.sessions = std::mem::take(&mut self.sessions).into_values().collect();
        self.graph.order = Some(Digest(std::mem::take(&mut self.order).finalize().into()));
        match self.not_yet_omitted.first() {
            Some(point) => Err(BundleError::NotIncluded(*point)),
            None => Ok(()),
        }
    }

    fn write(&mut self, lines: EncodedBatch, entry: &mut Entry<'_>) -> Result<(), BundleError> {
        lines.names.into_iter().for_each(|(point, blob)| self.names.named(blob, point));
        entry.write(&lines.bytes)
    }

    /// Adds a record to the graph. Returns the record as it is to be written.
    fn record(&mut self, step: Step) -> Record {
        let Step { mut record, other_parents } = step;
        let reference = record.reference();
        self.not_yet_omitted.remove(&record.point());
        if let Some(rule) = self.redaction.rule(&record) {
            let (kind, rule) = (record.kind().to_string(), rule.to_owned());
            self.graph.omitted_records.push(OmittedRecord { record: reference, kind, rule });
            if matches!(ImportSource::of(&record), Ok(Some(_))) {
                self.content_in_files.insert(record.session());
            }
            record = record.erased();
        } else if record.body_bytes().is_none() {
            let erased = || OmittedRecord { record: reference, kind: record.kind().to_string(), rule: ERASED.into() };
            let before = self.before.records.get(&record.id()).cloned();
            self.graph.omitted_records.push(before.unwrap_or_else(erased));
        }
        let files = ImportSource::files(&record);
        if *record.kind() == Kind::Forked && !files.is_empty() && self.redaction.picks_records() {
            // The fork's file has records that are nowhere else, so the rules were not applied to them.
            self.content_in_files.insert(record.session());
        }
        if *record.kind() == Kind::Detached && !self.redaction.kinds.is_empty() {
            // The copied context contains content of another session's records, of any kind.
            self.content_in_files.insert(record.session());
            let copies = record.body::<Detached>().ok().map(|body| body.context.digest);
            self.files.entry(record.session()).or_default().extend(copies);
        }
        if !files.is_empty() {
            self.files.entry(record.session()).or_default().extend(files.iter().map(|file| file.digest));
        }
        self.graph.records += 1;
        self.order.update(record.id().0.0);
        self.graph.without_body += u64::from(record.body_bytes().is_none());
        if *record.kind() == Kind::Merged {
            self.graph.merges.push(MergedHeads { into: reference, took: other_parents.clone() });
        }
        let origin = other_parents.into_iter().next().filter(|_| *record.kind() == Kind::Forked);
        let birth = || record.kind().to_string();
        let session = self.sessions.entry(record.session());
        let head = session.or_insert_with(|| SessionHead {
            session: record.session(),
            birth: birth(),
            origin,
            seq: 0,
            head: record.id(),
        });
        (head.seq, head.head) = (record.seq(), record.id());
        record
    }

    /// Writes the blobs that the records refer to, sorted by digest.
    async fn blobs(&mut self, store: &Arc<dyn Store>, target: &mut BundleWriter) -> Result<(), BundleError> {
        let mut omitted: BTreeMap<Digest, OmittedBlob> = BTreeMap::new();
        let mut omit = |digest: Digest, bytes: u64, rule: &str| {
            omitted.insert(digest, OmittedBlob { digest, bytes, rule: rule.into() });
        };
        let mut finder = Finder::new(self.redaction);
        let in_files = self.content_in_files.iter().filter_map(|session| self.files.get(session));
        let in_files: HashSet<Digest> = in_files.flatten().copied().collect();
        let mut walked = HashSet::new();
        let mut open: Vec<Digest> = self.names.all.keys().copied().collect();
        let mut wanted: BTreeMap<Digest, NamedBlob> = BTreeMap::new();
        while let Some(digest) = open.pop() {
            let Some(named) = self.names.all.get(&digest).copied() else { continue };
            if !walked.insert((digest, named.tree)) {
                continue;
            }
            let rule = match self.redaction {
                Redaction { no_blobs: true, .. } => Some("all blobs"),
                Redaction { no_files: true, .. } if named.tree => Some("files"),
                _ if in_files.contains(&digest) => Some("it says what was left out"),
                _ => self.rule_of_content(store, digest, &mut finder).await?,
            };
            if let Some(rule) = rule {
                let before = self.before.blobs.get(&digest).filter(|_| rule == NOT_IN_STORE);
                omit(digest, named.bytes, before.map_or(rule, |before| &before.rule));
                continue;
            }
            wanted.insert(digest, named);
            if named.tree {
                let bytes = store.blob_get(digest).await?.unwrap_or_default();
                let unfit = |why: String| BundleError::NotExportable {
                    point: named.by,
                    why: format!("{TREE} {digest}: {why}"),
                };
                let tree = Tree::decode(&bytes).map_err(|why| unfit(why.to_string()))?;
                open.extend(self.names.inside(&tree, named.by));
                open.extend(tree.entries.iter().map(|entry| entry.node.sha256));
            }
        }
        for (digest, named) in wanted {
            let mut entry = target.start(format!("{BLOBS}{digest}"))?;
            let lost = || store::Error::NotFound(format!("blob {digest}"));
            let mut parts = blobs::parts(store, digest).await?.ok_or_else(lost)?;
            while let Some(part) = parts.next(store).await? {
                entry.write(&part)?;
            }
            let (is, bytes) = entry.end()?;
            if is != Some(digest) || bytes != named.bytes {
                let why = format!("blob {digest} does not match the record");
                return Err(BundleError::NotExportable { point: named.by, why });
            }
            self.graph.blobs += 1;
            self.graph.blob_bytes += bytes;
        }
        self.graph.omitted_blobs = omitted.into_values().collect();
        let on_purpose = self.graph.omitted_records.iter().any(|left| !left.is_erased());
        if self.graph.reason.is_none() && (on_purpose || !self.graph.omitted_blobs.is_empty()) {
            self.graph.reason.clone_from(&self.before.reason);
        }
        Ok(())
    }

    /// The rule by which a blob is omitted because of its content.
    async fn rule_of_content(
        &self,
        store: &Arc<dyn Store>,
        digest: Digest,
        finder: &mut Finder,
    ) -> Result<Option<&'static str>, BundleError> {
        let Some(mut parts) = blobs::parts(store, digest).await? else { return Ok(Some(NOT_IN_STORE)) };
        let hit = match finder.known(&digest) {
            Some(hit) => hit,
            None => {
                while let Some(part) = parts.next(store).await? {
                    finder.part(&part);
                }
                finder.end(digest)
            }
        };
        Ok(hit.then_some("text"))
    }
}
