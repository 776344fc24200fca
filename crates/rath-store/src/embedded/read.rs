//! Reading records from the database.

use std::collections::VecDeque;

use bytes::Bytes;
use rath_core::store::{Cursor, Error, Page, Result, Scan, ScanRange};
use rath_core::{Malformed, Point, Record, RecordError, SessionId, kind_mask};
use rayon::prelude::*;
use rusqlite::{Connection, OptionalExtension as _, Row as SqlRow, Rows, params};

use super::integrity;
use super::schema::{LINEAGE, sql};
use crate::pool::DECOMPRESSION_POOL;
use crate::segment::{self, SegmentEntries};

/// A page ends when its segments have this many bytes.
const PAGE_BYTES: usize = 4 << 20;

/// The most segments that one page of the whole store considers, including those without a wanted record.
const PAGE_SEGMENTS: i64 = 4096;

/// A decompressed row of `segments`, with the id of its session.
pub(crate) struct SegmentRow {
    pub(crate) cursor: i64,
    pub(crate) session: SessionId,
    pub(crate) first_seq: u64,
    pub(crate) generation: u64,
    pub(crate) data: Bytes,
}

pub(super) const COLUMNS: &str = "cursor, first_seq, generation, data, count";

impl SegmentRow {
    pub(crate) fn read(row: &SqlRow<'_>, session: SessionId) -> rusqlite::Result<Self> {
        Ok(CompressedRow::read(row, session)?.decompress())
    }

    /// All records. Each body is checked against its header.
    pub(super) fn records(&self) -> Result<Vec<Record>> {
        self.filtered(|_| true)
    }

    /// The record with this seq.
    pub(crate) fn record(&self, seq: u64) -> Result<Option<Record>> {
        Ok(self.filtered(|(there, _)| there == seq)?.pop())
    }

    /// The records that can be read. Altered records are skipped.
    pub(crate) fn readable(&self) -> Vec<Record> {
        let entries = SegmentEntries::of(&self.data).map_while(std::result::Result::ok).enumerate();
        let record = |(i, entry): (usize, crate::segment::SegmentEntry)| {
            let parts = entry.parts(
                self.session,
                self.first_seq + i as u64,
                self.generation.wrapping_add(i as u64),
                &self.data,
            );
            Record::from_parts(parts).ok()
        };
        entries.filter_map(record).collect()
    }

    /// The records for which `wanted` returns `true`. Its argument is the seq and the kind code.
    fn filtered(&self, wanted: impl Fn((u64, u8)) -> bool) -> Result<Vec<Record>> {
        segment::read(self.session, self.first_seq, self.generation, &self.data, wanted)
    }
}

/// A row of `segments` that is not decompressed yet.
struct CompressedRow {
    segment: SegmentRow,
    /// The frame and its decompressed length, if the row is compressed. `segment.data` is empty then.
    frame: Option<(Vec<u8>, usize)>,
}

impl CompressedRow {
    fn read(row: &SqlRow<'_>, session: SessionId) -> rusqlite::Result<Self> {
        let stored = row.get_ref(3)?.as_blob()?;
        let frame = segment::frame_length(stored).map(|bytes| (stored.to_vec(), bytes));
        let segment = SegmentRow {
            cursor: row.get(0)?,
            session,
            first_seq: row.get::<_, i64>(1)? as u64,
            generation: row.get::<_, i64>(2)? as u64,
            data: if frame.is_some() { Bytes::new() } else { Bytes::copy_from_slice(stored) },
        };
        Ok(Self { segment, frame })
    }

    /// The memory that the row takes when it is decompressed. The length in a frame may be wrong, so it is at least
    /// that of the frame.
    fn bytes(&self) -> usize {
        self.frame.as_ref().map_or(self.segment.data.len(), |(frame, bytes)| frame.len().max(*bytes))
    }

    fn decompress(self) -> SegmentRow {
        match self.frame {
            Some((frame, _)) => SegmentRow { data: segment::decompress_shared(&frame), ..self.segment },
            None => self.segment,
        }
    }
}

