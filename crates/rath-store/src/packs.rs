//! Append-only files that hold blobs.
//!
//! A process appends to a pack of its own: one that nobody else has locked and whose length is what the index says,
//! or a new one. An entry is a magic word, the codec, the digest, both lengths and the bytes; a large content is an
//! entry that names its pieces, which are blobs of their own. Nothing is ever changed in place; what a crash leaves behind the last indexed entry is never named.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rath_core::store::Piece;
use rath_core::{Blob, BlobRef, Digest};
use rath_workspace::durable::sync_dir;

use crate::squeeze::{squeeze, unsqueeze};

const MAGIC: &[u8; 4] = b"blob";
const ENTRY: usize = 4 + 1 + 32 + 8 + 8;
const RAW: u8 = 0;
const ZSTD: u8 = 1;
/// The entry's bytes are a row of digests and lengths.
const JOINED: u8 = 2;
const PIECE: usize = 32 + 8;

/// A pack that has grown past this is left alone and another one begun.
pub(crate) const PACK_LIMIT: u64 = 64 * 1024 * 1024;

/// Where a blob lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    pub(crate) stored: u64,
}

impl Place {
    /// Whether a pack is there, and long enough.
    pub(crate) fn is_in(self, pack: &Path) -> bool {
        let end = self.offset.saturating_add(self.stored);
        fs::metadata(pack).is_ok_and(|pack| pack.len() >= end)
    }
}

/// A blob as it is stored.
pub(crate) struct Squeezed {
    pub(crate) digest: Digest,
    /// Its length before it was squeezed.
    pub(crate) raw: u64,
    codec: u8,
    bytes: Vec<u8>,
}

impl Squeezed {
    /// How many bytes it takes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Squeezes a blob, where that makes it smaller.
    pub(crate) fn new(blob: &Blob) -> io::Result<Self> {
        let squeezed = squeeze(&blob.bytes)?;
        let (codec, bytes) = match squeezed.len() < blob.bytes.len() {
            true => (ZSTD, squeezed),
            false => (RAW, blob.bytes.to_vec()),
        };
        Ok(Self { digest: blob.reference.digest, raw: blob.bytes.len() as u64, codec, bytes })
    }

    /// A content that others make up.
    pub(crate) fn joined(whole: &BlobRef, pieces: &[Piece]) -> Self {
        let mut bytes = Vec::with_capacity(pieces.len() * PIECE);
        for piece in pieces {
            bytes.extend_from_slice(&piece.digest.0);
            bytes.extend_from_slice(&piece.bytes.to_le_bytes());
        }
        Self { digest: whole.digest, raw: whole.bytes, codec: JOINED, bytes }
    }

    /// How long its entry is.
    pub(crate) fn entry_len(&self) -> usize {
        ENTRY + self.bytes.len()
    }

    /// Its entry.
    pub(crate) fn entry(&self) -> Vec<u8> {
        let mut entry = Vec::with_capacity(self.entry_len());
        self.write(&mut entry);
        entry
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(MAGIC);
        out.push(self.codec);
        out.extend_from_slice(&self.digest.0);
        out.extend_from_slice(&self.raw.to_le_bytes());
        out.extend_from_slice(&(self.bytes.len() as u64).to_le_bytes());
        out.extend_from_slice(&self.bytes);
    }
}

/// What an entry holds.
pub(crate) enum Held {
    Bytes(Vec<u8>),
    Pieces(Vec<Piece>),
}

/// A pack this process appends to. The lock on the file is held as long as the value lives.
pub(crate) struct PackWriter {
    file: File,
    pub(crate) length: u64,
    dirty: bool,
}

impl PackWriter {
    /// Takes over an existing pack; `None` when another process has it or its end is not the indexed one.
    pub(crate) fn adopt(dir: &Path, name: &str, length: u64) -> io::Result<Option<Self>> {
        let file = match OpenOptions::new().append(true).open(dir.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if file.try_lock().is_err() || file.metadata()?.len() != length {
            return Ok(None);
        }
        Ok(Some(Self { file, length, dirty: false }))
    }

    /// Begins a pack.
    pub(crate) fn create(dir: &Path, name: &str) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        // Another process may have made it a moment ago. The store that it lies in lasts.
        sync_dir(&above(dir))?;
        let file = OpenOptions::new().append(true).create_new(true).open(dir.join(name))?;
        file.try_lock().map_err(io::Error::other)?;
        sync_dir(dir)?;
        Ok(Self { file, length: 0, dirty: true })
    }

    /// Whether something was appended and not synced.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Appends blobs with one write. They are durable after [`sync`](Self::sync).
    pub(crate) fn append(&mut self, blobs: &[&Squeezed]) -> io::Result<Vec<Place>> {
        let mut bytes = Vec::with_capacity(blobs.iter().map(|blob| blob.entry_len()).sum());
        let mut places = Vec::with_capacity(blobs.len());
        for blob in blobs {
            let begin = bytes.len();
            blob.write(&mut bytes);
            places.push(Place { offset: self.length + begin as u64, stored: (bytes.len() - begin) as u64 });
        }
        self.write(&bytes)?;
        Ok(places)
    }

