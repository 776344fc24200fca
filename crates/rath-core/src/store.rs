//! The contract of a store: the traits [`Store`] and [`Blobs`], their parameters and results, and their errors.

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
pub use crate::io_error_kind::IoErrorKind;
use crate::kind::Kind;
use crate::record::{Record, RecordError};

mod cursor;
mod projection;
mod questions;
mod watch;

pub use cursor::{Cursor, NotACursor};
pub use projection::{EntryVisitor, ErasedSet, Projection, ReadFn, Storage, check_name as check_projection_name};
pub use questions::OpenQuestions;
pub use watch::{Changed, Commits, Notifier, WatchTopic, Watcher};

/// A future returned by a store.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The result of a store operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Storage of blobs by digest.
pub trait Blobs: Send + Sync {
    /// Writes blobs; blobs that are stored already are skipped. They become durable with the next commit.
    fn blob_put(&self, blobs: Vec<Blob>) -> BoxFuture<'_, Result<()>>;

    /// Queues blobs to be written together with the next commit or [`blob_put`](Self::blob_put), including an empty
    /// `blob_put`. This saves a transaction for small blobs. This process can read them at once. If the process ends
    /// before they are written, they are lost, so until then only records may refer to them.
    fn blob_put_soon(&self, blobs: Vec<Blob>) -> BoxFuture<'_, Result<()>>;

    /// Whether a blob is stored. Does not read its content.
    fn blob_has(&self, digest: Digest) -> BoxFuture<'_, Result<bool>>;

    /// Reads a blob and checks it against its digest; `None` when it is not stored.
    fn blob_get(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Arc<[u8]>>>>;

    /// Stores a blob that is too large for memory as the concatenation of `chunks`, which are stored already. The
    /// caller has computed the digest of the whole.
    fn blob_join(&self, whole: BlobRef, chunks: Vec<Chunk>) -> BoxFuture<'_, Result<()>>;

    /// The chunks that a blob was joined from; `None` when it is stored as a whole.
    fn blob_chunks(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Vec<Chunk>>>>;

    /// Blocks garbage collection until the guard is dropped. Needed between saving files and appending the record that
    /// refers to them: until then nothing refers to their blobs. Waits for a running collection to finish.
    fn gc_guard(&self) -> Result<GcGuard>;

    /// The directory of the store's own files, if it has one. No version of a workspace may include it, and no sandbox
    /// may expose it.
    fn directory(&self) -> Option<&Path>;
}

/// Blocks garbage collection in the store that returned it, until it is dropped.
pub struct GcGuard {
    _lock: Option<Box<dyn Send + Sync>>,
}

impl GcGuard {
    /// A guard for a store without garbage collection.
    pub fn noop() -> Self {
        Self { _lock: None }
    }

    /// A guard that keeps `lock` until it is dropped.
    pub fn new(lock: impl Send + Sync + 'static) -> Self {
        Self { _lock: Some(Box::new(lock)) }
    }
}

impl fmt::Debug for GcGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GcGuard")
    }
}

/// A part of a large blob, stored as a blob of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The digest of the chunk.
    pub digest: Digest,
    /// The length of the chunk in bytes.
    pub bytes: u64,
}

/// Storage of sessions. There is an implementation in memory ([`crate::InMemory`]) and an embedded one
/// (`rath_store::Embedded`). All implementations must pass the conformance suite in `rath-testkit`.
pub trait Store: Blobs {
    /// Makes the whole batch durable, or nothing of it. Identical records that are stored already are skipped, so a
    /// batch may be sent again when the outcome of the first attempt is unknown. Nothing is written before the future
    /// is polled.
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<()>>;

    /// Looks up single records.
    fn get(&self, lookup: Lookup) -> BoxFuture<'_, Result<Vec<Record>>>;

    /// Reads records in order, one page at a time.
    fn scan(&self, scan: Scan) -> BoxFuture<'_, Result<Page>>;

