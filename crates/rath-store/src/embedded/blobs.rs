//! The index of blobs, and reading blobs from packs or from the database.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use rath_core::Digest;
use rath_core::store::{Chunk, Error, IoErrorKind, Result};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::schema::{self, INLINE_BLOBS, sql};
use crate::packs::{self, BlobContent, CompressedBlob, Damage};

/// Where a blob is stored.
pub(super) enum BlobPlace {
    /// In the pack with this name, at this position.
    Pack(String, packs::Place),
    /// In the database. This is its entry.
    Inline(Vec<u8>),
}

impl BlobPlace {
    /// Whether the blob exists there, as far as that is known without reading it.
    pub(super) fn is_there(&self, packs: &Path) -> bool {
        match self {
            BlobPlace::Pack(pack, place) => place.is_in(&packs.join(pack)),
            BlobPlace::Inline(_) => true,
        }
    }

    /// Reads the blob and checks its digest.
    pub(super) fn open(&self, packs: &Path, digest: &Digest) -> Result<BlobContent, Damage> {
        match self {
            BlobPlace::Pack(pack, place) => packs::read(packs, pack, *place, digest),
            BlobPlace::Inline(entry) => packs::open_entry(entry, "the database", digest),
        }
    }
}

/// Looks a blob up in the index; `None` if it is not listed.
pub(super) fn place(db: &Connection, digest: &Digest) -> Result<Option<BlobPlace>> {
    let query = "SELECT p.name, b.offset, b.stored, r.entry FROM blobs b
        LEFT JOIN packs p ON p.no = b.pack
        LEFT JOIN riders r ON b.pack = 0 AND r.no = b.offset AND substr(r.entry, 6, 32) = b.digest
        WHERE b.digest = ?1";
    let without_inline =
        "SELECT p.name, b.offset, b.stored, NULL FROM blobs b JOIN packs p ON p.no = b.pack WHERE b.digest = ?1";
    let query = match schema::prepare_added(db, query, INLINE_BLOBS)? {
        Some(query) => Ok(query),
        None => db.prepare_cached(without_inline),
    };
    let place = |row: &rusqlite::Row<'_>| {
        let place = packs::Place { offset: row.get::<_, i64>(1)? as u64, stored: row.get::<_, i64>(2)? as u64 };
        let pack = row.get::<_, Option<String>>(0)?.map(|pack| BlobPlace::Pack(pack, place));
        Ok(pack.or(row.get::<_, Option<Vec<u8>>>(3)?.map(BlobPlace::Inline)))
    };
    let found = query.and_then(|mut query| query.query_row([digest.0], place).optional());
    Ok(found.map_err(sql)?.flatten())
}

/// The length of a blob according to the index.
pub(super) fn length(db: &Connection, digest: &Digest) -> Result<Option<u64>> {
    let query = db.prepare_cached("SELECT bytes FROM blobs WHERE digest = ?1");
    let length = query.and_then(|mut query| query.query_row([digest.0], |row| row.get::<_, i64>(0)).optional());
    Ok(length.map_err(sql)?.map(|length| length as u64))
}

/// Inserts the position of a blob into the index, or replaces a wrong one.
pub(super) fn index(
    db: &Connection,
    blob: &CompressedBlob,
    pack: i64,
    offset: u64,
    stored: u64,
) -> rusqlite::Result<()> {
    let insert = "INSERT INTO blobs (digest, bytes, pack, offset, stored) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (digest) DO UPDATE
        SET bytes = excluded.bytes, pack = excluded.pack, offset = excluded.offset, stored = excluded.stored";
    let row = params![blob.digest.0, blob.raw as i64, pack, offset as i64, stored as i64];
    db.prepare_cached(insert)?.execute(row).map(drop)
}

/// The most bytes of a joined blob that are read at once. A larger blob must be read by its pieces.
const MAX_AT_ONCE: u64 = 1 << 30;

/// Reads and checks a blob; for a joined blob, the list of its pieces. `None` if it is not stored.
pub(crate) fn content(db: &Connection, dir: &Path, digest: &Digest) -> Result<Option<BlobContent>> {
    let mut again = true;
    loop {
        let Some(place) = place(db, digest)? else { return Ok(None) };
        match place.open(dir, digest) {
            Ok(content) => return Ok(Some(content)),
            // The pack may have been rewritten since the index was read. The index then has the new position.
            Err(Damage::Pack(..)) if std::mem::take(&mut again) => {}
            Err(damage @ Damage::Pack(..)) => {
                let doing = format!("reading blob {digest}");
                let is_gone = matches!(&damage, Damage::Pack(_, why) if why.kind() == ErrorKind::NotFound);
                return Err(match is_gone {
                    true => Error::with_kind(doing, IoErrorKind::Damaged, damage),
                    false => Error::machine(doing, damage),
                });
            }
            Err(damage) => return Err(Error::BlobAltered { digest: *digest, why: damage.to_string() }),
        }
    }
}

/// The bytes of a blob, checked against its digest.
pub(crate) fn get(db: &Connection, dir: &Path, digest: &Digest) -> Result<Option<Arc<[u8]>>> {
    let pieces = match content(db, dir, digest)? {
        None => return Ok(None),
        Some(BlobContent::Bytes(bytes)) => return Ok(Some(bytes.into())),
        Some(BlobContent::Pieces(pieces)) => pieces,
    };
    let altered = |why: &str| Error::BlobAltered { digest: *digest, why: why.into() };
    let total: u64 = pieces.iter().map(|piece| piece.bytes).sum();
    if total > MAX_AT_ONCE {
        return Err(Error::machine(
            format!("reading blob {digest}"),
            format!("it has {total} bytes, and at most {MAX_AT_ONCE} can be read at once; read its pieces"),
        ));
    }
    let mut whole = Vec::with_capacity(total as usize);
    for piece in pieces {
        match content(db, dir, &piece.digest)? {
            Some(BlobContent::Bytes(bytes)) if bytes.len() as u64 == piece.bytes => whole.extend_from_slice(&bytes),
            _ => return Err(altered("one of its pieces is not what it was joined from")),
        }
    }
    match Digest::of(&whole) == *digest {
        true => Ok(Some(whole.into())),
        false => Err(altered("its pieces do not hash to its digest")),
    }
}

/// The pieces of a joined blob.
pub(super) fn pieces(db: &Connection, dir: &Path, digest: &Digest) -> Result<Option<Vec<Chunk>>> {
    match content(db, dir, digest)? {
        Some(BlobContent::Pieces(pieces)) => Ok(Some(pieces)),
        _ => Ok(None),
    }
}