    /// Appends an entry as another pack holds it.
    pub(crate) fn append_entry(&mut self, entry: &[u8]) -> io::Result<Place> {
        let place = Place { offset: self.length, stored: entry.len() as u64 };
        self.write(entry)?;
        Ok(place)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            // A part of it may be there: cut it off, so that the next entry begins where the index says.
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        self.length += bytes.len() as u64;
        self.dirty = true;
        Ok(())
    }

    /// Makes everything appended durable.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if self.dirty {
            self.file.sync_data()?;
            self.dirty = false;
        }
        Ok(())
    }
}

/// Why a blob could not be read from its pack.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Damage {
    /// The pack is not there or cannot be read.
    #[error("pack {0} cannot be read: {1}")]
    Pack(String, #[source] io::Error),
    /// The entry is not what the index says.
    #[error("the entry in {0} is damaged")]
    Entry(String),
    /// The bytes do not hash to the digest.
    #[error("its bytes do not hash to its digest")]
    Altered,
}

impl Damage {
    fn in_pack(name: &str) -> Self {
        Damage::Entry(format!("pack {name}"))
    }
}

thread_local! {
    /// The pack that was read last: who walks versions reads many entries of one. Names are never used again, so an
    /// open file is the pack of its name for ever.
    static LAST: RefCell<Option<(PathBuf, File)>> = const { RefCell::new(None) };
}

/// The bytes of an entry as they lie in the pack.
pub(crate) fn read_entry(dir: &Path, name: &str, place: Place) -> Result<Vec<u8>, Damage> {
    let path = dir.join(name);
    LAST.with_borrow_mut(|last| {
        let file = match last.take_if(|(known, _)| *known == path) {
            Some((_, file)) => file,
            None => File::open(&path).map_err(|error| Damage::Pack(name.into(), error))?,
        };
        let entry = read_from(&file, name, place);
        // After a failure the next one looks again: the file may be another one by then.
        if entry.is_ok() {
            *last = Some((path, file));
        }
        entry
    })
}

fn read_from(file: &File, name: &str, place: Place) -> Result<Vec<u8>, Damage> {
    let fail = |error| Damage::Pack(name.into(), error);
    // The index may be damaged: a length is believed when the file is that long.
    if place.stored > 1 << 20 {
        let length = file.metadata().map_err(fail)?.len();
        if place.offset.checked_add(place.stored).is_none_or(|end| end > length) {
            return Err(Damage::in_pack(name));
        }
    }
    if place.stored < ENTRY as u64 {
        return Err(Damage::in_pack(name));
    }
    let mut entry = vec![0; place.stored as usize];
    match file.read_exact_at(&mut entry, place.offset) {
        Ok(()) => Ok(entry),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Damage::in_pack(name)),
        Err(error) => Err(fail(error)),
    }
}

/// Reads a blob and checks it against its digest; of a joined one, its pieces.
pub(crate) fn read(dir: &Path, name: &str, place: Place, digest: &Digest) -> Result<Held, Damage> {
    open_entry(&read_entry(dir, name, place)?, &format!("pack {name}"), digest)
}

/// Opens an entry that lies in `place`, and checks it against its digest; of a joined blob, its pieces.
pub(crate) fn open_entry(entry: &[u8], place: &str, digest: &Digest) -> Result<Held, Damage> {
    let damaged = || Damage::Entry(place.into());
    let (head, bytes) = entry.split_at_checked(ENTRY).ok_or_else(damaged)?;
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
    let (raw, stored) = (number(&head[37..45]), number(&head[45..53]));
    if head[..4] != *MAGIC || head[5..37] != digest.0 || stored != bytes.len() as u64 {
        return Err(damaged());
    }
    let content = match head[4] {
        RAW => bytes.to_vec(),
        ZSTD => unsqueeze(bytes, raw).map_err(|_| damaged())?,
        JOINED if bytes.len().is_multiple_of(PIECE) => {
            let piece = |piece: &[u8]| {
                let (digest, bytes) = piece.split_at(32);
                Some(Piece { digest: Digest(digest.try_into().ok()?), bytes: number(bytes) })
            };
            let pieces: Vec<Piece> = bytes.chunks_exact(PIECE).filter_map(piece).collect();
            return match pieces.iter().try_fold(0u64, |sum, piece| sum.checked_add(piece.bytes)) {
                Some(sum) if sum == raw => Ok(Held::Pieces(pieces)),
                _ => Err(damaged()),
            };
        }
        _ => return Err(damaged()),
    };
    if Digest::of(&content) != *digest {
        return Err(Damage::Altered);
    }
    Ok(Held::Bytes(content))
}

/// Makes a directory, and those above it that are missing. The way to it lasts also when somebody else made a part of it a
/// moment ago, and has not come to say so.
pub(crate) fn make_dirs(dir: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !dir.is_dir()).collect();
    fs::create_dir_all(dir)?;
    for part in dir.ancestors().filter(|part| part.file_name().is_some()) {
        let lasts = sync_dir(&above(part));
        // What stood there need not be ours to sync.
        if part == dir || missing.contains(&part) {
            lasts?;
        }
    }
    Ok(())
}

/// The directory that a path lies in.
fn above(path: &Path) -> PathBuf {
    match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above.to_path_buf(),
        _ => PathBuf::from("."),
    }
}
