//! Checks a bundle: every hash, every link, every file, before anything of it is believed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{Cursor, Read};

use rath_core::body::{Created, Forked, Merged};
use rath_core::files::Tree;
use rath_core::verify::{Chain, Finding, What};
use rath_core::{Digest, Fault, Header, Kind, Point, Record, RecordId, Reference, SessionId, State};
use sha2::{Digest as _, Sha256};

use super::beside::Beside;
use super::blobs::{Named, Names};
use super::blocks::{Block, Blocks, Cut, Parsed, Parsing, Unfit, threadless};
use super::graph::{Graph, Head, Merge};
use super::import::AT_HAND;
use super::places::{Place, Places};
use super::rows::LINE;
use super::source::{Bytes, Source};
use super::{BLOBS, Broken, FORMAT, GRAPH, README, RECORDS, SUMS, UNSUMMED, VERIFIER};

/// The most that is read at once of files that must be understood as a whole.
pub(super) const WHOLE: u64 = 256 << 20;

/// So many threads take lines apart, if there are as many processors. What they make is put together by one.
const PARSERS: usize = 4;

/// A bundle that is what was exported.
#[derive(Debug)]
pub struct Contents {
    /// What it holds.
    pub graph: Graph,
    /// Where each record stands.
    pub(super) places: Places,
    /// Its records, in order, where they are few enough, until the last who wants them takes them.
    pub(super) records: Option<Vec<Record>>,
    /// Whether the `verify.py` in it is not one that a version of rath wrote.
    pub another_verifier: bool,
    /// Records that somebody waited for, by place.
    pub(super) seen: HashMap<Point, RecordId>,
    /// Keys of runs, with the sessions that were created for them.
    pub(super) runs: Vec<(String, SessionId)>,
}

/// Reads a zip that is in memory, and checks all of it.
pub fn read_zip(bytes: &[u8]) -> Result<Contents, Broken> {
    let mut source = Source::zip(Bytes::Memory(Cursor::new(bytes.to_vec())))?;
    check(&mut source, &HashSet::new(), AT_HAND, &mut |_| {})
}

