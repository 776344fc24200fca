//! Verifies records against each other: hashes, links, order and time. Independent of how they are stored.
//!
//! A [`ChainVerifier`] gets the records of one session in stored order and reports records that were altered. Parents
//! in other sessions (fork points, merged heads) are returned as [`ParentLink`]s, for the caller to look up.

use std::fmt;

use serde::Serialize;

use crate::blob;
use crate::body::{Created, ErasedRange};
use crate::clock::Time;
use crate::header::{Header, HeaderCache, MAX_PARENTS, Malformed};
use crate::id::{Point, RecordId, SessionId};
use crate::kind::Kind;
use crate::record::{Record, RecordError};
use crate::session::OPERATOR;
use crate::state::Refold;

/// A problem found by a verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The kind of problem.
    pub what: FindingKind,
    /// The session with the problem.
    pub session: Option<SessionId>,
    /// The sequence number of the record with the problem.
    pub seq: Option<u64>,
    /// A description of the problem.
    pub why: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.session, self.seq) {
            (Some(session), Some(seq)) => write!(f, "{}: ", Point { session, seq })?,
            (Some(session), None) => write!(f, "{}: ", session.short())?,
            _ => {}
        }
        f.write_str(&self.why)
    }
}

/// The kinds of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// The body does not match the digest in its header.
    AlteredBody,
    /// The header does not match the id in the next record or in the head.
    AlteredRecord,
    /// A record of another session is stored here.
    Foreign,
    /// A record is missing.
    Dropped,
    /// Another record of this session is stored here.
    Reordered,
    /// Two records have the same sequence number.
    Duplicate,
    /// A parent is not in the store.
    BrokenParent,
    /// The header violates a rule of the envelope.
    Malformed,
    /// A body is missing, and there is no record of an erasure or omission.
    BodyMissing,
    /// A blob that a body refers to is missing.
    BlobMissing,
    /// The bytes of a blob do not match its digest.
    BlobAltered,
    /// An index column does not match the record.
    Index,
    /// The database or a file is unreadable.
    Unreadable,
    /// The end of a session or of the store is missing, although a checkpoint covers it.
    CutOff,
    /// A record differs from the one that a checkpoint or another copy has at the same point.
    Rewritten,
    /// A session that a checkpoint covers is missing.
    Gone,
    /// A checkpoint does not follow the previous one, or its key is not trusted.
    Checkpoint,
    /// Two signed checkpoints have the same number.
    Equivocation,
}

/// A parent in another session, which the caller must look up.
#[derive(Clone, Debug)]
pub struct ParentLink {
    /// The record with this parent.
    pub child: Point,
    /// The time of the child. The parent must not be later.
    pub child_time: Time,
    /// The generation of the child. That of the parent must be smaller.
    pub child_generation: u64,
    /// The id of the parent.
    pub parent: RecordId,
}

/// Verifies the records of one session, one after another.
pub struct ChainVerifier {
    session: SessionId,
    /// The sequence number that the next record must have.
    next: u64,
    last: Option<LastRecord>,
    /// Two consecutive records that are not linked. The following record shows which of the two was altered.
    broken_link: Option<(u64, u64)>,
    /// The folded state, as long as every record so far is readable or has no body.
    pub state: Option<Refold>,
    header_cache: HeaderCache,
    /// Whether this is the store's operator session, which may continue after a `closed` record.
    is_operator: bool,
}

/// The last verified record.
#[derive(Clone, Debug)]
pub struct LastRecord {
    /// The id.
    pub id: RecordId,
    /// The sequence number.
    pub seq: u64,
    /// The time.
    pub time: Time,
    /// The generation.
    pub generation: u64,
    /// The kind.
    pub kind: Kind,
}

impl ChainVerifier {
    /// A verifier for `session`, before its first record.
    pub fn new(session: SessionId) -> Self {
        Self {
            session,
            next: 0,
            last: None,
            broken_link: None,
            state: Some(Refold::default()),
            header_cache: HeaderCache::default(),
            is_operator: false,
        }
    }

    /// The last verified record.
    pub fn last(&self) -> Option<&LastRecord> {
        self.last.as_ref()
    }

