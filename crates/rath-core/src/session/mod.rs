//! The session: a line of records with one head, as a value that moves.

mod branch;
mod compress;
mod giving_up;
mod inbox;
mod lease;
mod merge;
mod operator;
mod publish;
mod read;
mod resume;
mod run;
mod run_context;
mod sample;
mod say;
mod shown;
mod step;
mod tree;
mod trim;

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use crate::actor::Actor;
use crate::arrivals::{Arrival, Arrivals};
use crate::blob::Blob;
use crate::body::{self, Body, Created, Imported, Meaning};
use crate::clock::Time;
use crate::context::{self, Item, Items, Shape};
use crate::error::{ErrorKind, Result};
use crate::header::{ActorJson, Draft};
use crate::id::{Point, RecordId, Reference, SessionId};
use crate::kind::{Kind, OnResume, Publishes};
use crate::list::List;
use crate::reader::Reader;
use crate::record::{Extras, Record};
use crate::state::{At, Pending, SNAPSHOT_EVERY, State};
use crate::store::{self, Store};
use crate::usage::Usage;
use crate::view;

pub use merge::How;
pub use operator::OPERATOR;
pub use publish::Durability;
pub(crate) use run::RUN;
pub use run::{Conditions, OnDivergence, WorkflowName};
pub use step::Entered;
pub(crate) use step::typed;

use lease::Lease;
pub(crate) use publish::Unpublished;
use run_context::Gear;

/// A body may have this many bytes after its long contents became blobs.
pub const BODY_LIMIT: usize = 1024 * 1024;

/// Published records stay at hand, to be read and shown, until they are more than this; the youngest still do then.
const RECENT: usize = 32;
const STILL: usize = 8;

/// A line of records with one head.
///
/// A session is used once, or forked: it is not `Clone`, and what ends or merges it takes it by value. Appending
/// makes records in its tail; [`publish`](Session::publish) makes them durable. Dropping a session gives its lease
/// back and loses only what was never published.
pub struct Session(Box<Line>);

/// What a session is: boxed, so that the value moves cheaply.
struct Line {
    store: Arc<dyn Store>,
    hold: Lease,
    origin: Option<Reference>,
    head: Head,
    actor: Arc<Voice>,
    state: State,
    context: Context,
    /// Records at hand, youngest first. Those at or above the line's published count are the tail.
    records: List<Record>,
    ancestors: List<Unpublished>,
    /// What a fork from the head stands on, made for the first and shared by all.
    fork_base: OnceLock<List<Unpublished>>,
    durability: Durability,
    /// What of the line was made elsewhere.
    arrival: Option<Arrival>,
    /// Whether it is the store's own account, which goes on behind `closed`.
    is_operator: bool,
    /// Whether the store has no snapshot of this line yet.
    needs_snapshot: bool,
    /// When the oldest unpublished record was made; zero when there is none.
    oldest_unpublished: Time,
    /// Whether an unpublished record is one that `Durability::Effect` publishes at.
    at_boundary: bool,
    gear: Gear,
}

/// The last record of a line, as the next one needs it.
#[derive(Clone, Copy, Debug)]
struct Head {
    id: RecordId,
    seq: u64,
    time: Time,
    generation: u64,
}

/// An actor, ready to be written into headers.
#[derive(Debug)]
struct Voice {
    actor: Actor,
    json: ActorJson,
}

impl Voice {
    fn new(actor: Actor) -> Arc<Self> {
        Arc::new(Self { json: ActorJson::new(&actor), actor })
    }
}

/// The context: items at hand, behind those of a place that is read when they are needed.
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

    /// Opens a stored session to go on with it. Fails with [`store::Error::Held`] while another process has it.
    pub async fn open(self: &Arc<Self>, session: SessionId, actor: Actor) -> Result<Session> {
        Session::open(self, session, actor).await
    }
}

/// A line about to begin.
struct Birth<'a> {
    store: Arc<dyn Store>,
    actor: Arc<Voice>,
    origin: Option<Reference>,
    parent: Option<&'a Head>,
    state: State,
    context: Context,
    ancestors: List<Unpublished>,
    durability: Durability,
    gear: Gear,
}

