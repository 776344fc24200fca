//! How the records of a published tail are laid out in one row.
//!
//! Each record: kind code (1 byte), flags (1), header length and body length (4 each, little endian), salt (16, not
//! when erased), header, body. The bytes that are hashed stand there as they were first written.

use std::ops::Range;
use std::sync::Arc;

use rath_core::store::{Error, Result};
use rath_core::{Fault, Kind, Malformed, Parts, Point, Record, Salt, SessionId};

/// A segment is cut before it has more bytes, or more records, than this.
const MAX_BYTES: usize = 256 * 1024;
const MAX_RECORDS: usize = 1024;

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
    /// The records, one after another.
    pub data: Vec<u8>,
}

/// Lays `records` out. A record whose generation jumps (a merge) begins a new segment.
pub fn pack(records: &[Record]) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    for record in records {
        let fits = segments.last().is_some_and(|segment| {
            segment.generation + segment.count == record.generation()
                && segment.first_seq + segment.count == record.seq()
                && segment.data.len() + record.size() <= MAX_BYTES
                && (segment.count as usize) < MAX_RECORDS
        });
        if !fits {
            segments.push(Segment {
                first_seq: record.seq(),
                count: 0,
                generation: record.generation(),
                kinds: 0,
                data: Vec::with_capacity(record.size() + PREFIX),
            });
        }
        if let Some(segment) = segments.last_mut() {
            segment.count += 1;
            segment.kinds |= record.kind().bit();
            push(&mut segment.data, record);
        }
    }
    segments
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
    data: &Arc<[u8]>,
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
        if record.kind().code() != code {
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
    pub(crate) fn parts(self, session: SessionId, seq: u64, generation: u64, bytes: &Arc<[u8]>) -> Parts {
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