/// Reads rows until they have at least this many records or bytes.
fn read_rows(rows: &mut Rows<'_>, session: SessionId, (records, bytes): (usize, usize)) -> Result<Vec<CompressedRow>> {
    let (mut found, mut counted, mut size) = (Vec::new(), 0usize, 0);
    while counted < records
        && size < bytes
        && let Some(row) = rows.next().map_err(sql)?
    {
        let compressed = CompressedRow::read(row, session).map_err(sql)?;
        counted = counted.saturating_add(row.get::<_, i64>(4).unwrap_or(1).max(1) as usize);
        size += compressed.bytes();
        found.push(compressed);
    }
    Ok(found)
}

fn number(db: &Connection, session: SessionId) -> Result<Option<i64>> {
    db.prepare_cached("SELECT no FROM sessions WHERE id = ?1")
        .and_then(|mut query| query.query_row([session.0.as_bytes()], |row| row.get(0)).optional())
        .map_err(sql)
}

fn known(db: &Connection, session: SessionId) -> Result<i64> {
    number(db, session)?.ok_or_else(|| Error::NotFound(format!("session {session}")))
}

/// The segment with the record at `point`.
pub(crate) fn segment_at(db: &Connection, point: Point) -> Result<Option<SegmentRow>> {
    let Some(no) = number(db, point.session)? else { return Ok(None) };
    let query = format!(
        "SELECT {COLUMNS} FROM segments WHERE session = ?1 AND first_seq <= ?2 AND first_seq + count > ?2
         ORDER BY first_seq DESC LIMIT 1"
    );
    db.prepare_cached(&query)
        .and_then(|mut query| {
            query.query_row(params![no, point.seq as i64], |row| SegmentRow::read(row, point.session)).optional()
        })
        .map_err(sql)
}

/// The seq of the first record of a session whose body was erased.
pub(super) fn first_erased(db: &Connection, session: SessionId) -> Result<Option<u64>> {
    let query = format!("SELECT {COLUMNS} FROM segments WHERE session = ?1 ORDER BY first_seq");
    let mut query = db.prepare_cached(&query).map_err(sql)?;
    let mut rows = query.query([known(db, session)?]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let segment = SegmentRow::read(row, session).map_err(sql)?;
        if let Some(at) = SegmentEntries::of(&segment.data).flatten().position(|entry| entry.body.is_none()) {
            return Ok(Some(segment.first_seq + at as u64));
        }
    }
    Ok(None)
}

/// The record at `point`.
pub(super) fn at(db: &Connection, point: Point) -> Result<Option<Record>> {
    let Some(segment) = segment_at(db, point)? else { return Ok(None) };
    Ok(segment.filtered(|(seq, _)| seq == point.seq)?.pop())
}

/// Whether a record with this code can be of a kind in `mask`; 0 stands for all kinds.
fn wanted(mask: u64, code: u8) -> bool {
    mask == 0 || mask & (1 << code.min(63)) != 0
}

/// A page of records.
pub(crate) fn page(db: &Connection, scan: &Scan) -> Result<Page> {
    match &scan.range {
        ScanRange::Store { after } => store_page(db, after, scan),
        ScanRange::Session { session, from, to } => session_page(db, *session, *from, *to, scan),
    }
}

