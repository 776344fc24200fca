//! Reads file contents and writes them to the store.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, PoisonError};

use fastcdc::v2020::StreamCDC;
use rath_core::files::FilePath;
use rath_core::store::{self, BoxFuture, Chunk};
use rath_core::{Blob, BlobRef, Digest, Store, Time};
use rustix::fs::{SeekFrom as Seek, fstat, readlinkat, seek};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::error::Result;
use super::index::{Content, Item, Stat};
use super::layers::Stack;
use super::root::{READ, os};
use super::scan::is_resource_exhaustion;

/// Files larger than this number of bytes are stored in chunks.
pub(super) const LARGE: u64 = 4 << 20;

/// Minimum, average and maximum chunk size in bytes, for content-defined chunking.
const CHUNK_SIZES: (usize, usize, usize) = (256 << 10, 1 << 20, 4 << 20);

/// Blobs are sent to the store in batches of about this number of bytes.
const BATCH_BYTES: usize = 4 << 20;

/// Maximum number of batches that the store may be writing at the same time.
const MAX_IN_FLIGHT: usize = 6;

/// Maximum number of reads of a file that changes during each read.
const MAX_READS: usize = 3;

const MEDIA_TYPE: &str = "application/octet-stream";

/// The result of reading a file or link.
pub(super) struct Read {
    pub(super) stat: Stat,
    pub(super) content: Content,
    /// Whether the file changed during each of the [`MAX_READS`] reads. Then the content mixes several states of the
    /// file.
    pub(super) unstable: bool,
}

/// Why a file was not read.
pub(super) enum ReadError {
    /// The file does not exist any more.
    Missing,
    /// The file cannot be versioned, with the reason.
    Skip(String),
    /// This process ran out of file descriptors or memory.
    OutOfResources(Errno),
    /// The store returned an error.
    Store(store::Error),
}

impl From<store::Error> for ReadError {
    fn from(error: store::Error) -> Self {
        ReadError::Store(error)
    }
}

impl From<std::io::Error> for ReadError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::NotFound => ReadError::Missing,
            _ => ReadError::Skip(error.to_string()),
        }
    }
}

impl From<Errno> for ReadError {
    fn from(error: Errno) -> Self {
        match is_resource_exhaustion(error) {
            true => ReadError::OutOfResources(error),
            false => std::io::Error::from(error).into(),
        }
    }
}

/// Reads files and sends their contents to the store, with several batches in flight.
pub(super) struct Uploader<'a> {
    store: &'a dyn Store,
    stack: &'a Stack,
    in_flight: Mutex<VecDeque<BoxFuture<'a, store::Result<()>>>>,
}

impl<'a> Uploader<'a> {
    pub(super) fn new(store: &'a dyn Store, stack: &'a Stack) -> Self {
        Self { store, stack, in_flight: Mutex::default() }
    }

    /// Sends blobs to the store. May block on earlier batches when more than [`MAX_IN_FLIGHT`] are in flight.
    pub(super) fn send(&self, blobs: Vec<Blob>) -> store::Result<()> {
        match blobs.is_empty() {
            true => Ok(()),
            false => self.send_last(blobs),
        }
    }

    /// Sends the last blobs. Calls the store even if there are none, so that blobs that an earlier save deferred are
    /// written too.
    pub(super) fn send_last(&self, blobs: Vec<Blob>) -> store::Result<()> {
        let sent = self.store.blob_put(blobs);
        let oldest = {
            let mut in_flight = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
            in_flight.push_back(sent);
            if in_flight.len() > MAX_IN_FLIGHT { in_flight.pop_front() } else { None }
        };
        oldest.map_or(Ok(()), pollster::block_on)
    }

    /// Waits until the store has written everything that was sent.
    pub(super) fn finish(&self) -> store::Result<()> {
        loop {
            let next = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            match next {
                Some(sent) => pollster::block_on(sent)?,
                None => return Ok(()),
            }
        }
    }

    /// Reads the target of a link.
    pub(super) fn link(&self, path: &FilePath, item: &Item, blobs: &mut Vec<Blob>) -> Result<Read, ReadError> {
        let (directory, name) = path.split();
        let directory = self.stack.root(item.layer).directory(&directory)?;
        let (stat, started) = (item.stat, now());
        let target = readlinkat(&directory, os(&name), Vec::new())?.into_bytes();
        let blob = Blob::new(target, MEDIA_TYPE);
        let content =
            Content { digest: Some(blob.reference.digest), size: blob.reference.bytes, racy: stat.is_racy(started) };
        blobs.push(blob);
        Ok(Read { stat, content, unstable: false })
    }

    /// Reads a file. A small file is added to `blobs`; a large one is sent to the store in chunks.
    pub(super) fn file(&self, path: &FilePath, item: &Item, blobs: &mut Vec<Blob>) -> Result<Read, ReadError> {
        let fd = self.stack.root(item.layer).open_at(path, READ).map_err(|error| match error {
            Errno::LOOP | Errno::NOTDIR => ReadError::Missing,
            error => error.into(),
        })?;
        let mut file = File::from(fd);
        let mut before = Stat::of(&fstat(&file)?);
        if before.mode & 0o170_000 != 0o100_000 {
            return Err(ReadError::Missing);
        }
        for attempt in 1.. {
            let started = now();
            let (digest, size, blob) = match before.size > LARGE {
                true => self.large(&mut file, before.size)?,
                false => small(&mut file, before.size)?,
            };
            let after = Stat::of(&fstat(&file)?);
            let stable = after == before && size == after.size;
            if stable || attempt == MAX_READS {
                blobs.extend(blob);
                let racy = !stable || after.is_racy(started);
                let content = Content { digest: Some(digest), size, racy };
                return Ok(Read { stat: after, content, unstable: !stable });
            }
            before = after;
            file.rewind()?;
        }
        Err(ReadError::Missing)
    }

