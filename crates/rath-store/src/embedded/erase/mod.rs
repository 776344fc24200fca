//! Destroying what records say: bodies and salts, what was folded from them, blobs that nothing else names, and every
//! place where SQLite or a pack still had the bytes.
//!
//! An erasure is written into a journal before it begins and taken out when nothing is left of what it destroys, so one
//! that was interrupted is [finished](Embedded::unfinished) later, or was never begun.

mod clear;
mod journal;
mod namers;
mod places;
mod strip;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_channel::oneshot;
use rath_core::files::{TREE, Tree};
use rath_core::store::{Error, Result};
use rath_core::{Digest, Point, Reference, SessionId, blob_references};
use rusqlite::{Connection, OptionalExtension as _, params};
use serde::{Deserialize, Serialize};

use super::job::Job;
use super::schema::{self, sql};
use super::{Embedded, blobs, garbage, holder, lines, raise, read, riders};
use crate::packs::Held;
use namers::Namers;
use places::Places;
use rath_workspace::RULES;

/// How often an erasure looks whether those who work on files are done, and how long it waits in between.
const LOOKS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(20);

/// What is to be destroyed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doomed {
    /// Names the erasure.
    pub name: String,
    /// Whether an `erased` record of this name says so: without one it was never begun.
    pub recorded: bool,
    /// Records that keep their headers and lose salt and body.
    pub records: Vec<Reference>,
    /// Sessions that go whole, by their heads. Nothing else may stand on them.
    pub sessions: Vec<Reference>,
    /// Posts, by id, that are emptied.
    pub posts: Vec<String>,
    /// Sessions that keep their versions of files, also where earlier erasures left nothing else of them: holds cover them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<SessionId>,
}

impl Doomed {
    /// Nothing yet, under a new name.
    pub fn new() -> Self {
        Self { name: rath_core::fresh_name(), ..Self::default() }
    }
}

/// What an erasure destroys, or did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Destroyed {
    /// Bodies with their salts.
    pub records: u64,
    /// Whole sessions.
    pub sessions: u64,
    /// Blobs.
    pub blobs: u64,
    /// Bytes that those took.
    pub blob_bytes: u64,
    /// Packs written anew or removed.
    pub packs: u64,
    /// Bytes that were overwritten where they lay, in packs that another process appends to.
    pub overwritten: u64,
    /// Bytes that were given back to the disk.
    pub freed: u64,
    /// Databases of older formats that were kept beside this one: they held what was destroyed.
    pub backups: Vec<PathBuf>,
    /// Copies of files that sessions worked in which are gone whole.
    pub places: Vec<PathBuf>,
    /// Bytes that those take on disk.
    pub place_bytes: u64,
    /// Blobs that stay, because something that stays names them.
    pub kept: Vec<Kept>,
}

/// A blob that stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Its name.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
    /// The records that name it; none when only files of a version hold it.
    pub named_by: Vec<Point>,
}

/// While it lives, nobody saves files and nothing else is destroyed.
pub struct Quiet {
    file: File,
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// Fails where the newest segment of the store would go. SQLite gives its number to the next commit again, and whoever
/// reads on from a cursor would take that commit for one that it has read. An erasure that is on the record never comes
/// here: its `erased` record is newer than what it destroys.
fn keeps_the_last_number(db: &Connection, doom: &Doom) -> Result<()> {
    let query = "SELECT s.id FROM segments g JOIN sessions s ON s.no = g.session WHERE g.cursor = ?1";
    let last: Option<[u8; 16]> =
        db.query_row(query, [read::last_segment(db)?], |row| row.get(0)).optional().map_err(sql)?;
    match last.map(|id| SessionId(uuid::Uuid::from_bytes(id))) {
        Some(session) if doom.gone.contains(&session) => Err(Error::machine(
            format!("removing session {}", session.short()),
            "its last record is the newest of the store; record the erasure first",
        )),
        _ => Ok(()),
    }
}

/// What is doomed, for quick questions.
struct Doom {
    /// By session, what loses its body.
    records: HashMap<SessionId, BTreeSet<u64>>,
    /// Sessions that go whole, or of which every body does and no fork stays: their versions of files go too.
    whole: HashSet<SessionId>,
    /// Sessions that go whole.
    gone: HashSet<SessionId>,
}

impl Doom {
    fn of(db: &Connection, holders: &Path, doomed: &Doomed) -> Result<Self> {
        let mut records: HashMap<SessionId, BTreeSet<u64>> = HashMap::new();
        for reference in &doomed.records {
            records.entry(reference.session).or_default().insert(reference.seq);
        }
        let gone: HashSet<_> = doomed.sessions.iter().map(|head| head.session).collect();
        let mut whole = gone.clone();
        for (session, seqs) in &records {
            if strip::leaves_nothing(db, *session, seqs)? {
                whole.insert(*session);
            }
        }
        // Parents and forks that earlier erasures emptied: they kept their versions only because of sessions that go now.
        let mut open: Vec<SessionId> = whole.iter().copied().collect();
        while let Some(session) = open.pop() {
            for near in parent_and_forks(db, holders, session)? {
                let seqs = records.entry(near).or_default();
                if !whole.contains(&near) && !doomed.held.contains(&near) && strip::leaves_nothing(db, near, seqs)? {
                    whole.insert(near);
                    open.push(near);
                }
            }
        }
        // A fork that stays works on the files that it began with.
        let mut forks = db.prepare_cached("SELECT id FROM sessions WHERE origin_session = ?1").map_err(sql)?;
        loop {
            let mut needed = None;
            for session in whole.iter().filter(|session| !gone.contains(session)) {
                let ids = forks.query_map([session.0.as_bytes()], |row| row.get(0)).map_err(sql)?;
                let ids: Vec<[u8; 16]> = ids.collect::<rusqlite::Result<_>>().map_err(sql)?;
                if ids.into_iter().any(|id| !whole.contains(&SessionId(uuid::Uuid::from_bytes(id)))) {
                    needed = Some(*session);
                    break;
                }
            }
            match needed {
                Some(session) => drop(whole.remove(&session)),
                None => {
                    records.retain(|session, seqs| !seqs.is_empty() || whole.contains(session));
                    return Ok(Self { records, whole, gone });
                }
            }
        }
    }

