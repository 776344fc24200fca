//! `records.jsonl` in blocks of lines, read on one thread and taken apart on others.

use std::io::Read;
use std::ops::Range;
use std::sync::mpsc::sync_channel;

use bytes::Bytes;
use rath_core::verify::is_json_object;
use rath_core::{BlobRef, Header, Point, Record, Recurring};

use super::line::Line;
use super::rows::LINE;
use super::source::Source;
use super::{Broken, RECORDS};

/// About how many bytes of records are read at once. With the beginning of a line they fit in 256 KiB, for which
/// allocators have room that is not much larger.
const BLOCK: usize = 248 << 10;

/// So many blocks may wait for whoever works on them. A block with a long line may be large.
const READ_AHEAD: usize = 2;

/// Some lines together, with their line breaks. The file's last may lack its own.
#[derive(Clone)]
pub(super) struct Block {
    bytes: Bytes,
    /// Where the last of them ends.
    end: usize,
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.end]
    }
}

/// Why the reading ended before the file does.
pub(super) enum Cut {
    /// The next line is too long.
    Long,
    Unreadable(Broken),
}

/// `records.jsonl` in blocks.
pub(super) struct Blocks<R> {
    reader: R,
    /// The beginning of a line in which the last block ended.
    begun: Vec<u8>,
}

impl<'s> Blocks<Box<dyn Read + Send + 's>> {
    pub(super) fn new(source: &'s mut Source) -> Result<Self, Broken> {
        Ok(Self { reader: Box::new(source.read(RECORDS)?), begun: Vec::new() })
    }
}

impl<R: Read + Send> Blocks<R> {
    /// Hands over one block after the other, while the next ones are read on a thread beside. What cut the reading short
    /// comes back, for lines before it may be worse; an error is one of `work`.
    pub(super) fn each(mut self, mut work: impl FnMut(Block) -> Result<(), Broken>) -> Result<Option<Cut>, Broken> {
        let (read, blocks) = sync_channel(READ_AHEAD);
        std::thread::scope(|scope| {
            let reader = move || {
                // Who does not want any more is gone.
                while let Some(block) = self.next().transpose()
                    && read.send(block).is_ok()
                {}
            };
            let reader = std::thread::Builder::new().name("rath-read".into()).spawn_scoped(scope, reader);
            reader.map_err(threadless)?;
            for block in blocks {
                match block {
                    Ok(block) => work(block)?,
                    Err(cut) => return Ok(Some(cut)),
                }
            }
            Ok(None)
        })
    }

    /// The next lines; `None` behind the last.
    fn next(&mut self) -> Result<Option<Block>, Cut> {
        let mut room = BLOCK;
        loop {
            let begun = self.begun.len();
            let mut bytes = Vec::with_capacity(begun + room);
            bytes.extend_from_slice(&self.begun);
            let unreadable = |error: std::io::Error| Broken::File { name: RECORDS.into(), why: error.to_string() };
            let read = (&mut self.reader).take(room as u64).read_to_end(&mut bytes);
            let read = read.map_err(|error| Cut::Unreadable(unreadable(error)))?;
            let all = begun + read;
            let end = match read < room {
                true => all,
                false => memchr::memrchr(b'\n', &bytes[..all]).map_or(0, |at| at + 1),
            };
            self.begun.clear();
            self.begun.extend_from_slice(&bytes[end..all]);
            if end > 0 {
                return Ok(Some(Block { bytes: bytes.into(), end }));
            }
            if all == 0 {
                return Ok(None);
            }
            if all > LINE {
                return Err(Cut::Long);
            }
            room = (4 * room).min(LINE + 1 - all);
        }
    }
}

/// Without another thread it is not read.
pub(super) fn threadless(error: std::io::Error) -> Broken {
    Broken::Unreadable(format!("no thread could be started to read it: {error}"))
}

/// A line that was taken apart.
pub(super) struct Parsed {
    /// Without an actor where that is the one of the line before.
    pub(super) header: Box<Header>,
    /// Whether the header is one that [`Header::parse_plain`] reads.
    pub(super) is_plain: bool,
    pub(super) record: Record,
    /// Whether its body is a JSON object, if it has one.
    pub(super) is_object: bool,
    /// The blobs that its body names.
    pub(super) names: Vec<BlobRef>,
    /// How many bytes of its block are the line's.
    pub(super) length: usize,
}

/// Why a line cannot be taken apart.
pub(super) struct Unfit {
    /// The record, where the line says which.
    point: Option<Point>,
    why: String,
}

impl Unfit {
    /// The same of a line by its number.
    pub(super) fn at(self, line: u64) -> Broken {
        match self {
            Unfit { point: Some(point), why } => Broken::Record { point, line, why },
            Unfit { point: None, why } => Broken::Line { line, why },
        }
    }
}

impl From<String> for Unfit {
    fn from(why: String) -> Self {
        Self { point: None, why }
    }
}

/// Takes lines apart.
pub(super) struct Parsing {
    /// Whether a line must be written in the one way in which it is: nothing else vouches for what stands around a record.
    is_exact: bool,
    recurring: Recurring,
    /// How many lines the block before had.
    before: usize,
}

impl Parsing {
    pub(super) fn new(is_exact: bool) -> Self {
        Self { is_exact, recurring: Recurring::default(), before: 0 }
    }

    /// The records of a block, whose bytes they share. Ends with the first that cannot be read.
    pub(super) fn block(&mut self, block: &Block) -> Vec<Result<Parsed, Unfit>> {
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
            parsed.push(Err("it is cut off".to_owned().into()));
        }
        self.before = parsed.len();
        parsed
    }

    fn line(&mut self, block: &Bytes, row: Range<usize>) -> Result<Parsed, Unfit> {
        let (line, header, is_plain) = Line::read_of_many(&block[row.clone()], &mut self.recurring)?;
        let point = Some(Point { session: header.session, seq: header.seq });
        let record = line.record(&header, 0, block, row.start).map_err(|why| Unfit { point, why })?;
        if self.is_exact && !line.is_as_written(&record, &block[row.clone()]) {
            return Err(Unfit { point, why: "its line is not as it is written".into() });
        }
        let names = rath_core::blob_references(record.body_bytes().unwrap_or_default());
        let is_object = is_json_object(&record);
        Ok(Parsed { header, is_plain, record, is_object, names, length: row.len() })
    }
}
