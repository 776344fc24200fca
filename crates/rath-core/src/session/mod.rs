//! [`Session`]: a chain of records with one head, held as a value that moves.

mod abandon;
mod again;
mod append;
mod branch;
mod compress;
mod inbox;
mod lease;
mod merge;
mod messages;
mod once;
mod operator;
mod publish;
mod read;
mod resume;
mod run;
mod run_context;
mod run_tree;
mod sample;
mod step;
mod trim;
mod unshared_forks;
mod wait;

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use crate::actor::Actor;
use crate::arrivals::{Arrival, Arrivals};
use crate::blob::Blob;
use crate::body::{self, Body, Created, DynBody, Imported};
use crate::clock::Time;
use crate::context::{self, Item, ItemKind, Items};
use crate::error::{ErrorKind, Result};
use crate::header::{ActorJson, Draft};
use crate::id::{Point, RecordId, Reference, SessionId};
use crate::kind::{Kind, OnResume, Publishes};
use crate::list::List;
use crate::reader::Reader;
use crate::record::{PendingData, Record};
use crate::state::{Pending, RecordMeta, SNAPSHOT_EVERY, State};
use crate::store::{self, Store};
use crate::usage::Usage;
use crate::view;

pub use merge::{BranchMerge, How};
pub use operator::OPERATOR;
pub use publish::Durability;
pub(crate) use run::RUN;
pub use run::{OnDivergence, RunOptions, WorkflowName};
pub use step::Entered;
pub(crate) use step::typed;
pub use unshared_forks::UnsharedFork;

use lease::Lease;
pub(crate) use publish::PendingTail;
use run_context::RunContext;
use unshared_forks::UnsharedForks;

/// The maximum size of a record's body in bytes, after long contents were moved into blobs.
pub const BODY_LIMIT: usize = 1024 * 1024;

/// Published records stay cached in memory. When there are more than `CACHE_LIMIT`, only the newest `CACHE_KEEP` stay.
const CACHE_LIMIT: usize = 32;
const CACHE_KEEP: usize = 8;

/// A chain of records with one head.
///
/// A session is not `Clone`: fork it to continue in two directions. Operations that close or merge it take it by value.
/// Appending adds records to an in-memory tail; [`publish`](Session::publish) makes them durable. Dropping a session
/// releases its lease and loses only records that were never published.
pub struct Session(Box<SessionInner>);

/// The fields of a session, boxed so that moving a `Session` is cheap.
struct SessionInner {
    store: Arc<dyn Store>,
    lease: Lease,
    origin: Option<Reference>,
    head: Head,
    actor: Arc<CachedActor>,
    state: State,
    context: Context,
    /// Cached records, newest first. Those whose seq is at least the published count are the unpublished tail.
    records: List<Record>,
    ancestors: List<PendingTail>,
    /// The unpublished records that a fork from the head depends on. Built for the first fork and shared by all.
    fork_base: OnceLock<List<PendingTail>>,
    durability: Durability,
    /// Which records of the session are foreign, see `arrivals.rs`.
    arrival: Option<Arrival>,
    /// Whether this is the operator session, which accepts records even after `closed`.
    is_operator: bool,
    /// Whether the store has no snapshot of this session yet.
    needs_snapshot: bool,
    /// The time of the oldest unpublished record; zero if there is none.
    oldest_unpublished: Time,
    /// Whether the tail contains a record at which `Durability::Effect` publishes.
    at_boundary: bool,
    run_context: RunContext,
    unshared_forks: UnsharedForks,
}

/// What the next record needs to know about the last one.
#[derive(Clone, Copy, Debug)]
struct Head {
    id: RecordId,
    seq: u64,
    time: Time,
    generation: u64,
}

/// An actor and its serialized form for record headers.
#[derive(Debug)]
struct CachedActor {
    actor: Actor,
    json: ActorJson,
}

impl CachedActor {
    fn new(actor: Actor) -> Arc<Self> {
        Arc::new(Self { json: ActorJson::new(&actor), actor })
    }
}

