//! What a store promises, and the values that cross it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use crate::actor::Actor;
use crate::blob::{Blob, BlobRef};
use crate::body::{Labelled, UnknownValue, Verdict};
use crate::clock::Time;
use crate::id::{Digest, Point, RecordId, Reference, SessionId};
use crate::kind::Kind;
use crate::record::{Fault, Record};
pub use crate::trouble::Trouble;

mod cursor;
mod projection;
mod questions;
mod watch;

pub use cursor::{Cursor, NotACursor};
pub use projection::{EachEntry, Erased, Projection, Reading, Storage, check_name as check_projection_name};
pub use questions::OpenQuestions;
pub use watch::{Change, Changed, Commits, Notifier, Watcher};

/// A future that a store hands out.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a store answers.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Where contents are kept, by their digest.
pub trait Blobs: Send + Sync {
    /// Writes blobs; those that are there already are passed over. They are durable with the next commit.
    fn blob_put(&self, blobs: Vec<Blob>) -> BoxFuture<'_, Result<()>>;

    /// Hands over blobs that the next commit is to bring, or the next [`blob_put`](Self::blob_put), even of none: a
    /// little that shares their journey costs none of its own. They can be read here at once. A process that dies before
    /// takes them along, so nothing but a record may name them by then.
    fn blob_put_soon(&self, blobs: Vec<Blob>) -> BoxFuture<'_, Result<()>>;

    /// Whether a blob is there. Nothing of it is read.
    fn blob_has(&self, digest: Digest) -> BoxFuture<'_, Result<bool>>;

    /// Reads a blob, checked against its digest.
    fn blob_get(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Arc<[u8]>>>>;

    /// Names a content that is too large to be held at once: these blobs, which are there already, one after the
    /// other. The caller has hashed it.
    fn blob_join(&self, whole: BlobRef, pieces: Vec<Piece>) -> BoxFuture<'_, Result<()>>;

    /// The pieces that a blob was joined from; `None` when it is held in one.
    fn blob_pieces(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Vec<Piece>>>>;

    /// Keeps garbage collection away while the guard lives: between a save and the record that names its version,
    /// nothing names the blobs. Waits for a collection that is running.
    fn gc_guard(&self) -> Result<GcGuard>;

    /// The directory in which the store keeps its own files, where it has one. No workspace may take it in, and no
    /// sandbox may show it.
    fn directory(&self) -> Option<&Path>;
}

/// While it lives, nothing is collected from the store that gave it out.
pub struct GcGuard {
    _held: Option<Box<dyn Send + Sync>>,
}

impl GcGuard {
    /// Of a store that never collects anything.
    pub fn of_nothing() -> Self {
        Self { _held: None }
    }

    /// Holds this until it is dropped.
    pub fn holding(held: impl Send + Sync + 'static) -> Self {
        Self { _held: Some(Box::new(held)) }
    }
}

impl fmt::Debug for GcGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GcGuard")
    }
}

/// A part of a large content: a blob of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its name.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
}

/// Where sessions are kept. Implemented in memory ([`crate::Memory`]) and embedded (`rath_store::Embedded`); one
/// conformance suite in `rath-testkit` holds for all.
pub trait Store: Blobs {
    /// Makes all of `batch` durable, or none of it. What is there already, byte for byte, is passed over, so a
    /// batch may be sent again when its fate is unknown. Nothing of it is written before the future is polled.
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<()>>;

    /// The records that `lookup` names, at most a handful.
    fn get(&self, lookup: Lookup) -> BoxFuture<'_, Result<Vec<Record>>>;

    /// Records in order, a page at a time.
    fn scan(&self, scan: Scan) -> BoxFuture<'_, Result<Page>>;

    /// The sessions that `query` asks for, youngest change first.
    fn sessions(&self, query: Query) -> BoxFuture<'_, Result<Vec<Row>>>;

    /// Takes the session for this holder. Fails with [`Error::Held`] while another one lives.
    fn lease(&self, session: SessionId) -> BoxFuture<'_, Result<Fence>>;

    /// Gives it back. Never waits.
    fn release(&self, session: SessionId, fence: Fence);

    /// Whether what is in the store was written by this user on this machine.
    fn provenance(&self) -> Result<Provenance> {
        Ok(Provenance::Here)
    }

    /// Notes that this user of this machine writes to the store from here on.
    fn claim(&self) -> Result<()> {
        Ok(())
    }

