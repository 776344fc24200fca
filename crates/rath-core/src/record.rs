//! One immutable fact, hash-linked to its parents.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::blob::Blob;
use crate::body::{Body, Forked};
use crate::clock::Time;
use crate::entropy::Salt;
use crate::hash;
use crate::header::{Draft, Header, Malformed};
use crate::id::{Digest, Point, RecordId, Reference, SessionId};
use crate::kind::Kind;

/// A record: a cheap handle on bytes that never change.
///
/// The header's bytes make the id; salt and body are vouched for by the header's `body_digest`. A body that was
/// erased is gone together with its salt, and the record still verifies.
#[derive(Clone)]
pub struct Record(Arc<Inner>);

struct Inner {
    id: RecordId,
    session: SessionId,
    seq: u64,
    generation: u64,
    kind: Kind,
    /// The first that the header names: who writes it or reads on looks at that, long after the bytes were.
    parent: Option<RecordId>,
    bytes: Bytes,
    header: Range<u32>,
    body: Option<(Salt, Range<u32>)>,
    /// Whether the body, if there is one, is the one the header vouches for.
    body_fits: bool,
    extras: Option<Box<Extras>>,
}

/// What a new record brings along until it is published.
#[derive(Default)]
pub(crate) struct Extras {
    /// Blobs its body names.
    pub(crate) blobs: Vec<Blob>,
    /// The session's folded state after it, where one is due.
    pub(crate) snapshot: Option<Vec<u8>>,
    /// The fork point, where an erased body cannot say it.
    pub(crate) origin: Option<Reference>,
}

/// The stored parts of a record, as a store hands them over.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Where it stands.
    pub point: Point,
    /// Its generation: one more than its parents' greatest.
    pub generation: u64,
    /// Its kind by code, where a store keeps it; else the header is read.
    pub kind: Option<Kind>,
    /// Bytes that hold header and body.
    pub bytes: Bytes,
    /// The header in them.
    pub header: Range<u32>,
    /// Salt, and the body in them; `None` when erased.
    pub body: Option<(Salt, Range<u32>)>,
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(2048));
}

impl Record {
    /// Seals a new record: hashes the body into the header and the header into the id.
    pub(crate) fn seal(draft: &Draft<'_>, generation: u64, body: &[u8]) -> Self {
        let salt = crate::entropy::salt();
        let (bytes, header_len, id) = SCRATCH.with_borrow_mut(|scratch| {
            // Salt and body stand together to be hashed; their digest then goes into the header before them.
            scratch.clear();
            let digest_at = draft.write(scratch);
            let header_len = scratch.len();
            scratch.extend_from_slice(&salt);
            scratch.extend_from_slice(body);
            let body_digest = Digest::of(&scratch[header_len..]);
            scratch[digest_at..digest_at + 64].copy_from_slice(body_digest.hex().as_bytes());
            let id = RecordId(Digest::of(&scratch[..header_len]));
            (Bytes::copy_from_slice(scratch), header_len, id)
        });
        let body = (salt, (header_len + salt.len()) as u32..bytes.len() as u32);
        Self(Arc::new(Inner {
            id,
            session: draft.session,
            seq: draft.seq,
            generation,
            kind: draft.kind.clone(),
            parent: draft.parents.first().copied(),
            bytes,
            header: 0..header_len as u32,
            body: Some(body),
            body_fits: true,
            extras: None,
        }))
    }