/// The context: the items at `base`, which are read from the store only when needed, followed by `items`.
#[derive(Clone, Debug, Default)]
struct Context {
    base: Option<Point>,
    items: Items,
}

impl dyn Store {
    /// A new session, in memory until it is published.
    pub fn create(self: &Arc<Self>, actor: Actor) -> Session {
        Session::create(self, actor)
    }

    /// Opens a stored session to continue it. Fails with [`store::Error::Locked`] while another process has it open.
    pub async fn open(self: &Arc<Self>, session: SessionId, actor: Actor) -> Result<Session> {
        Session::open(self, session, actor).await
    }
}

/// What a new session starts with.
struct SessionInit<'a> {
    store: Arc<dyn Store>,
    actor: Arc<CachedActor>,
    origin: Option<Reference>,
    parent: Option<&'a Head>,
    state: State,
    context: Context,
    ancestors: List<PendingTail>,
    durability: Durability,
    run_context: RunContext,
}

impl SessionInit<'_> {
    /// A session without a parent.
    fn root(store: Arc<dyn Store>, actor: Arc<CachedActor>) -> Self {
        Self {
            store,
            actor,
            origin: None,
            parent: None,
            state: State::default(),
            context: Context::default(),
            ancestors: List::new(),
            durability: Durability::default(),
            run_context: RunContext::default(),
        }
    }
}

impl Session {
    /// A new session, in memory until it is published.
    pub fn create(store: &Arc<dyn Store>, actor: Actor) -> Self {
        let init = SessionInit::root(store.clone(), CachedActor::new(actor));
        Self::start(init, Kind::Created, &encode(&Created::default()), None)
    }

    /// A new session for work imported from another system. The source blob that `imported` names must already be
    /// stored.
    pub fn import(store: &Arc<dyn Store>, actor: Actor, imported: &Imported) -> Self {
        let init = SessionInit::root(store.clone(), CachedActor::new(actor));
        Self::start(init, Kind::Imported, &encode(imported), None)
    }

    /// Opens a stored session to continue it. Fails with [`ErrorKind::Operator`] for the operator session.
    ///
    /// If its records are foreign (written on another machine, by another user or in another store), the placement,
    /// grants and open questions in them do not apply here until a person gives them again.
    pub async fn open(store: &Arc<dyn Store>, session: SessionId, actor: Actor) -> Result<Self> {
        let arrivals = Arrivals::claim(store, &actor).await?;
        if arrivals.is_operator(session) {
            return Err(ErrorKind::Operator(session).into());
        }
        let mut opened = Self::open_any(store, session, actor).await?;
        opened.note_arrival(&arrivals).await?;
        Ok(opened)
    }

    /// Like [`open`](Self::open), but accepts the operator session and does not check for foreign records.
    async fn open_any(store: &Arc<dyn Store>, session: SessionId, actor: Actor) -> Result<Self> {
        let fence = store.lease(session).await?;
        let lease = Lease::granted(store.clone(), session, fence);
        Self::open_held(store, lease, CachedActor::new(actor)).await
    }

    /// Opens a session at its head with a lease that was already granted.
    async fn open_held(store: &Arc<dyn Store>, lease: Lease, actor: Arc<CachedActor>) -> Result<Self> {
        let session = lease.id;
        let row = view::row(store, session).await?;
        lease.published.store(row.seq + 1, Ordering::Release);
        let point = Point { session, seq: row.seq };
        let reader = Reader::new(store.clone());
        let head = reader.record(point).await?;
        if head.id() != row.head {
            return Err(store::Error::Tampered { point, why: crate::record::RecordError::Chain }.into());
        }
        let state = reader.state_at(point).await?;
        Ok(Self(Box::new(SessionInner {
            store: store.clone(),
            lease,
            origin: row.origin,
            head: Head { id: row.head, seq: row.seq, time: row.time, generation: row.generation },
            actor,
            state,
            context: Context { base: Some(point), items: Items::default() },
            records: List::new(),
            ancestors: List::new(),
            fork_base: OnceLock::new(),
            durability: Durability::default(),
            arrival: None,
            is_operator: false,
            needs_snapshot: false,
            oldest_unpublished: Time(0),
            at_boundary: false,
            run_context: RunContext::default(),
            unshared_forks: UnsharedForks::default(),
        })))
    }