impl Birth<'_> {
    /// A line that stands on nothing.
    fn root(store: Arc<dyn Store>, actor: Arc<Voice>) -> Self {
        Self {
            store,
            actor,
            origin: None,
            parent: None,
            state: State::default(),
            context: Context::default(),
            ancestors: List::new(),
            durability: Durability::default(),
            gear: Gear::default(),
        }
    }
}

impl Session {
    /// A new session, in memory until it is published.
    pub fn create(store: &Arc<dyn Store>, actor: Actor) -> Self {
        let birth = Birth::root(store.clone(), Voice::new(actor));
        Self::born(birth, Kind::Created, &encode(&Created::default()), None)
    }

    /// A new session with work from another system. What `imported` names as its source is in the store already.
    pub fn import(store: &Arc<dyn Store>, actor: Actor, imported: &Imported) -> Self {
        let birth = Birth::root(store.clone(), Voice::new(actor));
        Self::born(birth, Kind::Imported, &encode(imported), None)
    }

    /// Opens a stored session to go on with it. Where it came from elsewhere it has no place, no permissions and no open
    /// questions until a person gives them here. The operator session is refused.
    pub async fn open(store: &Arc<dyn Store>, session: SessionId, actor: Actor) -> Result<Self> {
        let arrivals = Arrivals::settle(store, &actor).await?;
        if arrivals.is_operator(session) {
            return Err(ErrorKind::Operator(session).into());
        }
        let mut opened = Self::open_any(store, session, actor).await?;
        opened.note_arrival(&arrivals).await?;
        Ok(opened)
    }

    /// As [`open`](Self::open), for any session, and wherever it came from.
    async fn open_any(store: &Arc<dyn Store>, session: SessionId, actor: Actor) -> Result<Self> {
        let fence = store.lease(session).await?;
        let hold = Lease::taken(store.clone(), session, fence);
        Self::open_held(store, hold, Voice::new(actor)).await
    }

    /// Opens a session that is held already, at its head.
    async fn open_held(store: &Arc<dyn Store>, hold: Lease, actor: Arc<Voice>) -> Result<Self> {
        let session = hold.id;
        let row = view::row(store, session).await?;
        hold.published.store(row.seq + 1, Ordering::Release);
        let point = Point { session, seq: row.seq };
        let reader = Reader::new(store.clone());
        let head = reader.record(point).await?;
        if head.id() != row.head {
            return Err(store::Error::Tampered { point, why: crate::record::Fault::Chain }.into());
        }
        let state = reader.state_at(point).await?;
        Ok(Self(Box::new(Line {
            store: store.clone(),
            hold,
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
            gear: Gear::default(),
        })))
    }

    /// Begins a line with a record of `kind`.
    fn born(birth: Birth<'_>, kind: Kind, body: &[u8], extras: Option<Extras>) -> Self {
        let now = Time::now();
        let id = crate::entropy::session_id(now);
        let parent_time = birth.parent.map_or(Time(0), |parent| parent.time);
        let time = now.max(parent_time);
        let behind = parent_time.micros_since(now);
        let generation = birth.parent.map_or(0, |parent| parent.generation + 1);
        let draft = Draft {
            actor: &birth.actor.json,
            clock_behind: (behind > 0).then_some(behind),
            kind: &kind,
            parents: birth.parent.map_or(&[], |parent| std::slice::from_ref(&parent.id)),
            seq: 0,
            session: id,
            step: birth.state.step(),
            time,
        };
        let mut record = Record::seal(&draft, generation, body);
        if let Some(extras) = extras {
            record.bring(extras);
        }
        let head = Head { id: record.id(), seq: 0, time, generation };
        let mut records = List::new();
        records.push(record);
        Self(Box::new(Line {
            hold: Lease::fresh(birth.store.clone(), id),
            store: birth.store,
            origin: birth.origin,
            head,
            actor: birth.actor,
            state: birth.state,
            context: birth.context,
            records,
            ancestors: birth.ancestors,
            fork_base: OnceLock::new(),
            durability: birth.durability,
            arrival: None,
            is_operator: false,
            needs_snapshot: true,
            oldest_unpublished: time,
            at_boundary: false,
            gear: birth.gear,
        }))
    }

