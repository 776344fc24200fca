//! What the writer does inside its transaction.

use std::collections::HashSet;
use std::sync::Arc;

use rath_core::body::Created;
use rath_core::protocol::{self, Line, Protocol, Rules as _, Shelf, Standing};
use rath_core::store::{Error, FIRST_FENCE, Fence, Holder, Part, Post, Result, Trouble};
use rath_core::{Blob, Digest, Fault, Kind, OPERATOR, Point, Record, RecordId, SessionId, State};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::doubt::Doubt;
use super::holder::{self, Liveness};
use super::log::Log;
use super::schema::{self, sql};
use super::signal::Signals;
use super::soon::Soon;
use super::writer::Shared;
use super::{Paths, blobs, inbox, read, riders, runs, take};
use crate::packing::Prepared;
use crate::packs::{PACK_LIMIT, PackWriter, Squeezed};
use crate::segment::{self, Segment};

/// Applies jobs to the database.
pub(super) struct Committer {
    pub(super) db: Connection,
    paths: Paths,
    liveness: Liveness,
    log: Log,
    /// Whether all that is in the log was synced, as far as this process wrote it.
    lasts: bool,
    pack: Option<(i64, PackWriter)>,
    soon: Arc<Soon>,
    /// Whether commits are synced now.
    synced: bool,
    doubt: Doubt,
    pub(super) signals: Arc<Signals>,
    /// Sessions that could not be given back: the next group tries again.
    pub(super) kept: Vec<(SessionId, Fence)>,
}

impl Committer {
    pub(super) fn new(mut db: Connection, paths: Paths, shared: Shared, liveness: Liveness) -> Result<Self> {
        let log = Log::of(&mut db)?;
        let Shared { soon, doubt, signals } = shared;
        let (pack, kept) = (None, Vec::new());
        Ok(Self { db, paths, liveness, log, lasts: false, pack, soon, synced: true, doubt, signals, kept })
    }

    /// This process.
    fn me(&self) -> &Holder {
        &self.liveness.holder
    }

    /// Says why nothing can be written, where somebody else does.
    pub(super) fn explain(&self, error: Error) -> Error {
        match error {
            Error::Machine { doing, trouble: Trouble::Busy, .. } => {
                Error::trouble(doing, Trouble::Busy, take::who_writes(&self.paths.database))
            }
            error => error,
        }
    }