    /// Starts a session with a first record of `kind`.
    fn start(init: SessionInit<'_>, kind: Kind, body: &[u8], extras: Option<PendingData>) -> Self {
        let now = Time::now();
        let id = crate::entropy::session_id(now);
        let parent_time = init.parent.map_or(Time(0), |parent| parent.time);
        let time = now.max(parent_time);
        let behind = parent_time.micros_since(now);
        let generation = init.parent.map_or(0, |parent| parent.generation + 1);
        let draft = Draft {
            actor: &init.actor.json,
            clock_behind: (behind > 0).then_some(behind),
            kind: &kind,
            parents: init.parent.map_or(&[], |parent| std::slice::from_ref(&parent.id)),
            seq: 0,
            session: id,
            step: init.state.step(),
            time,
        };
        let mut record = Record::seal(&draft, generation, body);
        if let Some(extras) = extras {
            record.attach(extras);
        }
        let head = Head { id: record.id(), seq: 0, time, generation };
        let mut records = List::new();
        records.push(record);
        Self(Box::new(SessionInner {
            lease: Lease::fresh(init.store.clone(), id),
            store: init.store,
            origin: init.origin,
            head,
            actor: init.actor,
            state: init.state,
            context: init.context,
            records,
            ancestors: init.ancestors,
            fork_base: OnceLock::new(),
            durability: init.durability,
            arrival: None,
            is_operator: false,
            needs_snapshot: true,
            oldest_unpublished: time,
            at_boundary: false,
            run_context: init.run_context,
            unshared_forks: UnsharedForks::default(),
        }))
    }

    /// Appends a record. It becomes durable when it is [published](Session::publish).
    pub fn append<B: Body>(&mut self, mut body: B) -> Result<RecordId> {
        if B::KIND.is_written_by_operation() {
            let why = "records of this kind are written only by the operation of that name".into();
            return Err(ErrorKind::BadBody { kind: B::KIND.to_string(), why }.into());
        }
        let mut blobs = Vec::from_iter(body.take_blob());
        body.visit_text(&mut |content| content.spill(&mut blobs));
        let bytes = encode(&body);
        let record = self.push(B::KIND, &bytes, &[], blobs, &body)?;
        Ok(record.id())
    }

    /// Appends a record of any kind with its body as JSON text. For kinds that this version has no type for.
    pub fn append_json(&mut self, kind: &str, body: &str) -> Result<RecordId> {
        let bad = |why: String| ErrorKind::BadBody { kind: kind.chars().take(80).collect(), why };
        let kind: Kind = kind.parse().map_err(|e: crate::kind::NotAKind| bad(e.to_string()))?;
        if kind.is_written_by_operation() {
            return Err(bad("records of this kind are written only by the operation of that name".into()).into());
        }
        // Leading whitespace is not part of the body: a body starts with its brace.
        let body = body.trim_ascii_start();
        let value: serde_json::Value = serde_json::from_str(body).map_err(|e| bad(e.to_string()))?;
        if !value.is_object() {
            return Err(bad("the body must be a JSON object".into()).into());
        }
        if !crate::blob::references(body.as_bytes()).is_empty() {
            return Err(bad("the body names a blob, and append_json cannot store blobs".into()).into());
        }
        let dyn_body = body::read(&kind, body.as_bytes()).map_err(|why| bad(why.to_string()))?;
        let dyn_body = dyn_body.unwrap_or(Box::new(UntypedBody));
        let record = self.push(kind, body.as_bytes(), &[], Vec::new(), &*dyn_body)?;
        Ok(record.id())
    }

