//! Reads `records.jsonl` in blocks of lines: one thread reads, other threads parse.

use std::io::Read;
use std::ops::Range;
use std::sync::mpsc::sync_channel;

use bytes::Bytes;
use rath_core::verify::is_json_object;
use rath_core::{BlobRef, Header, HeaderCache, Point, Record};

use super::line::Line;
use super::line_reader::MAX_LINE;
use super::source::BundleSource;
use super::{BundleDefect, RECORDS};

/// Bytes that are read at once. Together with the start of a line they fit in 256 KiB, for which allocators have a
/// matching size class.
const BLOCK: usize = 248 << 10;

/// The number of blocks that may wait to be parsed. A block with a long line can be large.
const READ_AHEAD: usize = 2;

/// Complete lines, with their line breaks. The last line of the file may lack its own.
#[derive(Clone)]
pub(super) struct Block {
    bytes: Bytes,
    /// The end of the last line.
    end: usize,
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.end]
    }
}

/// Why reading ended before the end of the file.
pub(super) enum ReadStop {
    /// The next line is too long.
    TooLong,
    Unreadable(BundleDefect),
}

/// Reads `records.jsonl` in blocks.
pub(super) struct Blocks<R> {
    reader: R,
    /// The start of a line whose end is in the next block.
    partial_line: Vec<u8>,
}

impl<'s> Blocks<Box<dyn Read + Send + 's>> {
    pub(super) fn new(source: &'s mut BundleSource) -> Result<Self, BundleDefect> {
        Ok(Self { reader: Box::new(source.read(RECORDS)?), partial_line: Vec::new() })
    }
}

impl<R: Read + Send> Blocks<R> {
    /// Calls `work` for each block while another thread reads the next ones. Returns why reading ended early, if it
    /// did: the caller first handles the lines before, which may have worse errors. An `Err` comes from `work`.
    pub(super) fn each(
        mut self,
        mut work: impl FnMut(Block) -> Result<(), BundleDefect>,
    ) -> Result<Option<ReadStop>, BundleDefect> {
        let (read, blocks) = sync_channel(READ_AHEAD);
        std::thread::scope(|scope| {
            let reader = move || {
                // The receiver is gone if `work` failed.
                while let Some(block) = self.next().transpose()
                    && read.send(block).is_ok()
                {}
            };
            let reader = std::thread::Builder::new().name("rath-read".into()).spawn_scoped(scope, reader);
            reader.map_err(no_thread)?;
            for block in blocks {
                match block {
                    Ok(block) => work(block)?,
                    Err(cut) => return Ok(Some(cut)),
                }
            }
            Ok(None)
        })
    }

    /// The next block; `None` at the end.
    fn next(&mut self) -> Result<Option<Block>, ReadStop> {
        let mut room = BLOCK;
        loop {
            let partial_line = self.partial_line.len();
            let mut bytes = Vec::with_capacity(partial_line + room);
            bytes.extend_from_slice(&self.partial_line);
            let unreadable =
                |error: std::io::Error| BundleDefect::File { name: RECORDS.into(), why: error.to_string() };
            let read = (&mut self.reader).take(room as u64).read_to_end(&mut bytes);
            let read = read.map_err(|error| ReadStop::Unreadable(unreadable(error)))?;
            let all = partial_line + read;
            let end = match read < room {
                true => all,
                false => memchr::memrchr(b'\n', &bytes[..all]).map_or(0, |at| at + 1),
            };
            self.partial_line.clear();
            self.partial_line.extend_from_slice(&bytes[end..all]);
            if end > 0 {
                return Ok(Some(Block { bytes: bytes.into(), end }));
            }
            if all == 0 {
                return Ok(None);
            }
            if all > MAX_LINE {
                return Err(ReadStop::TooLong);
            }
            room = (4 * room).min(MAX_LINE + 1 - all);
        }
    }
}

/// The error for a thread that could not be started.
pub(super) fn no_thread(error: std::io::Error) -> BundleDefect {
    BundleDefect::Unreadable(format!("cannot start a thread to read the bundle: {error}"))
}

/// A parsed line.
pub(super) struct ParsedLine {
    /// The header, without an actor if it is the same as in the line before.
    pub(super) header: Box<Header>,
    /// Whether [`Header::parse_plain`] can parse the header.
    pub(super) is_plain: bool,
    pub(super) record: Record,
    /// Whether the body is a JSON object, if there is a body.
    pub(super) is_object: bool,
    /// The blobs that the body refers to.
    pub(super) names: Vec<BlobRef>,
    /// The length of the line in its block, in bytes.
    pub(super) length: usize,
}

/// Why a line cannot be parsed.
pub(super) struct BadLine {
    /// The record, if the line names it.
    point: Option<Point>,
    why: String,
}

impl BadLine {
    /// The error with the line number.
    pub(super) fn at(self, line: u64) -> BundleDefect {
        match self {
            BadLine { point: Some(point), why } => BundleDefect::Record { point, line, why },
            BadLine { point: None, why } => BundleDefect::Line { line, why },
        }
    }
}

impl From<String> for BadLine {
    fn from(why: String) -> Self {
        Self { point: None, why }
    }
}

/// Parses lines.
pub(super) struct LineParser {
    /// Whether a line must be in its canonical form, because nothing else authenticates the bytes around the record.
    is_exact: bool,
    header_cache: HeaderCache,
    /// The number of lines in the previous block.
    before: usize,
}

impl LineParser {
    pub(super) fn new(is_exact: bool) -> Self {
        Self { is_exact, header_cache: HeaderCache::default(), before: 0 }
    }

    /// Parses the lines of a block. The records share the block's bytes. Stops after the first invalid line.
    pub(super) fn block(&mut self, block: &Block) -> Vec<Result<ParsedLine, BadLine>> {
        let lines = block.as_ref();
        let mut parsed = Vec::with_capacity(self.before + self.before / 8);
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', lines) {
            parsed.push(self.line(&block.bytes, start..end));
            if parsed.last().is_some_and(Result::is_err) {
                return parsed;
            }
            start = end + 1;
        }
        if start < lines.len() {
            parsed.push(Err("the line is truncated".to_owned().into()));
        }
        self.before = parsed.len();
        parsed
    }

    fn line(&mut self, block: &Bytes, row: Range<usize>) -> Result<ParsedLine, BadLine> {
        let (line, header, is_plain) = Line::read_of_many(&block[row.clone()], &mut self.header_cache)?;
        let point = Some(Point { session: header.session, seq: header.seq });
        let record = line.record(&header, 0, block, row.start).map_err(|why| BadLine { point, why })?;
        if self.is_exact && !line.is_canonical(&record, &block[row.clone()]) {
            return Err(BadLine { point, why: "the line is not in its canonical form".into() });
        }
        let names = rath_core::blob_references(record.body_bytes().unwrap_or_default());
        let is_object = is_json_object(&record);
        Ok(ParsedLine { header, is_plain, record, is_object, names, length: row.len() })
    }
}
