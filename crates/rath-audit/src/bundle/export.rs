//! Writes a bundle.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use rath_core::body::{Detached, Source};
use rath_core::files::{TREE, Tree};
use rath_core::store::{self, Lookup, Store, Which};
use rath_core::{BlobRef, Digest, Fault, Kind, Point, Record, RecordId, SessionId};
use sha2::{Digest as _, Sha256};

use super::absent::LeftOut;
use super::beside::Beside;
use super::blobs::{self, Named, Names};
use super::graph::{ERASED, Graph, Head, LeftOutBlob, LeftOutRecord, Merge};
use super::redact::{Finder, Redaction};
use super::target::{Entry, Target};
use super::walk::{self, Step, Walk};
use super::{BLOBS, Error, FORMAT, GRAPH, README, RECORDS, VERIFIER, VERIFY_PY, line, machine};

/// How to check a bundle by hand.
const READ_ME: &str = include_str!("readme.md");

/// As many bytes of records are written together, or one that is longer.
const TOGETHER: usize = 1 << 20;

/// The rule for blobs that nobody left out.
const NOT_HERE: &str = "not in the store";

/// What is exported.
#[derive(Clone, Debug, Default)]
pub struct Export {
    /// Sessions, each up to a record; up to its head where there is none.
    pub of: BTreeMap<SessionId, Option<u64>>,
    /// Every session of their family, with all its records.
    pub graph: bool,
    /// What is left out.
    pub redaction: Redaction,
}

/// What was exported.
#[derive(Clone, Debug)]
pub struct Exported {
    /// What the bundle's graph says.
    pub graph: Graph,
}

impl Export {
    /// One session with everything it stands on.
    pub fn of(session: SessionId, seq: Option<u64>) -> Self {
        Self { of: BTreeMap::from([(session, seq)]), ..Self::default() }
    }

