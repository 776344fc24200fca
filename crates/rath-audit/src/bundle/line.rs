//! A record as a line of JSON: `{"header":…,"salt":…,"body":…}`, with header and body verbatim. If they cannot be
//! verbatim in one line, they are JSON strings. An erased record has only its header.

use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::sync::LazyLock;

use bytes::Bytes;
use memchr::memmem::Finder;
use rath_core::{Header, HeaderCache, Point, Record, RecordParts};
use serde::Deserialize;

const HEADER: &[u8] = b"{\"header\":";
/// The bytes between header and salt. A header that contains them is written as a string.
const SALT: &[u8] = b",\"salt\":\"";
const BODY: &[u8] = b"\",\"body\":";

static FIND_SALT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(SALT));

/// The length of a line besides header and body, if those are verbatim.
pub(super) const AROUND: usize = HEADER.len() + SALT.len() + 32 + BODY.len() + "}\n".len();

/// Appends `record` and a line break to `out`. Fails if the record's bytes are not UTF-8.
pub fn write(record: &Record, out: &mut Vec<u8>) -> io::Result<()> {
    let header = record.header_bytes();
    let fits = ByteScan::at(header).can_be_verbatim() && FIND_SALT.find(header).is_none();
    match fits && record.body_bytes().is_none_or(|body| ByteScan::at(body).can_be_verbatim()) {
        true => put(record, out, |bytes, out| {
            out.extend_from_slice(bytes);
            Ok(())
        }),
        false => write_in_strings(record, out),
    }
}

/// Appends `record` with header and body as JSON strings in any case.
pub fn write_in_strings(record: &Record, out: &mut Vec<u8>) -> io::Result<()> {
    put(record, out, |bytes, out| {
        let text = std::str::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        serde_json::to_writer(out, text).map_err(io::Error::from)
    })
}

fn put(record: &Record, out: &mut Vec<u8>, put: impl Fn(&[u8], &mut Vec<u8>) -> io::Result<()>) -> io::Result<()> {
    out.extend_from_slice(HEADER);
    put(record.header_bytes(), out)?;
    if let Some((salt, body)) = record.salted_body() {
        out.extend_from_slice(SALT);
        out.extend_from_slice(const_hex::Buffer::<16>::new().format(salt).as_bytes());
        out.extend_from_slice(BODY);
        put(body, out)?;
    }
    out.extend_from_slice(b"}\n");
    Ok(())
}

/// Properties of some bytes, found in one pass over them.
struct ByteScan<'a> {
    bytes: &'a [u8],
    is_ascii: bool,
    has_controls: bool,
}

impl<'a> ByteScan<'a> {
    fn at(bytes: &'a [u8]) -> Self {
        // No early exit: this lets the compiler vectorize the loop.
        let (all, controls) =
            bytes.iter().fold((0, false), |(all, controls), byte| (all | byte, controls | (*byte < b' ')));
        Self { bytes, is_ascii: all.is_ascii(), has_controls: controls }
    }

    /// Whether a JSON object can be verbatim in a line: it has no line break, and is distinguishable from a string.
    fn can_be_verbatim(&self) -> bool {
        self.is_one_line() && self.is_text()
    }

    fn is_one_line(&self) -> bool {
        self.bytes.starts_with(b"{") && self.bytes.ends_with(b"}") && !self.has_controls
    }

    fn is_text(&self) -> bool {
        self.is_ascii || std::str::from_utf8(self.bytes).is_ok()
    }
}

/// A parsed line.
pub(super) enum Line<'a> {
    /// The line, and the ranges of header and body in it.
    Verbatim {
        row: &'a [u8],
        header: Range<usize>,
        body: Option<Salted<'a>>,
    },
    InStrings(Strings<'a>),
}

/// The range of a body in its line, and its salt in hex digits.
pub(super) struct Salted<'a> {
    salt: &'a [u8],
    body: Range<usize>,
    /// Whether the canonical form of the line has the body verbatim.
    is_one_line: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Strings<'a> {
    #[serde(borrow)]
    header: Cow<'a, str>,
    #[serde(borrow, default)]
    salt: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    body: Option<Cow<'a, str>>,
}

impl<'a> Line<'a> {
    /// Parses a line, without its line break.
    pub(super) fn read(row: &'a [u8]) -> Result<Self, String> {
        if row.first() != Some(&b'{') {
            return Err("it is not a JSON object".into());
        }
        if row.strip_prefix(HEADER).is_some_and(|header| header.first() == Some(&b'{')) {
            return Self::verbatim(row);
        }
        let line: Strings<'_> = serde_json::from_slice(row).map_err(|error| error.to_string())?;
        match line.salt.is_some() == line.body.is_some() {
            true => Ok(Self::InStrings(line)),
            false => Err("it has a salt without a body, or a body without a salt".into()),
        }
    }

