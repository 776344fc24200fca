//! The operations of the writer inside its transaction.

use std::collections::HashSet;
use std::sync::Arc;

use rath_core::body::Created;
use rath_core::protocol::{self, CommitBackend, PostStatus, Protocol, Rules as _, StoredHead};
use rath_core::store::{BatchPart, Error, FIRST_FENCING_TOKEN, FencingToken, Holder, IoErrorKind, Post, Result};
use rath_core::{Blob, Digest, Kind, OPERATOR, Point, Record, RecordError, RecordId, SessionId, State};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::change_signal::ChangeSignals;
use super::deferred_blobs::DeferredBlobs;
use super::holder::{self, HolderLock};
use super::schema::{self, sql};
use super::suspect_wal::SuspectWal;
use super::wal::WalLength;
use super::writer::Shared;
use super::{Paths, blobs, inbox, inline_blobs, read, revoke, runs};
use crate::packing::Prepared;
use crate::packs::{CompressedBlob, PACK_LIMIT, PackWriter};
use crate::segment::{self, Segment};

/// Executes write requests on the write connection.
pub(super) struct Committer {
    pub(super) db: Connection,
    paths: Paths,
    holder_lock: HolderLock,
    wal: WalLength,
    /// Whether everything that this process wrote to the WAL was synced.
    wal_is_synced: bool,
    pack: Option<(i64, PackWriter)>,
    deferred: Arc<DeferredBlobs>,
    /// Whether commits of the connection are synced.
    sync_commits: bool,
    suspect_wal: SuspectWal,
    pub(super) signals: Arc<ChangeSignals>,
    /// Leases whose release failed. The next group of requests releases them.
    pub(super) unreleased: Vec<(SessionId, FencingToken)>,
}

impl Committer {
    pub(super) fn new(mut db: Connection, paths: Paths, shared: Shared, holder_lock: HolderLock) -> Result<Self> {
        let wal = WalLength::watch(&mut db)?;
        let Shared { deferred, suspect_wal, signals } = shared;
        let (pack, unreleased) = (None, Vec::new());
        Ok(Self {
            db,
            paths,
            holder_lock,
            wal,
            wal_is_synced: false,
            pack,
            deferred,
            sync_commits: true,
            suspect_wal,
            signals,
            unreleased,
        })
    }

    /// The holder entry of this process.
    fn this_holder(&self) -> &Holder {
        &self.holder_lock.holder
    }

    /// Adds to a `Busy` error which process holds the write lock.
    pub(super) fn name_writer(&self, error: Error) -> Error {
        match error {
            Error::Machine { doing, kind: IoErrorKind::Busy, .. } => {
                Error::with_kind(doing, IoErrorKind::Busy, revoke::who_writes(&self.paths.database))
            }
            error => error,
        }
    }