    /// Writes the bundle at `path`: a zip when the name ends in `.zip`, else a directory. `progress` hears how many
    /// records are written.
    pub async fn write(
        &self,
        store: &Arc<dyn Store>,
        path: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Exported, Error> {
        let heads = self.heads(store).await?;
        let mut target = Target::create(path)?;
        let mut work = Work::new(self, LeftOut::of(store).await?);
        work.records(store, heads, &mut target, progress).await?;
        work.blobs(store, &mut target).await?;
        let graph = work.graph;
        target.file(GRAPH, &graph.to_bytes())?;
        target.file(README, READ_ME.as_bytes())?;
        target.file(VERIFIER, VERIFY_PY.as_bytes())?;
        target.finish()?;
        Ok(Exported { graph })
    }

    /// Where the sessions are to end, with the id of the record there where the store says it.
    async fn heads(&self, store: &Arc<dyn Store>) -> Result<Vec<(Point, Option<RecordId>)>, Error> {
        if self.graph {
            let of: Vec<_> = self.of.keys().copied().collect();
            let family = walk::family(store, &of).await?;
            return Ok(family.into_iter().map(|head| (head.point(), Some(head.id))).collect());
        }
        let mut heads = Vec::new();
        for (session, seq) in &self.of {
            let row = store.sessions(Which::Id(*session).into()).await?.into_iter().next();
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

/// Records on their way into the bundle.
#[derive(Default)]
struct Pile {
    records: Vec<Record>,
    /// About how many bytes their lines have.
    size: usize,
}

/// What becomes of them.
struct Lines {
    bytes: Vec<u8>,
    /// The blobs that they name.
    names: Vec<(Point, BlobRef)>,
}

impl Pile {
    fn push(&mut self, record: Record) {
        self.size += record.size() + line::AROUND;
        self.records.push(record);
    }

    fn lines(self) -> Result<Lines, Error> {
        let mut lines = Lines { bytes: Vec::with_capacity(self.size), names: Vec::new() };
        for record in &self.records {
            let unfit = |why: std::io::Error| Error::Unfit { point: record.point(), why: why.to_string() };
            line::write(record, &mut lines.bytes).map_err(unfit)?;
            let named = rath_core::blob_references(record.body_bytes().unwrap_or_default());
            lines.names.extend(named.into_iter().map(|blob| (record.point(), blob)));
        }
        Ok(lines)
    }
}

/// An export under way.
struct Work<'a> {
    redaction: &'a Redaction,
    /// Records that are to be left out, and did not come yet.
    awaited: BTreeSet<Point>,
    /// What was not here to begin with.
    before: LeftOut,
    graph: Graph,
    sessions: BTreeMap<SessionId, Head>,
    /// Over the ids of the records so far.
    order: Sha256,
    names: Names,
    /// Files that records were read from, by session.
    files: HashMap<SessionId, Vec<Digest>>,
    /// Sessions of which a record was left out that stands in such a file too.
    told_by_files: HashSet<SessionId>,
}

impl<'a> Work<'a> {
    fn new(export: &'a Export, before: LeftOut) -> Self {
        let graph = Graph {
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
            because: export.redaction.because.clone(),
            left_out: Vec::new(),
            left_out_blobs: Vec::new(),
        };
        Self {
            redaction: &export.redaction,
            awaited: export.redaction.records.clone(),
            before,
            graph,
            sessions: BTreeMap::new(),
            order: Sha256::new(),
            names: Names::default(),
            files: HashMap::new(),
            told_by_files: HashSet::new(),
        }
    }

    async fn records(
        &mut self,
        store: &Arc<dyn Store>,
        heads: Vec<(Point, Option<RecordId>)>,
        target: &mut Target,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Error> {
        let mut walk = Walk::new(store, heads.iter().map(|(head, _)| *head));
        let mut entry = target.begin_unsummed(RECORDS)?;
        let mut encoder = Beside::new("rath-encode", [Pile::lines]).map_err(machine("starting a thread"))?;
        let mut pile = Pile::default();
        while let Some(step) = walk.next().await? {
            pile.push(self.record(step));
            if pile.size >= TOGETHER {
                if let Some(lines) = encoder.give(std::mem::take(&mut pile)) {
                    self.write(lines?, &mut entry)?;
                }
                progress(self.graph.records);
            }
        }
        if let Some(lines) = encoder.give(pile) {
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
                return Err(store::Error::Tampered { point, why: Fault::Chain }.into());
            }
        }
        self.graph.sessions = std::mem::take(&mut self.sessions).into_values().collect();
        self.graph.order = Some(Digest(std::mem::take(&mut self.order).finalize().into()));
        match self.awaited.first() {
            Some(point) => Err(Error::NotInIt(*point)),
            None => Ok(()),
        }
    }

    fn write(&mut self, lines: Lines, entry: &mut Entry<'_>) -> Result<(), Error> {
        lines.names.into_iter().for_each(|(point, blob)| self.names.named(blob, point));
        entry.write(&lines.bytes)
    }

    /// Notes a record; as it is to be written it comes back.
    fn record(&mut self, step: Step) -> Record {
        let Step { mut record, elsewhere } = step;
        let reference = record.reference();
        self.awaited.remove(&record.point());
        if let Some(rule) = self.redaction.rule(&record) {
            let (kind, rule) = (record.kind().to_string(), rule.to_owned());
            self.graph.left_out.push(LeftOutRecord { record: reference, kind, rule });
            if matches!(Source::of(&record), Ok(Some(_))) {
                self.told_by_files.insert(record.session());
            }
            record = record.erased();
        } else if record.body_bytes().is_none() {
            let erased = || LeftOutRecord { record: reference, kind: record.kind().to_string(), rule: ERASED.into() };
            let before = self.before.records.get(&record.id()).cloned();
            self.graph.left_out.push(before.unwrap_or_else(erased));
        }
        let files = Source::files(&record);
        if *record.kind() == Kind::Forked && !files.is_empty() && self.redaction.picks_records() {
            // Its file has records that are nowhere else, and nobody looked at them.
            self.told_by_files.insert(record.session());
        }
        if *record.kind() == Kind::Detached && !self.redaction.kinds.is_empty() {
            // Its context has words of records of another session, of whatever kinds.
            self.told_by_files.insert(record.session());
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
            self.graph.merges.push(Merge { into: reference, took: elsewhere.clone() });
        }
        let origin = elsewhere.into_iter().next().filter(|_| *record.kind() == Kind::Forked);
        let birth = || record.kind().to_string();
        let session = self.sessions.entry(record.session());
        let head = session.or_insert_with(|| Head {
            session: record.session(),
            birth: birth(),
            origin,
            seq: 0,
            head: record.id(),
        });
        (head.seq, head.head) = (record.seq(), record.id());
        record
    }

    /// Writes the blobs that the records name, in the order of their digests.
    async fn blobs(&mut self, store: &Arc<dyn Store>, target: &mut Target) -> Result<(), Error> {
        let mut left_out: BTreeMap<Digest, LeftOutBlob> = BTreeMap::new();
        let mut leave_out = |digest: Digest, bytes: u64, rule: &str| {
            left_out.insert(digest, LeftOutBlob { digest, bytes, rule: rule.into() });
        };
        let mut finder = Finder::new(self.redaction);
        let told = self.told_by_files.iter().filter_map(|session| self.files.get(session));
        let told: HashSet<Digest> = told.flatten().copied().collect();
        let mut walked = HashSet::new();
        let mut open: Vec<Digest> = self.names.all.keys().copied().collect();
        let mut wanted: BTreeMap<Digest, Named> = BTreeMap::new();
        while let Some(digest) = open.pop() {
            let Some(named) = self.names.all.get(&digest).copied() else { continue };
            if !walked.insert((digest, named.tree)) {
                continue;
            }
            let rule = match self.redaction {
                Redaction { no_blobs: true, .. } => Some("all blobs"),
                Redaction { no_files: true, .. } if named.tree => Some("files"),
                _ if told.contains(&digest) => Some("it says what was left out"),
                _ => self.rule_of_content(store, digest, &mut finder).await?,
            };
            if let Some(rule) = rule {
                let before = self.before.blobs.get(&digest).filter(|_| rule == NOT_HERE);
                leave_out(digest, named.bytes, before.map_or(rule, |before| &before.rule));
                continue;
            }
            wanted.insert(digest, named);
            if named.tree {
                let bytes = store.blob_get(digest).await?.unwrap_or_default();
                let unfit = |why: String| Error::Unfit { point: named.by, why: format!("{TREE} {digest}: {why}") };
                let tree = Tree::decode(&bytes).map_err(|why| unfit(why.to_string()))?;
                open.extend(self.names.inside(&tree, named.by));
                open.extend(tree.entries.iter().map(|entry| entry.node.sha256));
            }
        }
        for (digest, named) in wanted {
            let mut entry = target.begin(format!("{BLOBS}{digest}"))?;
            let lost = || store::Error::NotFound(format!("blob {digest}"));
            let mut parts = blobs::parts(store, digest).await?.ok_or_else(lost)?;
            while let Some(part) = parts.next(store).await? {
                entry.write(&part)?;
            }
            let (is, bytes) = entry.end()?;
            if is != Some(digest) || bytes != named.bytes {
                let why = format!("blob {digest} is not what the record says");
                return Err(Error::Unfit { point: named.by, why });
            }
            self.graph.blobs += 1;
            self.graph.blob_bytes += bytes;
        }
        self.graph.left_out_blobs = left_out.into_values().collect();
        let on_purpose = self.graph.left_out.iter().any(|left| !left.is_erased());
        if self.graph.because.is_none() && (on_purpose || !self.graph.left_out_blobs.is_empty()) {
            self.graph.because.clone_from(&self.before.because);
        }
        Ok(())
    }

    /// The rule by which a blob is left out for what is in it.
    async fn rule_of_content(
        &self,
        store: &Arc<dyn Store>,
        digest: Digest,
        finder: &mut Finder,
    ) -> Result<Option<&'static str>, Error> {
        let Some(mut parts) = blobs::parts(store, digest).await? else { return Ok(Some(NOT_HERE)) };
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