    fn covers(&self, point: Point) -> bool {
        self.gone.contains(&point.session)
            || self.records.get(&point.session).is_some_and(|seqs| seqs.contains(&point.seq))
    }
}

/// The parent of a session and its forks, as far as no process works on them.
fn parent_and_forks(db: &Connection, holders: &Path, session: SessionId) -> Result<Vec<SessionId>> {
    let query = "SELECT p.id, p.holder FROM sessions s JOIN sessions p ON p.id = s.origin_session WHERE s.id = ?1
        UNION ALL SELECT id, holder FROM sessions WHERE origin_session = ?1";
    let mut query = db.prepare_cached(query).map_err(sql)?;
    let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, [u8; 16]>(0)?, row.get::<_, Option<String>>(1)?));
    let rows = query.query_map([session.0.as_bytes()], row).map_err(sql)?;
    let mut near = Vec::new();
    for row in rows {
        let (id, holder) = row.map_err(sql)?;
        if holder.and_then(|holder| holder::living(holders, &holder)).is_none() {
            near.push(SessionId(uuid::Uuid::from_bytes(id)));
        }
    }
    Ok(near)
}

impl Embedded {
    /// Waits until nobody saves files: between a save and the record that names its version, blobs have no name.
    pub fn quiet(&self) -> Result<Quiet> {
        let file = garbage::lock_file(&self.paths.root)?;
        for _ in 0..LOOKS {
            if file.try_lock().is_ok() {
                self.let_writer_catch_up();
                return Ok(Quiet { file });
            }
            std::thread::sleep(PAUSE);
        }
        let why = "somebody is working on files of this store; nothing was begun, try again later";
        Err(Error::machine("erasing", why))
    }