    /// At the end of an orderly life the sessions are free at once.
    pub(super) fn give_back(&mut self) {
        if self.settle().is_err() {
            // The last one out moves the log and removes it, which is then all that is left of some pages.
            let _ = self.db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
        let _ = schema::synced(&self.db, false);
        let _ = self.db.execute("UPDATE sessions SET holder = NULL WHERE holder = ?1", [&self.me().id]);
    }

    /// Chooses whether the next commit is synced. What dies with the process anyway need not be.
    pub(super) fn set_sync(&mut self, sync: bool) -> rusqlite::Result<()> {
        if sync != self.synced {
            schema::synced(&self.db, sync)?;
            self.synced = sync;
        }
        Ok(())
    }

    /// Whether nothing is left to be done before the next commit.
    pub(super) fn owes_nothing(&self) -> bool {
        self.kept.is_empty() && !self.doubt.is_there()
    }

    /// Whether blobs were appended that are not synced.
    pub(super) fn has_unsynced_blobs(&self) -> bool {
        self.pack.as_ref().is_some_and(|(_, pack)| pack.is_dirty())
    }

    /// Makes what the jobs before it wrote durable, and visible to others.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.lasts = false;
        self.sync_packs()?;
        let done = self.db.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([])).map_err(sql);
        self.doubt.of_log(done)?;
        if self.synced {
            // A sync of somebody else may have failed meanwhile, and be what this one stands on.
            self.settle()?;
        }
        self.lasts = self.synced;
        Ok(())
    }

    /// Moves a long log into the database, and says whether there was one. The log is synced first where the last commit
    /// was not: SQLite would sync it too, but a failure there puts the pages of the database in doubt as well, and not
    /// only the log. Blobs alone are committed without a sync, and there may be many such commits in a row.
    pub(super) fn tidy(&mut self) -> bool {
        let is_due = self.log.is_long() && !self.doubt.is_there();
        if is_due && (self.lasts || self.doubt.sync_log(&self.db).is_ok()) {
            let _ = self.doubt.shorten_log(&self.db);
        }
        is_due
    }

    /// Leaves nothing in doubt.
    pub(super) fn settle(&self) -> Result<()> {
        self.doubt.settle(&self.db)
    }

    pub(super) fn commit(&mut self, parts: Vec<Prepared>, taken: &[String]) -> Result<()> {
        protocol::commit(&Protocol, self, parts, taken)
    }

    /// Leaves a post in its session's inbox.
    pub(super) fn post(&self, post: &Post) -> Result<()> {
        if self.line(post.session)?.is_none() {
            return Err(Error::NotFound(format!("session {}", post.session)));
        }
        let before = inbox::standing(&self.db, &post.id)?;
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
            self.rename(no, new)?;
        }
        let put = |segment| self.put_segment(no, &segment);
        match packing.filter(|_| known == 0) {
            Some(packing) => packing.each(put)?,
            None => segment::pack(new).into_iter().try_for_each(put)?,
        }
        let brought = new.iter().filter_map(|record| Some((record.seq(), record.snapshot()?)));
        let due = part.snapshot.as_deref().map(|snapshot| (last.seq(), snapshot));
        for (seq, snapshot) in brought.chain(due) {
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

    fn insert(&self, part: &Part, first: &Record, last: &Record) -> Result<i64> {
        if let Some(key) = run_of(first)? {
            runs::begin(&self.db, key, part.session)?;
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
                    FIRST_FENCE as i64,
                    part.hold.then_some(&self.me().id)
                ])
            })
            .map_err(sql)
    }

    /// Title and labels are columns, so that a list needs no bodies. They change rarely.
    fn rename(&self, no: i64, new: &[Record]) -> Result<()> {
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

    /// Puts what waits for a commit into the one under way. Returns how many there are: they [arrived](Soon::arrived)
    /// when it is made.
    pub(super) fn bring_soon(&mut self) -> Result<usize> {
        let waiting = self.soon.all();
        self.put_blobs(waiting.iter())?;
        Ok(waiting.len())
    }

    /// So many of those that waited are in the database.
    pub(super) fn arrived(&self, count: usize) {
        self.soon.arrived(count);
    }

    /// Whether blobs wait for a commit.
    pub(super) fn has_soon(&self) -> bool {
        !self.soon.is_empty()
    }

    fn put_blobs<'b>(&mut self, blobs: impl Iterator<Item = &'b Blob>) -> Result<()> {
        let (mut seen, mut squeezed) = (HashSet::new(), Vec::new());
        for blob in blobs {
            if seen.insert(blob.reference.digest) && !self.holds(&blob.reference.digest)? {
                squeezed.push(Squeezed::new(blob).map_err(|error| Error::machine("squeezing a blob", error))?);
            }
        }
        let (riders, others) = riders::part(squeezed);
        for blob in &riders {
            riders::board(&self.db, blob).map_err(sql)?;
        }
        self.append_blobs(&others.iter().collect::<Vec<_>>())
    }

    /// Whether a blob is there. A pack that was cut or lost does not hold it, whatever the index says.
    fn holds(&self, digest: &Digest) -> Result<bool> {
        let Some(place) = blobs::place(&self.db, digest)? else { return Ok(false) };
        if place.is_there(&self.paths.packs) {
            return Ok(true);
        }
        self.db.execute("DELETE FROM blobs WHERE digest = ?1", [digest.0]).map_err(sql)?;
        Ok(false)
    }

    /// Appends those blobs that are not there.
    pub(super) fn put_squeezed(&mut self, blobs: &[Squeezed]) -> Result<()> {
        let (mut seen, mut new) = (HashSet::new(), Vec::with_capacity(blobs.len()));
        for blob in blobs {
            if seen.insert(blob.digest) && !self.holds(&blob.digest)? {
                new.push(blob);
            }
        }
        self.append_blobs(&new)
    }

    /// Appends blobs that are not there.
    fn append_blobs(&mut self, new: &[&Squeezed]) -> Result<()> {
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
            // The full one may hold blobs of the transaction under way.
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
            if let Some(pack) = PackWriter::adopt(&self.paths.packs, &name, length as u64).map_err(writing)? {
                return Ok((no, pack));
            }
        }
        let name = format!("{}.pack", rath_core::fresh_name());
        let pack = PackWriter::create(&self.paths.packs, &name).map_err(writing)?;
        self.db.execute("INSERT INTO packs (name, length) VALUES (?1, 0)", [&name]).map_err(sql)?;
        Ok((self.db.last_insert_rowid(), pack))
    }

    /// Blobs are durable before the commit that names them.
    pub(super) fn sync_packs(&mut self) -> Result<()> {
        match &mut self.pack {
            Some((_, pack)) => pack.sync().map_err(|error| Error::machine("syncing a pack", error)),
            None => Ok(()),
        }
    }

    /// Goes on with another pack, after what this one holds was made durable.
    pub(super) fn leave_pack(&mut self) -> Result<()> {
        let synced = self.sync_packs();
        self.forget_pack();
        synced
    }

    /// After a rollback the index knows nothing of what was appended: another pack is begun.
    pub(super) fn forget_pack(&mut self) {
        self.pack = None;
    }

    /// The row of a session, its fence, and the living one who has it.
    fn held(&self, session: SessionId) -> Result<Option<(i64, Fence, Option<Holder>)>> {
        let query = "SELECT no, fence, holder FROM sessions WHERE id = ?1";
        let row: Option<(i64, i64, Option<String>)> = self
            .db
            .prepare_cached(query)
            .and_then(|mut query| {
                query.query_row([session.0.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()
            })
            .map_err(sql)?;
        let living = |id: String| match id == self.me().id {
            true => Some(self.me().clone()),
            false => holder::living(&self.paths.holders, &id),
        };
        Ok(row.map(|(no, fence, held_by)| (no, fence as u64, held_by.and_then(living))))
    }

    /// Takes a session from whoever holds it, for nobody: the fence moves on, and what that holder writes is refused.
    pub(super) fn take(&self, session: SessionId) -> Result<Option<Holder>> {
        let unknown = || Error::NotFound(format!("session {session}"));
        let (no, _, held_by) = self.held(session)?.ok_or_else(unknown)?;
        if held_by.is_some() {
            self.db
                .prepare_cached("UPDATE sessions SET holder = NULL, fence = fence + 1 WHERE no = ?1")
                .and_then(|mut update| update.execute([no]))
                .map_err(sql)?;
        }
        Ok(held_by)
    }

    pub(super) fn lease(&self, session: SessionId) -> Result<Fence> {
        let unknown = || Error::NotFound(format!("session {session}"));
        let (no, fence, living) = self.held(session)?.ok_or_else(unknown)?;
        let fence = Protocol.grant(fence, living).map_err(|holder| Error::Held { session, holder })?;
        self.db
            .prepare_cached("UPDATE sessions SET holder = ?2, fence = ?3 WHERE no = ?1")
            .and_then(|mut update| update.execute(params![no, self.me().id, fence as i64]))
            .map_err(sql)?;
        Ok(fence)
    }

    pub(super) fn release(&self, session: SessionId, given: Fence) -> Result<()> {
        let Some((no, fence, living)) = self.held(session)? else { return Ok(()) };
        if !Protocol.gives_back(fence, given, living.is_some_and(|holder| holder.id == self.me().id)) {
            return Ok(());
        }
        self.db
            .prepare_cached("UPDATE sessions SET holder = NULL WHERE no = ?1")
            .and_then(|mut update| update.execute([no]))
            .map_err(sql)?;
        Ok(())
    }
}

impl Shelf for Committer {
    type Part = Prepared;
    /// Its number.
    type Place = i64;
    type Post = String;

    fn line(&self, session: SessionId) -> Result<Option<(Line, i64)>> {
        let query = "SELECT no, head, seq, closed, fence FROM sessions WHERE id = ?1";
        let mut query = self.db.prepare_cached(query).map_err(sql)?;
        let row = query.query_row([session.0.as_bytes()], |row| {
            let line = Line {
                head: RecordId(Digest(row.get(1)?)),
                seq: row.get::<_, i64>(2)? as u64,
                closed: row.get(3)?,
                fence: row.get::<_, i64>(4)? as u64,
            };
            Ok((line, row.get(0)?))
        });
        let found = row.optional().map_err(sql)?;
        // The store's own account goes on, also where somebody closed it.
        match found {
            Some((line @ Line { closed: true, .. }, no)) => {
                let closed = !runs::is(&self.db, OPERATOR, session)?;
                Ok(Some((Line { closed, ..line }, no)))
            }
            found => Ok(found),
        }
    }

    fn id_at(&self, point: Point) -> Result<Option<RecordId>> {
        Ok(read::at(&self.db, point)?.map(|record| record.id()))
    }

    fn may_begin(&self, Prepared { part, .. }: &Prepared) -> Result<()> {
        match part.records.first().map(run_of).transpose()?.flatten() {
            Some(key) => runs::check(&self.db, key, part.session),
            None => Ok(()),
        }
    }

    fn append(&mut self, part: Prepared, place: Option<i64>, known: usize) -> Result<()> {
        self.write(part, place, known)
    }

    fn standing(&self, post: &String) -> Result<Standing> {
        inbox::standing(&self.db, post)
    }

    fn stand(&mut self, post: &String, standing: Standing) -> Result<()> {
        match standing {
            Standing::Taken => inbox::take(&self.db, post),
            Standing::Unknown | Standing::Waiting => Ok(()),
        }
    }
}

fn writing(error: std::io::Error) -> Error {
    Error::machine("writing a blob", error)
}

/// The run that a session was created for, as its first record says.
fn run_of(first: &Record) -> Result<Option<String>> {
    if *first.kind() != Kind::Created || first.body_bytes().is_none() {
        return Ok(None);
    }
    Ok(first.body::<Created>().map_err(|why| tampered(first, why))?.run)
}

fn tampered(record: &Record, why: Fault) -> Error {
    Error::Tampered { point: record.point(), why }
}