    /// Adds a record. It is durable once [published](Session::publish).
    pub fn append<B: Body>(&mut self, mut body: B) -> Result<RecordId> {
        if B::KIND.is_written_by_operation() {
            let why = "it is written by the operation of that name".into();
            return Err(ErrorKind::BadBody { kind: B::KIND.to_string(), why }.into());
        }
        let mut blobs = Vec::from_iter(body.brought());
        body.contents(&mut |content| content.spill(&mut blobs));
        let bytes = encode(&body);
        let record = self.push(B::KIND, &bytes, &[], blobs, &body)?;
        Ok(record.id())
    }

    /// Adds a record of any kind, its body as JSON text. For kinds that this version has no type for.
    pub fn append_json(&mut self, kind: &str, body: &str) -> Result<RecordId> {
        let bad = |why: String| ErrorKind::BadBody { kind: kind.chars().take(80).collect(), why };
        let kind: Kind = kind.parse().map_err(|e: crate::kind::NotAKind| bad(e.to_string()))?;
        if kind.is_written_by_operation() {
            return Err(bad("it is written by the operation of that name".into()).into());
        }
        // What stands before it is no part of it: a body begins with its brace.
        let body = body.trim_ascii_start();
        let value: serde_json::Value = serde_json::from_str(body).map_err(|e| bad(e.to_string()))?;
        if !value.is_object() {
            return Err(bad("it must be a JSON object".into()).into());
        }
        if !crate::blob::references(body.as_bytes()).is_empty() {
            return Err(bad("it names a blob that it does not bring".into()).into());
        }
        let meaning = body::read(&kind, body.as_bytes()).map_err(|why| bad(why.to_string()))?;
        let meaning = meaning.unwrap_or(Box::new(Silent));
        let record = self.push(kind, body.as_bytes(), &[], Vec::new(), &*meaning)?;
        Ok(record.id())
    }

    /// Seals a record on this line: the one way that anything gets into a session.
    fn push(
        &mut self,
        kind: Kind,
        body: &[u8],
        more_parents: &[Head],
        blobs: Vec<Blob>,
        meaning: &dyn Meaning,
    ) -> Result<Record> {
        if self.0.state.closed && !self.0.is_operator {
            return Err(ErrorKind::Closed(self.id()).into());
        }
        self.0.gear.check()?;
        // What an operation writes is as long as the history makes it.
        if body.len() > BODY_LIMIT && !kind.is_written_by_operation() {
            return Err(ErrorKind::TooLarge { size: body.len() }.into());
        }
        if let Some(record) = self.take_replayed(&kind, body)? {
            return Ok(record);
        }
        let (mut record, time) = self.seal(&kind, body, more_parents);
        let at = At { id: record.id(), seq: record.seq(), generation: record.generation() };
        meaning.fold(&at, &mut self.0.state);
        let snapshot = at.seq.is_multiple_of(SNAPSHOT_EVERY).then(|| self.0.state.to_snapshot());
        if snapshot.is_some() || !blobs.is_empty() {
            record.bring(Extras { blobs, snapshot, origin: None });
        }
        self.0.at_boundary |= self.is_boundary(&kind, meaning);
        self.add_to_tail(&record, time);
        if let Some(shape) = meaning.shape() {
            self.0.context.items.push(Item::new(record.point(), 0, shape, at.generation));
        }
        Ok(record)
    }

    /// The recorded one, while the session is resumed; `None` when the session is live.
    fn take_replayed(&mut self, kind: &Kind, body: &[u8]) -> Result<Option<Record>> {
        if self.is_live() {
            return Ok(None);
        }
        let now = || format!("{kind}: {}", crate::summary::one_line(&String::from_utf8_lossy(body)));
        let taken = self.take_recorded(kind, |record| record.body_bytes() == Some(body));
        let taken = self.unless_diverged(taken.map_err(|error| error.now(now())))?;
        if let Some(record) = &taken {
            self.absorb(record.clone())?;
        }
        Ok(taken)
    }

