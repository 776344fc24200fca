//! Checks records against each other: hashes, links, order, time. Knows nothing of how they are stored.
//!
//! A [`Chain`] takes the records of one session in stored order and reports the first that cannot be what was
//! written. What leaves the line (fork points, merged heads) comes out as [`Link`]s for whoever can look them up.

use std::fmt;

use serde::Serialize;

use crate::blob;
use crate::body::{Created, Stripped};
use crate::clock::Time;
use crate::header::{Header, MAX_PARENTS, Malformed, Recurring};
use crate::id::{Point, RecordId, SessionId};
use crate::kind::Kind;
use crate::record::{Fault, Record};
use crate::session::OPERATOR;
use crate::state::Refold;

/// Something that cannot be what was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What is wrong.
    pub what: What,
    /// The session concerned.
    pub session: Option<SessionId>,
    /// The record's place in it.
    pub seq: Option<u64>,
    /// In words.
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

/// Kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The body is not the one the header vouches for.
    AlteredBody,
    /// The header is not the one its successor, or the head, stands on.
    AlteredRecord,
    /// A record of another session stands here.
    Foreign,
    /// A record is missing.
    Dropped,
    /// Another record of this session stands here.
    Reordered,
    /// Two records claim one place.
    Duplicate,
    /// A parent is not in the store.
    BrokenParent,
    /// The header breaks a rule of the envelope.
    Malformed,
    /// A body is not there, and nothing says that it was erased or left out.
    BodyMissing,
    /// A blob that a body names is not there.
    BlobMissing,
    /// A blob's bytes are not what its name says.
    BlobAltered,
    /// An index column says something else than the record.
    Index,
    /// The database or a file cannot be read.
    Unreadable,
    /// The end of a session, or of the store, that a checkpoint vouches for is not there.
    CutOff,
    /// Another record stands where a checkpoint, or another copy, has one.
    Rewritten,
    /// A session that a checkpoint vouches for is not there.
    Gone,
    /// A checkpoint does not follow the one before it, or nobody vouches for its key.
    Checkpoint,
    /// Two checkpoints, both signed, claim one place.
    Equivocation,
}

/// A parent on another line, still to be looked up.
#[derive(Clone, Debug)]
pub struct Link {
    /// The record that names it.
    pub child: Point,
    /// The child's time: no parent is later.
    pub child_time: Time,
    /// The child's generation: every parent's is less.
    pub child_generation: u64,
    /// The parent.
    pub parent: RecordId,
}

/// The records of one session, checked one after another.
pub struct Chain {
    session: SessionId,
    /// The place that the next record must have.
    next: u64,
    last: Option<Last>,
    /// Two neighbours that do not fit: which is the bad one shows with the next.
    misfit: Option<(u64, u64)>,
    /// What the records fold into, while every one so far could be read or has no body.
    pub state: Option<Refold>,
    recurring: Recurring,
    /// Whether the store's own account is kept here: it goes on behind `closed`.
    is_operator: bool,
}

/// The last record that was checked.
#[derive(Clone, Debug)]
pub struct Last {
    /// Its id.
    pub id: RecordId,
    /// Its seq.
    pub seq: u64,
    /// Its time.
    pub time: Time,
    /// Its generation.
    pub generation: u64,
    /// Its kind.
    pub kind: Kind,
}

impl Chain {
    /// A line before its first record.
    pub fn new(session: SessionId) -> Self {
        Self {
            session,
            next: 0,
            last: None,
            misfit: None,
            state: Some(Refold::default()),
            recurring: Recurring::default(),
            is_operator: false,
        }
    }

    /// The last record.
    pub fn last(&self) -> Option<&Last> {
        self.last.as_ref()
    }

    fn finding(&self, what: What, seq: u64, why: impl Into<String>) -> Finding {
        Finding { what, session: Some(self.session), seq: Some(seq), why: why.into() }
    }