    /// Leaves something in a session's inbox for whoever holds it. Durable when it returns; the same id twice is once.
    fn post(&self, post: Post) -> BoxFuture<'_, Result<()>>;

    /// What is in a session's inbox, oldest first.
    fn posts(&self, session: SessionId) -> BoxFuture<'_, Result<Vec<Post>>>;

    /// Brings a projection up to date and shows its storage to `read`. See [`projected`](#method.projected) for one that
    /// answers.
    fn project(&self, projection: Arc<dyn Projection>, read: Reading) -> BoxFuture<'_, Result<()>>;

    /// Waits for changes from now on, made by this process or another one. While nothing changes, nothing is asked.
    fn watch(&self, change: Change) -> Watcher;

    /// Destroys salt and body of these records, what was folded from them, and the blobs that nothing else names. The
    /// chain still verifies. Versions of files stay. Nothing is put on the record: `rath verify` names a body that is gone
    /// without an `erased` record, as if somebody had taken it out.
    fn erase(&self, records: Vec<Reference>) -> BoxFuture<'_, Result<()>>;
}

/// Who wrote to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// This user, on this machine.
    Here,
    /// That is not known: the store was made by a version that did not note it.
    Unknown,
    /// Another machine or another user, in words.
    Elsewhere(String),
}

impl fmt::Debug for dyn Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

/// Counts who held a session: each new holder has a greater one, and a commit with an old one is refused.
pub type Fence = u64;

/// The fence of a session's first holder.
pub const FIRST_FENCE: Fence = 1;

/// Records of several sessions that become durable together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// One part a session; what a fork stands on stands before it.
    pub parts: Vec<Part>,
    /// Posts, by id, that the records above say: they leave the inbox.
    pub taken: Vec<String>,
}

/// Something that another process, or a person, wants of a session. Not state until it is a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Post {
    /// Its name: posting it again changes nothing.
    pub id: String,
    /// The session.
    pub session: SessionId,
    /// Who posts it.
    pub actor: Actor,
    /// When.
    pub time: Time,
    /// What is wanted.
    pub what: Posted,
}

/// What a post wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "post", rename_all = "snake_case")]
pub enum Posted {
    /// An answer to a question.
    Answer {
        /// The `asked` record.
        asked: RecordId,
        /// The digest of what was shown.
        shown_digest: Digest,
        /// The answer.
        verdict: Verdict,
        /// The reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// Yes to a call, and to all calls that the question says "always" allows.
    Always {
        /// The `asked` record.
        asked: RecordId,
        /// The digest of what was shown.
        shown_digest: Digest,
        /// The reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// Words for the model, from a person.
    Message {
        /// The words.
        text: String,
    },
    /// The work is to stop.
    Cancel {
        /// The reason.
        why: String,
    },
    /// A title or labels.
    Label {
        /// Them.
        labelled: Labelled,
    },
    /// Something of a later version. It waits in the inbox for a process that knows it.
    #[serde(untagged, deserialize_with = "unknown_post")]
    Unknown(UnknownValue),
}

fn unknown_post<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<UnknownValue, D::Error> {
    UnknownValue::tagged(deserializer, "post", &["answer", "always", "message", "cancel", "label"])
}

/// The records of one session in a batch.
#[derive(Clone, Debug)]
pub struct Part {
    /// The session.
    pub session: SessionId,
    /// The fence under which the committer holds it.
    pub fence: Fence,
    /// Whether a session that this part creates stays held.
    pub hold: bool,
    /// Contiguous, in order. The first one's parent is the expected head.
    pub records: Vec<Record>,
    /// The folded state after the last record, where there is none yet to open the session from.
    pub snapshot: Option<Vec<u8>>,
}

/// Which records [`Store::get`] looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The one at a place.
    At(Point),
    /// The one with this id.
    Id(RecordId),
    /// Those whose id starts with these hex digits; at most ten.
    Prefix(String),
}

/// What [`Store::scan`] reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Where.
    pub of: Of,
    /// Only these kinds; empty for all.
    pub kinds: Vec<Kind>,
    /// About how many records a page may hold.
    pub limit: usize,
    /// From the end to the beginning (of one session).
    pub backwards: bool,
    /// Begin after the youngest snapshot, and hand it over (of one session).
    pub from_snapshot: bool,
}

