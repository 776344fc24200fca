//! The lines of `records.jsonl`, one by one.

use std::io::{BufRead, BufReader, Read};

use super::source::Source;
use super::{Broken, RECORDS};

/// A line of records may have this many bytes: long enough for any merge.
pub(super) const LINE: usize = 64 << 20;

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
