//! Erasure: destroys record bodies and their salts, everything that was derived from them, blobs that nothing else
//! refers to, and the remaining copies of the bytes in free pages, the write-ahead log, packs and backups.
//!
//! An erasure is written to a journal before it starts, and removed from the journal when all copies are report. So an
//! interrupted erasure is in the journal ([`Embedded::unfinished`]) and can be completed later.

mod blob_referrers;
mod journal;
mod scrub;
mod strip;
mod workspaces;

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

use super::schema::{self, sql};
use super::write_request::WriteRequest;
use super::{Embedded, blobs, garbage, holder, inline_blobs, integrity, read, upgrade};
use crate::packs::BlobContent;
use blob_referrers::BlobReferrers;
use rath_workspace::RULES;
use workspaces::ErasedWorkspaces;

/// How often an erasure tries to lock out processes that save files.
const LOCK_ATTEMPTS: u32 = 500;

/// The pause between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The records, sessions and posts that an erasure destroys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErasePlan {
    /// The name of the erasure in the journal.
    pub name: String,
    /// Whether the erasure is announced by an `erased` record with this name. If that record was not published, the
    /// erasure did not start.
    pub recorded: bool,
    /// Records that lose their salt and body. Their headers stay.
    pub records: Vec<Reference>,
    /// Sessions that are removed completely, by their heads. No remaining session may be forked from them.
    pub sessions: Vec<Reference>,
    /// The ids of posts that are emptied.
    pub posts: Vec<String>,
    /// Sessions under a legal hold. They keep their versions of files even if all their bodies are erased.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<SessionId>,
}

impl ErasePlan {
    /// An empty plan with a new name.
    pub fn new() -> Self {
        Self { name: rath_core::fresh_name(), ..Self::default() }
    }
}

/// The result of an erasure, or of its dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EraseReport {
    /// The number of erased bodies.
    pub records: u64,
    /// The number of removed sessions.
    pub sessions: u64,
    /// The number of removed blobs.
    pub blobs: u64,
    /// The stored bytes of the removed blobs.
    pub blob_bytes: u64,
    /// The number of packs that were rewritten or removed.
    pub packs: u64,
    /// The bytes that were overwritten in place, in packs that another process appends to.
    pub overwritten: u64,
    /// The bytes by which the files became shorter.
    pub freed: u64,
    /// The removed backups of the database from format upgrades, because they contain the erased data.
    pub backups: Vec<PathBuf>,
    /// The removed workspace directories of sessions of which nothing is left.
    #[serde(rename = "places")]
    pub workspaces: Vec<PathBuf>,
    /// The bytes on disk of the removed workspaces.
    #[serde(rename = "place_bytes")]
    pub workspace_bytes: u64,
    /// The blobs that stay because a remaining record or version refers to them.
    pub kept: Vec<KeptBlob>,
}

/// A blob of the erased records that stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeptBlob {
    /// The digest of the blob.
    pub digest: Digest,
    /// The length of the blob.
    pub bytes: u64,
    /// The records that refer to it. Empty if only a version of files contains it.
    pub named_by: Vec<Point>,
}

/// A lock that is required for erasing: while it exists, no process of this store saves files, erases or collects
/// garbage.
pub struct EraseLock {
    file: File,
}