    fn verbatim(row: &'a [u8]) -> Result<Self, String> {
        std::str::from_utf8(row).map_err(|error| format!("the line is not UTF-8: {error}"))?;
        let inside = row.strip_suffix(b"}").ok_or("it is not a JSON object")?;
        let Some(end) = FIND_SALT.find(inside) else {
            return Ok(Self::Verbatim { row, header: HEADER.len()..inside.len(), body: None });
        };
        let (salt, body) =
            salted(row, end).ok_or("the header is not followed by a salt of 32 lower-case hex digits and a body")?;
        let is_one_line = ByteScan::at(&row[body.clone()]).is_one_line();
        Ok(Self::Verbatim { row, header: HEADER.len()..end, body: Some(Salted { salt, body, is_one_line }) })
    }

    /// Parses a line and its header. The header has no actor if it is the same as in the header before. Returns also
    /// whether the header is plain.
    pub(super) fn read_of_many(
        row: &'a [u8],
        header_cache: &mut HeaderCache,
    ) -> Result<(Self, Box<Header>, bool), String> {
        if let Some(after_prefix) = row.strip_prefix(HEADER)
            && let Some((header, length)) = Header::parse_plain_prefix(after_prefix, header_cache)
            && let Some(line) = Self::after_header(row, HEADER.len() + length)
        {
            return Ok((line, Box::new(header), true));
        }
        let line = Self::read(row)?;
        match Header::parse_plain(line.header_bytes(), header_cache) {
            Some(header) => Ok((line, Box::new(header), true)),
            None => {
                let header = line.header()?;
                Ok((line, Box::new(header), false))
            }
        }
    }

    /// The line, given where its header ends. No plain header contains the bytes that follow a header.
    fn after_header(row: &'a [u8], end: usize) -> Option<Self> {
        let header = HEADER.len()..end;
        if &row[end..] == b"}" {
            return Some(Self::Verbatim { row, header, body: None });
        }
        let (salt, body) = salted(row, end)?;
        let look = ByteScan::at(&row[body.clone()]);
        let is_text = row.ends_with(b"}") && look.is_text();
        let is_one_line = look.is_one_line();
        is_text.then_some(Self::Verbatim { row, header, body: Some(Salted { salt, body, is_one_line }) })
    }

    /// Whether the line is in the canonical form of the record: header and body verbatim if they can be, otherwise the
    /// one canonical string form. A parsed header is canonical and can be verbatim.
    pub(super) fn is_canonical(&self, record: &Record, row: &[u8]) -> bool {
        match self {
            Self::Verbatim { body, .. } => body.as_ref().is_none_or(|body| body.is_one_line),
            Self::InStrings(_) => {
                let mut line = Vec::with_capacity(row.len() + 1);
                write(record, &mut line).is_ok() && line.strip_suffix(b"\n") == Some(row)
            }
        }
    }

    fn header_bytes(&self) -> &[u8] {
        match self {
            Self::Verbatim { row, header, .. } => &row[header.clone()],
            Self::InStrings(line) => line.header.as_bytes(),
        }
    }

    /// The parsed header.
    pub(super) fn header(&self) -> Result<Header, String> {
        Header::parse(self.header_bytes()).map_err(|error| error.to_string())
    }

    /// The record, with a generation that the caller has determined. Its hashes are not checked. The line starts at
    /// byte `at` of `block`.
    pub(super) fn record(&self, header: &Header, generation: u64, block: &Bytes, at: usize) -> Result<Record, String> {
        let within = |range: &Range<usize>, at: usize| -> Result<Range<u32>, String> {
            let offset = |byte: usize| u32::try_from(at + byte).map_err(|_| "it is too long".to_owned());
            Ok(offset(range.start)?..offset(range.end)?)
        };
        let salt_in = |salt: &[u8]| salt_of(salt).ok_or("its salt is not 32 lower-case hex digits");
        let (bytes, header_at, body) = match self {
            Self::Verbatim { header, body, .. } => {
                let body = match body {
                    Some(Salted { salt, body, .. }) => Some((salt_in(salt)?, within(body, at)?)),
                    None => None,
                };
                (block.clone(), within(header, at)?, body)
            }
            Self::InStrings(Strings { header, salt, body }) => {
                let body_text = body.as_deref().unwrap_or_default();
                let bytes: Bytes = [header.as_bytes(), body_text.as_bytes()].concat().into();
                let body = match salt {
                    Some(salt) => Some((salt_in(salt.as_bytes())?, within(&(header.len()..bytes.len()), 0)?)),
                    None => None,
                };
                let header = within(&(0..header.len()), 0)?;
                (bytes, header, body)
            }
        };
        let point = Point { session: header.session, seq: header.seq };
        let parts = RecordParts { point, generation, kind: None, bytes, header: header_at, body };
        Record::unchecked_with_header(header, parts).map_err(|fault| fault.to_string())
    }
}