/// Checks everything in a bundle. The ids of the records at `watched` places are kept, and the records themselves where
/// they have at most `at_hand` bytes.
pub(super) fn check(
    source: &mut Source,
    watched: &HashSet<Point>,
    at_hand: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<Contents, Broken> {
    let bad = |name: &str, why: &str| Broken::File { name: name.into(), why: why.into() };
    let sums = read_sums(source)?;
    let expect = |name: &str, digest: Digest| match sums.get(name) {
        Some(sum) if *sum == digest => Ok(()),
        Some(_) => Err(bad(name, "its bytes are not those that SHA256SUMS vouches for")),
        None => Err(bad(name, "SHA256SUMS does not list it")),
    };
    let graph_bytes = source.whole(GRAPH, WHOLE)?;
    let graph = read_graph(&graph_bytes)?;
    let bytes = source.names.get(RECORDS).copied().unwrap_or(0);
    let mut lines = Lines::new(&graph, watched, at_hand, bytes);
    let digest = lines.read(source, progress)?;
    lines.finish()?;
    match digest {
        Some(digest) => expect(RECORDS, digest)?,
        None if sums.contains_key(RECORDS) => return Err(bad(SUMS, "it lists records.jsonl, as this format does not")),
        None => {}
    }
    expect(GRAPH, Digest::of(&graph_bytes))?;
    expect(README, Digest::of(&source.whole(README, WHOLE)?))?;
    let verifier = source.whole(VERIFIER, WHOLE)?;
    expect(VERIFIER, Digest::of(&verifier))?;
    let (blobs, blob_bytes) = check_blobs(source, &graph, &mut lines.names)?;
    for digest in source.blobs() {
        expect(&format!("{BLOBS}{digest}"), digest)?;
    }
    if let Some(name) = sums.keys().find(|name| !source.names.contains_key(*name) || *name == SUMS) {
        return Err(bad(name, "SHA256SUMS lists it, and it is not there or is the list"));
    }
    let Lines { lines, merges, count, without_body, order, mut places, records, seen, runs, .. } = lines;
    if records.is_none() {
        // They are read once more, and each is looked for.
        places.catch_up();
    }
    let mut sessions: Vec<Head> = lines.into_iter().filter_map(|line| line.head).collect();
    sessions.sort_unstable_by_key(|head| head.session);
    let is = Graph {
        sessions,
        merges,
        records: count,
        order: (graph.bundle >= UNSUMMED).then(|| Digest(order.finalize().into())),
        without_body,
        blobs,
        blob_bytes,
        ..graph.clone()
    };
    if is != graph {
        return Err(bad(GRAPH, "it does not say what the records say"));
    }
    Ok(Contents { graph, places, records, seen, runs, another_verifier: !super::is_our_verifier(&verifier) })
}

/// The sessions that the graph names, before anything was checked.
pub(super) fn heads(source: &mut Source) -> Result<Vec<Head>, Broken> {
    Ok(read_graph(&source.whole(GRAPH, WHOLE)?)?.sessions)
}

/// `SHA256SUMS`: the one way to write it, every file that it is to list once, in order.
fn read_sums(source: &mut Source) -> Result<BTreeMap<String, Digest>, Broken> {
    let bad = |why: String| Broken::File { name: SUMS.into(), why };
    let text = String::from_utf8(source.whole(SUMS, WHOLE)?).map_err(|_| bad("it is not text".into()))?;
    let mut sums = BTreeMap::new();
    if !text.ends_with('\n') {
        return Err(bad("its last line is cut".into()));
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

fn read_graph(bytes: &[u8]) -> Result<Graph, Broken> {
    let bad = |why: String| Broken::File { name: GRAPH.into(), why };
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

/// The records while they are read.
struct Lines<'a> {
    graph: &'a Graph,
    watched: &'a HashSet<Point>,
    at_hand: usize,
    lines: Vec<Line>,
    /// Where those are, by session.
    by_session: HashMap<SessionId, usize>,
    /// Where the last one is: most records go on with it.
    last: usize,
    places: Places,
    seen: HashMap<Point, RecordId>,
    merges: Vec<Merge>,
    runs: Vec<(String, SessionId)>,
    names: Names,
    records: Option<Vec<Record>>,
    size: usize,
    count: u64,
    /// Over the ids so far.
    order: Sha256,
    without_body: u64,
    left_out: usize,
}

/// The records of a session.
struct Line {
    session: SessionId,
    chain: Chain,
    /// `None` before the first.
    head: Option<Head>,
}

impl<'a> Lines<'a> {
    fn new(graph: &'a Graph, watched: &'a HashSet<Point>, at_hand: usize, bytes: u64) -> Self {
        // The graph may say anything, but no line is shorter than this.
        let expected = graph.records.min(bytes / 256).min(1 << 20) as usize;
        Self {
            graph,
            watched,
            at_hand,
            lines: Vec::new(),
            by_session: HashMap::new(),
            last: 0,
            places: Places::with_capacity(expected),
            seen: HashMap::new(),
            merges: Vec::new(),
            runs: Vec::new(),
            names: Names::default(),
            records: Some(Vec::with_capacity(expected)),
            size: 0,
            count: 0,
            order: Sha256::new(),
            without_body: 0,
            left_out: 0,
        }
    }

    /// Reads all records. Where the bundle has a sum of their file, the file's digest comes back.
    fn read(&mut self, source: &mut Source, progress: &mut dyn FnMut(u64)) -> Result<Option<Digest>, Broken> {
        let is_summed = self.graph.bundle < UNSUMMED;
        let mut hash = is_summed.then(Sha256::new);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let parsing = |_| {
            let mut parsing = Parsing::new(!is_summed);
            move |block: Block| parsing.block(&block)
        };
        let mut parser = Beside::new("rath-parse", (0..processors.min(PARSERS)).map(parsing)).map_err(threadless)?;
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
            Some(Cut::Unreadable(broken)) => return Err(broken),
            Some(Cut::Long) => {
                return Err(Broken::Line { line: self.count + 1, why: format!("it is longer than {LINE} bytes") });
            }
        }
        progress(self.count);
        Ok(hash.map(|hash| Digest(hash.finalize().into())))
    }

    fn block(&mut self, parsed: Vec<Result<Parsed, Unfit>>) -> Result<(), Broken> {
        parsed.into_iter().try_for_each(|parsed| {
            self.count += 1;
            self.record(parsed.map_err(|unfit| unfit.at(self.count))?)
        })
    }

    fn broken(&self, point: Point, why: impl Into<String>) -> Broken {
        Broken::Record { point, line: self.count, why: why.into() }
    }

    fn record(&mut self, parsed: Parsed) -> Result<(), Broken> {
        let Parsed { header, is_plain, record, is_object, names, length } = parsed;
        let point = Point { session: header.session, seq: header.seq };
        let elsewhere = self.elsewhere(point, &header)?;
        let chain = &mut self.line(point.session).chain;
        let own = chain.last().map(|last| last.generation + 1);
        let others = elsewhere.iter().map(|place| place.generation + 1).max();
        let record = record.with_generation(own.max(others).unwrap_or(0));
        let (mut findings, mut links) = (Vec::new(), Vec::new());
        match is_plain {
            true => chain.check_plain(&record, &header, is_object, &mut findings, &mut links),
            false => chain.check(&record, &mut findings, &mut links),
        }
        self.fail_on(&findings)?;
        self.check_lineage(&record, &elsewhere)?;
        self.check_left_out(&record)?;
        // What a store folds it must be able to read.
        State::default().apply(&record).map_err(|why| self.broken(point, why.to_string()))?;
        if let Ok(Created { run: Some(key), .. }) = record.body() {
            self.runs.push((key, point.session));
        }
        // A record keeps its block, whatever else stands in that.
        self.size += length;
        names.into_iter().for_each(|blob| self.names.named(blob, point));
        self.note(record, &header, &elsewhere);
        Ok(())
    }

    fn line(&mut self, session: SessionId) -> &mut Line {
        if self.lines.get(self.last).is_none_or(|line| line.session != session) {
            let Self { lines, by_session, .. } = self;
            self.last = *by_session.entry(session).or_insert_with(|| {
                let mut chain = Chain::new(session);
                chain.state = None;
                lines.push(Line { session, chain, head: None });
                lines.len() - 1
            });
        }
        &mut self.lines[self.last]
    }

    /// The parents on other lines: they stand before their children.
    fn elsewhere(&mut self, point: Point, header: &Header) -> Result<Vec<Place>, Broken> {
        let parents = if header.seq == 0 { &header.parents[..] } else { header.parents.get(1..).unwrap_or_default() };
        if parents.is_empty() {
            return Ok(Vec::new());
        }
        self.places.catch_up();
        let mut places = Vec::with_capacity(parents.len());
        for parent in parents {
            let missing = || self.broken(point, format!("its parent {} does not stand before it", parent.short()));
            let place = self.places.get(parent).ok_or_else(missing)?;
            if place.time > header.time {
                return Err(self.broken(point, "its time is before its parent's"));
            }
            places.push(place);
        }
        Ok(places)
    }

    /// What bodies say about lineage must be what the headers say.
    fn check_lineage(&self, record: &Record, elsewhere: &[Place]) -> Result<(), Broken> {
        let unreadable = |why: Fault| self.broken(record.point(), why.to_string());
        let named: Vec<Point> = match record.kind() {
            _ if record.body_bytes().is_none() => return Ok(()),
            Kind::Forked => vec![record.body::<Forked>().map_err(unreadable)?.from],
            Kind::Merged => {
                let body = record.body::<Merged>().map_err(unreadable)?;
                body.branches.iter().map(|branch| branch.head()).collect()
            }
            _ => return Ok(()),
        };
        let fits = named.len() == elsewhere.len() && named.iter().zip(elsewhere).all(|(named, is)| *named == is.point);
        match fits {
            true => Ok(()),
            false => Err(self.broken(record.point(), "its body names another parent than its header")),
        }
    }

    /// A record that the graph lists as left out has no body, and no other lacks one; the list is in the order of the
    /// records.
    fn check_left_out(&mut self, record: &Record) -> Result<(), Broken> {
        let listed = self.graph.left_out.get(self.left_out).filter(|left| left.record.id == record.id());
        let Some(listed) = listed else {
            return match record.body_bytes() {
                Some(_) => Ok(()),
                None => Err(self.broken(record.point(), "its body is missing, and graph.json does not say why")),
            };
        };
        if record.body_bytes().is_some() || listed.record != record.reference() || listed.kind != record.kind().as_str()
        {
            return Err(self.broken(record.point(), "graph.json says that it was left out, and it is here"));
        }
        self.left_out += 1;
        Ok(())
    }

    fn note(&mut self, record: Record, header: &Header, elsewhere: &[Place]) {
        let point = record.point();
        self.without_body += u64::from(record.body_bytes().is_none());
        let references: Vec<Reference> = {
            let parents = if header.seq == 0 { &header.parents[..] } else { &header.parents[1..] };
            let pairs = elsewhere.iter().zip(parents);
            pairs.map(|(at, id)| Reference { session: at.point.session, seq: at.point.seq, id: *id }).collect()
        };
        if *record.kind() == Kind::Merged {
            self.merges.push(Merge { into: record.reference(), took: references.clone() });
        }
        let head = self.line(point.session).head.get_or_insert_with(|| Head {
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
        self.places.push(record.id(), Place { point, generation: record.generation(), time: header.time, has_body });
        if self.size > self.at_hand {
            self.records = None;
        }
        if let Some(records) = &mut self.records {
            // An erased fork cannot say where it comes from; its header can.
            let origin = references.first().copied().filter(|_| point.seq == 0 && record.body_bytes().is_none());
            records.push(match origin {
                Some(origin) => record.with_origin(origin),
                None => record,
            });
        }
    }

    fn fail_on(&self, findings: &[Finding]) -> Result<(), Broken> {
        match findings.first() {
            Some(Finding { what, session: Some(session), seq: Some(seq), why }) => {
                // That one was altered may show only in the next. Of two in one place the second is one too many.
                let point = Point { session: *session, seq: *seq };
                let line = self.places.line_of(point).filter(|_| *what != What::Duplicate).unwrap_or(self.count);
                Err(Broken::Record { point, line, why: why.clone() })
            }
            Some(finding) => Err(Broken::Line { line: self.count, why: finding.why.clone() }),
            None => Ok(()),
        }
    }

    /// Each line must end in the head that the graph names.
    fn finish(&mut self) -> Result<(), Broken> {
        let bad = |why: String| Broken::File { name: GRAPH.into(), why };
        let mut findings = Vec::new();
        for head in &self.graph.sessions {
            match self.by_session.get(&head.session) {
                Some(at) => self.lines[*at].chain.finish(head.head, head.seq, &mut findings),
                None => return Err(bad(format!("it names session {}, which has no records", head.session.short()))),
            }
            self.fail_on(&findings)?;
        }
        let listed: HashSet<_> = self.graph.sessions.iter().map(|head| head.session).collect();
        if let Some(other) = self.by_session.keys().find(|session| !listed.contains(session)) {
            return Err(bad(format!("it does not name session {}, which has records", other.short())));
        }
        if let Some(other) = self.graph.of.iter().find(|session| !listed.contains(session)) {
            return Err(bad(format!("it is said to be of session {}, which it does not name", other.short())));
        }
        if self.left_out < self.graph.left_out.len() {
            return Err(bad("it lists a record as left out that is not there, or not in that place".into()));
        }
        Ok(())
    }
}

/// The blobs must be those that bodies and trees name, but for those that the graph lists.
fn check_blobs(source: &mut Source, graph: &Graph, names: &mut Names) -> Result<(u64, u64), Broken> {
    let left_out: BTreeMap<Digest, u64> = graph.left_out_blobs.iter().map(|blob| (blob.digest, blob.bytes)).collect();
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
        let broken = |why: &str| Broken::Blob { digest, point: named.by, why: why.into() };
        match (here, left_out.get(&digest)) {
            (None, Some(bytes)) if *bytes == named.bytes => {}
            (_, Some(_)) => return Err(broken("graph.json does not say the truth about what was left out")),
            (None, None) => return Err(broken("it is not in the bundle")),
            (Some(length), None) if length != named.bytes => return Err(broken("it is not as long as the body says")),
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
        return Err(Broken::Blob { digest, point, why: "two bodies name it with two lengths".into() });
    }
    if let Some(extra) = source.blobs().find(|digest| !checked.contains_key(digest)) {
        let name = format!("{BLOBS}{extra}");
        return Err(Broken::File { name, why: "no record names it".into() });
    }
    if let Some(extra) = left_out.keys().find(|digest| !checked.contains_key(digest)) {
        let why = format!("it lists blob {extra} as left out, which no record names");
        return Err(Broken::File { name: GRAPH.into(), why });
    }
    Ok((count, total))
}

/// Hashes a blob; reads it as a tree, where it is one.
fn check_blob(source: &mut Source, digest: Digest, named: &Named) -> Result<Option<Tree>, Broken> {
    let broken = |why: String| Broken::Blob { digest, point: named.by, why };
    let name = format!("{BLOBS}{digest}");
    if named.tree {
        let bytes = source.whole(&name, WHOLE)?;
        if Digest::of(&bytes) != digest {
            return Err(broken("its bytes are not those that its name vouches for".into()));
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
        false => Err(broken("its bytes are not those that its name vouches for".into())),
    }
}
