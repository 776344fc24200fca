//! A fast parser for headers as this version writes them. It accepts only canonical bytes without unknown fields, so
//! the form need not be checked again. A test compares it with the general parser.

use super::{ENVELOPE, Header, HeaderCache, Parents};
use uuid::Uuid;

use crate::actor::Actor;
use crate::clock::Time;
use crate::id::{Digest, RecordId, SessionId};
use crate::kind::Kind;

/// Parses a header at the start of `bytes`. Also returns its length.
pub(super) fn read(bytes: &[u8], recurring: &mut HeaderCache) -> Option<(Header, usize)> {
    let (actor_json, mut rest) = behind_actor(bytes)?;
    let actor: Actor = if actor_json == recurring.actor.as_slice() {
        // These bytes were parsed for the previous header. Callers do not need the actor again.
        Actor::new("", "")
    } else {
        let actor: Actor = serde_json::from_slice(actor_json).ok()?;
        if *super::ActorJson::new(&actor).0 != *actor_json {
            return None;
        }
        recurring.actor.clear();
        recurring.actor.extend_from_slice(actor_json);
        actor
    };
    let body_digest = rest.digest()?;
    rest.expect(b"\"")?;
    let clock_behind = match rest.expect(b",\"clock_behind\":") {
        Some(()) => Some(rest.number()?),
        None => None,
    };
    rest.expect(b",\"kind\":\"")?;
    let name = rest.take(memchr::memchr(b'"', rest.0)?)?;
    if name.bytes().any(|b| b < 0x20 || b == b'\\') {
        return None;
    }
    let kind = Kind::named(name);
    rest.expect(b"\",\"parents\":[")?;
    let mut parents = Parents::new();
    while rest.expect(b"]").is_none() {
        if !parents.is_empty() {
            rest.expect(b",")?;
        }
        rest.expect(b"\"")?;
        parents.push(RecordId(rest.digest()?));
        rest.expect(b"\"")?;
    }
    rest.expect(b",\"seq\":")?;
    let seq = rest.number()?;
    rest.expect(b",\"session\":\"")?;
    let session = rest.session(&mut recurring.session)?;
    rest.expect(b"\"")?;
    let step = match rest.expect(b",\"step\":\"") {
        Some(()) => {
            let step = RecordId(rest.digest()?);
            rest.expect(b"\"")?;
            Some(step)
        }
        None => None,
    };
    rest.expect(b",\"time\":")?;
    let time = Time(rest.number()?);
    rest.expect(b",\"v\":1}")?;
    let header = Header { actor, body_digest, clock_behind, kind, parents, seq, session, step, time, v: ENVELOPE };
    Some((header, bytes.len() - rest.0.len()))
}

/// Returns the JSON of the actor, and the bytes after `"body_digest":"`. The actor must be one flat object. Braces in a
/// name or in an unknown field make this return `None`, so that the general parser is used.
fn behind_actor(bytes: &[u8]) -> Option<(&[u8], Rest<'_>)> {
    let mut rest = Rest(bytes);
    rest.expect(b"{\"actor\":")?;
    let end = memchr::memchr(b'}', rest.0)?;
    let (actor, behind) = rest.0.split_at(end + 1);
    if memchr::memchr(b'{', actor.strip_prefix(b"{")?).is_some() {
        return None;
    }
    rest.0 = behind;
    rest.expect(b",\"body_digest\":\"")?;
    Some((actor, rest))
}

/// Reads only the body digest.
pub(super) fn body_digest(bytes: &[u8]) -> Option<Digest> {
    behind_actor(bytes)?.1.digest()
}

/// Reads the hex digits of the body digest, and the first parent if there is one.
pub(super) fn read_links(bytes: &[u8]) -> Option<(&[u8], Option<RecordId>)> {
    let (_, mut rest) = behind_actor(bytes)?;
    let (body, behind) = rest.0.split_at_checked(64)?;
    rest.0 = behind;
    rest.expect(b"\"")?;
    if rest.expect(b",\"clock_behind\":").is_some() {
        rest.number()?;
    }
    rest.expect(b",\"kind\":\"")?;
    rest.take(memchr::memchr(b'"', rest.0)?)?;
    rest.expect(b"\",\"parents\":[")?;
    if rest.expect(b"]").is_some() {
        return Some((body, None));
    }
    rest.expect(b"\"")?;
    Some((body, Some(RecordId(rest.digest()?))))
}

/// Reads only the time, the second to last field.
pub(super) fn time(bytes: &[u8]) -> Option<Time> {
    let rest = bytes.strip_suffix(b",\"v\":1}")?;
    let digits = rest.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let (before, number) = rest.split_at(rest.len() - digits);
    before.ends_with(b",\"time\":").then(|| Rest(number).number().map(Time))?
}

/// The text of a session id.
pub(super) type Uuid36 = [u8; 36];

/// The bytes that are not parsed yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn expect(&mut self, text: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    fn take(&mut self, len: usize) -> Option<&'a str> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        std::str::from_utf8(taken).ok()
    }

    /// Reads 64 hex digits.
    fn digest(&mut self) -> Option<Digest> {
        let (digits, rest) = self.0.split_at_checked(64)?;
        self.0 = rest;
        Digest::from_hex(digits)
    }

    /// Reads a session id. Most headers have the same one as the header before.
    fn session(&mut self, last: &mut Option<(Uuid36, SessionId)>) -> Option<SessionId> {
        let (text, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        if let Some((_, session)) = last.as_ref().filter(|(known, _)| known == text) {
            return Some(*session);
        }
        let id = Uuid::try_parse_ascii(text).ok()?;
        // `try_parse_ascii` also accepts other spellings, which are not canonical.
        let mut canonical = Uuid::encode_buffer();
        (id.hyphenated().encode_lower(&mut canonical).as_bytes() == text).then_some(())?;
        *last = Some((*text, SessionId(id)));
        Some(SessionId(id))
    }

    /// Reads an integer without sign and leading zeros that a double represents exactly.
    fn number(&mut self) -> Option<u64> {
        let (mut number, mut digits) = (0u64, 0);
        // 17 digits are enough to detect a number that is too large.
        while let Some(digit) = self.0.get(digits).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10)
            && digits < 17
        {
            number = number * 10 + u64::from(digit);
            digits += 1;
        }
        let (text, rest) = self.0.split_at(digits);
        self.0 = rest;
        let canonical = digits == 1 || (1..=16).contains(&digits) && text[0] != b'0';
        (canonical && number <= 1 << 53).then_some(number)
    }
}
