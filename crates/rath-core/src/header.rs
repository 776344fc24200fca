//! The header of a record: canonical JSON (RFC 8785) with a fixed set of fields.
//!
//! Headers are written by hand in canonical order, because an append must take about 1 µs. A property test compares the
//! result with `serde_jcs`. Headers are read with serde, which ignores unknown fields.

mod plain;

use std::io::Write as _;

use serde::Deserialize;
use smallvec::SmallVec;

use crate::actor::Actor;
use crate::clock::Time;
use crate::id::{Digest, RecordId, SessionId};
use crate::kind::Kind;

/// The envelope version that this library reads and writes.
pub const ENVELOPE: u64 = 1;

/// The parents of a record. Most records have one parent, which is stored inline.
pub type Parents = SmallVec<[RecordId; 1]>;

/// The maximum number of parents of a record. A merge of more branches consists of several records.
pub const MAX_PARENTS: usize = 64;

/// A parsed header.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Header {
    /// The author of the record.
    pub actor: Actor,
    /// The SHA-256 of salt and body.
    pub body_digest: Digest,
    /// By how many microseconds the clock was behind the time of the parents; `None` when it was not.
    #[serde(default)]
    pub clock_behind: Option<u64>,
    /// The kind, which determines the format of the body.
    #[serde(deserialize_with = "kind_from_name")]
    pub kind: Kind,
    /// The ids of the parents. The first parent is the previous record of the session, or the fork point.
    pub parents: Parents,
    /// The sequence number in the session, from 0.
    pub seq: u64,
    /// The session that contains the record.
    pub session: SessionId,
    /// The id of the `step_entered` record of the step that contains the record.
    #[serde(default)]
    pub step: Option<RecordId>,
    /// The time of the record. It is never earlier than that of a parent.
    pub time: Time,
    /// The envelope version.
    pub v: u64,
}

/// Header fields that usually repeat from one header to the next, with their bytes. They are parsed only when they
/// change.
#[derive(Clone, Debug, Default)]
pub struct HeaderCache {
    actor: Vec<u8>,
    session: Option<(plain::Uuid36, SessionId)>,
}

fn kind_from_name<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Kind, D::Error> {
    let name = std::borrow::Cow::<'de, str>::deserialize(from)?;
    Ok(Kind::named(&name))
}

impl Header {
    /// Parses header bytes. Unknown fields are ignored; a later envelope version is an error.
    pub fn parse(bytes: &[u8]) -> Result<Header, Malformed> {
        if let Some(header) = Self::parse_plain(bytes, &mut HeaderCache::default()) {
            return Ok(header);
        }
        let bad = |why: String| Malformed::NotAHeader(why);
        let fields: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(bytes).map_err(|e| bad(e.to_string()))?;
        match fields.get("v").and_then(serde_json::Value::as_u64) {
            Some(ENVELOPE) => {}
            Some(v) => return Err(Malformed::Future(v)),
            None => return Err(bad("no envelope version".into())),
        }
        // serde's derived deserializers also accept an array for a struct. The envelope does not allow that.
        if !fields.get("actor").is_some_and(serde_json::Value::is_object) {
            return Err(bad("the actor is not an object".into()));
        }
        serde_json::from_value(fields.into()).map_err(|e| bad(e.to_string()))
    }

    /// Parses a canonical header without unknown fields, in a fifth of the time of [`parse`](Self::parse). `None` does
    /// not mean that the header is invalid: use `parse` then. If the actor is the same as in the previous header, the
    /// returned actor is empty.
    pub fn parse_plain(bytes: &[u8], recurring: &mut HeaderCache) -> Option<Header> {
        Self::parse_plain_prefix(bytes, recurring)
            .filter(|(_, length)| *length == bytes.len())
            .map(|(header, _)| header)
    }

    /// Like [`parse_plain`](Self::parse_plain), for a header at the start of `bytes`. Also returns the length of the
    /// header.
    pub fn parse_plain_prefix(bytes: &[u8], recurring: &mut HeaderCache) -> Option<(Header, usize)> {
        plain::read(bytes, recurring)
    }

    /// Returns whether the header contains this body digest, and its first parent. Without a body the first value is
    /// true.
    pub(crate) fn read_links(bytes: &[u8], body: Option<&Digest>) -> (bool, Option<RecordId>) {
        if let Some((digits, parent)) = plain::read_links(bytes)
            && body.is_none_or(|body| body.hex().as_bytes() == digits)
        {
            return (true, parent);
        }
        // The header may be in another form, or its rest may be unreadable.
        let fits = body.is_none_or(|body| Self::body_digest_in(bytes).is_ok_and(|digest| digest == *body));
        (fits, Self::parse(bytes).ok().and_then(|header| header.parents.first().copied()))
    }

    /// The body digest in these header bytes.
    pub(crate) fn body_digest_in(bytes: &[u8]) -> Result<Digest, Malformed> {
        match plain::body_digest(bytes) {
            Some(digest) => Ok(digest),
            None => Ok(Self::parse(bytes)?.body_digest),
        }
    }

    /// The time in these header bytes.
    pub(crate) fn time_in(bytes: &[u8]) -> Result<Time, Malformed> {
        match plain::time(bytes) {
            Some(time) => Ok(time),
            None => Ok(Self::parse(bytes)?.time),
        }
    }