    /// Releases all leases of this process, when the store is closed.
    pub(super) fn release_all(&mut self) {
        if self.repair().is_err() {
            // The last connection to close checkpoints the WAL and removes it. A suspect WAL may be the only copy of
            // some pages.
            let _ = self.db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
        let _ = schema::set_synchronous(&self.db, false);
        let _ = self.db.execute("UPDATE sessions SET holder = NULL WHERE holder = ?1", [&self.this_holder().id]);
    }

    /// Sets whether the next commit is synced. Leases and other data that end with the process need no sync.
    pub(super) fn set_sync(&mut self, sync: bool) -> rusqlite::Result<()> {
        if sync != self.sync_commits {
            schema::set_synchronous(&self.db, sync)?;
            self.sync_commits = sync;
        }
        Ok(())
    }

    /// Whether no lease waits for its release and no file is suspect.
    pub(super) fn has_no_backlog(&self) -> bool {
        self.unreleased.is_empty() && !self.suspect_wal.is_suspect()
    }

    /// Whether blobs were appended to a pack and not synced.
    pub(super) fn has_unsynced_blobs(&self) -> bool {
        self.pack.as_ref().is_some_and(|(_, pack)| pack.is_dirty())
    }

    /// Syncs the packs and commits the open transaction.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.wal_is_synced = false;
        self.sync_packs()?;
        let done = self.db.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([])).map_err(sql);
        self.suspect_wal.check_wal(done)?;
        if self.sync_commits {
            // Another connection's sync may have failed since the transaction started. This commit follows that data in
            // the WAL.
            self.repair()?;
        }
        self.wal_is_synced = self.sync_commits;
        Ok(())
    }

    /// Checkpoints the WAL if it is long. Returns whether it was. If the last commit was not synced, the WAL is synced
    /// first, here and not by SQLite's checkpoint: if a checkpoint fails, the whole database is suspect, and not only
    /// the WAL. Commits of blobs alone are not synced, and there may be many of them in a row.
    pub(super) fn maintain(&mut self) -> bool {
        let is_due = self.wal.is_long() && !self.suspect_wal.is_suspect();
        if is_due && (self.wal_is_synced || self.suspect_wal.sync_wal(&self.db).is_ok()) {
            let _ = self.suspect_wal.checkpoint_wal(&self.db);
        }
        is_due
    }

    /// Rewrites suspect files.
    pub(super) fn repair(&self) -> Result<()> {
        self.suspect_wal.repair(&self.db)
    }

    pub(super) fn commit(&mut self, parts: Vec<Prepared>, consumed: &[String]) -> Result<()> {
        protocol::commit(&Protocol, self, parts, consumed)
    }

    /// Puts a post into its session's inbox.
    pub(super) fn post(&self, post: &Post) -> Result<()> {
        if self.session_head(post.session)?.is_none() {
            return Err(Error::NotFound(format!("session {}", post.session)));
        }
        let before = inbox::status(&self.db, &post.id)?;
        match Protocol.posted(before) == before {
            true => Ok(()),
            false => inbox::put(&self.db, post),
        }
    }

    fn write(&mut self, prepared: Prepared, place: Option<i64>, known: usize) -> Result<()> {
        let Prepared { part, packing } = prepared;
        let new = &part.records[known..];
        let Some(last) = new.last() else { return Ok(()) };
        self.put_blobs(new.iter().flat_map(Record::blobs))?;
        let no = match place {
            Some(no) => self.update(no, last)?,
            None => self.insert(&part, &new[0], last)?,
        };
        if new.iter().any(|record| record.kind().changes_names()) {
            self.update_names(no, new)?;
        }
        let put = |segment| self.put_segment(no, &segment);
        match packing.filter(|_| known == 0) {
            Some(packing) => packing.each(put)?,
            None => segment::pack(new).into_iter().try_for_each(put)?,
        }
        let carried = new.iter().filter_map(|record| Some((record.seq(), record.snapshot()?)));
        let due = part.snapshot.as_deref().map(|snapshot| (last.seq(), snapshot));
        for (seq, snapshot) in carried.chain(due) {
            let insert = "INSERT OR REPLACE INTO snapshots (session, seq, state) VALUES (?1, ?2, ?3)";
            self.db
                .prepare_cached(insert)
                .and_then(|mut insert| insert.execute(params![no, seq as i64, snapshot]))
                .map_err(sql)?;
        }
        Ok(())
    }

    fn put_segment(&self, no: i64, segment: &Segment) -> Result<()> {
        let insert = "INSERT INTO segments (session, first_seq, count, generation, kinds, data)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        self.db
            .prepare_cached(insert)
            .and_then(|mut insert| {
                insert.execute(params![
                    no,
                    segment.first_seq as i64,
                    segment.count as i64,
                    segment.generation as i64,
                    segment.kinds as i64,
                    segment.data
                ])
            })
            .map(drop)
            .map_err(sql)
    }

    fn update(&self, no: i64, last: &Record) -> Result<i64> {
        let time = last.time().map_err(|why| tampered(last, why.into()))?;
        let update = "UPDATE sessions SET head = ?2, seq = ?3, time = ?4, generation = ?5, closed = ?6 WHERE no = ?1";
        self.db
            .prepare_cached(update)
            .and_then(|mut update| {
                update.execute(params![
                    no,
                    last.id().0.0,
                    last.seq() as i64,
                    time.0 as i64,
                    last.generation() as i64,
                    *last.kind() == Kind::Closed
                ])
            })
            .map_err(sql)?;
        Ok(no)
    }

    fn insert(&self, part: &BatchPart, first: &Record, last: &Record) -> Result<i64> {
        if let Some(key) = run_of(first)? {
            runs::insert(&self.db, key, part.session)?;
        }
        let origin = first.origin().map_err(|why| tampered(first, why))?;
        let born = first.time().map_err(|why| tampered(first, why.into()))?;
        let time = last.time().map_err(|why| tampered(last, why.into()))?;
        let insert = "INSERT INTO sessions (id, head, seq, time, generation, birth, born, born_generation,
                origin_session, origin_seq, origin_id, closed, fence, holder)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
        self.db
            .prepare_cached(insert)
            .and_then(|mut insert| {
                insert.insert(params![
                    part.session.0.as_bytes(),
                    last.id().0.0,
                    last.seq() as i64,
                    time.0 as i64,
                    last.generation() as i64,
                    first.kind().code(),
                    born.0 as i64,
                    first.generation() as i64,
                    origin.map(|origin| *origin.session.0.as_bytes()),
                    origin.map(|origin| origin.seq as i64),
                    origin.map(|origin| origin.id.0.0),
                    *last.kind() == Kind::Closed,
                    FIRST_FENCING_TOKEN as i64,
                    part.keep_lease.then_some(&self.this_holder().id)
                ])
            })
            .map_err(sql)
    }

    /// Updates the title and the labels of a session, which are columns so that listing sessions needs no record
    /// bodies.
    fn update_names(&self, no: i64, new: &[Record]) -> Result<()> {
        let (title, labels): (Option<String>, Option<String>) = self
            .db
            .query_row("SELECT title, labels FROM sessions WHERE no = ?1", [no], |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(sql)?;
        let labels = labels.and_then(|labels| serde_json::from_str(&labels).ok()).unwrap_or_default();
        let mut names = State::named(title, labels);
        for record in new.iter().filter(|record| record.kind().changes_names()) {
            names.apply(record).map_err(|why| tampered(record, why))?;
        }
        let State { title, labels, .. } = names;
        let labels = (!labels.is_empty()).then(|| serde_json::to_string(&labels).unwrap_or_default());
        self.db
            .prepare_cached("UPDATE sessions SET title = ?2, labels = ?3 WHERE no = ?1")
            .and_then(|mut update| update.execute(params![no, title, labels]))
            .map_err(sql)?;
        Ok(())
    }

    /// Stores the deferred blobs in the open transaction. Returns how many there are. After the commit, the caller
    /// passes that number to [`deferred_committed`](Self::deferred_committed).
    pub(super) fn put_deferred(&mut self) -> Result<usize> {
        let waiting = self.deferred.all();
        self.put_blobs(waiting.iter())?;
        Ok(waiting.len())
    }

    /// Removes the first `count` deferred blobs from the queue.
    pub(super) fn deferred_committed(&self, count: usize) {
        self.deferred.committed(count);
    }

    pub(super) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    fn put_blobs<'b>(&mut self, blobs: impl Iterator<Item = &'b Blob>) -> Result<()> {
        let (mut seen, mut compressed) = (HashSet::new(), Vec::new());
        for blob in blobs {
            if seen.insert(blob.reference.digest) && !self.has_blob(&blob.reference.digest)? {
                compressed
                    .push(CompressedBlob::new(blob).map_err(|error| Error::machine("compressing a blob", error))?);
            }
        }
        let (inline, others) = inline_blobs::split(compressed);
        for blob in &inline {
            inline_blobs::insert(&self.db, blob).map_err(sql)?;
        }
        self.append_blobs(&others.iter().collect::<Vec<_>>())
    }

    /// Whether a blob is stored. If the index lists it in a pack that is missing or too short, deletes its row and
    /// returns `false`.
    fn has_blob(&self, digest: &Digest) -> Result<bool> {
        let Some(place) = blobs::place(&self.db, digest)? else { return Ok(false) };
        if place.is_there(&self.paths.packs) {
            return Ok(true);
        }
        self.db.execute("DELETE FROM blobs WHERE digest = ?1", [digest.0]).map_err(sql)?;
        Ok(false)
    }

    /// Stores the blobs that are not stored yet.
    pub(super) fn put_compressed(&mut self, blobs: &[CompressedBlob]) -> Result<()> {
        let (mut seen, mut new) = (HashSet::new(), Vec::with_capacity(blobs.len()));
        for blob in blobs {
            if seen.insert(blob.digest) && !self.has_blob(&blob.digest)? {
                new.push(blob);
            }
        }
        self.append_blobs(&new)
    }

    /// Appends blobs to a pack and indexes them. The caller has checked that they are not stored yet.
    fn append_blobs(&mut self, new: &[&CompressedBlob]) -> Result<()> {
        if new.is_empty() {
            return Ok(());
        }
        let (no, pack) = self.open_pack()?;
        let places = pack.append(new).map_err(writing)?;
        let length = pack.length;
        for (blob, place) in new.iter().zip(places) {
            blobs::index(&self.db, blob, no, place.offset, place.stored).map_err(sql)?;
        }
        let list = self.db.prepare_cached("UPDATE packs SET length = ?2 WHERE no = ?1");
        let listed = list.and_then(|mut list| list.execute(params![no, length as i64]));
        match listed.map_err(sql)? {
            1 => Ok(()),
            _ => Err(Error::machine("writing a blob", "its pack is not listed")),
        }
    }

    fn open_pack(&mut self) -> Result<(i64, &mut PackWriter)> {
        if self.pack.as_ref().is_none_or(|(_, pack)| pack.length >= PACK_LIMIT) {
            // The full pack may have blobs of the open transaction.
            self.sync_packs()?;
            self.pack = Some(self.find_pack()?);
        }
        match &mut self.pack {
            Some((no, pack)) => Ok((*no, pack)),
            None => Err(Error::machine("writing a blob", "there is no pack")),
        }
    }

    fn find_pack(&self) -> Result<(i64, PackWriter)> {
        let query = "SELECT no, name, length FROM packs WHERE length < ?1 ORDER BY no DESC LIMIT 8";
        let mut query = self.db.prepare(query).map_err(sql)?;
        let rows = query.query_map([PACK_LIMIT as i64], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        let known: Vec<(i64, String, i64)> = rows.and_then(Iterator::collect).map_err(sql)?;
        for (no, name, length) in known {
            if let Some(pack) = PackWriter::open(&self.paths.packs, &name, length as u64).map_err(writing)? {
                return Ok((no, pack));
            }
        }
        let name = format!("{}.pack", rath_core::fresh_name());
        let pack = PackWriter::create(&self.paths.packs, &name).map_err(writing)?;
        self.db.execute("INSERT INTO packs (name, length) VALUES (?1, 0)", [&name]).map_err(sql)?;
        Ok((self.db.last_insert_rowid(), pack))
    }

    /// Syncs the open pack, because blobs must be durable before the commit that refers to them.
    pub(super) fn sync_packs(&mut self) -> Result<()> {
        match &mut self.pack {
            Some((_, pack)) => pack.sync().map_err(|error| Error::machine("syncing a pack", error)),
            None => Ok(()),
        }
    }

    /// Syncs and closes the open pack. The next blob opens another one.
    pub(super) fn sync_and_close_pack(&mut self) -> Result<()> {
        let synced = self.sync_packs();
        self.abandon_pack();
        synced
    }

    /// Closes the open pack after a rollback: the index does not list what was appended to it, so its length is wrong.
    pub(super) fn abandon_pack(&mut self) {
        self.pack = None;
    }

    /// The row number of a session, its fencing token, and the live process that holds its lease.
    fn lease_of(&self, session: SessionId) -> Result<Option<(i64, FencingToken, Option<Holder>)>> {
        let query = "SELECT no, fence, holder FROM sessions WHERE id = ?1";
        let row: Option<(i64, i64, Option<String>)> = self
            .db
            .prepare_cached(query)
            .and_then(|mut query| {
                query.query_row([session.0.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()
            })
            .map_err(sql)?;
        let living = |id: String| match id == self.this_holder().id {
            true => Some(self.this_holder().clone()),
            false => holder::living(&self.paths.holders, &id),
        };
        Ok(row.map(|(no, fence, held_by)| (no, fence as u64, held_by.and_then(living))))
    }

    /// Revokes the lease of a session and returns its holder. The fencing token increases, so commits by that holder
    /// fail.
    pub(super) fn revoke(&self, session: SessionId) -> Result<Option<Holder>> {
        let unknown = || Error::NotFound(format!("session {session}"));
        let (no, _, held_by) = self.lease_of(session)?.ok_or_else(unknown)?;
        if held_by.is_some() {
            self.db
                .prepare_cached("UPDATE sessions SET holder = NULL, fence = fence + 1 WHERE no = ?1")
                .and_then(|mut update| update.execute([no]))
                .map_err(sql)?;
        }
        Ok(held_by)
    }

    pub(super) fn lease(&self, session: SessionId) -> Result<FencingToken> {
        let unknown = || Error::NotFound(format!("session {session}"));
        let (no, fence, living) = self.lease_of(session)?.ok_or_else(unknown)?;
        let fence = Protocol.grant(fence, living).map_err(|holder| Error::Locked { session, holder })?;
        self.db
            .prepare_cached("UPDATE sessions SET holder = ?2, fence = ?3 WHERE no = ?1")
            .and_then(|mut update| update.execute(params![no, self.this_holder().id, fence as i64]))
            .map_err(sql)?;
        Ok(fence)
    }

    pub(super) fn release(&self, session: SessionId, given: FencingToken) -> Result<()> {
        let Some((no, fence, living)) = self.lease_of(session)? else { return Ok(()) };
        if !Protocol.may_release(fence, given, living.is_some_and(|holder| holder.id == self.this_holder().id)) {
            return Ok(());
        }
        self.db
            .prepare_cached("UPDATE sessions SET holder = NULL WHERE no = ?1")
            .and_then(|mut update| update.execute([no]))
            .map_err(sql)?;
        Ok(())
    }
}

impl CommitBackend for Committer {
    type Part = Prepared;
    /// The row number of the session.
    type Location = i64;
    type Post = String;

    fn session_head(&self, session: SessionId) -> Result<Option<(StoredHead, i64)>> {
        let query = "SELECT no, head, seq, closed, fence FROM sessions WHERE id = ?1";
        let mut query = self.db.prepare_cached(query).map_err(sql)?;
        let row = query.query_row([session.0.as_bytes()], |row| {
            let head = StoredHead {
                id: RecordId(Digest(row.get(1)?)),
                seq: row.get::<_, i64>(2)? as u64,
                closed: row.get(3)?,
                fence: row.get::<_, i64>(4)? as u64,
            };
            Ok((head, row.get(0)?))
        });
        let found = row.optional().map_err(sql)?;
        // The operator session is the store's audit session. It stays open even if an older version recorded `closed`
        // in it.
        match found {
            Some((head @ StoredHead { closed: true, .. }, no)) => {
                let closed = !runs::is(&self.db, OPERATOR, session)?;
                Ok(Some((StoredHead { closed, ..head }, no)))
            }
            found => Ok(found),
        }
    }

    fn id_at(&self, point: Point) -> Result<Option<RecordId>> {
        Ok(read::at(&self.db, point)?.map(|record| record.id()))
    }

    fn check_start(&self, Prepared { part, .. }: &Prepared) -> Result<()> {
        match part.records.first().map(run_of).transpose()?.flatten() {
            Some(key) => runs::check(&self.db, key, part.session),
            None => Ok(()),
        }
    }

    fn append(&mut self, part: Prepared, place: Option<i64>, known: usize) -> Result<()> {
        self.write(part, place, known)
    }

    fn post_status(&self, post: &String) -> Result<PostStatus> {
        inbox::status(&self.db, post)
    }

    fn set_post_status(&mut self, post: &String, status: PostStatus) -> Result<()> {
        match status {
            PostStatus::Consumed => inbox::consume(&self.db, post),
            PostStatus::Unknown | PostStatus::Waiting => Ok(()),
        }
    }
}

fn writing(error: std::io::Error) -> Error {
    Error::machine("writing a blob", error)
}

/// The key of the run that a session was created for, from its first record.
fn run_of(first: &Record) -> Result<Option<String>> {
    if *first.kind() != Kind::Created || first.body_bytes().is_none() {
        return Ok(None);
    }
    Ok(first.body::<Created>().map_err(|why| tampered(first, why))?.run)
}

fn tampered(record: &Record, why: RecordError) -> Error {
    Error::Tampered { point: record.point(), why }
}
