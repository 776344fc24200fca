//! How the records of a published tail are laid out in one row.
//!
//! Segments are numbered in commit order, and cursors are made of their numbers. So segments are never merged, split or
//! renumbered, and no number is given twice: an erasure of records rewrites its segment in place, one of whole sessions
//! leaves a gap, and neither takes away the newest segment of the store.
//!
//! Each record: kind code (1 byte), flags (1), header length and body length (4 each, little endian), salt (16, not
//! when erased), header, body. The bytes that are hashed stand there as they were first written. Where they are many,
//! as after an import, the row holds all of that as one zstd frame.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;

use bytes::Bytes;
use rath_core::store::{Error, Result};
use rath_core::{Fault, Kind, Malformed, Parts, Point, Record, Salt, SessionId};
use zstd::zstd_safe;

use crate::squeeze::{squeeze, unsqueeze};

/// A segment is cut before it has more bytes, or more records, than this.
const MAX_BYTES: usize = 256 * 1024;
const MAX_RECORDS: usize = 1024;

/// As many bytes are squeezed. What a turn brings is shorter, and its time counts more than its room.
const WORTH_SQUEEZING: usize = 32 * 1024;

/// How a zstd frame begins. No record does: nobody sets such flags.
const FRAME: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// What was squeezed has no more bytes than this. A longer record stands alone, as it is.
const MAX_SQUEEZED: usize = 2 * MAX_BYTES;

const ERASED: u8 = 1;
const PREFIX: usize = 10;

/// Contiguous records of one session, ready to be stored.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The first record's place.
    pub first_seq: u64,
    /// How many there are.
    pub count: u64,
    /// The first record's generation; each next one's is one more.
    pub generation: u64,
    /// Their kinds, as bits.
    pub kinds: u64,
    /// What the row holds: see [`unfold`].
    pub data: Vec<u8>,
}

/// Lays `records` out. A record whose generation jumps (a merge) begins a new segment.
pub fn pack(records: &[Record]) -> Vec<Segment> {
    cut(records).into_iter().map(Segment::of).collect()
}

/// The stretches of `records` that stand together.
pub(crate) fn cut(records: &[Record]) -> Vec<&[Record]> {
    let mut stretches = Vec::new();
    let (mut start, mut size) = (0, 0);
    for (end, two) in records.windows(2).enumerate().map(|(at, two)| (at + 1, two)) {
        let [last, next] = two else { continue };
        size += stored_size(last);
        let fits = last.generation() + 1 == next.generation()
            && last.seq() + 1 == next.seq()
            && size + next.size() <= MAX_BYTES
            && end - start < MAX_RECORDS;
        if !fits {
            stretches.push(&records[start..end]);
            (start, size) = (end, 0);
        }
    }
    stretches.extend(records.get(start..).filter(|rest| !rest.is_empty()));
    stretches
}

/// How many bytes a record takes in a segment.
fn stored_size(record: &Record) -> usize {
    let body = record.salted_body().map_or(0, |(salt, body)| salt.len() + body.len());
    PREFIX + record.header_bytes().len() + body
}

impl Segment {
    /// Of records that stand together.
    pub(crate) fn of(records: &[Record]) -> Self {
        let size = records.iter().map(stored_size).sum();
        let squeezed = match (WORTH_SQUEEZING..=MAX_SQUEEZED).contains(&size) {
            true => squeezed(records),
            false => None,
        };
        let data = squeezed.unwrap_or_else(|| {
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

/// Records as one frame, where that has fewer bytes.
fn squeezed(records: &[Record]) -> Option<Vec<u8>> {
    thread_local! {
        // Of many segments each is laid out in the same room.
        static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    ROOM.with_borrow_mut(|data| {
        data.clear();
        records.iter().for_each(|record| push(data, record));
        squeeze(data).ok().filter(|frame| frame.len() < data.len())
    })
}

/// How many bytes of records a row holds as a frame; `None` where it holds them as they are.
pub(crate) fn in_frame(row: &[u8]) -> Option<usize> {
    if !row.starts_with(&FRAME) {
        return None;
    }
    // Behind the frame there is nothing.
    let is_whole = zstd_safe::find_frame_compressed_size(row) == Ok(row.len());
    let size = zstd_safe::get_frame_content_size(row).ok().flatten().filter(|_| is_whole)?;
    usize::try_from(size).ok().filter(|size| *size <= MAX_SQUEEZED)
}

/// The records that a row holds, one after another. What cannot be read stays as it is: no record begins so.
pub fn unfold(row: &[u8]) -> Cow<'_, [u8]> {
    match in_frame(row).map(|size| unsqueeze(row, size as u64)) {
        Some(Ok(data)) => Cow::Owned(data),
        _ => Cow::Borrowed(row),
    }
}

/// The same, for records that share them.
pub(crate) fn unfold_shared(row: &[u8]) -> Bytes {
    match unfold(row) {
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

/// The wanted ones, by seq and kind code, among the records of a segment; each body is checked against its header.
pub fn read(
    session: SessionId,
    first_seq: u64,
    generation: u64,
    data: &Bytes,
    wanted: impl Fn((u64, u8)) -> bool,
) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for (i, slot) in Slots::of(data).enumerate() {
        let point = Point { session, seq: first_seq.wrapping_add(i as u64) };
        let tampered = |why| Error::Tampered { point, why };
        let slot = slot.map_err(|torn| tampered(Fault::Header(Malformed::NotAHeader(torn.to_string()))))?;
        if !wanted((point.seq, slot.code)) {
            continue;
        }
        let code = slot.code;
        let parts = slot.parts(session, point.seq, generation.wrapping_add(i as u64), data);
        let record = Record::from_parts(parts).map_err(tampered)?;
        if !record.kind().may_have_code(code) {
            return Err(tampered(Fault::Code { code, kind: record.kind().clone() }));
        }
        records.push(record);
    }
    Ok(records)
}

/// The places of one record's parts in a segment.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) code: u8,
    pub(crate) header: Range<u32>,
    pub(crate) body: Option<(Salt, Range<u32>)>,
}

/// Bytes that do not end where a record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the segment is torn at byte {at}")]
pub(crate) struct Torn {
    at: usize,
}

/// The records of a segment, one after another.
pub(crate) struct Slots<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Slots<'a> {
    pub(crate) fn of(data: &'a [u8]) -> Self {
        Self { data, at: 0 }
    }

    fn read(&mut self) -> Option<Slot> {
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
        Some(Slot { code: prefix[0], header: range(header), body: salt.map(|salt| (salt, range(body))) })
    }
}

impl Iterator for Slots<'_> {
    type Item = std::result::Result<Slot, Torn>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.data.len() {
            return None;
        }
        let at = self.at;
        let slot = self.read();
        if slot.is_none() {
            self.at = self.data.len();
        }
        Some(slot.ok_or(Torn { at }))
    }
}

impl Slot {
    /// The stored parts, for [`Record`].
    pub(crate) fn parts(self, session: SessionId, seq: u64, generation: u64, bytes: &Bytes) -> Parts {
        Parts {
            point: Point { session, seq },
            generation,
            kind: Kind::from_code(self.code),
            bytes: bytes.clone(),
            header: self.header,
            body: self.body,
        }
    }
}