impl Drop for EraseLock {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// Returns an error if the newest segment of the store would be removed. SQLite would give its number to the next
/// commit, and a reader with a cursor would skip that commit. An erasure with an `erased` record never gets this error,
/// because that record is newer than everything that the erasure removes.
fn check_keeps_newest_segment(db: &Connection, set: &EraseSet) -> Result<()> {
    let query = "SELECT s.id FROM segments g JOIN sessions s ON s.no = g.session WHERE g.cursor = ?1";
    let last: Option<[u8; 16]> =
        db.query_row(query, [read::last_segment(db)?], |row| row.get(0)).optional().map_err(sql)?;
    match last.map(|id| SessionId(uuid::Uuid::from_bytes(id))) {
        Some(session) if set.removed.contains(&session) => Err(Error::machine(
            format!("removing session {}", session.short()),
            "its last record is the newest one of the store; record the erasure first",
        )),
        _ => Ok(()),
    }
}

/// The sets that an [`ErasePlan`] amounts to in the current store.
struct EraseSet {
    /// By session, the seqs of the records that lose their body.
    records: HashMap<SessionId, BTreeSet<u64>>,
    /// Sessions that are removed, and sessions that lose every body and have no remaining fork. Their versions of files
    /// are removed too.
    emptied: HashSet<SessionId>,
    /// Sessions that are removed.
    removed: HashSet<SessionId>,
}

impl EraseSet {
    fn of(db: &Connection, holders: &Path, plan: &ErasePlan) -> Result<Self> {
        let mut records: HashMap<SessionId, BTreeSet<u64>> = HashMap::new();
        for reference in &plan.records {
            records.entry(reference.session).or_default().insert(reference.seq);
        }
        let removed: HashSet<_> = plan.sessions.iter().map(|head| head.session).collect();
        let mut emptied = removed.clone();
        for (session, seqs) in &records {
            if strip::leaves_no_body(db, *session, seqs)? {
                emptied.insert(*session);
            }
        }
        // Also parents and forks that earlier erasures emptied and that kept their versions only because of these
        // sessions.
        let mut open: Vec<SessionId> = emptied.iter().copied().collect();
        while let Some(session) = open.pop() {
            for near in parent_and_forks(db, holders, session)? {
                let seqs = records.entry(near).or_default();
                if !emptied.contains(&near) && !plan.held.contains(&near) && strip::leaves_no_body(db, near, seqs)? {
                    emptied.insert(near);
                    open.push(near);
                }
            }
        }
        // A remaining fork starts with the files of its parent, so the parent keeps its versions.
        let mut forks = db.prepare_cached("SELECT id FROM sessions WHERE origin_session = ?1").map_err(sql)?;
        loop {
            let mut needed = None;
            for session in emptied.iter().filter(|session| !removed.contains(session)) {
                let ids = forks.query_map([session.0.as_bytes()], |row| row.get(0)).map_err(sql)?;
                let ids: Vec<[u8; 16]> = ids.collect::<rusqlite::Result<_>>().map_err(sql)?;
                if ids.into_iter().any(|id| !emptied.contains(&SessionId(uuid::Uuid::from_bytes(id)))) {
                    needed = Some(*session);
                    break;
                }
            }
            match needed {
                Some(session) => drop(emptied.remove(&session)),
                None => {
                    records.retain(|session, seqs| !seqs.is_empty() || emptied.contains(session));
                    return Ok(Self { records, emptied, removed });
                }
            }
        }
    }

    fn covers(&self, point: Point) -> bool {
        self.removed.contains(&point.session)
            || self.records.get(&point.session).is_some_and(|seqs| seqs.contains(&point.seq))
    }
}

/// The parent and the forks of a session, except those that a live process has leased.
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
    /// Takes the lock for erasing. Waits up to 10 s for processes that save files, because between a save and the
    /// record with its version nothing refers to the new blobs.
    pub fn lock_for_erase(&self) -> Result<EraseLock> {
        let file = garbage::lock_file(&self.paths.root)?;
        for _ in 0..LOCK_ATTEMPTS {
            if file.try_lock().is_ok() {
                self.flush_writer();
                return Ok(EraseLock { file });
            }
            std::thread::sleep(LOCK_PAUSE);
        }
        let why = "another process is saving files to this store; nothing was erased, try again later";
        Err(Error::machine("erasing", why))
    }

