//! The contents of files on their way into the store.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, PoisonError};

use fastcdc::v2020::StreamCDC;
use rath_core::files::Name;
use rath_core::store::{self, BoxFuture, Piece};
use rath_core::{Blob, BlobRef, Digest, Store, Time};
use rustix::fs::{SeekFrom as Seek, fstat, readlinkat, seek};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::error::Result;
use super::index::{Content, Item, Stat};
use super::layers::Stack;
use super::root::{READ, os};
use super::scan::is_our_lack;

/// Files above this are stored in pieces.
pub(super) const LARGE: u64 = 4 << 20;

/// The sizes of pieces: least, about, most.
const PIECES: (usize, usize, usize) = (256 << 10, 1 << 20, 4 << 20);

/// Bytes that are sent to the store together.
const BATCH: usize = 4 << 20;

/// Batches that wait for the store at a time.
const UNDER_WAY: usize = 6;

/// How often a file that changes while it is read is read again.
const TRIES: usize = 3;

const MEDIA_TYPE: &str = "application/octet-stream";

/// What reading a file gave.
pub(super) struct Read {
    pub(super) stat: Stat,
    pub(super) content: Content,
    /// Whether it changed under our hands, every time.
    pub(super) restless: bool,
}

/// Why a file has no content.
pub(super) enum NotRead {
    /// It is gone.
    Gone,
    /// It cannot be versioned.
    Skip(String),
    /// The process ran out of something.
    Lack(Errno),
    /// The store failed.
    Store(store::Error),
}

impl From<store::Error> for NotRead {
    fn from(error: store::Error) -> Self {
        NotRead::Store(error)
    }
}

impl From<std::io::Error> for NotRead {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::NotFound => NotRead::Gone,
            _ => NotRead::Skip(error.to_string()),
        }
    }
}

impl From<Errno> for NotRead {
    fn from(error: Errno) -> Self {
        match is_our_lack(error) {
            true => NotRead::Lack(error),
            false => std::io::Error::from(error).into(),
        }
    }
}

/// Reads files and sends what they hold to the store, several batches at a time.
pub(super) struct Intake<'a> {
    store: &'a dyn Store,
    stack: &'a Stack,
    under_way: Mutex<VecDeque<BoxFuture<'a, store::Result<()>>>>,
}

impl<'a> Intake<'a> {
    pub(super) fn new(store: &'a dyn Store, stack: &'a Stack) -> Self {
        Self { store, stack, under_way: Mutex::default() }
    }

    /// Sends blobs off. It may wait for them where they are few, and for earlier ones when many are under way.
    pub(super) fn send(&self, blobs: Vec<Blob>) -> store::Result<()> {
        match blobs.is_empty() {
            true => Ok(()),
            false => self.send_last(blobs),
        }
    }

    /// Sends the last blobs off, if there are any, and whatever waits for them.
    pub(super) fn send_last(&self, blobs: Vec<Blob>) -> store::Result<()> {
        let sent = self.store.blob_put(blobs);
        let oldest = {
            let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
            under_way.push_back(sent);
            if under_way.len() > UNDER_WAY { under_way.pop_front() } else { None }
        };
        oldest.map_or(Ok(()), pollster::block_on)
    }

    /// Waits until everything sent is in the store.
    pub(super) fn finish(&self) -> store::Result<()> {
        loop {
            let next = self.under_way.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            match next {
                Some(sent) => pollster::block_on(sent)?,
                None => return Ok(()),
            }
        }
    }

    /// Reads a link's target.
    pub(super) fn link(&self, path: &Name, item: &Item, blobs: &mut Vec<Blob>) -> Result<Read, NotRead> {
        let (directory, name) = path.split();
        let directory = self.stack.root(item.layer).directory(&directory)?;
        let (stat, started) = (item.stat, now());
        let target = readlinkat(&directory, os(&name), Vec::new())?.into_bytes();
        let blob = Blob::new(target, MEDIA_TYPE);
        let content =
            Content { digest: Some(blob.reference.digest), size: blob.reference.bytes, racy: stat.is_racy(started) };
        blobs.push(blob);
        Ok(Read { stat, content, restless: false })
    }

