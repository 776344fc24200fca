//! Checks a bundle completely, every hash, link and file, before any of it is used.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{Cursor, Read};

use rath_core::body::{Created, Forked, Merged};
use rath_core::files::Tree;
use rath_core::verify::{ChainVerifier, Finding, FindingKind};
use rath_core::{Digest, Header, Kind, Point, Record, RecordError, RecordId, Reference, SessionId, State};
use sha2::{Digest as _, Sha256};

use super::blobs::{NamedBlob, NamedBlobs};
use super::blocks::{BadLine, Block, Blocks, LineParser, ParsedLine, ReadStop, no_thread};
use super::graph::{BundleGraph, MergedHeads, SessionHead};
use super::import::MAX_CACHED_BYTES;
use super::line_reader::MAX_LINE;
use super::ordered_workers::OrderedWorkers;
use super::record_index::{IndexedRecord, RecordIndex};
use super::source::{BundleSource, Bytes};
use super::{BLOBS, BundleDefect, FIRST_UNSUMMED, FORMAT, GRAPH, README, RECORDS, SUMS, VERIFIER};

/// The size limit of files that are read as a whole, in bytes.
pub(super) const WHOLE: u64 = 256 << 20;

/// The maximum number of threads that parse lines. One thread assembles their results.
const PARSERS: usize = 4;

/// The content of a valid bundle.
#[derive(Debug)]
pub struct BundleContents {
    /// The content of `graph.json`.
    pub graph: BundleGraph,
    /// The records by id.
    pub(super) index: RecordIndex,
    /// All records in order, if they fit in memory.
    pub(super) records: Option<Vec<Record>>,
    /// Whether the bundle's `verify.py` is not one that a version of rath wrote.
    pub another_verifier: bool,
    /// The ids of the records at the watched points.
    pub(super) seen: HashMap<Point, RecordId>,
    /// Run keys, with the sessions that were created for them.
    pub(super) runs: Vec<(String, SessionId)>,
}

/// Reads a zip in memory and checks all of it.
pub fn read_zip(bytes: &[u8]) -> Result<BundleContents, BundleDefect> {
    let mut source = BundleSource::zip(Bytes::InMemory(Cursor::new(bytes.to_vec())))?;
    check(&mut source, &HashSet::new(), MAX_CACHED_BYTES, &mut |_| {})
}