    /// Checks the record stored at the next place. `record.seq()` is the place where it was found.
    pub fn check(&mut self, record: &Record, findings: &mut Vec<Finding>, links: &mut Vec<Link>) {
        let header = self.read_header(record);
        self.check_read(record, header.as_ref(), is_json_object(record), findings, links);
    }

    /// The same, of a record whose header was read before, by [`Header::parse_plain`], and whose body was
    /// [looked at](is_json_object): that both were this record's nobody checks.
    pub fn check_plain(
        &mut self,
        record: &Record,
        header: &Header,
        is_json_object: bool,
        findings: &mut Vec<Finding>,
        links: &mut Vec<Link>,
    ) {
        self.check_read(record, Ok(header), is_json_object, findings, links);
    }

    fn check_read(
        &mut self,
        record: &Record,
        header: Result<&Header, &(What, String)>,
        is_json_object: bool,
        findings: &mut Vec<Finding>,
        links: &mut Vec<Link>,
    ) {
        let place = record.seq();
        match place {
            _ if place < self.next => {
                let why = "two records claim this place";
                findings.push(self.finding(What::Duplicate, place, why));
                return;
            }
            _ if place > self.next => {
                let missing = match place - self.next {
                    1 => format!("record {} is missing", self.next),
                    _ => format!("records {} to {} are missing", self.next, place - 1),
                };
                findings.push(self.finding(What::Dropped, self.next, missing));
                self.last = None;
                self.state = None;
            }
            _ => {}
        }
        self.next = place + 1;
        let header = match header.map_err(Clone::clone).and_then(|header| self.stands_here(record, header)) {
            Ok(header) => header,
            Err((what, why)) => {
                findings.push(self.finding(what, place, why));
                self.last = None;
                self.state = None;
                return;
            }
        };
        if place == 0 && header.kind == Kind::Created {
            let created = record.body::<Created>();
            self.is_operator = created.is_ok_and(|created| created.run.as_deref() == Some(OPERATOR));
        }
        if let Err((what, why)) = self.check_rules(record, header, is_json_object) {
            findings.push(self.finding(what, place, why));
        }
        self.check_link(record, header, findings);
        let elsewhere = if place == 0 { &header.parents[..] } else { header.parents.get(1..).unwrap_or_default() };
        links.extend(elsewhere.iter().map(|parent| Link {
            child: record.point(),
            child_time: header.time,
            child_generation: record.generation(),
            parent: *parent,
        }));
        if self.state.as_mut().is_some_and(|state| state.apply(record).is_err()) {
            self.state = None;
        }
        let (id, generation, kind) = (record.id(), record.generation(), header.kind.clone());
        self.last = Some(Last { id, seq: place, time: header.time, generation, kind });
    }

    fn read_header(&mut self, record: &Record) -> Result<Header, (What, String)> {
        let bytes = record.header_bytes();
        if let Some(header) = Header::parse_plain(bytes, &mut self.recurring) {
            return Ok(header);
        }
        let header = Header::parse(bytes).map_err(|why| match why {
            Malformed::Future(_) => (What::Unreadable, why.to_string()),
            Malformed::NotAHeader(_) => (What::Malformed, why.to_string()),
        })?;
        match header.is_canonical(bytes) {
            true => Ok(header),
            false => Err((What::Malformed, "the header is not in canonical form".into())),
        }
    }

