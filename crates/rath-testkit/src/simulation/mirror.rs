//! Sends the requests of the simulated store to a real store, with real records, and compares answers and contents.

use std::collections::HashMap;
use std::sync::Arc;

use pollster::block_on;
use rath_core::body::{Body, Closed, Created, Forked, Note};
use rath_core::protocol::PostStatus;
use rath_core::store::{
    self, Batch as RealBatch, BatchPart as RealPart, FencingToken, Post as RealPost, PostContent, Scan,
};
use rath_core::{Actor, Digest, Header, Point, Record, RecordId, RecordParts, Reference, Store, Time};

use super::disk::Disk;
use super::entry::{Content, Entry, Post, Session, name};
use super::holder::Batch;
use super::oracle::{Checked, Violation, ensure};

/// The real store and its records.
pub(super) struct Mirror {
    store: Arc<dyn Store>,
    records: HashMap<RecordId, Record>,
}

impl Mirror {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, records: HashMap::new() }
    }

    /// Creates the records of a batch when it is sent. Their parents were sent before, but may arrive later.
    pub(super) fn learn(&mut self, batch: &Batch) {
        for entry in batch.parts.iter().flat_map(|part| part.entries.iter()) {
            self.record(entry);
        }
    }

    pub(super) fn commit(&mut self, batch: &Batch, simulated: &store::Result<()>) -> Checked {
        let parts = batch.parts.iter().map(|part| RealPart {
            session: name(part.session),
            fence: part.fence,
            keep_lease: part.keep_lease,
            records: part.entries.iter().map(|entry| self.record(entry)).collect(),
            snapshot: None,
        });
        let parts = parts.collect();
        let taken = batch.consumed.iter().map(|post| name_of_post(*post)).collect();
        let real = block_on(self.store.commit(RealBatch { parts, consumed_posts: taken }));
        same("a commit", &real, simulated)
    }

    /// Requests a lease. The real store cannot consider a live process dead, so the old lease is released first if the
    /// simulated store revoked it.
    pub(super) fn lease(
        &self,
        session: Session,
        before: Option<FencingToken>,
        simulated: &store::Result<Option<FencingToken>>,
    ) -> Checked {
        if let (Ok(Some(_)), Some(before)) = (simulated, before) {
            self.store.release(name(session), before);
        }
        let real = match block_on(self.store.lease(name(session))) {
            Ok(fence) => Some(fence),
            Err(store::Error::Locked { .. } | store::Error::NotFound(_)) => None,
            Err(other) => return Err(Violation(format!("the real store: {other}"))),
        };
        let simulated = simulated.as_ref().ok().copied().flatten();
        ensure(real == simulated, || format!("lease of session {session}: {real:?}, simulated: {simulated:?}"))
    }

    pub(super) fn release(&self, session: Session, fence: FencingToken) {
        self.store.release(name(session), fence);
    }

    pub(super) fn post(&self, post: Post, session: Session, kept: bool) -> Checked {
        let what = PostContent::Message { text: "do it".into() };
        let (id, actor) = (name_of_post(post), Actor::person("ada"));
        let real = block_on(self.store.post(RealPost { id, session: name(session), actor, time: Time(1), what }));
        ensure(real.is_ok() == kept, || format!("post {post}: {real:?}"))
    }

    pub(super) fn erase(&self, session: Session, seq: usize, disk: &Disk) -> Checked {
        let entry = disk.stored(session).and_then(|stored| stored.entries.get(seq));
        let Some(record) = entry.and_then(|entry| self.records.get(&entry.id)) else { return Ok(()) };
        let Reference { session, seq, id } = record.reference();
        let real = block_on(self.store.erase(vec![Reference { session, seq, id }]));
        ensure(real.is_ok(), || format!("erasure of record {seq}: {real:?}"))
    }

    /// Checks that both stores have the same records and posts.
    pub(super) fn compare(&self, disk: &Disk, addressed: &[Session]) -> Checked {
        for (session, stored) in disk.sessions.iter().enumerate() {
            let Some(stored) = stored else { continue };
            let page = block_on(self.store.scan(Scan::session(name(session), 0, u64::MAX - 1)));
            let real = page.map_err(|error| Violation(format!("reading session {session}: {error}")))?.records;
            ensure(real.len() == stored.entries.len(), || {
                format!("session {session} has {} records, simulated: {}", real.len(), stored.entries.len())
            })?;
            for (record, entry) in real.iter().zip(&stored.entries) {
                let made = self.records.get(&entry.id).map(Record::id);
                let same = made == Some(record.id()) && record.body_bytes().is_some() == entry.what.is_some();
                ensure(same, || format!("record {} of session {session} differs from the simulated one", entry.seq))?;
            }
            let posts = block_on(self.store.posts(name(session)));
            let posts = posts.map_err(|error| Violation(format!("reading posts: {error}")))?;
            for (post, _) in addressed.iter().enumerate().filter(|(_, to)| **to == session) {
                let waits = posts.iter().any(|have| have.id == name_of_post(post));
                ensure(waits == (disk.posts[post] == PostStatus::Waiting), || {
                    format!("post {post} is in the inbox: {waits}, simulated: {:?}", disk.posts[post])
                })?;
            }
        }
        Ok(())
    }

    /// Creates a real record with the same links.
    fn record(&mut self, entry: &Entry) -> Record {
        if let Some(made) = self.records.get(&entry.id) {
            return made.clone();
        }
        let parent = entry.parent.and_then(|parent| self.records.get(&parent)).map(Record::id);
        let made = match entry.what {
            Some(Content::Forked { from, seq }) => {
                made(entry, parent, &Forked::new(Point { session: name(from), seq }, "to try"))
            }
            Some(Content::Created) => made(entry, parent, &Created::default()),
            Some(Content::Closed) => made(entry, parent, &Closed::default()),
            other => made(entry, parent, &Note { text: format!("{other:?}").into() }),
        };
        self.records.insert(entry.id, made.clone());
        made
    }
}

fn made<B: Body>(entry: &Entry, parent: Option<RecordId>, body: &B) -> Record {
    let body = serde_json::to_vec(body).unwrap();
    let mut salt = [0; 16];
    salt[..8].copy_from_slice(&entry.id.0.0[..8]);
    let header = Header {
        actor: Actor::program("simulation"),
        body_digest: Digest::of_parts(&[&salt, &body]),
        clock_behind: None,
        kind: B::KIND,
        parents: parent.into_iter().collect(),
        seq: entry.seq,
        session: name(entry.session),
        step: None,
        time: Time(1),
        v: rath_core::ENVELOPE,
    };
    let header = header.to_bytes();
    let (end, bytes) = (header.len() as u32, [header.as_slice(), &body].concat());
    Record::from_parts(RecordParts {
        point: Point { session: name(entry.session), seq: entry.seq },
        generation: entry.seq,
        kind: None,
        header: 0..end,
        body: Some((salt, end..bytes.len() as u32)),
        bytes: bytes.into(),
    })
    .unwrap()
}

fn name_of_post(post: Post) -> String {
    format!("post-{post}")
}

fn same(what: &str, real: &store::Result<()>, simulated: &store::Result<()>) -> Checked {
    let words = |answer: &store::Result<()>| answer.as_ref().map_or_else(ToString::to_string, |()| "done".into());
    let (real, simulated) = (words(real), words(simulated));
    ensure(real == simulated, || format!("answer to {what}: {real}; simulated: {simulated}"))
}