    fn finding(&self, what: FindingKind, seq: u64, why: impl Into<String>) -> Finding {
        Finding { what, session: Some(self.session), seq: Some(seq), why: why.into() }
    }

    /// Verifies the next stored record. `record.seq()` is the sequence number that it is stored under.
    pub fn check(&mut self, record: &Record, findings: &mut Vec<Finding>, links: &mut Vec<ParentLink>) {
        let header = self.read_header(record);
        self.check_read(record, header.as_ref(), is_json_object(record), findings, links);
    }

    /// Like [`check`](Self::check), with a header already parsed by [`Header::parse_plain`] and a body already checked
    /// by [`is_json_object`]. The caller must ensure that both belong to this record.
    pub fn check_plain(
        &mut self,
        record: &Record,
        header: &Header,
        is_json_object: bool,
        findings: &mut Vec<Finding>,
        links: &mut Vec<ParentLink>,
    ) {
        self.check_read(record, Ok(header), is_json_object, findings, links);
    }

    fn check_read(
        &mut self,
        record: &Record,
        header: Result<&Header, &(FindingKind, String)>,
        is_json_object: bool,
        findings: &mut Vec<Finding>,
        links: &mut Vec<ParentLink>,
    ) {
        let seq = record.seq();
        match seq {
            _ if seq < self.next => {
                let why = "two records have this sequence number";
                findings.push(self.finding(FindingKind::Duplicate, seq, why));
                return;
            }
            _ if seq > self.next => {
                let missing = match seq - self.next {
                    1 => format!("record {} is missing", self.next),
                    _ => format!("records {} to {} are missing", self.next, seq - 1),
                };
                findings.push(self.finding(FindingKind::Dropped, self.next, missing));
                self.last = None;
                self.state = None;
            }
            _ => {}
        }
        self.next = seq + 1;
        let header = match header.map_err(Clone::clone).and_then(|header| self.belongs_here(record, header)) {
            Ok(header) => header,
            Err((what, why)) => {
                findings.push(self.finding(what, seq, why));
                self.last = None;
                self.state = None;
                return;
            }
        };
        if seq == 0 && header.kind == Kind::Created {
            let created = record.body::<Created>();
            self.is_operator = created.is_ok_and(|created| created.run.as_deref() == Some(OPERATOR));
        }
        if let Err((what, why)) = self.check_rules(record, header, is_json_object) {
            findings.push(self.finding(what, seq, why));
        }
        self.check_link(record, header, findings);
        let elsewhere = if seq == 0 { &header.parents[..] } else { header.parents.get(1..).unwrap_or_default() };
        links.extend(elsewhere.iter().map(|parent| ParentLink {
            child: record.point(),
            child_time: header.time,
            child_generation: record.generation(),
            parent: *parent,
        }));
        if self.state.as_mut().is_some_and(|state| state.apply(record).is_err()) {
            self.state = None;
        }
        let (id, generation, kind) = (record.id(), record.generation(), header.kind.clone());
        self.last = Some(LastRecord { id, seq, time: header.time, generation, kind });
    }

    fn read_header(&mut self, record: &Record) -> Result<Header, (FindingKind, String)> {
        let bytes = record.header_bytes();
        if let Some(header) = Header::parse_plain(bytes, &mut self.header_cache) {
            return Ok(header);
        }
        let header = Header::parse(bytes).map_err(|why| match why {
            Malformed::Future(_) => (FindingKind::Unreadable, why.to_string()),
            Malformed::NotAHeader(_) => (FindingKind::Malformed, why.to_string()),
        })?;
        match header.is_canonical(bytes) {
            true => Ok(header),
            false => Err((FindingKind::Malformed, "the header is not in canonical form".into())),
        }
    }