    /// Sessions that this process has dropped are given back when this returns, and blobs that waited are stored.
    pub(in crate::embedded) fn let_writer_catch_up(&self) {
        let Some(writer) = self.writer.get() else { return };
        let (reply, mut answer) = oneshot::channel();
        writer.send(Job::Blobs { blobs: Vec::new(), reply });
        while let Ok(None) = answer.try_recv() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Says what [`destroy`](Self::destroy) would.
    pub fn weigh(&self, doomed: &Doomed, progress: &mut dyn FnMut(u64)) -> Result<Destroyed> {
        self.read(|db| {
            let _moment = db.unchecked_transaction().map_err(sql)?;
            lines::check(db)?;
            let doom = Doom::of(db, &self.paths.holders, doomed)?;
            let wanted = self.blobs_of(db, doomed, &doom)?;
            let places = Places::look(&self.paths.root, &doom.whole);
            let mut namers = Namers::new(&wanted, &doom, &places);
            namers.read(self, db, progress)?;
            namers.walk(self, db)?;
            let mut destroyed = Destroyed { sessions: doomed.sessions.len() as u64, ..Destroyed::default() };
            (destroyed.places, destroyed.place_bytes) = places.copies();
            destroyed.records = strip::living(db, &doom)?;
            namers.sentence(db, &mut destroyed)?;
            destroyed.backups = raise::backups(&self.paths.database).into_iter().map(|backup| backup.path).collect();
            Ok(destroyed)
        })
    }

    /// The records that name any of these blobs.
    pub fn who_names(&self, blobs: &HashSet<Digest>) -> Result<HashMap<Digest, Vec<Point>>> {
        let nobody = Doom { records: HashMap::new(), whole: HashSet::new(), gone: HashSet::new() };
        self.read(|db| {
            let places = Places::default();
            let mut namers = Namers::new(blobs, &nobody, &places);
            namers.read(self, db, &mut |_| {})?;
            Ok(namers.into_named())
        })
    }

    /// Whether sessions that go whole are as they were, at rest, and stood on by nobody who stays.
    pub fn may_go(&self, _: &Quiet, doomed: &Doomed) -> Result<()> {
        self.read(|db| self.nobody_needs(db, doomed, &Doom::of(db, &self.paths.holders, doomed)?))
    }

    /// Writes an erasure down. It is begun when its `erased` record is published, where it has one.
    pub fn intend(&self, _: &Quiet, doomed: &Doomed) -> Result<()> {
        self.read(|db| strip::check_folds(db, doomed))?;
        journal::write(&self.paths.root, &journal::Entry { doomed: doomed.clone(), packs: Vec::new() })
    }

    /// Takes one back that was not begun.
    pub fn abandon(&self, _: &Quiet, name: &str) -> Result<()> {
        journal::remove(&self.paths.root, name)
    }

    /// Erasures that were written down and are not finished.
    pub fn unfinished(&self) -> Result<Vec<Doomed>> {
        Ok(journal::read(&self.paths.root)?.into_iter().map(|entry| entry.doomed).collect())
    }

    /// Whether somebody destroys or collects at this moment, here or in another process.
    pub fn is_being_cleared(&self) -> bool {
        // Those who save files share the lock. Where it cannot even be opened nobody holds it for long.
        let file = File::open(garbage::lock_path(&self.paths.root));
        file.is_ok_and(|file| match file.try_lock_shared() {
            Ok(()) => file.unlock().is_err(),
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(_)) => false,
        })
    }

    /// Destroys it. When this returns, no file of the store holds the bytes any more.
    pub fn destroy(&self, _: &Quiet, doomed: &Doomed, progress: &mut dyn FnMut(u64)) -> Result<Destroyed> {
        let known = journal::read(&self.paths.root)?.into_iter().find(|entry| entry.doomed.name == doomed.name);
        let mut entry = known.unwrap_or_else(|| journal::Entry { doomed: doomed.clone(), packs: Vec::new() });
        let db = self.connect_to_write()?;
        lines::check(&db)?;
        strip::check(&db, doomed)?;
        strip::check_folds(&db, doomed)?;
        journal::write(&self.paths.root, &entry)?;
        self.before_erasure(doomed)?;
        let doom = Doom::of(&db, &self.paths.holders, doomed)?;
        let wanted = self.blobs_of(&db, doomed, &doom)?;
        let places = Places::claim(&self.paths.root, &doom.whole);
        let mut namers = Namers::new(&wanted, &doom, &places);
        namers.read(self, &db, progress)?;
        db.execute_batch("BEGIN IMMEDIATE").map_err(sql)?;
        let mut work = || -> Result<Destroyed> {
            // What was committed since.
            namers.read(self, &db, progress)?;
            namers.walk(self, &db)?;
            self.nobody_needs(&db, doomed, &doom)?;
            keeps_the_last_number(&db, &doom)?;
            let mut destroyed = Destroyed { sessions: doomed.sessions.len() as u64, ..Destroyed::default() };
            destroyed.records = strip::living(&db, &doom)?;
            strip::strip(&db, doomed, &doom)?;
            let dead = namers.sentence(&db, &mut destroyed)?;
            entry.packs.extend(clear::packs_of(&db, &dead)?);
            entry.packs.sort();
            entry.packs.dedup();
            journal::write(&self.paths.root, &entry)?;
            let mut delete = db.prepare("DELETE FROM blobs WHERE digest = ?1").map_err(sql)?;
            for digest in dead {
                delete.execute([digest.0]).map_err(sql)?;
            }
            riders::put_off_strangers(&db)?;
            Ok(destroyed)
        };
        let done = work().and_then(|destroyed| self.doubt.commit(&db).map(|()| destroyed));
        let mut destroyed = match done {
            Ok(destroyed) => destroyed,
            Err(error) => {
                let _ = db.execute_batch("ROLLBACK");
                return Err(error);
            }
        };
        (destroyed.places, destroyed.place_bytes) = places.copies();
        destroyed.freed += places.remove()?;
        self.ahead.forget();
        self.after_erasure(doomed)?;
        self.clear_packs(&db, &entry.packs, &mut destroyed)?;
        clear::database(&db, &self.doubt, &mut destroyed)?;
        self.clear_backups(&mut destroyed)?;
        journal::remove(&self.paths.root, &doomed.name)?;
        Ok(destroyed)
    }

