//! Append-only files that hold blobs.
//!
//! A process appends to a pack of its own: one that nobody else has locked and whose length is what the index says,
//! or a new one. An entry is a magic word, the codec, the digest, both lengths and the bytes. Nothing is ever
//! changed in place; what a crash leaves behind the last indexed entry is never named.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use rath_core::{Blob, Digest};

const MAGIC: &[u8; 4] = b"blob";
const ENTRY: usize = 4 + 1 + 32 + 8 + 8;
const RAW: u8 = 0;
const ZSTD: u8 = 1;

/// A pack that has grown past this is left alone and another one begun.
pub(crate) const PACK_LIMIT: u64 = 64 * 1024 * 1024;

/// Where a blob lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    pub(crate) stored: u64,
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
        if !dir.is_dir() {
            fs::create_dir_all(dir)?;
            dir.parent().map_or(Ok(()), sync_dir)?;
        }
        let file = OpenOptions::new().append(true).create_new(true).open(dir.join(name))?;
        file.try_lock().map_err(io::Error::other)?;
        sync_dir(dir)?;
        Ok(Self { file, length: 0, dirty: true })
    }

    /// Appends a blob. It is durable after [`sync`](Self::sync).
    pub(crate) fn append(&mut self, blob: &Blob) -> io::Result<Place> {
        let squeezed = zstd::bulk::compress(&blob.bytes, 3)?;
        let (codec, bytes) = match squeezed.len() < blob.bytes.len() {
            true => (ZSTD, squeezed.as_slice()),
            false => (RAW, &*blob.bytes),
        };
        let mut entry = Vec::with_capacity(ENTRY + bytes.len());
        entry.extend_from_slice(MAGIC);
        entry.push(codec);
        entry.extend_from_slice(&blob.reference.digest.0);
        entry.extend_from_slice(&(blob.bytes.len() as u64).to_le_bytes());
        entry.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        entry.extend_from_slice(bytes);
        if let Err(error) = self.file.write_all(&entry) {
            // A part of the entry may be there: cut it off, so that the next one begins where the index says.
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        let place = Place { offset: self.length, stored: entry.len() as u64 };
        self.length += place.stored;
        self.dirty = true;
        Ok(place)
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
    Pack(String, io::Error),
    /// The entry is not what the index says.
    #[error("the entry in pack {0} is damaged")]
    Entry(String),
    /// The bytes do not hash to the digest.
    #[error("its bytes do not hash to its digest")]
    Altered,
}

/// Reads a blob and checks it against its digest.
pub(crate) fn read(dir: &Path, name: &str, place: Place, digest: &Digest) -> Result<Vec<u8>, Damage> {
    let path: PathBuf = dir.join(name);
    let fail = |error| Damage::Pack(name.into(), error);
    let mut file = File::open(path).map_err(fail)?;
    file.seek(SeekFrom::Start(place.offset)).map_err(fail)?;
    let length = file.metadata().map_err(fail)?.len();
    if place.stored < ENTRY as u64 || place.offset.checked_add(place.stored).is_none_or(|end| end > length) {
        return Err(Damage::Entry(name.into()));
    }
    let mut entry = vec![0; place.stored as usize];
    file.read_exact(&mut entry).map_err(fail)?;
    let (head, bytes) = entry.split_at(ENTRY);
    let number = |at: usize| head[at..at + 8].iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
    let (raw, stored) = (number(37), number(45));
    if head[..4] != *MAGIC || head[5..37] != digest.0 || stored != bytes.len() as u64 {
        return Err(Damage::Entry(name.into()));
    }
    let content = match head[4] {
        RAW => bytes.to_vec(),
        ZSTD => decompress(bytes, raw).map_err(|_| Damage::Entry(name.into()))?,
        _ => return Err(Damage::Entry(name.into())),
    };
    if Digest::of(&content) != *digest {
        return Err(Damage::Altered);
    }
    Ok(content)
}

/// Decompresses to at most `raw` bytes. The claim is not trusted: memory grows with what really comes out.
fn decompress(bytes: &[u8], raw: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::with_capacity(raw.min(1 << 20) as usize);
    zstd::stream::Decoder::new(bytes)?.take(raw.saturating_add(1)).read_to_end(&mut content)?;
    match content.len() as u64 == raw {
        true => Ok(content),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Makes a new directory entry durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
