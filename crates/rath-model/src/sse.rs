//! Server-sent events, from bytes that come in any pieces.

use memchr::memchr2;

/// The most an event may hold, unless said otherwise: 64 MiB. Pictures come in events of some megabytes.
pub const LIMIT: usize = 64 << 20;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its name; empty where it has none.
    pub name: &'a str,
    /// What it holds: its `data` lines.
    pub data: &'a [u8],
}

/// An event is larger than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream holds more than {limit} bytes")]
pub struct TooLong {
    /// The most that is allowed.
    pub limit: usize,
}

/// Finds events in bytes. Lines may end in LF, CR or CRLF, and pieces may end anywhere.
#[derive(Debug)]
pub struct Parser {
    limit: usize,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    /// What the event holds so far, each line with an LF behind it.
    data: Vec<u8>,
    name: String,
    /// The last byte was a CR: an LF that follows belongs to it.
    after_cr: bool,
    /// No line has ended yet: the first may begin with a byte order mark.
    first: bool,
}

impl Default for Parser {
    fn default() -> Self {
        Self::new(LIMIT)
    }
}

impl Parser {
    /// A parser that takes events of at most so many bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, line: Vec::new(), data: Vec::new(), name: String::new(), after_cr: false, first: true }
    }

    /// Takes more bytes and hands over each event that they complete.
    pub fn feed(&mut self, mut bytes: &[u8], each: &mut impl FnMut(Event<'_>)) -> Result<(), TooLong> {
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr2(b'\n', b'\r', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end..]);
            if self.line.is_empty() {
                self.take(line, each)?;
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                let taken = self.take(&whole, each);
                whole.clear();
                self.line = whole;
                taken?;
            }
            bytes = self.after_end(rest);
        }
        self.line.extend_from_slice(bytes);
        self.check(self.line.len())
    }

    /// The stream is over: hands over an event that no blank line closed.
    pub fn finish(&mut self, each: &mut impl FnMut(Event<'_>)) -> Result<(), TooLong> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.take(&line, each)?;
        }
        self.close(each);
        Ok(())
    }

    /// Steps over the end of a line, as far as it is here.
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

    /// Takes a whole line.
    fn take(&mut self, line: &[u8], each: &mut impl FnMut(Event<'_>)) -> Result<(), TooLong> {
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

    /// A blank line: hands over the event. One without data is none.
    fn close(&mut self, each: &mut impl FnMut(Event<'_>)) {
        if let Some((_, data)) = self.data.split_last() {
            each(Event { name: &self.name, data });
        }
        self.data.clear();
        self.name.clear();
    }

    fn check(&self, more: usize) -> Result<(), TooLong> {
        match self.data.len() + more > self.limit {
            true => Err(TooLong { limit: self.limit }),
            false => Ok(()),
        }
    }
}

/// The value of a line, where it is of this field. One space after the colon belongs to it.
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
        let mut each = |event: Event<'_>| {
            found.push((event.name.to_owned(), String::from_utf8_lossy(event.data).into_owned()));
        };
        let mut parser = Parser::default();
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
    fn lines_end_in_any_of_three_ways() {
        for end in ["\n", "\r", "\r\n"] {
            let text = ["event: a", "data: 1", "data:2", "", ": comment", "data", "", "event: lost", ""].join(end);
            assert_eq!(events(&[text.as_bytes()]), pairs(&[("a", "1\n2"), ("", "")]), "{end:?}");
        }
    }

    #[test]
    fn a_byte_order_mark_and_a_last_event_without_a_blank_line() {
        assert_eq!(events(&[b"\xEF\xBB", b"\xBFdata: 1\n\ndata:  2"]), pairs(&[("", "1"), ("", " 2")]));
    }

    #[test]
    fn a_pair_of_cr_and_lf_in_two_pieces_is_one_end() {
        assert_eq!(events(&[b"data: 1\r", b"\ndata: 2\r", b"", b"\n\r", b"\n"]), pairs(&[("", "1\n2")]));
    }

    #[test]
    fn other_fields_and_names_that_only_begin_alike_are_passed_over() {
        let text = b"id: 1\nretry: 5\ndatabase: x\nevents: y\ndata: z\n\n";
        assert_eq!(events(&[text]), pairs(&[("", "z")]));
    }

    #[test]
    fn an_event_beyond_the_limit_is_refused() {
        let mut parser = Parser::new(8);
        assert_eq!(parser.feed(b"data: 123456789", &mut |_| {}), Err(TooLong { limit: 8 }));
        let mut parser = Parser::new(16);
        parser.feed(b"data: 12345678\n", &mut |_| {}).unwrap();
        assert!(parser.feed(b"data: 12345678\n", &mut |_| {}).is_err());
        for end in ["", "\n"] {
            let comment = format!(":123456789{end}");
            assert!(Parser::new(8).feed(comment.as_bytes(), &mut |_| {}).is_err());
        }
    }

    proptest! {
        #[test]
        fn pieces_change_nothing(
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
