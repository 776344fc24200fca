//! The header of a record: canonical JSON (RFC 8785) over a fixed set of fields.
//!
//! Headers are written by hand-ordered pushes, because an append must cost about a microsecond; a test compares
//! every header it can think of with `serde_jcs`. They are read with serde, which skips fields it does not know.

mod plain;

use std::io::Write as _;

use serde::Deserialize;
use smallvec::SmallVec;

use crate::actor::Actor;
use crate::clock::Time;
use crate::id::{Digest, RecordId, SessionId};
use crate::kind::Kind;

/// The envelope version this library writes.
pub const ENVELOPE: u64 = 1;

/// The records that one stands on: most stand on one, which needs no memory of its own.
pub type Parents = SmallVec<[RecordId; 1]>;

/// At most this many parents a record; a wider merge is several records.
pub const MAX_PARENTS: usize = 64;

/// A header, read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Header {
    /// Who made the record.
    pub actor: Actor,
    /// SHA-256 over salt and body.
    pub body_digest: Digest,
    /// By how many microseconds the clock was behind the parents' time, if it was.
    #[serde(default)]
    pub clock_behind: Option<u64>,
    /// What the record says.
    #[serde(deserialize_with = "kind_from_name")]
    pub kind: Kind,
    /// The records this one stands on; the first is the previous record of the line.
    pub parents: Parents,
    /// Place in the session, from 0.
    pub seq: u64,
    /// The session.
    pub session: SessionId,
    /// The `step_entered` record this one belongs to.
    #[serde(default)]
    pub step: Option<RecordId>,
    /// When, never before any parent.
    pub time: Time,
    /// Envelope version.
    pub v: u64,
}

/// What most headers say as the one before did, as it was written: it is read once.
#[derive(Clone, Debug, Default)]
pub struct Recurring {
    actor: Vec<u8>,
    session: Option<(plain::Uuid36, SessionId)>,
}

fn kind_from_name<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Kind, D::Error> {
    let name = std::borrow::Cow::<'de, str>::deserialize(from)?;
    Ok(Kind::named(&name))
}

impl Header {
    /// Reads header bytes. Unknown fields are passed over; an envelope from the future is refused.
    pub fn parse(bytes: &[u8]) -> Result<Header, Malformed> {
        if let Some(header) = Self::parse_plain(bytes, &mut Recurring::default()) {
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
        // Derived readers take arrays for structs; an envelope does not.
        if !fields.get("actor").is_some_and(serde_json::Value::is_object) {
            return Err(bad("the actor is not an object".into()));
        }
        serde_json::from_value(fields.into()).map_err(|e| bad(e.to_string()))
    }

    /// Reads a header that is canonical and has no field this version does not know, at a fifth of the cost of
    /// [`parse`](Self::parse); `None` says nothing about the bytes. Where the actor is that of the header before, this
    /// one's is empty.
    pub fn parse_plain(bytes: &[u8], recurring: &mut Recurring) -> Option<Header> {
        Self::begin_plain(bytes, recurring).filter(|(_, length)| *length == bytes.len()).map(|(header, _)| header)
    }

    /// The same of a header with which these bytes begin, and how many of them it is.
    pub fn begin_plain(bytes: &[u8], recurring: &mut Recurring) -> Option<(Header, usize)> {
        plain::read(bytes, recurring)
    }

    /// Whether these header bytes vouch for a body with this digest, where there is one, and the first parent that they name.
    pub(crate) fn ties(bytes: &[u8], body: Option<&Digest>) -> (bool, Option<RecordId>) {
        if let Some((digits, parent)) = plain::ties(bytes)
            && body.is_none_or(|body| body.hex().as_bytes() == digits)
        {
            return (true, parent);
        }
        // There are other ways to say it, and a header of which the rest cannot be read.
        let fits = body.is_none_or(|body| Self::body_digest_in(bytes).is_ok_and(|vouched| vouched == *body));
        (fits, Self::parse(bytes).ok().and_then(|header| header.parents.first().copied()))
    }

    /// The digest of the body that these header bytes vouch for.
    pub(crate) fn body_digest_in(bytes: &[u8]) -> Result<Digest, Malformed> {
        match plain::body_digest(bytes) {
            Some(digest) => Ok(digest),
            None => Ok(Self::parse(bytes)?.body_digest),
        }
    }

    /// The time that these header bytes name.
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

    /// Whether `bytes` are the canonical form of what they say, unknown fields included.
    pub fn is_canonical(&self, bytes: &[u8]) -> bool {
        let value: Result<serde_json::Value, _> = serde_json::from_slice(bytes);
        value.is_ok_and(|value| {
            only_safe_integers(&value) && serde_jcs::to_vec(&value).is_ok_and(|canonical| canonical == bytes)
        })
    }
}

/// Envelope rule: a number in a header is an integer that a double holds exactly.
fn only_safe_integers(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Number(number) => number.as_i64().is_some_and(|number| number.unsigned_abs() <= 1 << 53),
        serde_json::Value::Array(items) => items.iter().all(only_safe_integers),
        serde_json::Value::Object(fields) => fields.values().all(only_safe_integers),
        _ => true,
    }
}

/// Why header bytes cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not JSON, or fields missing or of the wrong type.
    #[error("the header cannot be read: {0}")]
    NotAHeader(String),
    /// Written by a later version.
    #[error("the record has envelope version {0}; this version of rath reads {ENVELOPE}: use a newer one")]
    Future(u64),
}

/// An actor's canonical JSON, rendered once and shared by the records it makes.
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

/// The fields of a header about to be written.
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

    /// Appends the canonical bytes to `out`, with room for the body's digest, and says where that goes.
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

/// A JSON string with the escapes of RFC 8785, which are those of `serde_json`.
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
