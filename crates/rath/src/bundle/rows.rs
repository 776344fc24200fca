//! The lines of `records.jsonl`: read in blocks or one by one, and taken apart.

use std::io::{BufRead, BufReader, Read};

use rath_core::{Header, Point, Record};

use super::line::Line;
use super::source::Source;
use super::{Broken, RECORDS};

/// A line of records may have this many bytes: long enough for any merge.
const LINE: usize = 64 << 20;

/// About how many bytes of records are read at once.
const BLOCK: usize = 256 << 10;

/// Takes lines apart.
#[derive(Default)]
pub(super) struct Parsing {
    /// How many lines there were so far.
    count: u64,
    /// The actor of the last one.
    actor: Vec<u8>,
    /// Room for the bytes of one.
    bytes: Vec<u8>,
}

impl Parsing {
    /// The records of a block of lines. Ends with the first that cannot be read.
    pub(super) fn block(&mut self, block: &[u8]) -> Vec<Result<(Header, Record), Broken>> {
        let mut parsed = Vec::with_capacity(block.len() / 1024 + 1);
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', block) {
            self.count += 1;
            parsed.push(self.line(&block[start..end]));
            if parsed.last().is_some_and(Result::is_err) {
                return parsed;
            }
            start = end + 1;
        }
        if start < block.len() {
            parsed.push(Err(Broken::Line { line: self.count + 1, why: "it is cut off".into() }));
        }
        parsed
    }

    fn line(&mut self, row: &[u8]) -> Result<(Header, Record), Broken> {
        let Self { count: line, actor, bytes } = self;
        let read = Line::read(row).and_then(|line| Ok((line.header_of_many(actor)?, line)));
        let (header, text) = read.map_err(|why| Broken::Line { line: *line, why })?;
        let point = Point { session: header.session, seq: header.seq };
        let broken = |why| Broken::Record { point, line: *line, why };
        let record = text.record(&header, 0, bytes).map_err(broken)?;
        Ok((header, record))
    }
}

/// The lines of `records.jsonl`, without their line breaks.
pub(super) struct Rows<R> {
    reader: BufReader<R>,
    row: Vec<u8>,
    count: u64,
}

impl<'s> Rows<Box<dyn Read + 's>> {
    pub(super) fn new(source: &'s mut Source) -> Result<Self, Broken> {
        let reader: Box<dyn Read + 's> = Box::new(source.read(RECORDS)?);
        Ok(Self { reader: BufReader::with_capacity(256 << 10, reader), row: Vec::new(), count: 0 })
    }
}

impl<R: Read> Rows<R> {
    /// Some lines together, with their line breaks.
    pub(super) fn block(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        let mut block = Vec::with_capacity(BLOCK + 4096);
        let bad = |error: std::io::Error| Broken::File { name: RECORDS.into(), why: error.to_string() };
        (&mut self.reader).take(BLOCK as u64).read_to_end(&mut block).map_err(bad)?;
        if block.len() == BLOCK && block.last() != Some(&b'\n') {
            (&mut self.reader).take(LINE as u64).read_until(b'\n', &mut block).map_err(bad)?;
        }
        self.count += memchr::memchr_iter(b'\n', &block).count() as u64;
        if block.len() > LINE && block.last() != Some(&b'\n') {
            return Err(Broken::Line { line: self.count + 1, why: format!("it is longer than {LINE} bytes") });
        }
        Ok(Some(block).filter(|block| !block.is_empty()))
    }

    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, Broken> {
        self.row.clear();
        self.count += 1;
        let bad = |why: String| Broken::Line { line: self.count, why };
        let read = (&mut self.reader).take(LINE as u64 + 1).read_until(b'\n', &mut self.row);
        read.map_err(|error| bad(error.to_string()))?;
        match self.row.last() {
            None => Ok(None),
            Some(b'\n') => {
                self.row.pop();
                Ok(Some(&self.row))
            }
            Some(_) if self.row.len() > LINE => Err(bad(format!("it is longer than {LINE} bytes"))),
            Some(_) => Err(bad("it is cut off".into())),
        }
    }
}