/// The salt after a header, and the range of the body; `None` if the line has another form there.
fn salted(row: &[u8], header_end: usize) -> Option<(&[u8], Range<usize>)> {
    let salt = header_end + SALT.len();
    let body = salt + 32 + BODY.len()..row.len().checked_sub(1)?;
    let digits = row.get(salt..salt + 32)?;
    let is_there = row.get(header_end..salt) == Some(SALT) && row.get(salt + 32..body.start) == Some(BODY);
    (is_there && body.start <= body.end).then_some((digits, body))
}

fn salt_of(text: &[u8]) -> Option<[u8; 16]> {
    let is_lower = !text.iter().fold(false, |upper, byte| upper | byte.is_ascii_uppercase());
    const_hex::decode_to_array(text).ok().filter(|_| is_lower && text.len() == 32)
}

#[cfg(test)]
mod tests {
    use pollster::block_on;
    use proptest::prelude::*;
    use proptest::sample::Index;
    use rath_core::store::Lookup;
    use rath_core::{Actor, InMemory, Session};

    use super::*;

    /// A record with this header, or a valid one, and this body. Header and body need not match.
    fn record(header: Option<&[u8]>, body: Option<&[u8]>) -> Record {
        let store = InMemory::new();
        let mut session = Session::create(&store, Actor::person("ada"));
        block_on(session.publish()).unwrap();
        let plain = block_on(store.get(Lookup::Id(session.head().id))).unwrap().remove(0);
        let header = header.unwrap_or(plain.header_bytes());
        let bytes: Bytes = [header, body.unwrap_or_default()].concat().into();
        let (middle, end) = (header.len() as u32, bytes.len() as u32);
        let body = body.map(|_| ([0xa5; 16], middle..end));
        let kind = Some(plain.kind().clone());
        let parts = RecordParts { point: plain.point(), generation: 0, kind, bytes, header: 0..middle, body };
        Record::unchecked(parts).unwrap()
    }

    fn lines(record: &Record) -> [Vec<u8>; 2] {
        let (mut verbatim, mut in_strings) = (Vec::new(), Vec::new());
        write(record, &mut verbatim).unwrap();
        write_in_strings(record, &mut in_strings).unwrap();
        [verbatim, in_strings]
    }

    /// Header, and salt and body.
    type Read = (Vec<u8>, Option<(Vec<u8>, Vec<u8>)>);

    /// Parses a line in both ways and returns its exact bytes.
    fn read(line: &[u8]) -> Read {
        let block: Bytes = [b"before\n", line].concat().into();
        let row = &block[7..block.len() - 1];
        let line = Line::read(row).unwrap();
        let (of_many, header, is_plain) = Line::read_of_many(row, &mut HeaderCache::default()).unwrap();
        assert_eq!((&*header, is_plain), (&line.header().unwrap(), true));
        let [record, same] = [line, of_many].map(|line| line.record(&header, 0, &block, 7).unwrap());
        assert_eq!((same.header_bytes(), same.salted_body()), (record.header_bytes(), record.salted_body()));
        let salted = record.salted_body().map(|(salt, body)| (salt.to_vec(), body.to_vec()));
        (record.header_bytes().to_vec(), salted)
    }

