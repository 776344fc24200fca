//! Little blobs that ride in the database, with the commit that brings them.
//!
//! A blob in a pack is synced before the commit that names it: one more sync, as long as all else that a small commit
//! does. A few kilobytes go into the database instead, as the entry that a pack would hold, and last with the commit.

use rath_core::store::Result;
use rusqlite::Connection;

use super::blobs;
use super::schema::{self, RIDERS, sql};
use crate::packs::Squeezed;

/// In `blobs`, the pack of those that ride; their offset is the number of their row.
pub(super) const PACK: i64 = 0;

/// The longest entry that rides, and how many bytes of them do so in one part of a commit. Packs are denser, and are
/// written once instead of twice.
const LONGEST: usize = 8 << 10;
const ROOM: usize = 64 << 10;

/// The table. Who leaves `blobs` gets off. Numbers are used again: after damage a row of `blobs` may have that of somebody
/// else, so a rider is known by the digest in its entry, too.
pub(super) const TABLE: &str = "
CREATE TABLE IF NOT EXISTS riders (
    no    INTEGER PRIMARY KEY,
    entry BLOB NOT NULL
);
CREATE TRIGGER IF NOT EXISTS riders_leave AFTER DELETE ON blobs WHEN old.pack = 0 BEGIN
    DELETE FROM riders WHERE no = old.offset AND substr(entry, 6, 32) = old.digest;
END;
";

/// Parts those that may ride from those for a pack.
pub(super) fn part(blobs: Vec<Squeezed>) -> (Vec<Squeezed>, Vec<Squeezed>) {
    let mut room = ROOM;
    blobs.into_iter().partition(|blob| {
        let rides = blob.entry_len() <= LONGEST.min(room);
        room -= if rides { blob.entry_len() } else { 0 };
        rides
    })
}

/// Takes one on board.
pub(super) fn board(db: &Connection, blob: &Squeezed) -> rusqlite::Result<()> {
    let entry = blob.entry();
    let no = db.prepare_cached("INSERT INTO riders (entry) VALUES (?1)")?.insert([&entry])?;
    blobs::index(db, blob, PACK, no as u64, entry.len() as u64)
}

/// Puts off those whom no row of `blobs` names: where somebody took the trigger away, they stayed behind.
pub(super) fn put_off_strangers(db: &Connection) -> Result<()> {
    let delete = "DELETE FROM riders WHERE no NOT IN (SELECT offset FROM blobs WHERE pack = 0)";
    match schema::prepare_added(db, delete, RIDERS)? {
        Some(mut delete) => delete.execute([]).map(drop).map_err(sql),
        None => Ok(()),
    }
}