    /// Gives a record that nobody else has seen yet what it brings along.
    pub(crate) fn bring(&mut self, extras: Extras) {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.extras = Some(Box::new(extras));
        }
    }

    /// Tells a fork whose body is erased where its fork point is: its header has only the id.
    #[must_use]
    pub fn with_origin(mut self, origin: Reference) -> Self {
        self.bring(Extras { origin: Some(origin), ..Extras::default() });
        self
    }

    /// The same record, of another generation: for one that nobody else has seen yet.
    #[must_use]
    pub fn with_generation(mut self, generation: u64) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.generation = generation;
        }
        self
    }

    /// Takes stored parts as a record, after checking that the body is the one the header vouches for.
    pub fn from_parts(parts: Parts) -> Result<Self, Fault> {
        let record = Self::unchecked(parts)?;
        record.check_body()?;
        Ok(record)
    }

    /// Takes stored parts as they are: for a verifier, which looks closer.
    pub fn unchecked(parts: Parts) -> Result<Self, Fault> {
        Self::tied(parts, Header::ties)
    }

    /// The same of parts whose header was read: that it was read from these very bytes nobody checks.
    pub fn unchecked_with(header: &Header, parts: Parts) -> Result<Self, Fault> {
        let parts = Parts { kind: Some(header.kind.clone()), ..parts };
        Self::tied(parts, |_, body| {
            (body.is_none_or(|body| *body == header.body_digest), header.parents.first().copied())
        })
    }

    /// `ties` says whether a header vouches for a body with this digest, and its first parent.
    fn tied(
        parts: Parts,
        ties: impl FnOnce(&[u8], Option<&Digest>) -> (bool, Option<RecordId>),
    ) -> Result<Self, Fault> {
        let inside = |range: &Range<u32>| parts.bytes.get(range.start as usize..range.end as usize);
        let outside = || Fault::Header(Malformed::NotAHeader("it lies outside its bytes".into()));
        let header = inside(&parts.header).ok_or_else(outside)?;
        let (id, body_digest) = match &parts.body {
            None => (Digest::of(header), None),
            Some((salt, body)) => {
                let body = inside(body).ok_or_else(outside)?;
                let (id, body_digest) = hash::of_record(header, salt, body);
                (id, Some(body_digest))
            }
        };
        let (body_fits, parent) = ties(header, body_digest.as_ref());
        let kind = match parts.kind {
            Some(kind) => kind,
            None => Header::parse(header)?.kind,
        };
        Ok(Self(Arc::new(Inner {
            id: RecordId(id),
            session: parts.point.session,
            seq: parts.point.seq,
            generation: parts.generation,
            kind,
            parent,
            bytes: parts.bytes,
            header: parts.header,
            body: parts.body,
            body_fits,
            extras: None,
        })))
    }

    /// Whether the body is the one the header vouches for. An erased body passes.
    pub fn check_body(&self) -> Result<(), Fault> {
        if self.0.body_fits {
            return Ok(());
        }
        // A header that cannot be read vouches for nothing.
        Header::body_digest_in(self.header_bytes())?;
        Err(Fault::Body)
    }

    /// The id.
    pub fn id(&self) -> RecordId {
        self.0.id
    }

    /// The session it belongs to.
    pub fn session(&self) -> SessionId {
        self.0.session
    }

    /// Its place in the session.
    pub fn seq(&self) -> u64 {
        self.0.seq
    }

    /// Session and seq.
    pub fn point(&self) -> Point {
        Point { session: self.0.session, seq: self.0.seq }
    }

    /// Place and id.
    pub fn reference(&self) -> Reference {
        Reference { session: self.0.session, seq: self.0.seq, id: self.0.id }
    }

    /// One more than the greatest generation of its parents; 0 for a root.
    pub fn generation(&self) -> u64 {
        self.0.generation
    }

    /// What it says.
    pub fn kind(&self) -> &Kind {
        &self.0.kind
    }

    /// The header's bytes, as they are hashed.
    pub fn header_bytes(&self) -> &[u8] {
        &self.0.bytes[self.0.header.start as usize..self.0.header.end as usize]
    }

    /// The header, read.
    pub fn header(&self) -> Result<Header, Malformed> {
        Header::parse(self.header_bytes())
    }

    /// When it was made.
    pub fn time(&self) -> Result<Time, Malformed> {
        Header::time_in(self.header_bytes())
    }

    /// The id of the previous record of the line (or of the fork point), without reading the header.
    pub fn first_parent(&self) -> Option<RecordId> {
        self.0.parent
    }

    /// Where the session was forked off, if this is the first record of a fork.
    pub fn origin(&self) -> Result<Option<Reference>, Fault> {
        if self.0.kind != Kind::Forked {
            return Ok(None);
        }
        if let Some(origin) = self.0.extras.as_ref().and_then(|extras| extras.origin) {
            return Ok(Some(origin));
        }
        let Point { session, seq } = self.body::<Forked>()?.from;
        let missing = || Fault::Header(Malformed::NotAHeader("a fork has a parent".into()));
        Ok(Some(Reference { session, seq, id: self.first_parent().ok_or_else(missing)? }))
    }

    /// The body's bytes, as first written; `None` when erased.
    pub fn body_bytes(&self) -> Option<&[u8]> {
        self.salted_body().map(|(_, body)| body)
    }

    /// Salt and body; `None` when erased.
    pub fn salted_body(&self) -> Option<(&Salt, &[u8])> {
        let (salt, range) = self.0.body.as_ref()?;
        Some((salt, &self.0.bytes[range.start as usize..range.end as usize]))
    }

    /// The body as `B`. Fails when it is of another kind, erased or cannot be read.
    pub fn body<B: Body>(&self) -> Result<B, Fault> {
        if self.0.kind != B::KIND {
            return Err(Fault::Kind { is: self.0.kind.clone(), wanted: B::KIND });
        }
        let bytes = self.body_bytes().ok_or(Fault::Erased)?;
        serde_json::from_slice(bytes).map_err(|e| Fault::Unreadable(e.to_string()))
    }

    /// Blobs it brings along, while it is not published.
    pub fn blobs(&self) -> &[Blob] {
        self.0.extras.as_ref().map_or(&[], |extras| &extras.blobs)
    }

    /// The session's folded state after it, where one is due.
    pub fn snapshot(&self) -> Option<&[u8]> {
        self.0.extras.as_ref()?.snapshot.as_deref()
    }

    /// Bytes of header, salt and body.
    pub fn size(&self) -> usize {
        self.header_bytes().len() + self.salted_body().map_or(0, |(salt, body)| salt.len() + body.len())
    }

    /// The same record without salt and body, as it is after an erasure.
    pub fn erased(&self) -> Self {
        let header = Bytes::copy_from_slice(self.header_bytes());
        let len = header.len() as u32;
        Self(Arc::new(Inner {
            id: self.0.id,
            session: self.0.session,
            seq: self.0.seq,
            generation: self.0.generation,
            kind: self.0.kind.clone(),
            parent: self.0.parent,
            bytes: header,
            header: 0..len,
            body: None,
            body_fits: true,
            extras: None,
        }))
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?}", self.point(), self.kind(), self.id())
    }
}

/// Why a record's bytes cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The header cannot be read.
    #[error(transparent)]
    Header(#[from] Malformed),
    /// Salt and body do not hash to what the header says.
    #[error("the body is not the one its header vouches for")]
    Body,
    /// The bytes hash to another id than the one that its successor, or the session's head, names.
    #[error("its bytes do not hash to the id that the record after it, or the head, stands on")]
    Chain,
    /// The body was erased.
    #[error("the body was erased")]
    Erased,
    /// The code beside the record says another kind than its header.
    #[error("its code in the segment is {code}, its kind {kind}")]
    Code {
        /// The code.
        code: u8,
        /// The kind in the header.
        kind: Kind,
    },
    /// Read as another kind than it is.
    #[error("the record is of kind {is}, not {wanted}")]
    Kind {
        /// Its kind.
        is: Kind,
        /// The kind asked for.
        wanted: Kind,
    },
    /// The body is not what its kind says.
    #[error("the body cannot be read: {0}")]
    Unreadable(String),
}
