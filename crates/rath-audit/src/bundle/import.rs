//! Takes a bundle into a store, after everything in it was checked.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rath_core::body::{ArrivedLine, Placed};
use rath_core::store::{Lookup, Piece, Scan, Store, Which};
use rath_core::{Actor, Blob, BlobRef, Digest, Fault, Kind, Point, Record, Reference, SessionId};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::blobs::{LARGE, PIECE};
use super::check::{self, Contents};
use super::gaps::Gaps;
use super::graph::{Graph, Head};
use super::line::Line;
use super::plan::Plan;
use super::rows::Rows;
use super::source::Source;
use super::writing::{Leases, commit};
use super::{BLOBS, Broken, Error, RECORDS, fork, notes};

/// As many bytes of records stay at hand between checking and taking in, unless somebody wants it otherwise.
pub(super) const AT_HAND: usize = 256 << 20;

/// Blobs that are sent to the store together.
const BLOB_BATCH: u64 = 4 << 20;

/// How a bundle is taken in.
#[derive(Clone, Debug)]
pub struct Import {
    /// Keep lines that went on in another way as forks, instead of refusing the bundle.
    pub as_fork: bool,
    /// Records up to this many bytes stay at hand between checking and taking in. Of a longer bundle they are read, and
    /// checked, a second time.
    pub at_hand: usize,
}

impl Default for Import {
    fn default() -> Self {
        Self { as_fork: false, at_hand: AT_HAND }
    }
}

/// What was taken in.
#[derive(Clone, Debug, Serialize)]
pub struct Imported {
    /// What became of each session of the bundle.
    pub sessions: BTreeMap<SessionId, Fate>,
    /// Records that are new in the store.
    pub records: u64,
    /// Blobs that records here had been without, and that came now.
    pub filled_in: u64,
    /// Records that the store had already, without their bodies. The bundle has those; a record is written once, so they
    /// cannot come any more.
    pub without_body: Vec<Reference>,
    /// Bodies in the bundle that were erased here, and stay so.
    pub erased: u64,
    /// Where sessions worked in the store that they come from, and what was allowed there. None of it counts here.
    pub worked: BTreeMap<SessionId, Worked>,
    /// Whether the `verify.py` in the bundle is not one that a version of rath wrote.
    pub another_verifier: bool,
    /// What the bundle holds.
    #[serde(skip)]
    pub graph: Graph,
}

/// What records from elsewhere say about place and permissions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Worked {
    /// The last place, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Whether commands were kept away from the machine there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolated: Option<bool>,
    /// Permissions that were given there for good.
    pub granted: u64,
}

impl Worked {
    /// Takes in a record that says something of them.
    pub(super) fn note(worked: &mut BTreeMap<SessionId, Self>, record: &Record) {
        match record.kind() {
            Kind::Placed => {
                if let Ok(placed) = record.body::<Placed>() {
                    let of = worked.entry(record.session()).or_default();
                    (of.place, of.isolated) = (Some(placed.in_words()), Some(placed.isolated));
                }
            }
            Kind::Granted => worked.entry(record.session()).or_default().granted += 1,
            _ => {}
        }
    }
}

/// What became of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
pub enum Fate {
    /// The store did not have it.
    New,
    /// The store had the records before this one.
    Forwarded {
        /// The first that is new.
        from: u64,
    },
    /// The store had all of it.
    Known,
    /// It went on here in another way. What only the bundle has is a fork.
    Forked {
        /// The fork.
        into: SessionId,
        /// The last record that both have.
        at: u64,
    },
    /// It stands on what diverged. Its exact records are kept beside the fork, as a blob.
    Kept,
}

