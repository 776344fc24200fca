//! Keeps a line that went on in another way: as a fork at the last record that both have.
//!
//! A record cannot move: its header holds session and seq. So the fork says the words of that line again, as records of
//! its own that name the line they come from, and the exact records are kept as a blob beside them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use rath_core::body::{
    Assistant, Body, CopiedLine, Forked, Note, Source as Origin, Sourced, System, ToolFinished, ToolResult, User,
};
use rath_core::store::{Lookup, Store, Which};
use rath_core::{Actor, BlobRef, Digest, Kind, Point, Record, RecordId, Reference, Session, SessionId, View};

use super::blobs::LARGE;
use super::check::Contents;
use super::import::{Fate, Imported, Records, put_large};
use super::source::Source;
use super::{Error, line};

/// What is said of lines of a bundle.
const LINES: &str = "application/x-ndjson";

/// What a store has not: of each line that diverged from the first record that is another one, of others from the first
/// that is new.
pub(super) struct Beyond<'a> {
    pub(super) parted: &'a BTreeMap<SessionId, u64>,
    pub(super) known: &'a HashMap<SessionId, u64>,
}

impl Beyond<'_> {
    pub(super) fn has(&self, point: Point) -> bool {
        let from = self.parted.get(&point.session).or_else(|| self.known.get(&point.session));
        from.is_none_or(|from| point.seq >= *from)
    }
}

/// A fork that was made of such a line before, and erased since, cannot be told any more: it must not come back.
pub(super) async fn refuse_erased(store: &Arc<dyn Store>, parted: &BTreeMap<SessionId, u64>) -> Result<(), Error> {
    for (session, from) in parted {
        for row in store.sessions(Which::ChildrenOf(*session).into()).await? {
            let first = store.get(Lookup::At(Point { session: row.id, seq: 0 })).await?;
            let at = row.origin.map(|origin| origin.seq + 1);
            if at == Some(*from) && first.first().is_some_and(|first| first.body_bytes().is_none()) {
                let point = Point { session: *session, seq: *from };
                let why = format!("fork {} from there was erased here, and it may be this line", row.id.short());
                return Err(Error::NoFork { point, why });
            }
        }
    }
    Ok(())
}

/// Keeps what cannot be taken in.
pub(super) async fn keep(
    store: &Arc<dyn Store>,
    actor: &Actor,
    source: &mut Source,
    contents: &Contents,
    beyond: &Beyond<'_>,
    imported: &mut Imported,
) -> Result<(), Error> {
    let parted = beyond.parted;
    if let Some((session, _)) = parted.iter().find(|(_, seq)| **seq == 0) {
        let point = Point { session: *session, seq: 0 };
        return Err(Error::NoFork { point, why: "the two have no record in common".into() });
    }
    let rest = Rest::read(source, contents, beyond, &imported.sessions)?;
    let records = rest.put(store).await?;
    for (session, from) in parted {
        let head = contents.graph.sessions.iter().find(|head| head.session == *session);
        let Some(head) = head.map(|head| Reference { session: *session, seq: head.seq, id: head.head }) else {
            continue;
        };
        let into = match copy_of(store, head).await? {
            Some(known) => known,
            None => {
                let unsaid = rest.of(*session).filter(|(_, record)| !is_said_again(record)).count() as u64;
                let blobs = rest.blobs.clone();
                let copied = CopiedLine { head, from: *from, records: records.clone(), blobs, unsaid };
                let view = View::of(store, *session, Some(from - 1)).await?;
                let mut fork = view.fork_for_copy(actor.clone(), "went on in another store", copied)?;
                for (line, record) in rest.of(*session) {
                    rest.say(&mut fork, record, Origin { blob: records.digest, line, time: time_of(record) })?;
                }
                fork.publish().await?;
                imported.records += fork.head().seq + 1;
                fork.id()
            }
        };
        imported.sessions.insert(*session, Fate::Forked { into, at: from - 1 });
    }
    Ok(())
}