/// The extent of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Of {
    /// Everything committed after `after`, in commit order.
    Store {
        /// The last page's [`cursor`](Page::cursor), or that of any record.
        after: Cursor,
    },
    /// Records `from..=to` of one session.
    Session {
        /// The session.
        session: SessionId,
        /// First.
        from: u64,
        /// Last.
        to: u64,
    },
}

impl Scan {
    /// All of a store.
    pub fn all() -> Self {
        Self::store(Cursor::start())
    }

    /// All of a store after `after`.
    pub fn store(after: Cursor) -> Self {
        Self { of: Of::Store { after }, kinds: Vec::new(), limit: 1024, backwards: false, from_snapshot: false }
    }

    /// Records `from..=to` of a session.
    pub fn session(session: SessionId, from: u64, to: u64) -> Self {
        Self { of: Of::Session { session, from, to }, ..Self::all() }
    }

    /// Only records of these kinds.
    #[must_use]
    pub fn kinds(mut self, kinds: &[Kind]) -> Self {
        self.kinds = kinds.to_vec();
        self
    }

    /// From the end.
    #[must_use]
    pub fn backwards(mut self) -> Self {
        self.backwards = true;
        self
    }

    /// From the youngest snapshot on.
    #[must_use]
    pub fn from_snapshot(mut self) -> Self {
        self.from_snapshot = true;
        self
    }

    /// About `limit` records a page.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}

/// A page of records.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The snapshot asked for: the seq it stands after, and its bytes.
    pub snapshot: Option<(u64, Vec<u8>)>,
    /// The records, in order.
    pub records: Vec<Record>,
    /// Of a store: for each of the records, the position behind it.
    pub cursors: Vec<Cursor>,
    /// Of a store: the position behind everything that was looked at for this page, wanted or not. The next page begins
    /// here, also where this one is empty.
    pub cursor: Cursor,
    /// Of a session: the seq with which the next page begins (backwards: its last).
    pub position: u64,
    /// Whether there may be more.
    pub more: bool,
}

/// Which sessions [`Store::sessions`] lists.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Which.
    pub which: Which,
    /// Only those that have all of these labels, each with its value where one is given.
    pub labels: Vec<(String, Option<String>)>,
    /// Only those in which something waits: a question that is open, or a post that was not taken. Closed sessions wait
    /// for nothing.
    pub waiting: bool,
    /// Only those that come after this one in the list: the last one of the page before.
    pub after: Option<(Time, SessionId)>,
    /// At most this many.
    pub limit: Option<usize>,
}

impl Query {
    /// All sessions.
    pub fn all() -> Self {
        Self::default()
    }

    /// Only those with this label, whatever its value.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>) -> Self {
        self.labels.push((name.into(), None));
        self
    }

    /// Only those in which something waits.
    #[must_use]
    pub fn waiting(mut self) -> Self {
        self.waiting = true;
        self
    }

    /// Only those after `row` in the list.
    #[must_use]
    pub fn after(mut self, row: &Row) -> Self {
        self.after = Some((row.time, row.id));
        self
    }

    /// At most so many.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Whether a session passes all filters but [`which`](Self::which) and [`waiting`](Self::waiting).
    pub fn admits(&self, row: &Row) -> bool {
        let has = |(name, value): &(String, Option<String>)| {
            row.labels.get(name).is_some_and(|have| value.as_ref().is_none_or(|value| value == have))
        };
        self.labels.iter().all(has)
            && self.after.is_none_or(|after| (row.time, row.id) < after)
            && !(self.waiting && row.closed)
    }
}

/// A choice of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// All of them.
    #[default]
    All,
    /// This one.
    Id(SessionId),
    /// Those that the text names, see [`SessionId::matches`].
    Prefix(String),
    /// Those forked from this one.
    ChildrenOf(SessionId),
    /// The one that was created for the run with this key.
    Run(String),
}

impl From<Which> for Query {
    fn from(which: Which) -> Self {
        Self { which, ..Self::default() }
    }
}

/// What a store knows of a session without reading its bodies, and its title and labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The session.
    pub id: SessionId,
    /// Its last record.
    pub head: RecordId,
    /// The last record's seq.
    pub seq: u64,
    /// The last record's time.
    pub time: Time,
    /// The last record's generation.
    pub generation: u64,
    /// How it began.
    #[serde(serialize_with = "kind_as_name")]
    pub birth: Kind,
    /// The first record's time.
    pub born: Time,
    /// The first record's generation.
    pub born_generation: u64,
    /// The fork point.
    pub origin: Option<Reference>,
    /// Whether it has ended.
    pub closed: bool,
    /// The current fence.
    pub fence: Fence,
    /// Who holds it.
    pub holder: Option<Holder>,
    /// What it is about.
    pub title: Option<String>,
    /// Labels with their values.
    pub labels: BTreeMap<String, String>,
}