    /// Lists sessions, most recently changed first.
    fn sessions(&self, query: Query) -> BoxFuture<'_, Result<Vec<SessionInfo>>>;

    /// Takes the lease of a session. Fails with [`Error::Locked`] while another process that is alive has it.
    fn lease(&self, session: SessionId) -> BoxFuture<'_, Result<FencingToken>>;

    /// Releases the lease. Does not block.
    fn release(&self, session: SessionId, fence: FencingToken);

    /// Who wrote the records in the store.
    fn provenance(&self) -> Result<Provenance> {
        Ok(Provenance::Here)
    }

    /// Records that this user on this machine writes to the store from now on.
    fn claim(&self) -> Result<()> {
        Ok(())
    }

    /// Puts a post into a session's inbox, for the process that has the lease. It is durable when the future completes.
    /// Posting the same id again has no effect.
    fn post(&self, post: Post) -> BoxFuture<'_, Result<()>>;

    /// The posts in a session's inbox, oldest first.
    fn posts(&self, session: SessionId) -> BoxFuture<'_, Result<Vec<Post>>>;

    /// Brings a projection up to date, then calls `read` with its storage. See [`projected`](#method.projected) for a
    /// variant that returns a value.
    fn project(&self, projection: Arc<dyn Projection>, read: ReadFn) -> BoxFuture<'_, Result<()>>;

    /// Watches for changes from now on, made by this process or another one. Does not poll the store.
    fn watch(&self, topic: WatchTopic) -> Watcher;

    /// Destroys the salt and body of these records, the state that was folded from them, and blobs that no other record
    /// refers to. The chain still verifies; versions of files stay. This function writes no `erased` record. Without
    /// one, `rath verify` reports the bodies as missing.
    fn erase(&self, records: Vec<Reference>) -> BoxFuture<'_, Result<()>>;
}

/// Who wrote the records in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// This user on this machine.
    Here,
    /// Unknown: the store was created by a version that did not record it.
    Unknown,
    /// Another machine or another user, described in words.
    Elsewhere(String),
}

impl fmt::Debug for dyn Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

/// A number that increases with each lease of a session. A commit with the token of an earlier lease is refused.
pub type FencingToken = u64;

/// The fencing token of a session's first lease.
pub const FIRST_FENCING_TOKEN: FencingToken = 1;

/// Records of one or more sessions that become durable together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// One part per session. A session that a fork is based on comes before the fork.
    pub parts: Vec<BatchPart>,
    /// The ids of the posts that the records contain. They are removed from the inbox.
    pub consumed_posts: Vec<String>,
}

/// A message to a session from a person or another process. It becomes part of the session when a record contains it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Post {
    /// The id. Posting the same id again has no effect.
    pub id: String,
    /// The addressed session.
    pub session: SessionId,
    /// The sender.
    pub actor: Actor,
    /// The time of the post.
    pub time: Time,
    /// The content.
    pub what: PostContent,
}

