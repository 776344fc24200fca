//! Packs: append-only files of blobs.
//!
//! A process appends to a pack that it has locked: an existing pack that no other process has locked and whose length
//! is the one in the index, or a new pack. An entry is a magic word, the codec, the digest, the raw length, the stored
//! length and the bytes. The entry of a large content lists its pieces, which are blobs of their own. Entries never
//! change. After a crash, a pack may have bytes after its last indexed entry; nothing refers to them.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rath_core::store::Chunk;
use rath_core::{Blob, BlobRef, Digest};
use rath_workspace::durable::sync_dir;

use crate::compress::{compress, decompress};

const MAGIC: &[u8; 4] = b"blob";
const ENTRY: usize = 4 + 1 + 32 + 8 + 8;
const RAW: u8 = 0;
const ZSTD: u8 = 1;
/// The bytes are a list of pieces: digest and length of each.
const JOINED: u8 = 2;
const PIECE: usize = 32 + 8;

/// The length, in bytes, from which on a pack is full and the writer opens another one.
pub(crate) const PACK_LIMIT: u64 = 64 * 1024 * 1024;

/// The position of an entry in its pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    pub(crate) stored: u64,
}

impl Place {
    /// Whether the pack file exists and is long enough for the entry.
    pub(crate) fn is_in(self, pack: &Path) -> bool {
        let end = self.offset.saturating_add(self.stored);
        fs::metadata(pack).is_ok_and(|pack| pack.len() >= end)
    }
}

/// A blob as it is stored: compressed, raw if compression does not make it shorter, or joined from pieces.
pub(crate) struct CompressedBlob {
    pub(crate) digest: Digest,
    /// The length before compression.
    pub(crate) raw: u64,
    codec: u8,
    bytes: Vec<u8>,
}

impl CompressedBlob {
    /// The stored length, without the header of the entry.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Compresses a blob, or copies it if compression does not make it shorter.
    pub(crate) fn new(blob: &Blob) -> io::Result<Self> {
        let compressed = compress(&blob.bytes)?;
        let (codec, bytes) = match compressed.len() < blob.bytes.len() {
            true => (ZSTD, compressed),
            false => (RAW, blob.bytes.to_vec()),
        };
        Ok(Self { digest: blob.reference.digest, raw: blob.bytes.len() as u64, codec, bytes })
    }

    /// A content that consists of the contents of `pieces`.
    pub(crate) fn joined(whole: &BlobRef, pieces: &[Chunk]) -> Self {
        let mut bytes = Vec::with_capacity(pieces.len() * PIECE);
        for piece in pieces {
            bytes.extend_from_slice(&piece.digest.0);
            bytes.extend_from_slice(&piece.bytes.to_le_bytes());
        }
        Self { digest: whole.digest, raw: whole.bytes, codec: JOINED, bytes }
    }

    pub(crate) fn entry_len(&self) -> usize {
        ENTRY + self.bytes.len()
    }

    /// The entry as it is written to a pack or inline to the database.
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

/// The decoded content of an entry.
pub(crate) enum BlobContent {
    Bytes(Vec<u8>),
    Pieces(Vec<Chunk>),
}

/// A pack that this process appends to. It keeps a lock on the file until it is dropped.
pub(crate) struct PackWriter {
    file: File,
    pub(crate) length: u64,
    dirty: bool,
}

impl PackWriter {
    /// Opens an existing pack; `None` if another process has locked it or its length is not the indexed one.
    pub(crate) fn open(dir: &Path, name: &str, length: u64) -> io::Result<Option<Self>> {
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

    /// Creates a pack.
    pub(crate) fn create(dir: &Path, name: &str) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        // Another process may have created the directory and not synced it yet. The store's directory is durable
        // already.
        sync_dir(&parent_of(dir))?;
        let file = OpenOptions::new().append(true).create_new(true).open(dir.join(name))?;
        file.try_lock().map_err(io::Error::other)?;
        sync_dir(dir)?;
        Ok(Self { file, length: 0, dirty: true })
    }

    /// Whether it has appended entries that are not synced.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Appends blobs with one write. They are durable only after [`sync`](Self::sync).
    pub(crate) fn append(&mut self, blobs: &[&CompressedBlob]) -> io::Result<Vec<Place>> {
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

    /// Appends the bytes of an entry of another pack.
    pub(crate) fn append_entry(&mut self, entry: &[u8]) -> io::Result<Place> {
        let place = Place { offset: self.length, stored: entry.len() as u64 };
        self.write(entry)?;
        Ok(place)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            // A part may have been written. Truncate it, so that the next entry starts at the indexed length.
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        self.length += bytes.len() as u64;
        self.dirty = true;
        Ok(())
    }

    /// Syncs everything that was appended.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if self.dirty {
            self.file.sync_data()?;
            self.dirty = false;
        }
        Ok(())
    }
}