fn kind_as_name<S: serde::Serializer>(kind: &Kind, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_str(kind.as_str())
}

impl Row {
    /// The last record.
    pub fn head_reference(&self) -> Reference {
        Reference { session: self.id, seq: self.seq, id: self.head }
    }
}

/// A process that may hold sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its name in the store.
    pub id: String,
    /// Its process id.
    pub process: u32,
    /// Its program.
    pub program: String,
    /// Since when it has the store open.
    pub since: Time,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({}), which opened the store at {}", self.process, self.program, self.since)
    }
}

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another holder has the session.
    #[error("session {} is held by {holder}", session.short())]
    Held {
        /// The session.
        session: SessionId,
        /// Who has it.
        holder: Holder,
    },
    /// The session was taken over since.
    #[error("this process no longer holds session {}: another one took it over; what was not published is not stored", session.short())]
    LeaseLost {
        /// The session.
        session: SessionId,
    },
    /// The session's head is not the one the batch stands on.
    #[error("session {} has moved on to record {seq}: the records do not follow its head", session.short())]
    Conflict {
        /// The session.
        session: SessionId,
        /// Its last seq.
        seq: u64,
    },
    /// The session has ended.
    #[error("session {} is closed; it can be forked, not appended to", session.short())]
    Closed {
        /// The session.
        session: SessionId,
    },
    /// Another process began the run a moment ago.
    #[error("run {key:?} was begun by another process: session {}", session.short())]
    RunTaken {
        /// The run's key.
        key: String,
        /// Its session.
        session: SessionId,
    },
    /// There is no such thing.
    #[error("there is no {0} in this store")]
    NotFound(String),
    /// Stored bytes are not what they were.
    #[error("record {point} was altered in the store: {why}")]
    Tampered {
        /// Where.
        point: Point,
        /// How it shows.
        why: Fault,
    },
    /// What is asked for needs a body that was erased.
    #[error("record {point} was erased, and this needs what it said")]
    Erased {
        /// Where.
        point: Point,
    },
    /// An erasure was begun, and did not come to its end.
    #[error("the erasure is on the record and not finished, bytes of what it destroys are still in the store: {0}")]
    Unfinished(Box<Error>),
    /// A blob's bytes are not what its name says.
    #[error("blob {digest} was altered in the store: {why}")]
    BlobAltered {
        /// Its name.
        digest: Digest,
        /// How it shows.
        why: String,
    },
    /// The store was written by a later version.
    #[error("the store has format {found}; this version of rath reads up to {known}")]
    Future {
        /// Its format.
        found: i64,
        /// The greatest this version knows.
        known: i64,
    },
    /// There is no store there.
    #[error("{0} is not a rath store")]
    NotAStore(String),
    /// The machine refused.
    #[error("{doing}: {cause}")]
    Machine {
        /// What was being done.
        doing: String,
        /// Which kind of refusal it is.
        trouble: Trouble,
        /// What the machine said. Part of the message, and so not a source of its own.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// The error's code; `docs/errors/CODE.md` says what to do.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Held { .. } => "session-held",
            Error::LeaseLost { .. } => "lease-lost",
            Error::Conflict { .. } => "head-moved",
            Error::Closed { .. } => "session-closed",
            Error::RunTaken { .. } => "run-taken",
            Error::NotFound(_) => "not-found",
            Error::Tampered { .. } | Error::BlobAltered { .. } => "tampered",
            Error::Erased { .. } => "erased",
            Error::Unfinished(_) => "erasure-unfinished",
            Error::Future { .. } => "store-from-the-future",
            Error::NotAStore(_) => "not-a-store",
            Error::Machine { trouble, .. } => trouble.code(),
        }
    }

    /// Wraps what the machine said while `doing` something.
    pub fn machine(doing: impl Into<String>, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let cause = cause.into();
        Error::Machine { doing: doing.into(), trouble: Trouble::of(&*cause), cause }
    }

    /// The same for a cause whose kind is known.
    pub fn trouble(
        doing: impl Into<String>,
        trouble: Trouble,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Error::Machine { doing: doing.into(), trouble, cause: cause.into() }
    }
}
