//! Where blobs lie, in packs or in the database, and what is read there.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use rath_core::Digest;
use rath_core::store::{Error, Piece, Result, Trouble};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::schema::{self, RIDERS, sql};
use crate::packs::{self, Damage, Held, Squeezed};

/// Where a blob lies.
pub(super) enum Place {
    /// In the pack of this name.
    Pack(String, packs::Place),
    /// In the database: its entry.
    Rider(Vec<u8>),
}

impl Place {
    /// Whether it does, as far as that is known without reading it.
    pub(super) fn is_there(&self, packs: &Path) -> bool {
        match self {
            Place::Pack(pack, place) => place.is_in(&packs.join(pack)),
            Place::Rider(_) => true,
        }
    }

    /// What lies there.
    pub(super) fn open(&self, packs: &Path, digest: &Digest) -> Result<Held, Damage> {
        match self {
            Place::Pack(pack, place) => packs::read(packs, pack, *place, digest),
            Place::Rider(entry) => packs::open_entry(entry, "the database", digest),
        }
    }
}

/// Where a blob lies.
pub(super) fn place(db: &Connection, digest: &Digest) -> Result<Option<Place>> {
    let query = "SELECT p.name, b.offset, b.stored, r.entry FROM blobs b
        LEFT JOIN packs p ON p.no = b.pack
        LEFT JOIN riders r ON b.pack = 0 AND r.no = b.offset AND substr(r.entry, 6, 32) = b.digest
        WHERE b.digest = ?1";
    let without_riders =
        "SELECT p.name, b.offset, b.stored, NULL FROM blobs b JOIN packs p ON p.no = b.pack WHERE b.digest = ?1";
    let query = match schema::prepare_added(db, query, RIDERS)? {
        Some(query) => Ok(query),
        None => db.prepare_cached(without_riders),
    };
    let place = |row: &rusqlite::Row<'_>| {
        let place = packs::Place { offset: row.get::<_, i64>(1)? as u64, stored: row.get::<_, i64>(2)? as u64 };
        let pack = row.get::<_, Option<String>>(0)?.map(|pack| Place::Pack(pack, place));
        Ok(pack.or(row.get::<_, Option<Vec<u8>>>(3)?.map(Place::Rider)))
    };
    let found = query.and_then(|mut query| query.query_row([digest.0], place).optional());
    Ok(found.map_err(sql)?.flatten())
}

/// How long a blob is, as the index says.
pub(super) fn length(db: &Connection, digest: &Digest) -> Result<Option<u64>> {
    let query = db.prepare_cached("SELECT bytes FROM blobs WHERE digest = ?1");
    let length = query.and_then(|mut query| query.query_row([digest.0], |row| row.get::<_, i64>(0)).optional());
    Ok(length.map_err(sql)?.map(|length| length as u64))
}

/// Says where a blob lies. What the index said before was not so.
pub(super) fn index(db: &Connection, blob: &Squeezed, pack: i64, offset: u64, stored: u64) -> rusqlite::Result<()> {
    let insert = "INSERT INTO blobs (digest, bytes, pack, offset, stored) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (digest) DO UPDATE
        SET bytes = excluded.bytes, pack = excluded.pack, offset = excluded.offset, stored = excluded.stored";
    let row = params![blob.digest.0, blob.raw as i64, pack, offset as i64, stored as i64];
    db.prepare_cached(insert)?.execute(row).map(drop)
}

/// The largest content that is handed out in one; larger ones are read by their pieces.
const AT_ONCE: u64 = 1 << 30;

/// What the store holds of a blob; of a joined one, its pieces.
pub(crate) fn held(db: &Connection, dir: &Path, digest: &Digest) -> Result<Option<Held>> {
    let mut again = true;
    loop {
        let Some(place) = place(db, digest)? else { return Ok(None) };
        match place.open(dir, digest) {
            Ok(held) => return Ok(Some(held)),
            // The pack may have been cleared out since the index was asked: then the index knows another place.
            Err(Damage::Pack(..)) if std::mem::take(&mut again) => {}
            Err(damage @ Damage::Pack(..)) => {
                let doing = format!("reading blob {digest}");
                let is_gone = matches!(&damage, Damage::Pack(_, why) if why.kind() == ErrorKind::NotFound);
                return Err(match is_gone {
                    true => Error::trouble(doing, Trouble::Damaged, damage),
                    false => Error::machine(doing, damage),
                });
            }
            Err(damage) => return Err(Error::BlobAltered { digest: *digest, why: damage.to_string() }),
        }
    }
}

/// A blob's bytes, checked.
pub(crate) fn get(db: &Connection, dir: &Path, digest: &Digest) -> Result<Option<Arc<[u8]>>> {
    let pieces = match held(db, dir, digest)? {
        None => return Ok(None),
        Some(Held::Bytes(bytes)) => return Ok(Some(bytes.into())),
        Some(Held::Pieces(pieces)) => pieces,
    };
    let altered = |why: &str| Error::BlobAltered { digest: *digest, why: why.into() };
    let total: u64 = pieces.iter().map(|piece| piece.bytes).sum();
    if total > AT_ONCE {
        return Err(Error::machine(format!("reading blob {digest}"), format!("{total} bytes are too many at once")));
    }
    let mut whole = Vec::with_capacity(total as usize);
    for piece in pieces {
        match held(db, dir, &piece.digest)? {
            Some(Held::Bytes(bytes)) if bytes.len() as u64 == piece.bytes => whole.extend_from_slice(&bytes),
            _ => return Err(altered("one of its pieces is not what it was joined from")),
        }
    }
    match Digest::of(&whole) == *digest {
        true => Ok(Some(whole.into())),
        false => Err(altered("its pieces do not hash to its digest")),
    }
}

/// The pieces of a joined blob.
pub(super) fn pieces(db: &Connection, dir: &Path, digest: &Digest) -> Result<Option<Vec<Piece>>> {
    match held(db, dir, digest)? {
        Some(Held::Pieces(pieces)) => Ok(Some(pieces)),
        _ => Ok(None),
    }
}
