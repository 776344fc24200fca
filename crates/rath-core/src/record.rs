//! Records: immutable, and linked to their parents by hash.

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

/// A record. It is a reference-counted handle on immutable bytes, so cloning is cheap.
///
/// The id is the hash of the header bytes. The header's `body_digest` is the hash of salt and body. An erasure destroys
/// body and salt together; the record still verifies after that.
#[derive(Clone)]
pub struct Record(Arc<Inner>);

struct Inner {
    id: RecordId,
    session: SessionId,
    seq: u64,
    generation: u64,
    kind: Kind,
    /// The first parent. It is kept here so that the header need not be parsed again.
    parent: Option<RecordId>,
    bytes: Bytes,
    header: Range<u32>,
    body: Option<(Salt, Range<u32>)>,
    /// Whether the body, if there is one, matches the header's `body_digest`.
    body_fits: bool,
    extras: Option<Box<PendingData>>,
}

/// Data of a new record that is needed until it is published.
#[derive(Default)]
pub(crate) struct PendingData {
    /// The blobs that its body names.
    pub(crate) blobs: Vec<Blob>,
    /// The session's folded state after the record, if a snapshot is due.
    pub(crate) snapshot: Option<Vec<u8>>,
    /// The fork point of a fork whose body is erased.
    pub(crate) origin: Option<Reference>,
}

/// The stored parts of a record, as a store reads them.
#[derive(Clone, Debug)]
pub struct RecordParts {
    /// The session and sequence number.
    pub point: Point,
    /// The generation: one more than the greatest of its parents, 0 without parents.
    pub generation: u64,
    /// The kind, if the store keeps its code. Otherwise the header is parsed.
    pub kind: Option<Kind>,
    /// The bytes that contain header and body.
    pub bytes: Bytes,
    /// The range of the header in `bytes`.
    pub header: Range<u32>,
    /// The salt, and the range of the body in `bytes`; `None` when the body is erased.
    pub body: Option<(Salt, Range<u32>)>,
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(2048));
}

impl Record {
    /// Creates a record: hashes salt and body into the header, and the header into the id.
    pub(crate) fn seal(draft: &Draft<'_>, generation: u64, body: &[u8]) -> Self {
        let salt = crate::entropy::salt();
        let (bytes, header_len, id) = SCRATCH.with_borrow_mut(|scratch| {
            // Salt and body are adjacent so that they are hashed in one call. Their digest is then written into the
            // header, which comes first.
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

    /// Attaches data to a new record. Has no effect once the record was cloned.
    pub(crate) fn attach(&mut self, extras: PendingData) {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.extras = Some(Box::new(extras));
        }
    }

    /// Sets the fork point of a fork whose body is erased, because its header contains only the id. Has no effect once
    /// the record was cloned.
    #[must_use]
    pub fn with_origin(mut self, origin: Reference) -> Self {
        self.attach(PendingData { origin: Some(origin), ..PendingData::default() });
        self
    }

    /// Sets the generation. Has no effect once the record was cloned.
    #[must_use]
    pub fn with_generation(mut self, generation: u64) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.generation = generation;
        }
        self
    }

    /// Builds a record from stored parts. Fails when the body does not match the header's `body_digest`.
    pub fn from_parts(parts: RecordParts) -> Result<Self, RecordError> {
        let record = Self::unchecked(parts)?;
        record.check_body()?;
        Ok(record)
    }

    /// Builds a record from stored parts without checking the body. For a verifier, which does its own checks.
    pub fn unchecked(parts: RecordParts) -> Result<Self, RecordError> {
        Self::build(parts, Header::read_links)
    }

    /// Like [`unchecked`](Self::unchecked), with a header that was already parsed. The caller must ensure that it was
    /// parsed from these bytes.
    pub fn unchecked_with_header(header: &Header, parts: RecordParts) -> Result<Self, RecordError> {
        let parts = RecordParts { kind: Some(header.kind.clone()), ..parts };
        Self::build(parts, |_, body| {
            (body.is_none_or(|body| *body == header.body_digest), header.parents.first().copied())
        })
    }