    /// The canonical bytes of this header.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        let actor = ActorJson::new(&self.actor);
        Draft {
            actor: &actor,
            clock_behind: self.clock_behind,
            kind: &self.kind,
            parents: &self.parents,
            seq: self.seq,
            session: self.session,
            step: self.step.as_ref(),
            time: self.time,
        }
        .write_whole(&self.body_digest, &mut out);
        out
    }

    /// Whether `bytes` are canonical JSON, including unknown fields.
    pub fn is_canonical(&self, bytes: &[u8]) -> bool {
        let value: Result<serde_json::Value, _> = serde_json::from_slice(bytes);
        value.is_ok_and(|value| {
            only_safe_integers(&value) && serde_jcs::to_vec(&value).is_ok_and(|canonical| canonical == bytes)
        })
    }
}

/// The envelope allows only integers that a double represents exactly.
fn only_safe_integers(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Number(number) => number.as_i64().is_some_and(|number| number.unsigned_abs() <= 1 << 53),
        serde_json::Value::Array(items) => items.iter().all(only_safe_integers),
        serde_json::Value::Object(fields) => fields.values().all(only_safe_integers),
        _ => true,
    }
}

/// Why header bytes cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The bytes are not JSON, or fields are missing or have the wrong type.
    #[error("the header cannot be read: {0}")]
    NotAHeader(String),
    /// The header was written by a later version of Rath.
    #[error("the record has envelope version {0}, but this version of rath reads {ENVELOPE}: use a newer version")]
    Future(u64),
}

/// The canonical JSON of an actor. It is rendered once and reused for all records of the actor.
#[derive(Clone, Debug)]
pub(crate) struct ActorJson(Box<[u8]>);

impl ActorJson {
    pub(crate) fn new(actor: &Actor) -> Self {
        let mut out = Vec::with_capacity(64);
        let mut open = b'{';
        let fields = [
            ("how_authenticated", actor.how_authenticated.as_deref()),
            ("kind", Some(actor.kind.as_str())),
            ("name", Some(actor.name.as_str())),
            ("principal", actor.principal.as_deref()),
        ];
        for (key, value) in fields {
            let Some(value) = value else { continue };
            out.push(open);
            open = b',';
            push_json_str(&mut out, key);
            out.push(b':');
            push_json_str(&mut out, value);
        }
        out.push(b'}');
        Self(out.into())
    }
}

/// The fields of a header that is about to be written.
pub(crate) struct Draft<'a> {
    pub(crate) actor: &'a ActorJson,
    pub(crate) clock_behind: Option<u64>,
    pub(crate) kind: &'a Kind,
    pub(crate) parents: &'a [RecordId],
    pub(crate) seq: u64,
    pub(crate) session: SessionId,
    pub(crate) step: Option<&'a RecordId>,
    pub(crate) time: Time,
}

impl Draft<'_> {
    fn write_whole(&self, body_digest: &Digest, out: &mut Vec<u8>) {
        let at = self.write(out);
        out[at..at + 64].copy_from_slice(body_digest.hex().as_bytes());
    }

    /// Appends the canonical bytes to `out`, with zeros in place of the body digest. Returns the offset of the digest.
    pub(crate) fn write(&self, out: &mut Vec<u8>) -> usize {
        let mut number = itoa::Buffer::new();
        out.extend_from_slice(b"{\"actor\":");
        out.extend_from_slice(&self.actor.0);
        out.extend_from_slice(b",\"body_digest\":\"");
        let digest_at = out.len();
        out.extend_from_slice(&[b'0'; 64]);
        out.push(b'"');
        if let Some(behind) = self.clock_behind {
            out.extend_from_slice(b",\"clock_behind\":");
            out.extend_from_slice(number.format(behind).as_bytes());
        }
        out.extend_from_slice(b",\"kind\":");
        push_json_str(out, self.kind.as_str());
        out.extend_from_slice(b",\"parents\":[");
        for (i, parent) in self.parents.iter().enumerate() {
            out.extend_from_slice(if i == 0 { b"\"" } else { b",\"" });
            out.extend_from_slice(parent.0.hex().as_bytes());
            out.push(b'"');
        }
        out.extend_from_slice(b"],\"seq\":");
        out.extend_from_slice(number.format(self.seq).as_bytes());
        out.extend_from_slice(b",\"session\":\"");
        out.extend_from_slice(self.session.0.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()).as_bytes());
        out.push(b'"');
        if let Some(step) = self.step {
            out.extend_from_slice(b",\"step\":\"");
            out.extend_from_slice(step.0.hex().as_bytes());
            out.push(b'"');
        }
        out.extend_from_slice(b",\"time\":");
        out.extend_from_slice(number.format(self.time.0).as_bytes());
        out.extend_from_slice(b",\"v\":1}");
        digest_at
    }
}

/// Appends a JSON string, escaped as RFC 8785 requires, which is also how `serde_json` escapes.
fn push_json_str(out: &mut Vec<u8>, text: &str) {
    if text.bytes().all(|b| b >= 0x20 && b != b'"' && b != b'\\') {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        return;
    }
    let quoted = serde_json::to_string(text).unwrap_or_default();
    let _ = out.write_all(quoted.as_bytes());
}