impl Import {
    /// Reads the bundle at `path`, checks all of it, and takes it in. `progress` hears how many records are done.
    pub async fn read(
        &self,
        store: &Arc<dyn Store>,
        actor: &Actor,
        path: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Imported, Error> {
        let mut source = Source::open(path)?;
        let rows = stored(store, &mut source).await?;
        let watched = rows.iter().map(|(session, (seq, _))| Point { session: *session, seq: *seq }).collect();
        let mut contents = check::check(&mut source, &watched, self.at_hand, progress)?;
        let mut plan = Plan::new(store, &contents, &rows).await?;
        if let Some((session, at)) = plan.diverged.iter().next() {
            let (session, at) = (*session, *at);
            let parted = part(store, &mut source, &contents, session, at).await?;
            if !self.as_fork {
                let [here, there] = parted;
                return Err(Error::Diverged { here: Box::new(here), there: Box::new(there) });
            }
        }
        let mut parted = BTreeMap::new();
        for (session, at) in plan.diverged.clone() {
            let [here, _] = part(store, &mut source, &contents, session, at).await?;
            parted.insert(session, here.seq);
        }
        plan.keep(&contents, &parted);
        fork::refuse_erased(store, &parted).await?;
        let beyond = fork::Beyond { parted: &parted, known: &plan.known };
        let gaps = Gaps::of(store, &mut source, &contents, &beyond).await?;
        let mut imported = Imported {
            sessions: plan.fates.clone(),
            records: 0,
            filled_in: gaps.blobs.len() as u64,
            without_body: gaps.bodies,
            erased: gaps.erased,
            worked: BTreeMap::new(),
            another_verifier: contents.another_verifier,
            graph: contents.graph.clone(),
        };
        let filled = gaps.blobs;
        let mut wanted = filled.clone();
        if plan.fates.values().any(|fate| *fate != Fate::Known) {
            wanted.extend(plan.blobs(&mut source, &contents, &parted)?);
            wanted.sort_unstable();
            wanted.dedup();
        } else if wanted.is_empty() {
            return Ok(imported);
        }
        let leases = Leases::take(store, &plan).await?;
        take_in_blobs(store, &mut source, wanted).await?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        if !filled.is_empty() {
            notes::filled(store, actor, name.clone(), &filled).await?;
        }
        let expected = plan.new_records(&contents.graph);
        if expected > 0 {
            // Before the first record comes: no moment in which it would be taken for one of this store.
            let comes =
                |head: &&Head| matches!(plan.fates.get(&head.session), Some(Fate::New | Fate::Forwarded { .. }));
            let lines = contents.graph.sessions.iter().filter(comes);
            let lines: Vec<_> = lines.map(|head| ArrivedLine { session: head.session, to: head.seq }).collect();
            // What is left out is known before the first record that lacks it.
            notes::remember(store, actor, name.clone(), &contents.graph, &lines, notes::COMING).await?;
        }
        // Unless some are kept as forks, nobody wants those at hand any more.
        let records = match contents.records.take_if(|_| parted.is_empty()) {
            Some(records) => Records::GivenUp(records.into_iter()),
            None => Records::new(&mut source, &contents)?,
        };
        let (taken, worked) = (&mut imported.records, &mut imported.worked);
        let committed = commit(store, records, &contents.graph, &plan, &leases, taken, worked, progress).await;
        committed.map_err(|error| match meanwhile(error) {
            changed @ Error::Changed(_) => changed,
            other => Error::CutShort { taken: imported.records, of: expected, why: Box::new(other) },
        })?;
        if imported.records != expected {
            return Err(meanwhile(changed(RECORDS)));
        }
        if !parted.is_empty() {
            fork::keep(store, actor, &mut source, &contents, &beyond, &mut imported).await.map_err(meanwhile)?;
        }
        if imported.records > 0 || imported.filled_in > 0 {
            notes::remember(store, actor, name, &imported.graph, &[], notes::CAME).await?;
        }
        Ok(imported)
    }
}

/// Of the sessions that the bundle names, those in the store: up to where both have records, and the id there.
async fn stored(store: &Arc<dyn Store>, source: &mut Source) -> Result<HashMap<SessionId, (u64, Reference)>, Error> {
    let heads = check::heads(source)?;
    let mut rows = HashMap::new();
    for Head { session, seq, .. } in heads {
        let Some(row) = store.sessions(Which::Id(session).into()).await?.into_iter().next() else { continue };
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

/// The first record that is another one here than there.
async fn part(
    store: &Arc<dyn Store>,
    source: &mut Source,
    contents: &Contents,
    session: SessionId,
    until: u64,
) -> Result<[Reference; 2], Error> {
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
    Err(rath_core::store::Error::Tampered { point, why: Fault::Chain }.into())
}

/// The records of a checked bundle once more: at hand, or read and checked again.
pub(super) enum Records<'s> {
    AtHand(std::slice::Iter<'s, Record>),
    /// For the last who wants them: each is given up when it was taken in.
    GivenUp(std::vec::IntoIter<Record>),
    Read(Box<Rows<Box<dyn Read + 's>>>, &'s Contents, u64),
}

impl<'s> Records<'s> {
    pub(super) fn new(source: &'s mut Source, contents: &'s Contents) -> Result<Self, Broken> {
        Ok(match &contents.records {
            Some(records) => Self::AtHand(records.iter()),
            None => Self::Read(Box::new(Rows::new(source)?), contents, 0),
        })
    }

    pub(super) fn next(&mut self) -> Result<Option<Record>, Broken> {
        match self {
            Self::AtHand(records) => Ok(records.next().cloned()),
            Self::GivenUp(records) => Ok(records.next()),
            Self::Read(rows, contents, count) => {
                *count += 1;
                let changed = |why: String| Broken::Line { line: *count, why: format!("it changed meanwhile: {why}") };
                let Some(row) = rows.next()? else { return Ok(None) };
                let line = Line::read(row).map_err(changed)?;
                let header = line.header().map_err(changed)?;
                let bytes = Bytes::copy_from_slice(row);
                let record = line.record(&header, 0, &bytes, 0).map_err(changed)?;
                let unknown = || changed("its id is another".into());
                let place = contents.places.get(&record.id()).ok_or_else(unknown)?;
                let record = record.with_generation(place.generation);
                if record.body_bytes().is_some() != place.has_body {
                    return Err(changed("its body comes or goes".into()));
                }
                record.check_body().map_err(|why| changed(why.to_string()))?;
                let origin = match (record.kind(), record.body_bytes(), header.parents.first()) {
                    (Kind::Forked, None, Some(parent)) => contents.places.get(parent).map(|at| Reference {
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

/// Writes these blobs of a bundle, those of any length by parts.
async fn take_in_blobs(store: &Arc<dyn Store>, source: &mut Source, wanted: Vec<Digest>) -> Result<(), Error> {
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

/// What is said of bytes that nobody knows more about.
pub(crate) const OCTETS: &str = "application/octet-stream";

/// What is found broken after something was taken in was sound before.
fn meanwhile(error: Error) -> Error {
    match error {
        Error::Broken(broken) => Error::Changed(broken),
        other => other,
    }
}

pub(super) fn changed(name: &str) -> Error {
    Broken::File { name: name.into(), why: "it changed while it was read".into() }.into()
}

/// Writes a long content by pieces.
pub(crate) async fn put_large(
    store: &Arc<dyn Store>,
    whole: BlobRef,
    reader: &mut (dyn Read + '_),
    name: &str,
) -> Result<(), Error> {
    if store.blob_pieces(whole.digest).await?.is_some() {
        return Ok(());
    }
    let (mut hash, mut length, mut pieces) = (Sha256::new(), 0u64, Vec::new());
    loop {
        let mut piece = Vec::with_capacity(PIECE);
        let at = |error: std::io::Error| Error::Machine { doing: format!("reading {name}"), cause: error };
        reader.take(PIECE as u64).read_to_end(&mut piece).map_err(at)?;
        if piece.is_empty() {
            break;
        }
        hash.update(&piece);
        length += piece.len() as u64;
        let blob = Blob::new(piece, OCTETS);
        pieces.push(Piece { digest: blob.reference.digest, bytes: blob.reference.bytes });
        store.blob_put(vec![blob]).await?;
    }
    if length != whole.bytes || Digest(hash.finalize().into()) != whole.digest {
        return Err(changed(name));
    }
    Ok(store.blob_join(whole, pieces).await?)
}