    /// A session that goes whole has not moved since, is not at work, and no session that stays was forked from it.
    fn nobody_needs(&self, db: &Connection, doomed: &Doomed, doom: &Doom) -> Result<()> {
        for head in &doomed.sessions {
            let session = head.session;
            let query = "SELECT head, seq, holder FROM sessions WHERE id = ?1";
            let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            let found: Option<([u8; 32], i64, Option<String>)> =
                db.query_row(query, [session.0.as_bytes()], row).optional().map_err(sql)?;
            let Some((now, seq, holder)) = found else { continue };
            if now != head.id.0.0 {
                return Err(Error::Conflict { session, seq: seq as u64 });
            }
            if let Some(holder) = holder.and_then(|id| holder::living(&self.paths.holders, &id)) {
                return Err(Error::Held { session, holder });
            }
            let mut forks = db.prepare_cached("SELECT id FROM sessions WHERE origin_session = ?1").map_err(sql)?;
            let forks = forks.query_map([session.0.as_bytes()], |row| row.get(0)).map_err(sql)?;
            for fork in forks {
                let fork = SessionId(uuid::Uuid::from_bytes(fork.map_err(sql)?));
                if !doom.gone.contains(&fork) {
                    let why = format!("session {} was forked from it", fork.short());
                    return Err(Error::machine(format!("removing session {}", session.short()), why));
                }
            }
        }
        Ok(())
    }

    /// The blobs that doomed bodies name; of versions that go, everything in them; of joined ones, their pieces.
    fn blobs_of(&self, db: &Connection, doomed: &Doomed, doom: &Doom) -> Result<HashSet<Digest>> {
        let mut open: Vec<(Digest, bool)> = Vec::new();
        strip::each_doomed(db, doomed, doom, &mut |session, body| {
            let with_versions = doom.whole.contains(&session);
            for blob in blob_references(body) {
                let tree = blob.media_type == TREE;
                if with_versions || !tree && blob.media_type != RULES {
                    open.push((blob.digest, tree));
                }
            }
        })?;
        // Bodies that were erased before named versions that only the folded state knows now.
        for session in &doom.whole {
            for blob in strip::folded_blobs(db, *session)? {
                open.push((blob.digest, blob.media_type == TREE));
            }
        }
        let mut wanted = BTreeMap::new();
        while let Some((digest, tree)) = open.pop() {
            // A file may hold the bytes of a tree: it is looked into as both.
            if wanted.get(&digest).is_some_and(|walked| *walked || !tree) {
                continue;
            }
            wanted.insert(digest, tree);
            match blobs::held(db, &self.paths.packs, &digest) {
                Ok(Some(Held::Pieces(pieces))) => open.extend(pieces.iter().map(|piece| (piece.digest, false))),
                Ok(Some(Held::Bytes(bytes))) if tree => {
                    let tree = Tree::decode(&bytes);
                    let tree = tree.map_err(|why| Error::BlobAltered { digest, why: why.to_string() })?;
                    open.extend(tree.entries.iter().map(|entry| (entry.node.sha256, entry.node.is_directory())));
                }
                // A damaged one can go; what it named cannot be known.
                _ => {}
            }
        }
        Ok(wanted.into_keys().collect())
    }

    /// Bytes that records, blobs and copies of files take on disk.
    pub fn size(&self) -> Result<u64> {
        let health = |db: &Connection| {
            let ask = |query: &str| db.query_row(query, [], |row| row.get::<_, i64>(0)).map_err(sql);
            let pages = ask(
                "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()",
            )?;
            Ok((pages + ask("SELECT coalesce(sum(length), 0) FROM packs")?) as u64)
        };
        Ok(self.read(health)? + places::size(&self.paths.root))
    }

    /// The posts that wait in inboxes, as they lie there: session, id and content.
    pub fn waiting_posts(&self) -> Result<Vec<(SessionId, String, Vec<u8>)>> {
        self.read(|db| {
            let query = "SELECT session, id, body FROM posts WHERE taken = 0 ORDER BY no";
            let Some(mut query) = schema::prepare_added(db, query, schema::RUNS_AND_POSTS)? else {
                return Ok(Vec::new());
            };
            let rows = query.query_map(params![], |row| {
                Ok((SessionId(uuid::Uuid::from_bytes(row.get(0)?)), row.get(1)?, row.get(2)?))
            });
            rows.map_err(sql)?.collect::<rusqlite::Result<_>>().map_err(sql)
        })
    }
}