/// The content of a post.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "post", rename_all = "snake_case")]
pub enum PostContent {
    /// An answer to a question.
    Answer {
        /// The `asked` record that this answers.
        asked: RecordId,
        /// The digest of the text that was shown.
        shown_digest: Digest,
        /// The answer.
        verdict: Verdict,
        /// The reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// The answer "always": yes to the call, and to all calls that the permission in the question covers.
    Always {
        /// The `asked` record that this answers.
        asked: RecordId,
        /// The digest of the text that was shown.
        shown_digest: Digest,
        /// The reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// A message to the model from a person.
    Message {
        /// The text of the user message.
        text: String,
    },
    /// A request to stop the work.
    Cancel {
        /// The reason.
        why: String,
    },
    /// A change of the title or labels.
    Label {
        /// The change.
        labelled: Labelled,
    },
    /// A named event, for a workflow that waits for it.
    Event {
        /// The name that a workflow waits for.
        name: String,
        /// The value, as JSON text.
        value: String,
    },
    /// Content that only a later version knows. It stays in the inbox until a process of such a version reads it.
    #[serde(untagged, deserialize_with = "unknown_post")]
    Unknown(UnknownValue),
}

fn unknown_post<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<UnknownValue, D::Error> {
    UnknownValue::tagged(deserializer, "post", &["answer", "always", "message", "cancel", "label", "event"])
}

/// The records of one session in a batch.
#[derive(Clone, Debug)]
pub struct BatchPart {
    /// The session that the records are appended to.
    pub session: SessionId,
    /// The fencing token of the committer's lease.
    pub fence: FencingToken,
    /// Whether the committer keeps the lease of a session that this part creates.
    pub keep_lease: bool,
    /// Consecutive records. The parent of the first one is the expected head.
    pub records: Vec<Record>,
    /// The folded state after the last record, if the session has no snapshot to open it from yet.
    pub snapshot: Option<Vec<u8>>,
}

/// Which records [`Store::get`] looks up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The record at a point.
    At(Point),
    /// The record with this id.
    Id(RecordId),
    /// The records whose id starts with these hex digits; at most ten.
    Prefix(String),
}

/// Which records [`Store::scan`] reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The range.
    pub range: ScanRange,
    /// Read only records of these kinds; empty for all kinds.
    pub kinds: Vec<Kind>,
    /// The approximate maximum number of records per page.
    pub limit: usize,
    /// Read from the end to the start. Only for one session.
    pub backwards: bool,
    /// Start after the youngest snapshot, and return it. Only for one session.
    pub from_snapshot: bool,
}

/// The range of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanRange {
    /// All records committed after `after`, in commit order.
    Store {
        /// The [`cursor`](Page::cursor) of the previous page, or the cursor of any record.
        after: Cursor,
    },
    /// Records `from..=to` of one session.
    Session {
        /// The session to scan.
        session: SessionId,
        /// The first sequence number.
        from: u64,
        /// The last sequence number.
        to: u64,
    },
}

impl Scan {
    /// All records of a store.
    pub fn all() -> Self {
        Self::store(Cursor::start())
    }

    /// All records of a store after `after`.
    pub fn store(after: Cursor) -> Self {
        Self {
            range: ScanRange::Store { after },
            kinds: Vec::new(),
            limit: 1024,
            backwards: false,
            from_snapshot: false,
        }
    }

    /// Records `from..=to` of a session.
    pub fn session(session: SessionId, from: u64, to: u64) -> Self {
        Self { range: ScanRange::Session { session, from, to }, ..Self::all() }
    }

    /// Reads only records of these kinds.
    #[must_use]
    pub fn kinds(mut self, kinds: &[Kind]) -> Self {
        self.kinds = kinds.to_vec();
        self
    }

    /// Reads from the end.
    #[must_use]
    pub fn backwards(mut self) -> Self {
        self.backwards = true;
        self
    }

    /// Starts after the youngest snapshot.
    #[must_use]
    pub fn from_snapshot(mut self) -> Self {
        self.from_snapshot = true;
        self
    }

    /// Sets the approximate number of records per page.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}

/// A page of records.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The requested snapshot: the sequence number of its record, and its bytes.
    pub snapshot: Option<(u64, Vec<u8>)>,
    /// The records, in order.
    pub records: Vec<Record>,
    /// In a scan of a store: for each record, the position after it.
    pub cursors: Vec<Cursor>,
    /// In a scan of a store: the position after all records that were read for this page, including those of other
    /// kinds. The next page starts here, also if this page is empty.
    pub cursor: Cursor,
    /// In a scan of a session: the sequence number at which the next page starts. In a backwards scan it is the last
    /// one of the next page.
    pub position: u64,
    /// Whether there may be another page.
    pub more: bool,
}