    /// Builds a record. `read_links` returns whether a header contains the given body digest, and its first parent.
    fn build(
        parts: RecordParts,
        read_links: impl FnOnce(&[u8], Option<&Digest>) -> (bool, Option<RecordId>),
    ) -> Result<Self, RecordError> {
        let inside = |range: &Range<u32>| parts.bytes.get(range.start as usize..range.end as usize);
        let outside = || RecordError::Header(Malformed::NotAHeader("its range exceeds the stored bytes".into()));
        let header = inside(&parts.header).ok_or_else(outside)?;
        let (id, body_digest) = match &parts.body {
            None => (Digest::of(header), None),
            Some((salt, body)) => {
                let body = inside(body).ok_or_else(outside)?;
                let (id, body_digest) = hash::of_record(header, salt, body);
                (id, Some(body_digest))
            }
        };
        let (body_fits, parent) = read_links(header, body_digest.as_ref());
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

    /// Fails when the body does not match the header's `body_digest`. An erased body passes.
    pub fn check_body(&self) -> Result<(), RecordError> {
        if self.0.body_fits {
            return Ok(());
        }
        // An unreadable header is the more specific error.
        Header::body_digest_in(self.header_bytes())?;
        Err(RecordError::Body)
    }

    /// The id.
    pub fn id(&self) -> RecordId {
        self.0.id
    }

    /// The session that contains the record.
    pub fn session(&self) -> SessionId {
        self.0.session
    }

    /// The sequence number in the session, from 0.
    pub fn seq(&self) -> u64 {
        self.0.seq
    }

    /// The session and sequence number.
    pub fn point(&self) -> Point {
        Point { session: self.0.session, seq: self.0.seq }
    }

    /// The session, sequence number and id.
    pub fn reference(&self) -> Reference {
        Reference { session: self.0.session, seq: self.0.seq, id: self.0.id }
    }

    /// One more than the greatest generation of its parents; 0 for a root.
    pub fn generation(&self) -> u64 {
        self.0.generation
    }

    /// The kind.
    pub fn kind(&self) -> &Kind {
        &self.0.kind
    }

    /// The header bytes. Their hash is the id.
    pub fn header_bytes(&self) -> &[u8] {
        &self.0.bytes[self.0.header.start as usize..self.0.header.end as usize]
    }

    /// Parses the header.
    pub fn header(&self) -> Result<Header, Malformed> {
        Header::parse(self.header_bytes())
    }

    /// The time of the record.
    pub fn time(&self) -> Result<Time, Malformed> {
        Header::time_in(self.header_bytes())
    }

    /// The id of the previous record of the session, or of the fork point; `None` for a root. Does not parse the
    /// header.
    pub fn first_parent(&self) -> Option<RecordId> {
        self.0.parent
    }

    /// The fork point, if this is the first record of a fork.
    pub fn origin(&self) -> Result<Option<Reference>, RecordError> {
        if self.0.kind != Kind::Forked {
            return Ok(None);
        }
        if let Some(origin) = self.0.extras.as_ref().and_then(|extras| extras.origin) {
            return Ok(Some(origin));
        }
        let Point { session, seq } = self.body::<Forked>()?.from;
        let missing = || RecordError::Header(Malformed::NotAHeader("the header of a fork names no parent".into()));
        Ok(Some(Reference { session, seq, id: self.first_parent().ok_or_else(missing)? }))
    }

    /// The body bytes; `None` when erased.
    pub fn body_bytes(&self) -> Option<&[u8]> {
        self.salted_body().map(|(_, body)| body)
    }

    /// The salt and the body bytes; `None` when erased.
    pub fn salted_body(&self) -> Option<(&Salt, &[u8])> {
        let (salt, range) = self.0.body.as_ref()?;
        Some((salt, &self.0.bytes[range.start as usize..range.end as usize]))
    }

    /// Parses the body as `B`. Fails when the record is of another kind, or the body is erased or unreadable.
    pub fn body<B: Body>(&self) -> Result<B, RecordError> {
        if self.0.kind != B::KIND {
            return Err(RecordError::Kind { is: self.0.kind.clone(), wanted: B::KIND });
        }
        let bytes = self.body_bytes().ok_or(RecordError::Erased)?;
        serde_json::from_slice(bytes).map_err(|e| RecordError::Unreadable(e.to_string()))
    }

    /// The blobs that its body names; empty once the record is published.
    pub fn blobs(&self) -> &[Blob] {
        self.0.extras.as_ref().map_or(&[], |extras| &extras.blobs)
    }

    /// The session's folded state after the record, if a snapshot is due.
    pub fn snapshot(&self) -> Option<&[u8]> {
        self.0.extras.as_ref()?.snapshot.as_deref()
    }

    /// The size of header, salt and body in bytes.
    pub fn size(&self) -> usize {
        self.header_bytes().len() + self.salted_body().map_or(0, |(salt, body)| salt.len() + body.len())
    }

    /// Returns the record without salt and body, as it is after an erasure.
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

/// Why a record is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The header is unreadable.
    #[error(transparent)]
    Header(#[from] Malformed),
    /// Salt and body do not hash to the header's `body_digest`.
    #[error("the body does not match the digest in its header")]
    Body,
    /// The header does not hash to the id that the next record, or the session's head, contains.
    #[error("its header does not hash to the id that the next record or the head contains")]
    Chain,
    /// The body was erased.
    #[error("the body was erased")]
    Erased,
    /// The stored code of the kind does not match the kind in the header.
    #[error("its code in the segment is {code}, but its kind is {kind}")]
    Code {
        /// The stored code.
        code: u8,
        /// The kind in the header.
        kind: Kind,
    },
    /// The body was requested as another kind.
    #[error("the record is of kind {is}, not {wanted}")]
    Kind {
        /// The record's kind.
        is: Kind,
        /// The requested kind.
        wanted: Kind,
    },
    /// The body is not valid for its kind.
    #[error("the body cannot be read: {0}")]
    Unreadable(String),
}