/// Why a blob could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Damage {
    /// The pack is missing or cannot be read.
    #[error("pack {0} cannot be read: {1}")]
    Pack(String, #[source] io::Error),
    /// The entry at the indexed position is not a valid entry of this blob.
    #[error("the entry in {0} is damaged")]
    Entry(String),
    /// The bytes do not have the digest of the blob.
    #[error("its bytes do not hash to its digest")]
    Altered,
}

impl Damage {
    fn in_pack(name: &str) -> Self {
        Damage::Entry(format!("pack {name}"))
    }
}

thread_local! {
    /// The pack that was read last, because walking a version reads many entries of one pack. A pack's name is never
    /// reused, so an open file stays the pack of that name.
    static LAST: RefCell<Option<(PathBuf, File)>> = const { RefCell::new(None) };
}

/// Reads the stored bytes of an entry.
pub(crate) fn read_entry(dir: &Path, name: &str, place: Place) -> Result<Vec<u8>, Damage> {
    let path = dir.join(name);
    LAST.with_borrow_mut(|last| {
        let file = match last.take_if(|(known, _)| *known == path) {
            Some((_, file)) => file,
            None => File::open(&path).map_err(|error| Damage::Pack(name.into(), error))?,
        };
        let entry = read_from(&file, name, place);
        // After a failure, the next read opens the file again.
        if entry.is_ok() {
            *last = Some((path, file));
        }
        entry
    })
}

fn read_from(file: &File, name: &str, place: Place) -> Result<Vec<u8>, Damage> {
    let fail = |error| Damage::Pack(name.into(), error);
    // The index may be damaged, so a large length is checked against the file before it is allocated.
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

/// Reads an entry from a pack and checks it against the digest. For a joined blob, returns its pieces.
pub(crate) fn read(dir: &Path, name: &str, place: Place, digest: &Digest) -> Result<BlobContent, Damage> {
    open_entry(&read_entry(dir, name, place)?, &format!("pack {name}"), digest)
}

/// Decodes an entry and checks it against the digest. For a joined blob, returns its pieces. `place` names the file in
/// errors.
pub(crate) fn open_entry(entry: &[u8], place: &str, digest: &Digest) -> Result<BlobContent, Damage> {
    let damaged = || Damage::Entry(place.into());
    let (head, bytes) = entry.split_at_checked(ENTRY).ok_or_else(damaged)?;
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
    let (raw, stored) = (number(&head[37..45]), number(&head[45..53]));
    if head[..4] != *MAGIC || head[5..37] != digest.0 || stored != bytes.len() as u64 {
        return Err(damaged());
    }
    let content = match head[4] {
        RAW => bytes.to_vec(),
        ZSTD => decompress(bytes, raw).map_err(|_| damaged())?,
        JOINED if bytes.len().is_multiple_of(PIECE) => {
            let piece = |piece: &[u8]| {
                let (digest, bytes) = piece.split_at(32);
                Some(Chunk { digest: Digest(digest.try_into().ok()?), bytes: number(bytes) })
            };
            let pieces: Vec<Chunk> = bytes.chunks_exact(PIECE).filter_map(piece).collect();
            return match pieces.iter().try_fold(0u64, |sum, piece| sum.checked_add(piece.bytes)) {
                Some(sum) if sum == raw => Ok(BlobContent::Pieces(pieces)),
                _ => Err(damaged()),
            };
        }
        _ => return Err(damaged()),
    };
    if Digest::of(&content) != *digest {
        return Err(Damage::Altered);
    }
    Ok(BlobContent::Bytes(content))
}

/// Creates a directory and its missing parents, and syncs all parents, including those that another process created and
/// has not synced yet.
pub(crate) fn make_dirs(dir: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !dir.is_dir()).collect();
    fs::create_dir_all(dir)?;
    for part in dir.ancestors().filter(|part| part.file_name().is_some()) {
        let synced = sync_dir(&parent_of(part));
        // A directory that existed before may not permit a sync.
        if part == dir || missing.contains(&part) {
            synced?;
        }
    }
    Ok(())
}

/// The parent directory of a path; `.` for a single name.
fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}