/// Checks everything in a bundle. Keeps the ids of the records at `watched`, and keeps the records themselves if they
/// have at most `max_cached_bytes` bytes.
pub(super) fn check(
    source: &mut BundleSource,
    watched: &HashSet<Point>,
    max_cached_bytes: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<BundleContents, BundleDefect> {
    let bad = |name: &str, why: &str| BundleDefect::File { name: name.into(), why: why.into() };
    let sums = read_sums(source)?;
    let expect = |name: &str, digest: Digest| match sums.get(name) {
        Some(sum) if *sum == digest => Ok(()),
        Some(_) => Err(bad(name, "its digest is not the one in SHA256SUMS")),
        None => Err(bad(name, "SHA256SUMS does not list it")),
    };
    let graph_bytes = source.whole(GRAPH, WHOLE)?;
    let graph = read_graph(&graph_bytes)?;
    let bytes = source.names.get(RECORDS).copied().unwrap_or(0);
    let mut chains = RecordChecker::new(&graph, watched, max_cached_bytes, bytes);
    let digest = chains.read(source, progress)?;
    chains.finish()?;
    match digest {
        Some(digest) => expect(RECORDS, digest)?,
        None if sums.contains_key(RECORDS) => {
            return Err(bad(SUMS, "it lists records.jsonl, which this format does not list"));
        }
        None => {}
    }
    expect(GRAPH, Digest::of(&graph_bytes))?;
    expect(README, Digest::of(&source.whole(README, WHOLE)?))?;
    let verifier = source.whole(VERIFIER, WHOLE)?;
    expect(VERIFIER, Digest::of(&verifier))?;
    let (blobs, blob_bytes) = check_blobs(source, &graph, &mut chains.names)?;
    for digest in source.blobs() {
        expect(&format!("{BLOBS}{digest}"), digest)?;
    }
    if let Some(name) = sums.keys().find(|name| !source.names.contains_key(*name) || *name == SUMS) {
        return Err(bad(name, "SHA256SUMS lists it, but it is missing or is SHA256SUMS itself"));
    }
    let RecordChecker { chains, merges, count, without_body, order, mut index, records, seen, runs, .. } = chains;
    if records.is_none() {
        // The records are read again later, and each is looked up by its id then.
        index.catch_up();
    }
    let mut sessions: Vec<SessionHead> = chains.into_iter().filter_map(|chain| chain.head).collect();
    sessions.sort_unstable_by_key(|head| head.session);
    let is = BundleGraph {
        sessions,
        merges,
        records: count,
        order: (graph.bundle >= FIRST_UNSUMMED).then(|| Digest(order.finalize().into())),
        without_body,
        blobs,
        blob_bytes,
        ..graph.clone()
    };
    if is != graph {
        return Err(bad(GRAPH, "it does not match the records"));
    }
    Ok(BundleContents { graph, index, records, seen, runs, another_verifier: !super::is_our_verifier(&verifier) })
}

/// The sessions in `graph.json`, before anything is checked.
pub(super) fn heads(source: &mut BundleSource) -> Result<Vec<SessionHead>, BundleDefect> {
    Ok(read_graph(&source.whole(GRAPH, WHOLE)?)?.sessions)
}

/// Parses `SHA256SUMS` in its canonical form: every file once, sorted by name.
fn read_sums(source: &mut BundleSource) -> Result<BTreeMap<String, Digest>, BundleDefect> {
    let bad = |why: String| BundleDefect::File { name: SUMS.into(), why };
    let text = String::from_utf8(source.whole(SUMS, WHOLE)?).map_err(|_| bad("it is not UTF-8".into()))?;
    let mut sums = BTreeMap::new();
    if !text.ends_with('\n') {
        return Err(bad("its last line is truncated".into()));
    }
    for (at, line) in text.split_terminator('\n').enumerate() {
        let read = line.split_once("  ").and_then(|(digest, name)| Some((name, digest.parse::<Digest>().ok()?)));
        let Some((name, digest)) = read else { return Err(bad(format!("line {} cannot be read", at + 1))) };
        if sums.last_key_value().is_some_and(|(last, _): (&String, _)| last.as_str() >= name) {
            return Err(bad(format!("line {} is out of order", at + 1)));
        }
        sums.insert(name.to_owned(), digest);
    }
    Ok(sums)
}

fn read_graph(bytes: &[u8]) -> Result<BundleGraph, BundleDefect> {
    let bad = |why: String| BundleDefect::File { name: GRAPH.into(), why };
    #[derive(serde::Deserialize)]
    struct Mark {
        bundle: u64,
    }
    let mark: Mark = serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
    if !(1..=FORMAT).contains(&mark.bundle) {
        let found = mark.bundle;
        return Err(bad(format!("the bundle has format {found}; this version of rath reads 1 to {FORMAT}")));
    }
    serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))
}

/// The state of the check while records are read.
struct RecordChecker<'a> {
    graph: &'a BundleGraph,
    watched: &'a HashSet<Point>,
    max_cached_bytes: usize,
    chains: Vec<SessionChain>,
    /// Positions in `chains`, by session.
    by_session: HashMap<SessionId, usize>,
    /// The position of the last session: most records follow one of the same session.
    last: usize,
    index: RecordIndex,
    seen: HashMap<Point, RecordId>,
    merges: Vec<MergedHeads>,
    runs: Vec<(String, SessionId)>,
    names: NamedBlobs,
    records: Option<Vec<Record>>,
    size: usize,
    count: u64,
    /// The hash over the ids of the records so far.
    order: Sha256,
    without_body: u64,
    omitted_seen: usize,
}

/// The chain of one session's records.
struct SessionChain {
    session: SessionId,
    chain: ChainVerifier,
    /// `None` before the first record.
    head: Option<SessionHead>,
}

impl<'a> RecordChecker<'a> {
    fn new(graph: &'a BundleGraph, watched: &'a HashSet<Point>, max_cached_bytes: usize, bytes: u64) -> Self {
        // The count in the graph is untrusted. No line is shorter than 256 bytes.
        let expected = graph.records.min(bytes / 256).min(1 << 20) as usize;
        Self {
            graph,
            watched,
            max_cached_bytes,
            chains: Vec::new(),
            by_session: HashMap::new(),
            last: 0,
            index: RecordIndex::with_capacity(expected),
            seen: HashMap::new(),
            merges: Vec::new(),
            runs: Vec::new(),
            names: NamedBlobs::default(),
            records: Some(Vec::with_capacity(expected)),
            size: 0,
            count: 0,
            order: Sha256::new(),
            without_body: 0,
            omitted_seen: 0,
        }
    }