/// Which sessions [`Store::sessions`] lists. All conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// The sessions to choose from.
    pub filter: SessionFilter,
    /// List only sessions with all of these labels. A label with a value must have that value.
    pub labels: Vec<(String, Option<String>)>,
    /// List only sessions that are not closed and have an open question or an unconsumed post.
    pub waiting: bool,
    /// List only sessions after this one, which is the last one of the previous page.
    pub after: Option<(Time, SessionId)>,
    /// List at most this many sessions.
    pub limit: Option<usize>,
}

impl Query {
    /// All sessions.
    pub fn all() -> Self {
        Self::default()
    }

    /// Lists only sessions with this label, with any value.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>) -> Self {
        self.labels.push((name.into(), None));
        self
    }

    /// Lists only sessions with an open question or an unconsumed post.
    #[must_use]
    pub fn waiting(mut self) -> Self {
        self.waiting = true;
        self
    }

    /// Lists only sessions after `row`.
    #[must_use]
    pub fn after(mut self, row: &SessionInfo) -> Self {
        self.after = Some((row.time, row.id));
        self
    }

    /// Lists at most `limit` sessions.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Whether a session passes all conditions except [`filter`](Self::filter) and open questions and posts.
    pub fn admits(&self, row: &SessionInfo) -> bool {
        let has = |(name, value): &(String, Option<String>)| {
            row.labels.get(name).is_some_and(|have| value.as_ref().is_none_or(|value| value == have))
        };
        self.labels.iter().all(has)
            && self.after.is_none_or(|after| (row.time, row.id) < after)
            && !(self.waiting && row.closed)
    }
}

/// The sessions to choose from in a [`Query`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SessionFilter {
    /// All sessions.
    #[default]
    All,
    /// This session.
    Id(SessionId),
    /// The sessions whose id matches the text, see [`SessionId::matches`].
    Prefix(String),
    /// The forks of this session.
    ChildrenOf(SessionId),
    /// The session that was created for the run with this key.
    Run(String),
}

impl From<SessionFilter> for Query {
    fn from(filter: SessionFilter) -> Self {
        Self { filter, ..Self::default() }
    }
}

/// What a store knows about a session without reading its records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionInfo {
    /// The session.
    pub id: SessionId,
    /// The id of the last record.
    pub head: RecordId,
    /// The sequence number of the last record.
    pub seq: u64,
    /// The time of the last record.
    pub time: Time,
    /// The generation of the last record.
    pub generation: u64,
    /// The kind of the first record.
    #[serde(rename = "birth", serialize_with = "kind_as_name")]
    pub first_kind: Kind,
    /// The time of the first record.
    #[serde(rename = "born")]
    pub created_at: Time,
    /// The generation of the first record.
    #[serde(rename = "born_generation")]
    pub first_generation: u64,
    /// The fork point; `None` when the session is not a fork.
    pub origin: Option<Reference>,
    /// Whether the session is closed.
    pub closed: bool,
    /// The fencing token of the last lease.
    pub fence: FencingToken,
    /// The process that has the lease.
    pub holder: Option<Holder>,
    /// The title.
    pub title: Option<String>,
    /// The labels, with their values.
    pub labels: BTreeMap<String, String>,
}

fn kind_as_name<S: serde::Serializer>(kind: &Kind, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_str(kind.as_str())
}

impl SessionInfo {
    /// The reference of the last record.
    pub fn head_reference(&self) -> Reference {
        Reference { session: self.id, seq: self.seq, id: self.head }
    }
}

/// A process that can have leases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The id of the process in the store.
    pub id: String,
    /// The operating system's process id.
    pub process: u32,
    /// The name of the program.
    pub program: String,
    /// When the process opened the store.
    pub since: Time,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({}), which opened the store at {}", self.process, self.program, self.since)
    }
}