    /// Whether the header belongs to this line, and to this place.
    fn stands_here<'h>(&self, record: &Record, header: &'h Header) -> Result<&'h Header, (What, String)> {
        if header.session != self.session {
            let why = format!("a record of session {} stands here", header.session.short());
            return Err((What::Foreign, why));
        }
        if header.seq != record.seq() {
            return Err((What::Reordered, format!("record {} stands here", header.seq)));
        }
        Ok(header)
    }

    fn check_rules(&self, record: &Record, header: &Header, is_json_object: bool) -> Result<(), (What, String)> {
        let rule = |why: &str| Err((What::Malformed, why.to_owned()));
        if header.kind != *record.kind() {
            return Err((What::Index, format!("the index says {}, the header {}", record.kind(), header.kind)));
        }
        if record.check_body().is_err() {
            return Err((What::AlteredBody, Fault::Body.to_string()));
        }
        if !is_json_object {
            return rule("the body is not a JSON object that can be read");
        }
        if header.kind.begins_a_session() != (header.seq == 0) {
            return rule("a session begins with created, forked, detached or imported, and only begins with them");
        }
        let parents = header.parents.len();
        let allowed = match header.kind {
            Kind::Created | Kind::Detached | Kind::Imported => parents == 0,
            Kind::Merged => (2..=MAX_PARENTS).contains(&parents),
            _ => parents == 1,
        };
        if !allowed {
            return rule("the number of parents does not fit the kind");
        }
        // What does not stand on its predecessor is named for that; the rules are for those that do.
        if let Some(last) = self.last.as_ref().filter(|last| header.parents.first() == Some(&last.id)) {
            if last.kind == Kind::Closed && !self.is_operator {
                return rule("the session was closed before this record");
            }
            if header.time < last.time {
                return rule("its time is before its parent's");
            }
            if parents == 1 && record.generation() != last.generation + 1 {
                let why = format!("the index says generation {}, it is {}", record.generation(), last.generation + 1);
                return Err((What::Index, why));
            }
        }
        Ok(())
    }

    /// Whether the record stands on its predecessor; if not, the next one shows which of the two was altered.
    fn check_link(&mut self, record: &Record, header: &Header, findings: &mut Vec<Finding>) {
        if let Some((before, after)) = self.misfit.take() {
            let vouched = self.last.as_ref().is_some_and(|last| header.parents.first() == Some(&last.id));
            findings.push(self.altered(if vouched { before } else { after }));
            if !vouched {
                return;
            }
        }
        if let (Some(last), true) = (&self.last, record.seq() > 0)
            && header.parents.first() != Some(&last.id)
        {
            self.misfit = Some((last.seq, record.seq()));
        }
    }

    fn altered(&self, seq: u64) -> Finding {
        self.finding(What::AlteredRecord, seq, Fault::Chain.to_string())
    }

    /// Ends the line: its last record must be the head that the index names.
    pub fn finish(&mut self, head: RecordId, seq: u64, findings: &mut Vec<Finding>) {
        let last = self.last.clone();
        let fits = last.as_ref().is_some_and(|last| last.id == head);
        if let Some((before, after)) = self.misfit.take() {
            findings.push(self.altered(if fits { before } else { after }));
            return;
        }
        if self.next <= seq {
            let why = match self.next {
                next if next == seq => format!("record {seq} is missing"),
                next => format!("records {next} to {seq} are missing"),
            };
            findings.push(self.finding(What::Dropped, self.next, why));
        } else if self.next > seq + 1 {
            let why = format!("the session has {} records, its index says {}", self.next, seq + 1);
            findings.push(self.finding(What::Index, seq + 1, why));
        } else if let Some(last) = last
            && !fits
        {
            findings.push(self.altered(last.seq));
        }
    }
}

/// Whether the body is a JSON object that can be read, where there is one: the dearest question about a record that needs no
/// other to be answered.
pub fn is_json_object(record: &Record) -> bool {
    record.body_bytes().is_none_or(blob::is_object)
}

/// What a verification saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Sessions checked.
    pub sessions: u64,
    /// Records checked.
    pub records: u64,
    /// Records whose body is gone.
    pub erased: u64,
    /// Where they stand.
    #[serde(skip)]
    pub without_body: Vec<Stripped>,
    /// Blobs checked.
    pub blobs: u64,
    /// Bytes hashed.
    pub bytes: u64,
    /// What is wrong, in the order it was found.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }
}