    /// Reads and checks all records. Returns the digest of `records.jsonl` if the format lists it in `SHA256SUMS`.
    fn read(
        &mut self,
        source: &mut BundleSource,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Option<Digest>, BundleDefect> {
        let is_summed = self.graph.bundle < FIRST_UNSUMMED;
        let mut hash = is_summed.then(Sha256::new);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let parsing = |_| {
            let mut parsing = LineParser::new(!is_summed);
            move |block: Block| parsing.block(&block)
        };
        let mut parser =
            OrderedWorkers::new("rath-parse", (0..processors.min(PARSERS)).map(parsing)).map_err(no_thread)?;
        let cut = Blocks::new(source)?.each(|block| {
            if let Some(hash) = &mut hash {
                hash.update(&block);
            }
            if let Some(parsed) = parser.give(block) {
                self.block(parsed)?;
                progress(self.count);
            }
            Ok(())
        })?;
        while let Some(parsed) = parser.take() {
            self.block(parsed)?;
        }
        match cut {
            None => {}
            Some(ReadStop::Unreadable(broken)) => return Err(broken),
            Some(ReadStop::TooLong) => {
                return Err(BundleDefect::Line {
                    line: self.count + 1,
                    why: format!("the line is longer than {MAX_LINE} bytes"),
                });
            }
        }
        progress(self.count);
        Ok(hash.map(|hash| Digest(hash.finalize().into())))
    }

    fn block(&mut self, parsed: Vec<Result<ParsedLine, BadLine>>) -> Result<(), BundleDefect> {
        parsed.into_iter().try_for_each(|parsed| {
            self.count += 1;
            self.record(parsed.map_err(|unfit| unfit.at(self.count))?)
        })
    }

    fn defect(&self, point: Point, why: impl Into<String>) -> BundleDefect {
        BundleDefect::Record { point, line: self.count, why: why.into() }
    }

    fn record(&mut self, parsed: ParsedLine) -> Result<(), BundleDefect> {
        let ParsedLine { header, is_plain, record, is_object, names, length } = parsed;
        let point = Point { session: header.session, seq: header.seq };
        let other_parents = self.other_parents(point, &header)?;
        let chain = &mut self.chain_of(point.session).chain;
        let own = chain.last().map(|last| last.generation + 1);
        let others = other_parents.iter().map(|parent| parent.generation + 1).max();
        let record = record.with_generation(own.max(others).unwrap_or(0));
        let (mut findings, mut links) = (Vec::new(), Vec::new());
        match is_plain {
            true => chain.check_plain(&record, &header, is_object, &mut findings, &mut links),
            false => chain.check(&record, &mut findings, &mut links),
        }
        self.fail_on(&findings)?;
        self.check_lineage(&record, &other_parents)?;
        self.check_omitted(&record)?;
        // A store must be able to fold the record.
        State::default().apply(&record).map_err(|why| self.defect(point, why.to_string()))?;
        if let Ok(Created { run: Some(key), .. }) = record.body() {
            self.runs.push((key, point.session));
        }
        // A record shares the memory of its block: keeping one record keeps the whole block in memory.
        self.size += length;
        names.into_iter().for_each(|blob| self.names.named(blob, point));
        self.note(record, &header, &other_parents);
        Ok(())
    }

    fn chain_of(&mut self, session: SessionId) -> &mut SessionChain {
        if self.chains.get(self.last).is_none_or(|chain| chain.session != session) {
            let Self { chains, by_session, .. } = self;
            self.last = *by_session.entry(session).or_insert_with(|| {
                let mut chain = ChainVerifier::new(session);
                chain.state = None;
                chains.push(SessionChain { session, chain, head: None });
                chains.len() - 1
            });
        }
        &mut self.chains[self.last]
    }

    /// The parents in other sessions, which must be before their children.
    fn other_parents(&mut self, point: Point, header: &Header) -> Result<Vec<IndexedRecord>, BundleDefect> {
        let parents = if header.seq == 0 { &header.parents[..] } else { header.parents.get(1..).unwrap_or_default() };
        if parents.is_empty() {
            return Ok(Vec::new());
        }
        self.index.catch_up();
        let mut found = Vec::with_capacity(parents.len());
        for parent in parents {
            let missing = || self.defect(point, format!("its parent {} is not before it", parent.short()));
            let indexed = self.index.get(parent).ok_or_else(missing)?;
            if indexed.time > header.time {
                return Err(self.defect(point, "its time is before that of its parent"));
            }
            found.push(indexed);
        }
        Ok(found)
    }

    /// Checks that bodies and headers agree about lineage.
    fn check_lineage(&self, record: &Record, other_parents: &[IndexedRecord]) -> Result<(), BundleDefect> {
        let unreadable = |why: RecordError| self.defect(record.point(), why.to_string());
        let named: Vec<Point> = match record.kind() {
            _ if record.body_bytes().is_none() => return Ok(()),
            Kind::Forked => vec![record.body::<Forked>().map_err(unreadable)?.from],
            Kind::Merged => {
                let body = record.body::<Merged>().map_err(unreadable)?;
                body.branches.iter().map(|branch| branch.head()).collect()
            }
            _ => return Ok(()),
        };
        let fits =
            named.len() == other_parents.len() && named.iter().zip(other_parents).all(|(named, is)| *named == is.point);
        match fits {
            true => Ok(()),
            false => Err(self.defect(record.point(), "its body and its header name different parents")),
        }
    }

    /// Checks that exactly the records that the graph lists as omitted have no body. The list is in the order of the
    /// records.
    fn check_omitted(&mut self, record: &Record) -> Result<(), BundleDefect> {
        let listed = self.graph.omitted_records.get(self.omitted_seen).filter(|left| left.record.id == record.id());
        let Some(listed) = listed else {
            return match record.body_bytes() {
                Some(_) => Ok(()),
                None => {
                    Err(self.defect(record.point(), "its body is missing, and graph.json does not list it as omitted"))
                }
            };
        };
        if record.body_bytes().is_some() || listed.record != record.reference() || listed.kind != record.kind().as_str()
        {
            return Err(self.defect(
                record.point(),
                "graph.json lists its body as omitted, but the body is in the bundle or the entry does not match",
            ));
        }
        self.omitted_seen += 1;
        Ok(())
    }

    fn note(&mut self, record: Record, header: &Header, other_parents: &[IndexedRecord]) {
        let point = record.point();
        self.without_body += u64::from(record.body_bytes().is_none());
        let references: Vec<Reference> = {
            let parents = if header.seq == 0 { &header.parents[..] } else { &header.parents[1..] };
            let pairs = other_parents.iter().zip(parents);
            pairs.map(|(at, id)| Reference { session: at.point.session, seq: at.point.seq, id: *id }).collect()
        };
        if *record.kind() == Kind::Merged {
            self.merges.push(MergedHeads { into: record.reference(), took: references.clone() });
        }
        let head = self.chain_of(point.session).head.get_or_insert_with(|| SessionHead {
            session: point.session,
            birth: record.kind().to_string(),
            origin: references.first().copied(),
            seq: 0,
            head: record.id(),
        });
        (head.seq, head.head) = (point.seq, record.id());
        if self.watched.contains(&point) {
            self.seen.insert(point, record.id());
        }
        self.order.update(record.id().0.0);
        let has_body = record.body_bytes().is_some();
        self.index
            .push(record.id(), IndexedRecord { point, generation: record.generation(), time: header.time, has_body });
        if self.size > self.max_cached_bytes {
            self.records = None;
        }
        if let Some(records) = &mut self.records {
            // The body of an erased fork does not name the fork point; its header does.
            let origin = references.first().copied().filter(|_| point.seq == 0 && record.body_bytes().is_none());
            records.push(match origin {
                Some(origin) => record.with_origin(origin),
                None => record,
            });
        }
    }

    fn fail_on(&self, findings: &[Finding]) -> Result<(), BundleDefect> {
        match findings.first() {
            Some(Finding { what, session: Some(session), seq: Some(seq), why }) => {
                // A changed record may be noticed only at the next one. Of two records with one number, the second is
                // the wrong one.
                let point = Point { session: *session, seq: *seq };
                let line = self.index.line_of(point).filter(|_| *what != FindingKind::Duplicate).unwrap_or(self.count);
                Err(BundleDefect::Record { point, line, why: why.clone() })
            }
            Some(finding) => Err(BundleDefect::Line { line: self.count, why: finding.why.clone() }),
            None => Ok(()),
        }
    }

    /// Checks that each session ends with the head in the graph.
    fn finish(&mut self) -> Result<(), BundleDefect> {
        let bad = |why: String| BundleDefect::File { name: GRAPH.into(), why };
        let mut findings = Vec::new();
        for head in &self.graph.sessions {
            match self.by_session.get(&head.session) {
                Some(at) => self.chains[*at].chain.finish(head.head, head.seq, &mut findings),
                None => return Err(bad(format!("it lists session {}, which has no records", head.session.short()))),
            }
            self.fail_on(&findings)?;
        }
        let listed: HashSet<_> = self.graph.sessions.iter().map(|head| head.session).collect();
        if let Some(other) = self.by_session.keys().find(|session| !listed.contains(session)) {
            return Err(bad(format!("it does not list session {}, which has records", other.short())));
        }
        if let Some(other) = self.graph.of.iter().find(|session| !listed.contains(session)) {
            return Err(bad(format!("it selects session {}, which it does not list", other.short())));
        }
        if self.omitted_seen < self.graph.omitted_records.len() {
            return Err(bad("it lists an omitted record that is missing or in another position".into()));
        }
        Ok(())
    }
}

/// Checks that the bundle has exactly the blobs that bodies and trees refer to, except those that the graph lists as
/// omitted.
fn check_blobs(
    source: &mut BundleSource,
    graph: &BundleGraph,
    names: &mut NamedBlobs,
) -> Result<(u64, u64), BundleDefect> {
    let omitted: BTreeMap<Digest, u64> = graph.omitted_blobs.iter().map(|blob| (blob.digest, blob.bytes)).collect();
    let mut open: Vec<Digest> = names.all.keys().copied().collect();
    let mut checked: HashMap<Digest, bool> = HashMap::new();
    let (mut count, mut total) = (0, 0);
    while let Some(digest) = open.pop() {
        let Some(named) = names.all.get(&digest).copied() else { continue };
        let done = checked.get(&digest).copied();
        if done == Some(true) || done == Some(false) && !named.tree {
            continue;
        }
        let here = source.names.get(&format!("{BLOBS}{digest}")).copied();
        let broken = |why: &str| BundleDefect::Blob { digest, point: named.by, why: why.into() };
        match (here, omitted.get(&digest)) {
            (None, Some(bytes)) if *bytes == named.bytes => {}
            (_, Some(_)) => return Err(broken("graph.json lists it as omitted, which does not match the bundle")),
            (None, None) => return Err(broken("it is not in the bundle")),
            (Some(length), None) if length != named.bytes => {
                return Err(broken("its length is not the one in the body"));
            }
            (Some(length), None) => {
                if done.is_none() {
                    (count, total) = (count + 1, total + length);
                }
                if let Some(tree) = check_blob(source, digest, &named)? {
                    open.extend(names.inside(&tree, named.by));
                    open.extend(tree.entries.iter().map(|entry| entry.node.sha256));
                }
            }
        }
        checked.insert(digest, named.tree);
    }
    if let Some((digest, point)) = names.contradiction {
        return Err(BundleDefect::Blob { digest, point, why: "two bodies give it different lengths".into() });
    }
    if let Some(extra) = source.blobs().find(|digest| !checked.contains_key(digest)) {
        let name = format!("{BLOBS}{extra}");
        return Err(BundleDefect::File { name, why: "no record refers to it".into() });
    }
    if let Some(extra) = omitted.keys().find(|digest| !checked.contains_key(digest)) {
        let why = format!("it lists blob {extra} as omitted, to which no record refers");
        return Err(BundleDefect::File { name: GRAPH.into(), why });
    }
    Ok((count, total))
}

/// Checks the hash of a blob. Returns the tree if the blob is one.
fn check_blob(source: &mut BundleSource, digest: Digest, named: &NamedBlob) -> Result<Option<Tree>, BundleDefect> {
    let broken = |why: String| BundleDefect::Blob { digest, point: named.by, why };
    let name = format!("{BLOBS}{digest}");
    if named.tree {
        let bytes = source.whole(&name, WHOLE)?;
        if Digest::of(&bytes) != digest {
            return Err(broken("its content does not match its digest".into()));
        }
        return Tree::decode(&bytes).map(Some).map_err(|why| broken(why.to_string()));
    }
    let mut reader = source.read(&name)?;
    let (mut hash, mut length, mut part) = (Sha256::new(), 0u64, vec![0; 256 << 10]);
    loop {
        match reader.read(&mut part).map_err(|error| broken(error.to_string()))? {
            0 => break,
            read => {
                length += read as u64;
                hash.update(&part[..read]);
            }
        }
    }
    match Digest(hash.finalize().into()) == digest && length == named.bytes {
        true => Ok(None),
        false => Err(broken("its content does not match its digest".into())),
    }
}
