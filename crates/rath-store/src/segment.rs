//! Segments: the encoding of the records of one publish in one row of the database.
//!
//! Segments are numbered in commit order, and cursors are made of their numbers. So segments are never merged, split or
//! renumbered, and no number is used twice. Erasing records rewrites their segment in place. Removing whole sessions
//! leaves gaps in the numbers. Neither removes the newest segment of the store.
//!
//! Each record is encoded as: kind code (1 byte), flags (1), header length and body length (4 each, little endian),
//! salt (16, absent if erased), header, body. The header and the body are the bytes that were hashed. If a segment is
//! long, as after an import, the row is one zstd frame of all that.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;

use bytes::Bytes;
use rath_core::store::{Error, Result};
use rath_core::{Kind, Malformed, Point, Record, RecordError, RecordParts, Salt, SessionId};
use zstd::zstd_safe;

use crate::compress;

/// The most bytes of a segment before compression. Only a single longer record exceeds it.
const MAX_BYTES: usize = 256 * 1024;

/// The most records of a segment.
const MAX_RECORDS: usize = 1024;

/// The least bytes of a segment that is compressed. One turn of an agent is shorter, and its latency matters more than
/// its size.
const COMPRESS_FROM: usize = 32 * 1024;

/// The first bytes of a zstd frame. No uncompressed segment starts with them, because its second byte is flags, which
/// are 0 or 1.
const FRAME: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The most bytes that are compressed to a frame. A longer record is a segment of its own and stays uncompressed.
const MAX_COMPRESSED: usize = 2 * MAX_BYTES;

const ERASED: u8 = 1;
const PREFIX: usize = 10;

/// Consecutive records of one session, encoded for a row of the database.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The seq of the first record.
    pub first_seq: u64,
    /// The number of records.
    pub count: u64,
    /// The generation of the first record. It increases by one with each record.
    pub generation: u64,
    /// The kinds of the records, as a mask of [`Kind::bit`]s.
    pub kinds: u64,
    /// The stored bytes, maybe compressed: see [`decompress`].
    pub data: Vec<u8>,
}

/// Encodes `records` as segments. A record whose generation is not the next one (a merge) starts a new segment.
pub fn pack(records: &[Record]) -> Vec<Segment> {
    cut(records).into_iter().map(Segment::of).collect()
}

/// Splits `records` into the runs that become one segment each.
pub(crate) fn cut(records: &[Record]) -> Vec<&[Record]> {
    let mut runs = Vec::new();
    let (mut start, mut size) = (0, 0);
    for (end, two) in records.windows(2).enumerate().map(|(at, two)| (at + 1, two)) {
        let [last, next] = two else { continue };
        size += stored_size(last);
        let fits = last.generation() + 1 == next.generation()
            && last.seq() + 1 == next.seq()
            && size + next.size() <= MAX_BYTES
            && end - start < MAX_RECORDS;
        if !fits {
            runs.push(&records[start..end]);
            (start, size) = (end, 0);
        }
    }
    runs.extend(records.get(start..).filter(|rest| !rest.is_empty()));
    runs
}

/// The length of an encoded record, in bytes.
fn stored_size(record: &Record) -> usize {
    let body = record.salted_body().map_or(0, |(salt, body)| salt.len() + body.len());
    PREFIX + record.header_bytes().len() + body
}

impl Segment {
    /// Encodes one run of [`cut`].
    pub(crate) fn of(records: &[Record]) -> Self {
        let size = records.iter().map(stored_size).sum();
        let compressed = match (COMPRESS_FROM..=MAX_COMPRESSED).contains(&size) {
            true => compressed(records),
            false => None,
        };
        let data = compressed.unwrap_or_else(|| {
            let mut data = Vec::with_capacity(size);
            records.iter().for_each(|record| push(&mut data, record));
            data
        });
        let first = records.first();
        Self {
            first_seq: first.map_or(0, Record::seq),
            count: records.len() as u64,
            generation: first.map_or(0, Record::generation),
            kinds: records.iter().fold(0, |kinds, record| kinds | record.kind().bit()),
            data,
        }
    }
}

/// Encodes records as one frame; `None` if the frame is not shorter.
fn compressed(records: &[Record]) -> Option<Vec<u8>> {
    thread_local! {
        // Reused for all segments that this thread encodes.
        static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    BUFFER.with_borrow_mut(|data| {
        data.clear();
        records.iter().for_each(|record| push(data, record));
        compress::compress(data).ok().filter(|frame| frame.len() < data.len())
    })
}

/// The decompressed length of a row; `None` if the row is not compressed.
pub(crate) fn frame_length(row: &[u8]) -> Option<usize> {
    if !row.starts_with(&FRAME) {
        return None;
    }
    // The frame must be the whole row.
    let is_whole = zstd_safe::find_frame_compressed_size(row) == Ok(row.len());
    let size = zstd_safe::get_frame_content_size(row).ok().flatten().filter(|_| is_whole)?;
    usize::try_from(size).ok().filter(|size| *size <= MAX_COMPRESSED)
}

/// The encoded records of a row. A frame that cannot be decompressed is returned as it is; decoding it fails, because
/// no record starts like a frame.
pub fn decompress(row: &[u8]) -> Cow<'_, [u8]> {
    match frame_length(row).map(|size| compress::decompress(row, size as u64)) {
        Some(Ok(data)) => Cow::Owned(data),
        _ => Cow::Borrowed(row),
    }
}

