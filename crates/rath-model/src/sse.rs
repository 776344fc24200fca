//! A parser of server-sent events that accepts input split at any point.

use memchr::memchr2;

/// Default size limit of one event: 64 MiB. Events with images are several megabytes long.
pub const LIMIT: usize = 64 << 20;

/// One event of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The event's name. Empty if it has none.
    pub name: &'a str,
    /// The event's `data` lines, joined with LF.
    pub data: &'a [u8],
}

/// An event is larger than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stream event is longer than {limit} bytes")]
pub struct EventTooLong {
    /// The limit in bytes.
    pub limit: usize,
}

/// Splits a byte stream into events. Lines may end in LF, CR or CRLF, and the input may be split anywhere.
#[derive(Debug)]
pub struct SseParser {
    limit: usize,
    /// The start of a line whose end has not arrived.
    line: Vec<u8>,
    /// The data of the current event so far, each line followed by an LF.
    data: Vec<u8>,
    name: String,
    /// The last byte was a CR: a following LF belongs to the same line end.
    after_cr: bool,
    /// No line has ended yet: the first line may start with a byte order mark.
    first: bool,
}

impl Default for SseParser {
    fn default() -> Self {
        Self::new(LIMIT)
    }
}

impl SseParser {
    /// A parser with a size limit for events, in bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, line: Vec::new(), data: Vec::new(), name: String::new(), after_cr: false, first: true }
    }

    /// Reads more bytes and calls `each` for every event that they complete.
    pub fn feed(&mut self, mut bytes: &[u8], each: &mut impl FnMut(SseEvent<'_>)) -> Result<(), EventTooLong> {
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr2(b'\n', b'\r', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end..]);
            if self.line.is_empty() {
                self.line(line, each)?;
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                let result = self.line(&whole, each);
                whole.clear();
                self.line = whole;
                result?;
            }
            bytes = self.after_end(rest);
        }
        self.line.extend_from_slice(bytes);
        self.check(self.line.len())
    }

    /// Ends the stream. Calls `each` for a last event that no blank line closed.
    pub fn finish(&mut self, each: &mut impl FnMut(SseEvent<'_>)) -> Result<(), EventTooLong> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.line(&line, each)?;
        }
        self.close(each);
        Ok(())
    }

    /// Skips the line end at the start of `rest`. If only a CR has arrived, remembers it.
    fn after_end<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        match rest {
            [b'\r', b'\n', rest @ ..] => rest,
            [b'\r'] => {
                self.after_cr = true;
                &[]
            }
            [_, rest @ ..] => rest,
            [] => &[],
        }
    }

    /// Handles a complete line, without its line end.
    fn line(&mut self, line: &[u8], each: &mut impl FnMut(SseEvent<'_>)) -> Result<(), EventTooLong> {
        self.check(line.len())?;
        let mut line = line;
        if std::mem::take(&mut self.first) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            self.close(each);
        } else if let Some(value) = field(line, b"data") {
            self.data.extend_from_slice(value);
            self.data.push(b'\n');
        } else if let Some(value) = field(line, b"event") {
            self.name = String::from_utf8_lossy(value).into_owned();
        }
        Ok(())
    }

    /// Handles a blank line: delivers the event. An event without data is not delivered, as the standard requires.
    fn close(&mut self, each: &mut impl FnMut(SseEvent<'_>)) {
        if let Some((_, data)) = self.data.split_last() {
            each(SseEvent { name: &self.name, data });
        }
        self.data.clear();
        self.name.clear();
    }

    fn check(&self, more: usize) -> Result<(), EventTooLong> {
        match self.data.len() + more > self.limit {
            true => Err(EventTooLong { limit: self.limit }),
            false => Ok(()),
        }
    }
}

/// The value of the line if it is of this field. One space after the colon is skipped.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let rest = line.strip_prefix(name)?;
    if rest.is_empty() {
        return Some(rest);
    }
    let value = rest.strip_prefix(b":")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut each = |event: SseEvent<'_>| {
            found.push((event.name.to_owned(), String::from_utf8_lossy(event.data).into_owned()));
        };
        let mut parser = SseParser::default();
        for piece in pieces {
            parser.feed(piece, &mut each).unwrap();
        }
        parser.finish(&mut each).unwrap();
        found
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(name, data)| ((*name).to_owned(), (*data).to_owned())).collect()
    }

    #[test]
    fn lines_end_in_lf_cr_or_crlf() {
        for end in ["\n", "\r", "\r\n"] {
            let text = ["event: a", "data: 1", "data:2", "", ": comment", "data", "", "event: lost", ""].join(end);
            assert_eq!(events(&[text.as_bytes()]), pairs(&[("a", "1\n2"), ("", "")]), "{end:?}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_skipped_and_an_unclosed_last_event_is_delivered() {
        assert_eq!(events(&[b"\xEF\xBB", b"\xBFdata: 1\n\ndata:  2"]), pairs(&[("", "1"), ("", " 2")]));
    }

    #[test]
    fn a_crlf_split_over_two_pieces_is_one_line_end() {
        assert_eq!(events(&[b"data: 1\r", b"\ndata: 2\r", b"", b"\n\r", b"\n"]), pairs(&[("", "1\n2")]));
    }

    #[test]
    fn other_fields_are_ignored() {
        let text = b"id: 1\nretry: 5\ndatabase: x\nevents: y\ndata: z\n\n";
        assert_eq!(events(&[text]), pairs(&[("", "z")]));
    }

    #[test]
    fn an_event_beyond_the_limit_is_refused() {
        let mut parser = SseParser::new(8);
        assert_eq!(parser.feed(b"data: 123456789", &mut |_| {}), Err(EventTooLong { limit: 8 }));
        let mut parser = SseParser::new(16);
        parser.feed(b"data: 12345678\n", &mut |_| {}).unwrap();
        assert!(parser.feed(b"data: 12345678\n", &mut |_| {}).is_err());
        for end in ["", "\n"] {
            let comment = format!(":123456789{end}");
            assert!(SseParser::new(8).feed(comment.as_bytes(), &mut |_| {}).is_err());
        }
    }

    proptest! {
        #[test]
        fn the_result_does_not_depend_on_how_the_input_is_split(
            text in "(data: ?|event: |:|é|x|\r|\n|\r\n|\n\n){0,40}",
            cuts in prop::collection::vec(0usize..100, 0..8),
        ) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(events(&pieces), events(&[bytes]));
        }
    }
}