/// A page of one session.
pub(super) fn session_page(db: &Connection, session: SessionId, from: u64, to: u64, scan: &Scan) -> Result<Page> {
    let no = known(db, session)?;
    let mut page = Page::default();
    let mut from = from;
    if scan.from_snapshot {
        let query =
            "SELECT seq, state FROM snapshots WHERE session = ?1 AND seq BETWEEN 0 AND ?2 ORDER BY seq DESC LIMIT 1";
        page.snapshot = db
            .prepare_cached(query)
            .and_then(|mut query| {
                let found =
                    query.query_row(params![no, to as i64], |row| Ok((row.get::<_, i64>(0)? as u64, row.get(1)?)));
                found.optional()
            })
            .map_err(sql)?;
        from = page.snapshot.as_ref().map_or(from, |(seq, _)| seq + 1);
    }
    page.position = from;
    if scan.limit == 0 || from > to {
        return Ok(page);
    }
    let mask = kind_mask(&scan.kinds);
    // Spelled as in the partial index, so that SQLite uses it.
    let lineage = if mask != 0 && mask & !LINEAGE == 0 { "AND kinds & 511 != 0" } else { "" };
    let order = if scan.backwards { "DESC" } else { "ASC" };
    let query = format!(
        "SELECT {COLUMNS} FROM segments WHERE session = ?1 AND first_seq <= ?3 AND first_seq >= coalesce(
            (SELECT max(first_seq) FROM segments WHERE session = ?1 AND first_seq <= ?2), 0)
            AND first_seq + count > ?2 AND (?4 = 0 OR kinds & ?4 != 0) {lineage} ORDER BY first_seq {order}"
    );
    let mut query = db.prepare_cached(&query).map_err(sql)?;
    let to_sql = i64::try_from(to).unwrap_or(i64::MAX);
    let mut rows = query.query(params![no, from as i64, to_sql, mask as i64]).map_err(sql)?;
    let mut bytes = 0;
    let mut segments = VecDeque::new();
    loop {
        if segments.is_empty() {
            let remaining = (scan.limit - page.records.len(), PAGE_BYTES - bytes);
            let wanted = |(seq, code)| seq >= from && seq <= to && wanted(mask, code);
            segments = decompress_all(read_rows(&mut rows, session, remaining)?, wanted).into();
        }
        let Some((segment, records)) = segments.pop_front() else { break };
        let mut records = records?;
        bytes += segment.data.len();
        // All unknown kinds have the same code, so the names are compared too.
        if !scan.kinds.is_empty() {
            records.retain(|record| scan.kinds.contains(record.kind()));
        }
        if scan.backwards {
            records.reverse();
        }
        let remaining = scan.limit - page.records.len();
        let cut = records.len() > remaining;
        records.truncate(remaining);
        page.records.extend(records);
        if cut || page.records.len() >= scan.limit || bytes >= PAGE_BYTES {
            page.more = true;
            page.position = match (page.records.last(), scan.backwards) {
                (Some(last), false) if cut => last.seq() + 1,
                (Some(last), true) if cut => last.seq().saturating_sub(1),
                (_, false) => segment_end(&segment),
                (_, true) => segment.first_seq.saturating_sub(1),
            };
            let exhausted = if scan.backwards { segment.first_seq <= from && !cut } else { page.position > to };
            page.more = !exhausted;
            if page.more && !scan.backwards && page.position <= from {
                let why = RecordError::Header(Malformed::NotAHeader("the index of its segment does not fit".into()));
                return Err(Error::Tampered { point: Point { session, seq: from }, why });
            }
            return Ok(page);
        }
    }
    page.position = to.saturating_add(1);
    Ok(page)
}

/// Decompresses rows and decodes their wanted records, on several processors if several rows are compressed.
fn decompress_all(
    rows: Vec<CompressedRow>,
    wanted: impl Fn((u64, u8)) -> bool + Sync,
) -> Vec<(SegmentRow, Result<Vec<Record>>)> {
    let frames = rows.iter().filter(|row| row.frame.is_some()).count();
    let decompress = |row: CompressedRow| {
        let segment = row.decompress();
        let records = segment.filtered(&wanted);
        (segment, records)
    };
    match frames > 1 {
        true => DECOMPRESSION_POOL.run(|| rows.into_par_iter().map(decompress).collect()),
        false => rows.into_iter().map(decompress).collect(),
    }
}

fn segment_end(segment: &SegmentRow) -> u64 {
    segment.first_seq + SegmentEntries::of(&segment.data).count() as u64
}