    /// Reads a large file chunk by chunk. Skips holes of a sparse file.
    fn large(&self, file: &mut File, size: u64) -> Result<(Digest, u64, Option<Blob>), ReadError> {
        let mut whole = Sha256::new();
        let mut pieces = Vec::new();
        let mut batch = Batch { store: self.store, blobs: Vec::new(), bytes: 0, in_flight: VecDeque::new() };
        let mut at = 0;
        let zeros: Vec<u8> = vec![0; CHUNK_SIZES.2];
        let zero = Blob::new(zeros.as_slice(), MEDIA_TYPE);
        while at < size {
            let data = match seek(&*file, Seek::Data(at)) {
                Ok(data) => data.min(size),
                Err(Errno::NXIO) => size,
                // The file system does not report holes.
                Err(_) => at,
            };
            while at < data {
                let length = (data - at).min(CHUNK_SIZES.2 as u64);
                let blob = match length == CHUNK_SIZES.2 as u64 {
                    true => zero.clone(),
                    false => Blob::new(&zeros[..length as usize], MEDIA_TYPE),
                };
                whole.update(&blob.bytes);
                pieces.push(Chunk { digest: blob.reference.digest, bytes: length });
                if pieces.len() < 2
                    || length != CHUNK_SIZES.2 as u64
                    || pieces[pieces.len() - 2].digest != zero.reference.digest
                {
                    batch.add(blob)?;
                }
                at += length;
            }
            if at >= size {
                break;
            }
            let hole = match seek(&*file, Seek::Hole(at)) {
                Ok(hole) => hole.clamp(at + 1, size),
                Err(_) => size,
            };
            file.seek(SeekFrom::Start(at))?;
            let mut reader = (&*file).take(hole - at);
            for chunk in StreamCDC::new(&mut reader, CHUNK_SIZES.0 as u32, CHUNK_SIZES.1 as u32, CHUNK_SIZES.2 as u32) {
                let chunk = chunk.map_err(std::io::Error::from)?;
                whole.update(&chunk.data);
                let blob = Blob::new(chunk.data, MEDIA_TYPE);
                pieces.push(Chunk { digest: blob.reference.digest, bytes: blob.reference.bytes });
                at += blob.reference.bytes;
                batch.add(blob)?;
            }
            if at < hole {
                // The file was truncated during the read.
                break;
            }
        }
        batch.finish()?;
        let digest = Digest(whole.finalize().into());
        let reference = BlobRef { digest, bytes: at, media_type: MEDIA_TYPE.into() };
        pollster::block_on(self.store.blob_join(reference, pieces))?;
        Ok((digest, at, None))
    }
}

/// The chunks of one large file that are being sent. They have their own queue, because the store joins chunks into a
/// blob only after it has written all of them.
struct Batch<'a> {
    store: &'a dyn Store,
    blobs: Vec<Blob>,
    bytes: usize,
    in_flight: VecDeque<BoxFuture<'a, store::Result<()>>>,
}

impl Batch<'_> {
    fn add(&mut self, blob: Blob) -> store::Result<()> {
        self.bytes += blob.bytes.len();
        self.blobs.push(blob);
        match self.bytes >= BATCH_BYTES {
            true => self.send(MAX_IN_FLIGHT),
            false => Ok(()),
        }
    }

    /// Sends the collected chunks, then waits until at most `at_most` batches are in flight.
    fn send(&mut self, at_most: usize) -> store::Result<()> {
        self.bytes = 0;
        self.in_flight.push_back(self.store.blob_put(std::mem::take(&mut self.blobs)));
        while self.in_flight.len() > at_most
            && let Some(sent) = self.in_flight.pop_front()
        {
            pollster::block_on(sent)?;
        }
        Ok(())
    }

    fn finish(mut self) -> store::Result<()> {
        self.send(0)
    }
}

fn small(file: &mut File, size: u64) -> Result<(Digest, u64, Option<Blob>), ReadError> {
    // One byte more than the size: a short read then shows the end of the file without another call.
    let mut bytes = vec![0; size as usize + 1];
    let mut length = 0;
    loop {
        match file.read_at(&mut bytes[length..], length as u64)? {
            0 => break,
            read => length += read,
        }
        if length == bytes.len() {
            // The file grew during the read. The caller notices this and reads again.
            break;
        }
        if length as u64 == size {
            break;
        }
    }
    bytes.truncate(length.min(size as usize));
    let blob = Blob::new(bytes, MEDIA_TYPE);
    let (digest, size) = (blob.reference.digest, blob.reference.bytes);
    Ok((digest, size, Some(blob)))
}

/// The current time in nanoseconds since the Unix epoch.
pub(super) fn now() -> i64 {
    (Time::now().0 as i64).saturating_mul(1000)
}

/// Whether the blobs are large enough together to be sent as a batch.
pub(super) fn is_full(blobs: &[Blob]) -> bool {
    blobs.iter().map(|blob| blob.bytes.len()).sum::<usize>() >= BATCH_BYTES
}