/// The fork that was made of a line before.
async fn copy_of(store: &Arc<dyn Store>, head: Reference) -> Result<Option<SessionId>, Error> {
    for row in store.sessions(Which::ChildrenOf(head.session).into()).await? {
        let first = store.get(Lookup::At(Point { session: row.id, seq: 0 })).await?;
        let copied = first.first().and_then(|first| first.body::<Forked>().ok()?.copied);
        if copied.is_some_and(|copied| copied.head == head) {
            return Ok(Some(row.id));
        }
    }
    Ok(None)
}

fn time_of(record: &Record) -> Option<String> {
    record.time().ok().map(|time| time.to_string())
}

fn is_said_again(record: &Record) -> bool {
    (record.kind().is_conversation() || *record.kind() == Kind::Note) && record.body_bytes().is_some()
}

/// The records that cannot be taken in.
struct Rest {
    lines: Vec<Record>,
    bytes: Vec<u8>,
    blobs: Vec<BlobRef>,
    finished: HashMap<RecordId, usize>,
}

impl Rest {
    fn read(
        source: &mut Source,
        contents: &Contents,
        beyond: &Beyond<'_>,
        fates: &BTreeMap<SessionId, Fate>,
    ) -> Result<Self, Error> {
        let (mut rest, mut seen) = (
            Self { lines: Vec::new(), bytes: Vec::new(), blobs: Vec::new(), finished: HashMap::new() },
            BTreeSet::new(),
        );
        let mut records = Records::new(source, contents)?;
        while let Some(record) = records.next()? {
            let kept = fates.get(&record.session()) == Some(&Fate::Kept);
            if !kept || !beyond.has(record.point()) {
                continue;
            }
            let unfit = |why: std::io::Error| Error::Unfit { point: record.point(), why: why.to_string() };
            line::write_in_strings(&record, &mut rest.bytes).map_err(unfit)?;
            for blob in rath_core::blob_references(record.body_bytes().unwrap_or_default()) {
                if seen.insert(blob.digest) {
                    rest.blobs.push(blob);
                }
            }
            if *record.kind() == Kind::ToolFinished {
                rest.finished.insert(record.id(), rest.lines.len());
            }
            rest.lines.push(record);
        }
        Ok(rest)
    }

    async fn put(&self, store: &Arc<dyn Store>) -> Result<BlobRef, Error> {
        let bytes = self.bytes.len() as u64;
        let whole = BlobRef { digest: Digest::of(&self.bytes), bytes, media_type: LINES.into() };
        match bytes > LARGE {
            true => put_large(store, whole.clone(), &mut &self.bytes[..], "the rest of the bundle").await?,
            false => store.blob_put(vec![rath_core::Blob::new(self.bytes.clone(), LINES)]).await?,
        }
        Ok(whole)
    }

    /// The records of one line, each with its line in the blob.
    fn of(&self, session: SessionId) -> impl Iterator<Item = (u64, &Record)> {
        (1..).zip(&self.lines).filter(move |(_, record)| record.session() == session)
    }

    /// Says again what a record said.
    fn say(&self, fork: &mut Session, record: &Record, source: Origin) -> Result<(), Error> {
        fn again<B: Body>(fork: &mut Session, body: B, source: Origin) -> Result<(), Error> {
            fork.append(Sourced { body, source })?;
            Ok(())
        }
        let unfit = |why: rath_core::Fault| Error::Unfit { point: record.point(), why: why.to_string() };
        if !is_said_again(record) {
            return Ok(());
        }
        match record.kind() {
            Kind::System => again(fork, record.body::<System>().map_err(unfit)?, source),
            Kind::User => again(fork, record.body::<User>().map_err(unfit)?, source),
            Kind::Assistant => again(fork, record.body::<Assistant>().map_err(unfit)?, source),
            Kind::Note => again(fork, record.body::<Note>().map_err(unfit)?, source),
            Kind::ToolResult => {
                let mut body = record.body::<ToolResult>().map_err(unfit)?;
                // The record that it refers to is not on this line.
                let finished = body.finished.take().and_then(|id| self.lines.get(*self.finished.get(&id)?));
                if let Some(finished) = finished.and_then(|finished| finished.body::<ToolFinished>().ok()) {
                    body.show(&finished);
                }
                again(fork, body, source)
            }
            _ => Ok(()),
        }
    }
}