/// A page of the whole store, in commit order. The cursor is the number of the last segment that was read. If only a
/// part of it was read, the second number of the cursor is how many of its records.
pub(super) fn store_page(db: &Connection, after: &Cursor, scan: &Scan) -> Result<Page> {
    let part = |at: usize| after.numbers().get(at).map_or(0, |number| i64::try_from(*number).unwrap_or(i64::MAX));
    let (read, read_records) = (part(0), part(1) as usize);
    let from = if read_records == 0 { read.saturating_add(1) } else { read };
    let mut page = Page { cursor: after.clone(), ..Page::default() };
    // Read first: later commits are for the next page.
    let last = last_segment(db)?;
    let to = last.min(from.saturating_add(PAGE_SEGMENTS - 1));
    if from > last {
        return Ok(page);
    }
    let mask = kind_mask(&scan.kinds);
    let query = "SELECT g.cursor, g.first_seq, g.generation, g.data, s.id FROM segments g
        LEFT JOIN sessions s ON s.no = g.session
        WHERE g.cursor BETWEEN ?1 AND ?2 AND (?3 = 0 OR g.kinds & ?3 != 0) ORDER BY g.cursor";
    let mut query = db.prepare_cached(query).map_err(sql)?;
    let mut rows = query.query(params![from, to, mask as i64]).map_err(sql)?;
    let mut bytes = 0;
    let mut reached = to;
    while let Some(row) = rows.next().map_err(sql)? {
        let Some(id) = row.get(4).map_err(sql)? else {
            return Err(integrity::missing_session(row.get(0).map_err(sql)?));
        };
        let segment = SegmentRow::read(row, SessionId(uuid::Uuid::from_bytes(id))).map_err(sql)?;
        bytes += segment.data.len();
        let skipped = if segment.cursor == read { read_records as u64 } else { 0 };
        let first = segment.first_seq.saturating_add(skipped);
        let mut records = segment.filtered(|(seq, code)| seq >= first && wanted(mask, code))?;
        if !scan.kinds.is_empty() {
            records.retain(|record| scan.kinds.contains(record.kind()));
        }
        let behind =
            |record: &Record| Cursor::from_numbers(&[segment.cursor as u64, record.seq() - segment.first_seq + 1]);
        page.cursors.extend(records.iter().map(behind));
        page.records.extend(records);
        // A page ends at the end of a segment, because each part of a segment would have to be decompressed again.
        if page.records.len() >= scan.limit || bytes >= PAGE_BYTES {
            reached = segment.cursor;
            break;
        }
    }
    if reached == to && to < last {
        // Skip the numbers of removed segments at once.
        let next = db.prepare_cached("SELECT min(cursor) FROM segments WHERE cursor > ?1");
        let next: Option<i64> = next.and_then(|mut next| next.query_row([to], |row| row.get(0))).map_err(sql)?;
        reached = next.map_or(last, |next| next - 1);
    }
    page.cursor = Cursor::from_numbers(&[reached as u64]);
    page.more = reached < last;
    Ok(page)
}

/// The bytes of segments after which [`segments_after`] stops.
const CHUNK_BYTES: usize = 8 << 20;

/// The next segments after the number `after`, up to some megabytes, and the number up to which segments were
/// considered. `kinds` is a mask; 0 stands for all kinds.
pub(crate) fn segments_after(db: &Connection, after: i64, kinds: u64) -> Result<(Vec<SegmentRow>, i64)> {
    // Read first: later commits are for the next call.
    let end = last_segment(db)?;
    let query = "SELECT g.cursor, g.first_seq, g.generation, g.data, s.id FROM segments g
        LEFT JOIN sessions s ON s.no = g.session
        WHERE g.cursor > ?1 AND g.cursor <= ?2 AND (?3 = 0 OR g.kinds & ?3 != 0) ORDER BY g.cursor";
    let mut query = db.prepare_cached(query).map_err(sql)?;
    let mut rows = query.query(params![after, end, kinds as i64]).map_err(sql)?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next().map_err(sql)? {
        // Without this error, a caller would wait forever for a segment without a session.
        let Some(id) = row.get(4).map_err(sql)? else {
            return Err(integrity::missing_session(row.get(0).map_err(sql)?));
        };
        let segment = SegmentRow::read(row, SessionId(uuid::Uuid::from_bytes(id))).map_err(sql)?;
        bytes += segment.data.len();
        let cursor = segment.cursor;
        found.push(segment);
        if bytes >= CHUNK_BYTES {
            return Ok((found, cursor));
        }
    }
    Ok((found, end))
}

/// The number of the last segment of the store; 0 if there is none.
pub(crate) fn last_segment(db: &Connection) -> Result<i64> {
    let query = db.prepare_cached("SELECT coalesce(max(cursor), 0) FROM segments");
    query.and_then(|mut query| query.query_row([], |row| row.get(0))).map_err(sql)
}