/// Like [`decompress`], as shared bytes that the decoded records refer to.
pub(crate) fn decompress_shared(row: &[u8]) -> Bytes {
    match decompress(row) {
        Cow::Owned(data) => data.into(),
        Cow::Borrowed(data) => Bytes::copy_from_slice(data),
    }
}

fn push(data: &mut Vec<u8>, record: &Record) {
    let header = record.header_bytes();
    let body = record.salted_body();
    data.push(record.kind().code());
    data.push(if body.is_none() { ERASED } else { 0 });
    data.extend_from_slice(&(header.len() as u32).to_le_bytes());
    data.extend_from_slice(&(body.map_or(0, |(_, body)| body.len()) as u32).to_le_bytes());
    if let Some((salt, _)) = body {
        data.extend_from_slice(salt);
    }
    data.extend_from_slice(header);
    if let Some((_, body)) = body {
        data.extend_from_slice(body);
    }
}

/// Decodes the records of a segment for which `wanted` returns `true`. Its argument is the seq and the kind code. Each
/// body is checked against its header.
pub fn read(
    session: SessionId,
    first_seq: u64,
    generation: u64,
    data: &Bytes,
    wanted: impl Fn((u64, u8)) -> bool,
) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for (i, entry) in SegmentEntries::of(data).enumerate() {
        let point = Point { session, seq: first_seq.wrapping_add(i as u64) };
        let tampered = |why| Error::Tampered { point, why };
        let entry =
            entry.map_err(|truncated| tampered(RecordError::Header(Malformed::NotAHeader(truncated.to_string()))))?;
        if !wanted((point.seq, entry.code)) {
            continue;
        }
        let code = entry.code;
        let parts = entry.parts(session, point.seq, generation.wrapping_add(i as u64), data);
        let record = Record::from_parts(parts).map_err(tampered)?;
        if !record.kind().may_have_code(code) {
            return Err(tampered(RecordError::Code { code, kind: record.kind().clone() }));
        }
        records.push(record);
    }
    Ok(records)
}

/// The positions of one record's parts in a segment.
#[derive(Clone, Debug)]
pub(crate) struct SegmentEntry {
    pub(crate) code: u8,
    pub(crate) header: Range<u32>,
    pub(crate) body: Option<(Salt, Range<u32>)>,
}

/// The segment ends in the middle of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the segment is truncated: the record at byte {at} is not complete")]
pub(crate) struct TruncatedSegment {
    at: usize,
}

/// Iterates over the records of a decompressed segment.
pub(crate) struct SegmentEntries<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> SegmentEntries<'a> {
    pub(crate) fn of(data: &'a [u8]) -> Self {
        Self { data, at: 0 }
    }

    fn read(&mut self) -> Option<SegmentEntry> {
        let data = self.data;
        let prefix: &[u8; PREFIX] = data.get(self.at..self.at + PREFIX)?.try_into().ok()?;
        let length = |at: usize| u32::from_le_bytes([prefix[at], prefix[at + 1], prefix[at + 2], prefix[at + 3]]);
        let (header_len, body_len) = (length(2) as usize, length(6) as usize);
        let mut at = self.at + PREFIX;
        let salt: Option<Salt> = if prefix[1] & ERASED == 0 {
            let salt = data.get(at..at + 16)?.try_into().ok()?;
            at += 16;
            Some(salt)
        } else {
            None
        };
        let header = at..at.checked_add(header_len)?;
        let body = header.end..header.end.checked_add(body_len)?;
        if body.end > data.len() {
            return None;
        }
        self.at = body.end;
        let range = |range: Range<usize>| range.start as u32..range.end as u32;
        Some(SegmentEntry { code: prefix[0], header: range(header), body: salt.map(|salt| (salt, range(body))) })
    }
}

impl Iterator for SegmentEntries<'_> {
    type Item = std::result::Result<SegmentEntry, TruncatedSegment>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.data.len() {
            return None;
        }
        let at = self.at;
        let entry = self.read();
        if entry.is_none() {
            self.at = self.data.len();
        }
        Some(entry.ok_or(TruncatedSegment { at }))
    }
}

impl SegmentEntry {
    /// The parts that a [`Record`] is made of.
    pub(crate) fn parts(self, session: SessionId, seq: u64, generation: u64, bytes: &Bytes) -> RecordParts {
        RecordParts {
            point: Point { session, seq },
            generation,
            kind: Kind::from_code(self.code),
            bytes: bytes.clone(),
            header: self.header,
            body: self.body,
        }
    }
}