    /// Seals and appends a record. Every record of a session goes through this function.
    fn push(
        &mut self,
        kind: Kind,
        body: &[u8],
        more_parents: &[Head],
        blobs: Vec<Blob>,
        dyn_body: &dyn DynBody,
    ) -> Result<Record> {
        if self.0.state.closed && !self.0.is_operator {
            return Err(ErrorKind::Closed(self.id()).into());
        }
        self.0.run_context.check()?;
        // Records that operations write (a merge, for example) grow with the history and have no limit.
        if body.len() > BODY_LIMIT && !kind.is_written_by_operation() {
            return Err(ErrorKind::TooLarge { size: body.len() }.into());
        }
        if let Some(record) = self.take_replayed(&kind, body)? {
            return Ok(record);
        }
        let (mut record, time) = self.seal(&kind, body, more_parents);
        let at = RecordMeta { id: record.id(), seq: record.seq(), generation: record.generation() };
        dyn_body.fold(&at, &mut self.0.state);
        let snapshot = at.seq.is_multiple_of(SNAPSHOT_EVERY).then(|| self.0.state.to_snapshot());
        if snapshot.is_some() || !blobs.is_empty() {
            record.attach(PendingData { blobs, snapshot, origin: None });
        }
        self.0.at_boundary |= self.is_boundary(&kind, dyn_body);
        self.add_to_tail(&record, time);
        if let Some(item_kind) = dyn_body.item_kind() {
            self.0.context.items.push(Item::new(record.point(), 0, item_kind, at.generation));
        }
        Ok(record)
    }

    /// While a run is replayed: the recorded record that equals this one. `None` when the session is live.
    fn take_replayed(&mut self, kind: &Kind, body: &[u8]) -> Result<Option<Record>> {
        if self.is_live() {
            return Ok(None);
        }
        let now = || format!("{kind}: {}", crate::summary::one_line(&String::from_utf8_lossy(body)));
        let recorded = self.take_recorded(kind, |record| record.body_bytes() == Some(body));
        let recorded = self.fork_if_diverged(recorded.map_err(|error| error.now(now())))?;
        if let Some(record) = &recorded {
            self.advance_over(record.clone())?;
        }
        Ok(recorded)
    }

    /// Seals the next record. Its time is not before any parent's, and its generation is one above the greatest of
    /// them.
    fn seal(&self, kind: &Kind, body: &[u8], more_parents: &[Head]) -> (Record, Time) {
        let heads = || more_parents.iter().chain([&self.0.head]);
        let now = Time::now();
        let floor = heads().map(|head| head.time).max().unwrap_or_default();
        let behind = floor.micros_since(now);
        let generation = 1 + heads().map(|head| head.generation).max().unwrap_or_default();
        let several: Vec<RecordId>;
        let parents = match more_parents {
            [] => std::slice::from_ref(&self.0.head.id),
            more => {
                several = std::iter::once(self.0.head.id).chain(more.iter().map(|head| head.id)).collect();
                &several
            }
        };
        let draft = Draft {
            actor: &self.0.actor.json,
            clock_behind: (behind > 0).then_some(behind),
            kind,
            parents,
            seq: self.0.head.seq + 1,
            session: self.0.lease.id,
            step: self.0.state.step(),
            time: now.max(floor),
        };
        (Record::seal(&draft, generation, body), draft.time)
    }

    /// Whether `Durability::Effect` publishes after a record that was just folded.
    fn is_boundary(&self, kind: &Kind, dyn_body: &dyn DynBody) -> bool {
        match kind.row().publishes {
            Publishes::Never => false,
            Publishes::Always => true,
            Publishes::UnlessPure => !dyn_body.is_pure(&self.0.state),
            Publishes::AtOutermostStep => self.0.state.steps.iter().all(|step| step.inherited),
        }
    }