    /// Waits until the writer of this process has executed all queued requests, which release leases and store deferred
    /// blobs.
    pub(in crate::embedded) fn flush_writer(&self) {
        let Some(writer) = self.writer.get() else { return };
        let (reply, mut answer) = oneshot::channel();
        writer.send(WriteRequest::Blobs { blobs: Vec::new(), reply });
        while let Ok(None) = answer.try_recv() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// What [`destroy`](Self::destroy) would do. Changes nothing.
    pub fn erase_dry_run(&self, plan: &ErasePlan, progress: &mut dyn FnMut(u64)) -> Result<EraseReport> {
        self.read(|db| {
            let _snapshot = db.unchecked_transaction().map_err(sql)?;
            integrity::check(db)?;
            let set = EraseSet::of(db, &self.paths.holders, plan)?;
            let wanted = self.blobs_of(db, plan, &set)?;
            let workspaces = ErasedWorkspaces::find(&self.paths.root, &set.emptied);
            let mut referrers = BlobReferrers::new(&wanted, &set, &workspaces);
            referrers.read(self, db, progress)?;
            referrers.walk(self, db)?;
            let mut report = EraseReport { sessions: plan.sessions.len() as u64, ..EraseReport::default() };
            (report.workspaces, report.workspace_bytes) = workspaces.copies();
            report.records = strip::count_bodies(db, &set)?;
            referrers.partition(db, &mut report)?;
            report.backups = upgrade::backups(&self.paths.database).into_iter().map(|backup| backup.path).collect();
            Ok(report)
        })
    }

    /// The records that refer to each of these blobs.
    pub fn blob_referrers(&self, blobs: &HashSet<Digest>) -> Result<HashMap<Digest, Vec<Point>>> {
        let nothing = EraseSet { records: HashMap::new(), emptied: HashSet::new(), removed: HashSet::new() };
        self.read(|db| {
            let workspaces = ErasedWorkspaces::default();
            let mut referrers = BlobReferrers::new(blobs, &nothing, &workspaces);
            referrers.read(self, db, &mut |_| {})?;
            Ok(referrers.into_named())
        })
    }

    /// Returns an error if a session that the plan removes has changed, is leased, or has a remaining fork.
    pub fn check_removable(&self, _: &EraseLock, plan: &ErasePlan) -> Result<()> {
        self.read(|db| self.check_unreferenced(db, plan, &EraseSet::of(db, &self.paths.holders, plan)?))
    }

    /// Writes a plan to the journal. The erasure starts when its `erased` record is published, if it has one.
    pub fn journal_erase(&self, _: &EraseLock, plan: &ErasePlan) -> Result<()> {
        self.read(|db| strip::check_folds(db, plan))?;
        journal::write(&self.paths.root, &journal::Entry { plan: plan.clone(), packs: Vec::new() })
    }

    /// Removes from the journal an erasure that has not started.
    pub fn abandon(&self, _: &EraseLock, name: &str) -> Result<()> {
        journal::remove(&self.paths.root, name)
    }

    /// The erasures in the journal, which are not finished.
    pub fn unfinished(&self) -> Result<Vec<ErasePlan>> {
        Ok(journal::read(&self.paths.root)?.into_iter().map(|entry| entry.plan).collect())
    }

    /// Whether a process is erasing or collecting garbage in this store.
    pub fn is_erasing(&self) -> bool {
        // Saving files takes the lock in shared mode, so a shared attempt tells both cases apart. A missing file is not
        // locked.
        let file = File::open(garbage::lock_path(&self.paths.root));
        file.is_ok_and(|file| match file.try_lock_shared() {
            Ok(()) => file.unlock().is_err(),
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(_)) => false,
        })
    }

    /// Carries out an erasure. When this returns, no file of the store has the erased bytes.
    pub fn destroy(&self, _: &EraseLock, plan: &ErasePlan, progress: &mut dyn FnMut(u64)) -> Result<EraseReport> {
        let known = journal::read(&self.paths.root)?.into_iter().find(|entry| entry.plan.name == plan.name);
        let mut entry = known.unwrap_or_else(|| journal::Entry { plan: plan.clone(), packs: Vec::new() });
        let db = self.connect_to_write()?;
        integrity::check(&db)?;
        strip::check(&db, plan)?;
        strip::check_folds(&db, plan)?;
        journal::write(&self.paths.root, &entry)?;
        self.before_erasure(plan)?;
        let set = EraseSet::of(&db, &self.paths.holders, plan)?;
        let wanted = self.blobs_of(&db, plan, &set)?;
        let workspaces = ErasedWorkspaces::claim(&self.paths.root, &set.emptied);
        let mut referrers = BlobReferrers::new(&wanted, &set, &workspaces);
        referrers.read(self, &db, progress)?;
        db.execute_batch("BEGIN IMMEDIATE").map_err(sql)?;
        let mut work = || -> Result<EraseReport> {
            // Records that were committed since the first pass.
            referrers.read(self, &db, progress)?;
            referrers.walk(self, &db)?;
            self.check_unreferenced(&db, plan, &set)?;
            check_keeps_newest_segment(&db, &set)?;
            let mut report = EraseReport { sessions: plan.sessions.len() as u64, ..EraseReport::default() };
            report.records = strip::count_bodies(&db, &set)?;
            strip::strip(&db, plan, &set)?;
            let dead = referrers.partition(&db, &mut report)?;
            entry.packs.extend(scrub::packs_of(&db, &dead)?);
            entry.packs.sort();
            entry.packs.dedup();
            journal::write(&self.paths.root, &entry)?;
            let mut delete = db.prepare("DELETE FROM blobs WHERE digest = ?1").map_err(sql)?;
            for digest in dead {
                delete.execute([digest.0]).map_err(sql)?;
            }
            inline_blobs::delete_unreferenced(&db)?;
            Ok(report)
        };
        let done = work().and_then(|report| self.suspect_wal.commit(&db).map(|()| report));
        let mut report = match done {
            Ok(report) => report,
            Err(error) => {
                let _ = db.execute_batch("ROLLBACK");
                return Err(error);
            }
        };
        (report.workspaces, report.workspace_bytes) = workspaces.copies();
        report.freed += workspaces.remove()?;
        self.prefetcher.clear();
        self.after_erasure(plan)?;
        self.scrub_packs(&db, &entry.packs, &mut report)?;
        scrub::database(&db, &self.suspect_wal, &mut report)?;
        self.remove_backups(&mut report)?;
        journal::remove(&self.paths.root, &plan.name)?;
        Ok(report)
    }