    /// Reads a file. Small ones are added to `blobs`, large ones go to the store by pieces.
    pub(super) fn file(&self, path: &Name, item: &Item, blobs: &mut Vec<Blob>) -> Result<Read, NotRead> {
        let fd = self.stack.root(item.layer).open_at(path, READ).map_err(|error| match error {
            Errno::LOOP | Errno::NOTDIR => NotRead::Gone,
            error => error.into(),
        })?;
        let mut file = File::from(fd);
        let mut before = Stat::of(&fstat(&file)?);
        if before.mode & 0o170_000 != 0o100_000 {
            return Err(NotRead::Gone);
        }
        for attempt in 1.. {
            let started = now();
            let (digest, size, blob) = match before.size > LARGE {
                true => self.large(&mut file, before.size)?,
                false => small(&mut file, before.size)?,
            };
            let after = Stat::of(&fstat(&file)?);
            let settled = after == before && size == after.size;
            if settled || attempt == TRIES {
                blobs.extend(blob);
                let racy = !settled || after.is_racy(started);
                let content = Content { digest: Some(digest), size, racy };
                return Ok(Read { stat: after, content, restless: !settled });
            }
            before = after;
            file.rewind()?;
        }
        Err(NotRead::Gone)
    }

    /// Reads a large file piece by piece. Holes are not read.
    fn large(&self, file: &mut File, size: u64) -> Result<(Digest, u64, Option<Blob>), NotRead> {
        let mut whole = Sha256::new();
        let mut pieces = Vec::new();
        let mut batch = Batch { store: self.store, blobs: Vec::new(), bytes: 0, under_way: VecDeque::new() };
        let mut at = 0;
        let zeros: Vec<u8> = vec![0; PIECES.2];
        let zero = Blob::new(zeros.as_slice(), MEDIA_TYPE);
        while at < size {
            let data = match seek(&*file, Seek::Data(at)) {
                Ok(data) => data.min(size),
                Err(Errno::NXIO) => size,
                // A file system without holes.
                Err(_) => at,
            };
            while at < data {
                let length = (data - at).min(PIECES.2 as u64);
                let blob = match length == PIECES.2 as u64 {
                    true => zero.clone(),
                    false => Blob::new(&zeros[..length as usize], MEDIA_TYPE),
                };
                whole.update(&blob.bytes);
                pieces.push(Piece { digest: blob.reference.digest, bytes: length });
                if pieces.len() < 2
                    || length != PIECES.2 as u64
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
            for chunk in StreamCDC::new(&mut reader, PIECES.0 as u32, PIECES.1 as u32, PIECES.2 as u32) {
                let chunk = chunk.map_err(std::io::Error::from)?;
                whole.update(&chunk.data);
                let blob = Blob::new(chunk.data, MEDIA_TYPE);
                pieces.push(Piece { digest: blob.reference.digest, bytes: blob.reference.bytes });
                at += blob.reference.bytes;
                batch.add(blob)?;
            }
            if at < hole {
                // It became shorter while it was read.
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

/// The pieces of one file on their way. They are waited for here and nowhere else: a content can be joined when its
/// pieces are in the store.
struct Batch<'a> {
    store: &'a dyn Store,
    blobs: Vec<Blob>,
    bytes: usize,
    under_way: VecDeque<BoxFuture<'a, store::Result<()>>>,
}

impl Batch<'_> {
    fn add(&mut self, blob: Blob) -> store::Result<()> {
        self.bytes += blob.bytes.len();
        self.blobs.push(blob);
        match self.bytes >= BATCH {
            true => self.send(UNDER_WAY),
            false => Ok(()),
        }
    }

    /// Sends what there is and waits until at most so many batches are under way.
    fn send(&mut self, at_most: usize) -> store::Result<()> {
        self.bytes = 0;
        self.under_way.push_back(self.store.blob_put(std::mem::take(&mut self.blobs)));
        while self.under_way.len() > at_most
            && let Some(sent) = self.under_way.pop_front()
        {
            pollster::block_on(sent)?;
        }
        Ok(())
    }

    fn finish(mut self) -> store::Result<()> {
        self.send(0)
    }
}

fn small(file: &mut File, size: u64) -> Result<(Digest, u64, Option<Blob>), NotRead> {
    // One more than it should have, to see the end without another call.
    let mut bytes = vec![0; size as usize + 1];
    let mut length = 0;
    loop {
        match file.read_at(&mut bytes[length..], length as u64)? {
            0 => break,
            read => length += read,
        }
        if length == bytes.len() {
            // It grew while it was read; the caller sees it and reads again.
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

/// Nanoseconds since 1970.
pub(super) fn now() -> i64 {
    (Time::now().0 as i64).saturating_mul(1000)
}

/// Whether a batch of this many bytes is large enough to be sent.
pub(super) fn is_full(blobs: &[Blob]) -> bool {
    blobs.iter().map(|blob| blob.bytes.len()).sum::<usize>() >= BATCH
}