    /// Makes a record the head of the session.
    fn add_to_tail(&mut self, record: &Record, time: Time) {
        self.0.head = Head { id: record.id(), seq: record.seq(), time, generation: record.generation() };
        if self.0.oldest_unpublished == Time(0) {
            self.0.oldest_unpublished = time;
        }
        if record.kind().row().resume == OnResume::Compared {
            self.0.run_context.note_program_record(record.seq());
        }
        self.0.records.push(record.clone());
        self.0.fork_base = OnceLock::new();
    }

    /// Sets which records of this session are foreign.
    pub(crate) fn set_arrival(&mut self, arrival: Option<Arrival>) {
        self.0.arrival = arrival;
        self.revoke_foreign_authority();
    }

    /// Appends the `arrived` record that ends the foreign part: records after it were made here.
    pub(crate) fn end_arrival(&mut self, arrival: &Arrival) -> Result<()> {
        let end = arrival.end();
        self.push(Kind::Arrived, &encode(&end), &[], Vec::new(), &end)?;
        Ok(())
    }

    /// If the head is a foreign record, drops the placement, grants and open questions from the state.
    fn revoke_foreign_authority(&mut self) {
        if self.0.arrival.is_some_and(|arrival| arrival.covers(self.0.head.seq)) {
            self.0.state.revoke_authority();
        }
    }

    /// The session's id.
    pub fn id(&self) -> SessionId {
        self.0.lease.id
    }

    /// A reference to the last record.
    pub fn head(&self) -> Reference {
        Reference { session: self.0.lease.id, seq: self.0.head.seq, id: self.0.head.id }
    }

    /// The fork point; `None` for a root.
    pub fn origin(&self) -> Option<Reference> {
        self.0.origin
    }

    /// The actor of records that are appended from now on.
    pub fn actor(&self) -> &Actor {
        &self.0.actor.actor
    }

    /// Changes the actor of records that are appended from now on.
    pub fn act_as(&mut self, actor: Actor) {
        self.0.actor = CachedActor::new(actor);
    }

    /// The state that the records up to the head fold into.
    pub fn state(&self) -> &State {
        &self.0.state
    }

    /// The usage of the session and all its ancestors and merged branches. Each record counts once.
    pub fn usage(&self) -> Usage {
        self.0.state.usage
    }

    /// What was started in this session and is not finished.
    pub fn pending(&self) -> Pending {
        self.0.state.pending()
    }

    /// The title of the session.
    pub fn title(&self) -> Option<&str> {
        self.0.state.title.as_deref()
    }

    /// The store that the session belongs to.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    fn point(&self) -> Point {
        Point { session: self.0.lease.id, seq: self.0.head.seq }
    }

    /// The context items. Reads those from the store that are not in memory.
    async fn items(&mut self) -> Result<Items> {
        if let Some(base) = self.0.context.base {
            let mut items = context::items_at_point(&self.reader(), base).await?;
            for item in self.0.context.items.to_vec() {
                items.push(item);
            }
            self.0.context = Context { base: None, items };
        }
        Ok(self.0.context.items.clone())
    }
}

/// The body of a kind that this version has no type for. It changes neither state nor context.
struct UntypedBody;

impl DynBody for UntypedBody {
    fn fold(&self, _: &RecordMeta, _: &mut State) {}
    fn is_pure(&self, _: &State) -> bool {
        false
    }
    fn summary(&self, _: SessionId) -> String {
        String::new()
    }
    fn item_kind(&self) -> Option<ItemKind> {
        None
    }
}

thread_local! {
    static BODY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The bytes of a serialized body, in a thread-local buffer that is reused. Serializing body types cannot fail.
struct Encoded(Vec<u8>);

fn encode<B: serde::Serialize>(body: &B) -> Encoded {
    let mut out = BODY.take();
    out.clear();
    if serde_json::to_writer(&mut out, body).is_err() {
        out.clear();
    }
    Encoded(out)
}

impl std::ops::Deref for Encoded {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Encoded {
    fn drop(&mut self) {
        // Do not keep a buffer that one large body enlarged.
        if self.0.capacity() <= 64 * 1024 {
            BODY.set(std::mem::take(&mut self.0));
        }
    }
}