    /// Returns an error if a session that the plan removes has changed, is leased, or has a remaining fork.
    fn check_unreferenced(&self, db: &Connection, plan: &ErasePlan, set: &EraseSet) -> Result<()> {
        for head in &plan.sessions {
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
                return Err(Error::Locked { session, holder });
            }
            let mut forks = db.prepare_cached("SELECT id FROM sessions WHERE origin_session = ?1").map_err(sql)?;
            let forks = forks.query_map([session.0.as_bytes()], |row| row.get(0)).map_err(sql)?;
            for fork in forks {
                let fork = SessionId(uuid::Uuid::from_bytes(fork.map_err(sql)?));
                if !set.removed.contains(&fork) {
                    let why = format!("session {} was forked from it", fork.short());
                    return Err(Error::machine(format!("removing session {}", session.short()), why));
                }
            }
        }
        Ok(())
    }

    /// The blobs that the erased bodies refer to, the contents of versions that are removed, and the pieces of joined
    /// blobs.
    fn blobs_of(&self, db: &Connection, plan: &ErasePlan, set: &EraseSet) -> Result<HashSet<Digest>> {
        let mut open: Vec<(Digest, bool)> = Vec::new();
        strip::for_each_body(db, plan, set, &mut |session, body| {
            let with_versions = set.emptied.contains(&session);
            for blob in blob_references(body) {
                let tree = blob.media_type == TREE;
                if with_versions || !tree && blob.media_type != RULES {
                    open.push((blob.digest, tree));
                }
            }
        })?;
        // Versions of bodies that were erased earlier. Only the snapshots still refer to them.
        for session in &set.emptied {
            for blob in strip::snapshot_blobs(db, *session)? {
                open.push((blob.digest, blob.media_type == TREE));
            }
        }
        let mut wanted = BTreeMap::new();
        while let Some((digest, tree)) = open.pop() {
            // A file may have the same bytes as a tree, so a blob can be read in both roles.
            if wanted.get(&digest).is_some_and(|walked| *walked || !tree) {
                continue;
            }
            wanted.insert(digest, tree);
            match blobs::content(db, &self.paths.packs, &digest) {
                Ok(Some(BlobContent::Pieces(pieces))) => open.extend(pieces.iter().map(|piece| (piece.digest, false))),
                Ok(Some(BlobContent::Bytes(bytes))) if tree => {
                    let tree = Tree::decode(&bytes);
                    let tree = tree.map_err(|why| Error::BlobAltered { digest, why: why.to_string() })?;
                    open.extend(tree.entries.iter().map(|entry| (entry.node.sha256, entry.node.is_directory())));
                }
                // A damaged blob can be removed. The blobs that it refers to are unknown and stay.
                _ => {}
            }
        }
        Ok(wanted.into_keys().collect())
    }

    /// The bytes on disk of records, blobs and workspaces.
    pub fn size(&self) -> Result<u64> {
        let health = |db: &Connection| {
            let ask = |query: &str| db.query_row(query, [], |row| row.get::<_, i64>(0)).map_err(sql);
            let pages = ask(
                "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()",
            )?;
            Ok((pages + ask("SELECT coalesce(sum(length), 0) FROM packs")?) as u64)
        };
        Ok(self.read(health)? + workspaces::size(&self.paths.root))
    }

    /// The queued posts: session, id and stored text.
    pub fn queued_posts(&self) -> Result<Vec<(SessionId, String, Vec<u8>)>> {
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
