//! Reads `records.jsonl` line by line.

use std::io::{BufRead, BufReader, Read};

use super::source::BundleSource;
use super::{BundleDefect, RECORDS};

/// The maximum length of a line, in bytes: enough for any merge.
pub(super) const MAX_LINE: usize = 64 << 20;

/// The lines of `records.jsonl`, without their line breaks.
pub(super) struct LineReader<R> {
    reader: BufReader<R>,
    row: Vec<u8>,
    count: u64,
}

impl<'s> LineReader<Box<dyn Read + 's>> {
    pub(super) fn new(source: &'s mut BundleSource) -> Result<Self, BundleDefect> {
        let reader: Box<dyn Read + 's> = Box::new(source.read(RECORDS)?);
        Ok(Self { reader: BufReader::with_capacity(256 << 10, reader), row: Vec::new(), count: 0 })
    }
}

impl<R: Read> LineReader<R> {
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, BundleDefect> {
        self.row.clear();
        self.count += 1;
        let bad = |why: String| BundleDefect::Line { line: self.count, why };
        let read = (&mut self.reader).take(MAX_LINE as u64 + 1).read_until(b'\n', &mut self.row);
        read.map_err(|error| bad(error.to_string()))?;
        match self.row.last() {
            None => Ok(None),
            Some(b'\n') => {
                self.row.pop();
                Ok(Some(&self.row))
            }
            Some(_) if self.row.len() > MAX_LINE => Err(bad(format!("the line is longer than {MAX_LINE} bytes"))),
            Some(_) => Err(bad("the line is truncated".into())),
        }
    }
}