    #[test]
    fn any_bytes_survive_a_round_trip() {
        let verbatim_bodies: &[&[u8]] = &[
            b"{}",
            br#"{"text":"a \"word\" \\ \u2028"}"#,
            "{\"text\":\"naïve \u{2028}\u{85} 🦀\"}".as_bytes(),
            br#"{"a":1,"salt":"00000000000000000000000000000000","body":{"b":2}}"#,
            br#"{ "spaced" : [ 1.0 , 1e3 ] }"#,
            b"{not json}",
        ];
        let in_strings: &[&[u8]] = &[b"", b"[]", b"\"text\"", b"{\n}", b"{\t}", b"{\"a\":1}\r", b" {}", b"null"];
        for (bodies, fit) in [(verbatim_bodies, true), (in_strings, false)] {
            for body in bodies {
                let record = record(None, Some(body));
                let expected = (record.header_bytes().to_vec(), Some((vec![0xa5; 16], body.to_vec())));
                let [line, strings] = lines(&record);
                assert_eq!(line != strings, fit, "{}", String::from_utf8_lossy(body));
                assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
                assert_eq!(read(&line), expected, "{}", String::from_utf8_lossy(&line));
                assert_eq!(read(&strings), expected);
            }
        }
        let erased = record(None, None);
        let [line, strings] = lines(&erased);
        assert_eq!(read(&line), (erased.header_bytes().to_vec(), None));
        assert_eq!(read(&line), read(&strings));
        assert!(write(&record(None, Some(b"{\xff}")), &mut Vec::new()).is_err(), "not UTF-8");
    }

    #[test]
    fn a_header_that_contains_the_salt_prefix_is_written_as_a_string() {
        let header = br#"{"actor":{},"salt":"0","v":1}"#;
        let [line, strings] = lines(&record(Some(header), Some(b"{}")));
        assert_eq!(line, strings);
    }

    #[test]
    fn invalid_lines_are_rejected() {
        for line in [
            &b"{\"header\":{}"[..],
            b"{\"header\":{},\"salt\":\"0\",\"body\":{}}",
            b"{\"header\":{},\"salt\":\"00000000000000000000000000000000\",\"text\":{}}",
            b"{\"header\":{},\"salt\":\"00000000000000000000000000000000\"}",
            b"{\"header\":{\xff}}",
            b"{\"header\":\"{}\",\"salt\":\"00000000000000000000000000000000\"}",
            b"{\"header\":[]}",
            b"[]",
        ] {
            let read = Line::read(line).map(|line| line.header());
            assert!(!matches!(read, Ok(Ok(_))), "{}", String::from_utf8_lossy(line));
            assert!(Line::read_of_many(line, &mut HeaderCache::default()).is_err());
        }
    }

    /// The result of parsing a line in one way or the other, and whether the line is in canonical form.
    type Outcome = Option<(Header, Vec<u8>, Option<([u8; 16], Vec<u8>)>, bool, bool)>;

    fn outcome(row: &[u8], line: &Line<'_>, header: Header) -> Outcome {
        let block = Bytes::copy_from_slice(row);
        let record = line.record(&header, 0, &block, 0).ok()?;
        let salted = record.salted_body().map(|(salt, body)| (*salt, body.to_vec()));
        let is_valid = record.check_body().is_ok();
        // When many lines are parsed, the header before may have had the same actor.
        let header = Header { actor: Actor::new("", ""), ..header };
        Some((header, record.header_bytes().to_vec(), salted, is_valid, line.is_canonical(&record, row)))
    }

    proptest! {
        #[test]
        fn both_ways_of_parsing_agree(
            bodies in proptest::collection::vec("\\{\\PC{0,12}\\}", 1..4),
            splices in proptest::collection::vec((any::<Index>(), any::<bool>(), 0..3usize, prop::sample::select(vec![
                &b""[..], b"}", b"{", b"\"", b",\"salt\":\"", b"\",\"body\":", b",\"v\":1}", b"0", b"A", b" ", b"\xff", b"\n",
            ])), 1..12),
        ) {
            let rows: Vec<Vec<u8>> = bodies
                .iter()
                .flat_map(|body| lines(&record(None, Some(body.as_bytes()))))
                .chain(lines(&record(None, None)))
                .map(|mut line| { line.pop(); line })
                .collect();
            let mut header_cache = HeaderCache::default();
            for (at, near_the_end, over, put) in splices {
                let mut row = rows[at.index(rows.len())].clone();
                // The part after the header is short, so it gets half of the changes.
                let at = if near_the_end { row.len() - 1 - at.index(row.len().min(80)) } else { at.index(row.len()) };
                row.splice(at..row.len().min(at + over), put.iter().copied());
                let alone = Line::read(&row).ok().and_then(|line| outcome(&row, &line, line.header().ok()?));
                let of_many = Line::read_of_many(&row, &mut header_cache).ok();
                let of_many = of_many.and_then(|(line, header, _)| outcome(&row, &line, *header));
                prop_assert_eq!(of_many, alone, "{}", String::from_utf8_lossy(&row));
            }
        }
    }
}