    /// Makes the next record of the line: never earlier than any of its parents, one generation above them.
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
            session: self.0.hold.id,
            step: self.0.state.step(),
            time: now.max(floor),
        };
        (Record::seal(&draft, generation, body), draft.time)
    }

    /// Whether `Durability::Effect` publishes behind a record that was just folded.
    fn is_boundary(&self, kind: &Kind, meaning: &dyn Meaning) -> bool {
        match kind.row().publishes {
            Publishes::Never => false,
            Publishes::Always => true,
            Publishes::UnlessPure => !meaning.is_pure(&self.0.state),
            Publishes::AtOutermostStep => self.0.state.steps.iter().all(|step| step.inherited),
        }
    }

    /// Makes a record the head of the line.
    fn add_to_tail(&mut self, record: &Record, time: Time) {
        self.0.head = Head { id: record.id(), seq: record.seq(), time, generation: record.generation() };
        if self.0.oldest_unpublished == Time(0) {
            self.0.oldest_unpublished = time;
        }
        if record.kind().row().resume == OnResume::Compared {
            self.0.gear.made(record.seq());
        }
        self.0.records.push(record.clone());
        self.0.fork_base = OnceLock::new();
    }

    /// Notes what of this line was made elsewhere.
    pub(crate) fn set_arrival(&mut self, arrival: Option<Arrival>) {
        self.0.arrival = arrival;
        self.leave_what_arrived();
    }

    /// Ends what was made elsewhere: what comes behind this record is made here.
    pub(crate) fn end_arrival(&mut self, arrival: &Arrival) -> Result<()> {
        let end = arrival.end();
        self.push(Kind::Arrived, &encode(&end), &[], Vec::new(), &end)?;
        Ok(())
    }

    /// What the line says of place, permissions and answers where it stands, if that was said elsewhere: it does not count.
    fn leave_what_arrived(&mut self) {
        if self.0.arrival.is_some_and(|arrival| arrival.covers(self.0.head.seq)) {
            self.0.state.arrive();
        }
    }

    /// The session's id.
    pub fn id(&self) -> SessionId {
        self.0.hold.id
    }

    /// The last record: place and id.
    pub fn head(&self) -> Reference {
        Reference { session: self.0.hold.id, seq: self.0.head.seq, id: self.0.head.id }
    }

    /// The fork point; `None` for a root.
    pub fn origin(&self) -> Option<Reference> {
        self.0.origin
    }

    /// Who makes the records from here on.
    pub fn actor(&self) -> &Actor {
        &self.0.actor.actor
    }

    /// Makes another actor the maker of the records from here on.
    pub fn act_as(&mut self, actor: Actor) {
        self.0.actor = Voice::new(actor);
    }

    /// The folded state.
    pub fn state(&self) -> &State {
        &self.0.state
    }

    /// What everything behind the head used, each record once.
    pub fn usage(&self) -> Usage {
        self.0.state.usage
    }

    /// What was begun on this line and is not finished.
    pub fn pending(&self) -> Pending {
        self.0.state.pending()
    }

    /// What the session is about.
    pub fn title(&self) -> Option<&str> {
        self.0.state.title.as_deref()
    }

    /// The store it lives in.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    fn point(&self) -> Point {
        Point { session: self.0.hold.id, seq: self.0.head.seq }
    }

    /// The context items, read from the store where they are not at hand.
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

/// A body of a kind that this version has no type for.
struct Silent;

impl Meaning for Silent {
    fn fold(&self, _: &At, _: &mut State) {}
    fn is_pure(&self, _: &State) -> bool {
        false
    }
    fn summary(&self, _: SessionId) -> String {
        String::new()
    }
    fn shape(&self) -> Option<Shape> {
        None
    }
}

thread_local! {
    static BODY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The bytes of a body, in a buffer that goes round. Serialising our own plain types cannot fail.
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
        // A buffer that one large body blew up is not kept.
        if self.0.capacity() <= 64 * 1024 {
            BODY.set(std::mem::take(&mut self.0));
        }
    }
}
