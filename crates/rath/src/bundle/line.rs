//! A record as a line of JSON: `{"header":…,"salt":…,"body":…}`, exact bytes in JSON strings. An erased record has
//! only its header.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use rath_core::{Header, Parts, Point, Record};
use serde::Deserialize;

/// Appends `record` and a line break to `out`. Fails when its bytes are not text.
pub fn write(record: &Record, out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(b"{\"header\":");
    text(record.header_bytes(), out)?;
    if let Some((salt, body)) = record.salted_body() {
        out.extend_from_slice(b",\"salt\":\"");
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        out.extend(salt.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]));
        out.extend_from_slice(b"\",\"body\":");
        text(body, out)?;
    }
    out.extend_from_slice(b"}\n");
    Ok(())
}

fn text(bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let text = std::str::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    serde_json::to_writer(out, text).map_err(io::Error::from)
}

/// A line, taken apart.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line<'a> {
    #[serde(borrow)]
    header: Cow<'a, str>,
    #[serde(borrow, default)]
    salt: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    body: Option<Cow<'a, str>>,
}

impl<'a> Line<'a> {
    /// Takes a line apart, without its line break.
    pub(super) fn read(line: &'a [u8]) -> Result<Self, String> {
        if line.first() != Some(&b'{') {
            return Err("it is not a JSON object".into());
        }
        let line: Self = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        match line.salt.is_some() == line.body.is_some() {
            true => Ok(line),
            false => Err("it has a salt without a body, or a body without a salt".into()),
        }
    }

    /// The header, read.
    pub(super) fn header(&self) -> Result<Header, String> {
        Header::parse(self.header.as_bytes()).map_err(|error| error.to_string())
    }

    /// The header, of many: without an actor where that is the one before, which `actor` remembers.
    pub(super) fn header_of_many(&self, actor: &mut Vec<u8>) -> Result<Header, String> {
        Header::parse_plain(self.header.as_bytes(), actor).map_or_else(|| self.header(), Ok)
    }

    /// The record, of a generation that the caller has found out. Its hashes are not looked at. Its bytes are put
    /// together in `bytes`.
    pub(super) fn record(&self, header: &Header, generation: u64, bytes: &mut Vec<u8>) -> Result<Record, String> {
        bytes.clear();
        bytes.extend_from_slice(self.header.as_bytes());
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default().as_bytes());
        let (end, header_end) = (u32::try_from(bytes.len()), u32::try_from(self.header.len()));
        let (Ok(end), Ok(header_end)) = (end, header_end) else { return Err("it is too long".into()) };
        let body = match &self.salt {
            Some(salt) => Some((salt_of(salt).ok_or("its salt is not 32 lower-case hex digits")?, header_end..end)),
            None => None,
        };
        let parts = Parts {
            point: Point { session: header.session, seq: header.seq },
            generation,
            kind: Some(header.kind.clone()),
            bytes: Arc::from(&bytes[..]),
            header: 0..header_end,
            body,
        };
        Record::unchecked(parts).map_err(|fault| fault.to_string())
    }
}

fn salt_of(text: &str) -> Option<[u8; 16]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut salt = [0; 16];
    if text.len() != 32 {
        return None;
    }
    for (byte, pair) in salt.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(salt)
}