/// Why a store operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process has the lease of the session.
    #[error("session {} is locked by {holder}", session.short())]
    Locked {
        /// The session that was to be written.
        session: SessionId,
        /// The process that has the lease.
        holder: Holder,
    },
    /// Another process has taken the lease since this process had it.
    #[error("this process lost the lease of session {}: another one took it over; unpublished records are not stored", session.short())]
    LeaseLost {
        /// The session whose lease is lost.
        session: SessionId,
    },
    /// The session's head is not the one that the batch follows.
    #[error("the head of session {} has moved to record {seq}, and the new records do not follow it", session.short())]
    Conflict {
        /// The session that was to be written.
        session: SessionId,
        /// The sequence number of the session's head.
        seq: u64,
    },
    /// The session is closed.
    #[error("session {} is closed; it can be forked, not appended to", session.short())]
    Closed {
        /// The closed session.
        session: SessionId,
    },
    /// Another process has started the run.
    #[error("run {key:?} was started by another process: session {}", session.short())]
    RunTaken {
        /// The run's key.
        key: String,
        /// The session of the run.
        session: SessionId,
    },
    /// The requested object is not in the store.
    #[error("there is no {0} in this store")]
    NotFound(String),
    /// The stored bytes of a record were altered.
    #[error("record {point} was altered in the store: {why}")]
    Tampered {
        /// The record.
        point: Point,
        /// How the alteration was detected.
        why: RecordError,
    },
    /// The operation needs a body that was erased.
    #[error("the body of record {point} is needed, but was erased")]
    Erased {
        /// The record.
        point: Point,
    },
    /// An erasure was started but not finished.
    #[error("the erasure was recorded but is not finished, and bytes to be destroyed are still in the store: {0}")]
    ErasureUnfinished(Box<Error>),
    /// The bytes of a blob do not match its digest.
    #[error("blob {digest} was altered in the store: {why}")]
    BlobAltered {
        /// The digest by which the blob was read.
        digest: Digest,
        /// How the alteration was detected.
        why: String,
    },
    /// The store was written by a later version of Rath.
    #[error("the store has format {found}, but this version of rath writes up to {known}: use a newer version")]
    Future {
        /// The format of the store.
        found: i64,
        /// The latest format that this version knows.
        known: i64,
    },
    /// The operation would change a session state that a later version of Rath wrote.
    #[error("the state of session {} was written by a later version of rath, and this version cannot change it", session.short())]
    LaterState {
        /// The session.
        session: SessionId,
    },
    /// The path is not a store.
    #[error("{0} is not a rath store")]
    NotAStore(String),
    /// An operation of the machine failed, such as reading a file.
    #[error("{doing}: {cause}")]
    Machine {
        /// The operation that failed, e.g. `reading PATH`.
        doing: String,
        /// The kind of failure.
        kind: IoErrorKind,
        /// The cause. It is part of the message, so it is not an error source.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// The error code; `docs/errors/CODE.md` explains what to do.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Locked { .. } => "session-held",
            Error::LeaseLost { .. } => "lease-lost",
            Error::Conflict { .. } => "head-moved",
            Error::Closed { .. } => "session-closed",
            Error::RunTaken { .. } => "run-taken",
            Error::NotFound(_) => "not-found",
            Error::Tampered { .. } | Error::BlobAltered { .. } => "tampered",
            Error::Erased { .. } => "erased",
            Error::ErasureUnfinished(_) => "erasure-unfinished",
            Error::Future { .. } | Error::LaterState { .. } => "store-from-the-future",
            Error::NotAStore(_) => "not-a-store",
            Error::Machine { kind, .. } => kind.code(),
        }
    }

    /// Wraps an error of the machine; `doing` is the operation that failed.
    pub fn machine(doing: impl Into<String>, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let cause = cause.into();
        Error::Machine { doing: doing.into(), kind: IoErrorKind::of(&*cause), cause }
    }

    /// Like [`machine`](Self::machine), for a cause of a known kind.
    pub fn with_kind(
        doing: impl Into<String>,
        kind: IoErrorKind,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Error::Machine { doing: doing.into(), kind, cause: cause.into() }
    }
}