    /// Checks that the header has this session and this sequence number.
    fn belongs_here<'h>(&self, record: &Record, header: &'h Header) -> Result<&'h Header, (FindingKind, String)> {
        if header.session != self.session {
            let why = format!("a record of session {} is stored here", header.session.short());
            return Err((FindingKind::Foreign, why));
        }
        if header.seq != record.seq() {
            return Err((FindingKind::Reordered, format!("record {} is stored here", header.seq)));
        }
        Ok(header)
    }

    fn check_rules(&self, record: &Record, header: &Header, is_json_object: bool) -> Result<(), (FindingKind, String)> {
        let rule = |why: &str| Err((FindingKind::Malformed, why.to_owned()));
        if header.kind != *record.kind() {
            return Err((FindingKind::Index, format!("the index says {}, the header {}", record.kind(), header.kind)));
        }
        if record.check_body().is_err() {
            return Err((FindingKind::AlteredBody, RecordError::Body.to_string()));
        }
        if !is_json_object {
            return rule("the body is not a valid JSON object");
        }
        if header.kind.starts_session() != (header.seq == 0) {
            return rule(
                "created, forked, detached and imported are only allowed as the first record, which must be one of them",
            );
        }
        let parents = header.parents.len();
        let allowed = match header.kind {
            Kind::Created | Kind::Detached | Kind::Imported => parents == 0,
            Kind::Merged => (2..=MAX_PARENTS).contains(&parents),
            _ => parents == 1,
        };
        if !allowed {
            return rule("the number of parents is not valid for the kind");
        }
        // These rules are about a record and its predecessor. A record that is not linked to its predecessor is
        // reported for that.
        if let Some(last) = self.last.as_ref().filter(|last| header.parents.first() == Some(&last.id)) {
            if last.kind == Kind::Closed && !self.is_operator {
                return rule("the session was closed before this record");
            }
            if header.time < last.time {
                return rule("its time is before that of its parent");
            }
            if parents == 1 && record.generation() != last.generation + 1 {
                let why = format!("the index says generation {}, it is {}", record.generation(), last.generation + 1);
                return Err((FindingKind::Index, why));
            }
        }
        Ok(())
    }

    /// Checks that the record is linked to its predecessor. If it is not, the next record shows which of the two was
    /// altered.
    fn check_link(&mut self, record: &Record, header: &Header, findings: &mut Vec<Finding>) {
        if let Some((before, after)) = self.broken_link.take() {
            let linked = self.last.as_ref().is_some_and(|last| header.parents.first() == Some(&last.id));
            findings.push(self.altered(if linked { before } else { after }));
            if !linked {
                return;
            }
        }
        if let (Some(last), true) = (&self.last, record.seq() > 0)
            && header.parents.first() != Some(&last.id)
        {
            self.broken_link = Some((last.seq, record.seq()));
        }
    }

    fn altered(&self, seq: u64) -> Finding {
        self.finding(FindingKind::AlteredRecord, seq, RecordError::Chain.to_string())
    }

    /// Finishes the session: its last record must be the head in the index.
    pub fn finish(&mut self, head: RecordId, seq: u64, findings: &mut Vec<Finding>) {
        let last = self.last.clone();
        let fits = last.as_ref().is_some_and(|last| last.id == head);
        if let Some((before, after)) = self.broken_link.take() {
            findings.push(self.altered(if fits { before } else { after }));
            return;
        }
        if self.next <= seq {
            let why = match self.next {
                next if next == seq => format!("record {seq} is missing"),
                next => format!("records {next} to {seq} are missing"),
            };
            findings.push(self.finding(FindingKind::Dropped, self.next, why));
        } else if self.next > seq + 1 {
            let why = format!("the session has {} records, the index says {}", self.next, seq + 1);
            findings.push(self.finding(FindingKind::Index, seq + 1, why));
        } else if let Some(last) = last
            && !fits
        {
            findings.push(self.altered(last.seq));
        }
    }
}

/// Whether the body is a valid JSON object, or erased. This is the most expensive check that needs only this record.
pub fn is_json_object(record: &Record) -> bool {
    record.body_bytes().is_none_or(blob::is_object)
}

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// The number of verified sessions.
    pub sessions: u64,
    /// The number of verified records.
    pub records: u64,
    /// The number of records without a body.
    pub erased: u64,
    /// The records without a body.
    #[serde(skip)]
    pub without_body: Vec<ErasedRange>,
    /// The number of verified blobs.
    pub blobs: u64,
    /// The number of hashed bytes.
    pub bytes: u64,
    /// The problems, in the order in which they were found.
    pub findings: Vec<Finding>,
}

impl VerifyReport {
    /// Whether no problems were found.
    pub fn is_valid(&self) -> bool {
        self.findings.is_empty()
    }
}
