//! Inline blobs: small blobs that are stored in the database, in the same commit as the records that refer to them.
//!
//! A blob in a pack must be synced before the commit that refers to it. That is one more sync, and a small commit takes
//! twice as long. A blob of a few kilobytes is stored in the table `riders` instead, with the same bytes as an entry of
//! a pack, and is durable with the commit.

use rath_core::store::Result;
use rusqlite::Connection;

use super::blobs;
use super::schema::{self, INLINE_BLOBS, sql};
use crate::packs::CompressedBlob;

/// The value of `blobs.pack` for inline blobs. Their `blobs.offset` is `riders.no`.
pub(super) const PACK: i64 = 0;

/// The longest entry, in bytes, that is stored inline. Longer blobs go to a pack, which is denser and is written once,
/// while the database is written twice: to the WAL and at the checkpoint.
const MAX_ENTRY: usize = 8 << 10;

/// The most bytes of inline entries in one session's part of a commit.
const MAX_PER_PART: usize = 64 << 10;

/// The table. A trigger deletes an inline blob with its row in `blobs`. SQLite reuses row numbers, and in a damaged
/// database a row of `blobs` may have the number of another blob, so lookups also compare the digest in the entry.
pub(super) const TABLE: &str = "
CREATE TABLE IF NOT EXISTS riders (
    no    INTEGER PRIMARY KEY,
    entry BLOB NOT NULL
);
CREATE TRIGGER IF NOT EXISTS riders_leave AFTER DELETE ON blobs WHEN old.pack = 0 BEGIN
    DELETE FROM riders WHERE no = old.offset AND substr(entry, 6, 32) = old.digest;
END;
";

/// Splits blobs into those to store inline and those to append to a pack.
pub(super) fn split(blobs: Vec<CompressedBlob>) -> (Vec<CompressedBlob>, Vec<CompressedBlob>) {
    let mut remaining = MAX_PER_PART;
    blobs.into_iter().partition(|blob| {
        let is_inline = blob.entry_len() <= MAX_ENTRY.min(remaining);
        remaining -= if is_inline { blob.entry_len() } else { 0 };
        is_inline
    })
}

/// Inserts an inline blob.
pub(super) fn insert(db: &Connection, blob: &CompressedBlob) -> rusqlite::Result<()> {
    let entry = blob.entry();
    let no = db.prepare_cached("INSERT INTO riders (entry) VALUES (?1)")?.insert([&entry])?;
    blobs::index(db, blob, PACK, no as u64, entry.len() as u64)
}

/// Deletes inline blobs that no row of `blobs` refers to. There are some only if the trigger was removed for a while.
pub(super) fn delete_unreferenced(db: &Connection) -> Result<()> {
    let delete = "DELETE FROM riders WHERE no NOT IN (SELECT offset FROM blobs WHERE pack = 0)";
    match schema::prepare_added(db, delete, INLINE_BLOBS)? {
        Some(mut delete) => delete.execute([]).map(drop).map_err(sql),
        None => Ok(()),
    }
}
