//! The lines of a run that is resumed: all are held and read at first, and taken out where the program comes to them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustc_hash::FxHashMap as HashMap;

use super::gear::Gear;
use super::lease::Lease;
use super::replay::{Replay, head_of};
use super::run::OnDivergence;
use super::{Context, Durability, Line, Session, Voice};
use crate::ancestry::{Ancestry, forked};
use crate::arrivals::{Arrival, Arrivals};
use crate::body::{Forked, Instead, Maker, StepLeft};
use crate::clock::Time;
use crate::context::Items;
use crate::error::{Diverged, ErrorKind, Result};
use crate::id::{Digest, Point, RecordId, SessionId};
use crate::kind::Kind;
use crate::list::List;
use crate::reader::{Reader, tampered};
use crate::record::Record;
use crate::state::State;
use crate::store::{Row, Store, Which};

/// Why a run goes on on another line than its first.
const OTHER_CODE: &str = "the run goes on with other code";

/// The branches that a run has stored, by the fork that made them, and the lines that it left for others.
#[derive(Default)]
pub(super) struct Tree {
    branches: Mutex<HashMap<ForkKey, Vec<Branch>>>,
    edition: OnceLock<String>,
    moved: Mutex<HashMap<SessionId, SessionId>>,
}

/// Which fork of which step of which line.
#[derive(PartialEq, Eq, Hash)]
struct ForkKey {
    maker: Maker,
    which: ForkName,
}

#[derive(PartialEq, Eq, Hash)]
enum ForkName {
    Ordinal(u64),
    Call(String),
}

impl ForkName {
    fn of(forked: &Forked) -> Self {
        match &forked.call {
            Some(call) => ForkName::Call(call.clone()),
            None => ForkName::Ordinal(forked.ordinal.unwrap_or_default()),
        }
    }
}

/// What is known of a fork.
pub(super) enum Known {
    /// It was not made.
    Nothing,
    /// It was made, and this is its branch.
    Branch(Box<Branch>),
    /// Another one was made in its place, in words.
    Another(String),
}

impl Tree {
    /// Takes out the branch of a fork, if it is one that `fits`.
    pub(super) fn take(&self, maker: Maker, forked: &Forked, fits: impl Fn(&Forked) -> bool) -> Known {
        let which = ForkName::of(forked);
        let mut branches = self.branches.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(made) = branches.get_mut(&ForkKey { maker, which }) else { return Known::Nothing };
        match made.iter().rposition(|branch| fits(&branch.forked)) {
            Some(at) => Known::Branch(Box::new(made.remove(at))),
            None => made.last().map_or(Known::Nothing, |other| Known::Another(in_words(&other.forked))),
        }
    }

    fn put(&self, maker: Maker, which: ForkName, branch: Branch) {
        let mut branches = self.branches.lock().unwrap_or_else(PoisonError::into_inner);
        branches.entry(ForkKey { maker, which }).or_default().push(branch);
    }

    /// The name of this resumption, or of the one that it goes on with.
    pub(super) fn edition(&self) -> String {
        self.edition.get_or_init(|| format!("{:016x}", crate::entropy::random_number())).clone()
    }

    /// Remembers that the run went on on another line.
    pub(super) fn moved(&self, from: SessionId, to: SessionId) {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner).insert(from, to);
    }

    /// The line on which the run goes on that was on `line`.
    pub(super) fn now(&self, mut line: SessionId) -> SessionId {
        let moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(to) = moved.get(&line) {
            line = *to;
        }
        line
    }
}

/// A stored line at its first record.
pub(super) struct Branch {
    row: Row,
    hold: Lease,
    first: Record,
    /// How it began, if it is a fork.
    forked: Forked,
    state: State,
    replay: Replay,
    arrival: Option<Arrival>,
}

impl Branch {
    /// Reads a line: all of it, or up to where the run left it. Only what may grow is held.
    async fn load(
        store: &Arc<dyn Store>,
        id: SessionId,
        left_at: Option<u64>,
        arrivals: &Arrivals,
        actor: &Arc<Voice>,
    ) -> Result<Self> {
        let row = crate::view::row(store, id).await?;
        let mut hold = match row.closed || left_at.is_some() {
            true => Lease::taken(store.clone(), id, 0),
            false => Lease::taken(store.clone(), id, store.lease(id).await?),
        };
        let head = Point { session: id, seq: row.seq };
        let mut arrival = arrivals.of_line(&Reader::new(store.clone()), head).await?;
        if arrival.is_some_and(|arrival| arrival.covers(row.seq)) && hold.fence > 0 {
            // Where it came from elsewhere, that ends at its head.
            let mut opened = Session::open_held(store, hold, actor.clone()).await?;
            opened.note_arrival(arrivals).await?;
            opened.publish().await?;
            arrival = opened.0.arrival;
            hold = opened.0.hold;
        }
        // What somebody added before it was held belongs to it.
        let row = crate::view::row(store, id).await?;
        hold.published.store(row.seq + 1, Ordering::Release);
        let point = Point { session: id, seq: 0 };
        let reader = Reader::new(store.clone());
        let first = reader.record(point).await?;
        let state = reader.state_at(point).await?;
        let began = first.header().map_err(|why| ErrorKind::Record { point, why: why.into() })?.actor;
        let until = left_at.unwrap_or(row.seq);
        let left = steps_left(&reader, id, until).await?;
        let forked = forked(&first)?.unwrap_or_else(|| Forked::new(point, OTHER_CODE));
        let mut replay = Replay::new(until, began, forked.why.clone(), left);
        replay.look_ahead(&reader, id, 0).await?;
        Ok(Self { row, hold, first, forked, state, replay, arrival })
    }

    /// Where steps were left on it, or on a line after it.
    pub(super) fn steps_left(&self) -> &HashMap<RecordId, Point> {
        &self.replay.left
    }

    fn into_session(
        self,
        store: Arc<dyn Store>,
        actor: Arc<Voice>,
        durability: Durability,
        mut gear: Gear,
    ) -> Result<Session> {
        let Self { row, hold, first, state, replay, arrival, .. } = self;
        let head = head_of(&first)?;
        let point = first.point();
        let mut records = List::new();
        records.push(first);
        gear.set_replay(Some(replay));
        let mut session = Session(Box::new(Line {
            store,
            hold,
            origin: row.origin,
            head,
            actor,
            state,
            context: Context { base: Some(point), items: Items::default() },
            records,
            ancestors: List::new(),
            fork_base: OnceLock::new(),
            durability,
            arrival: None,
            is_operator: false,
            needs_snapshot: false,
            oldest_unpublished: Time(0),
            at_boundary: false,
            gear,
        }));
        session.set_arrival(arrival);
        session.come_to_life();
        Ok(session)
    }
}

fn in_words(forked: &Forked) -> String {
    format!("a fork at {}: {}", forked.from, crate::summary::one_line(&forked.why))
}

/// Where the steps of a line were left.
async fn steps_left(reader: &Reader, line: SessionId, until: u64) -> Result<HashMap<RecordId, Point>> {
    let (mut left, mut from) = (HashMap::default(), 0);
    loop {
        let page = reader.page(line, from, until, &[Kind::StepLeft]).await?;
        for record in &page.records {
            let body: StepLeft = record.body().map_err(|why| tampered(record, why))?;
            left.insert(body.step, record.point());
        }
        match page.more {
            true => from = page.position,
            false => return Ok(left),
        }
    }
}

/// Reads the lines of a run.
struct Gathering<'a> {
    store: &'a Arc<dyn Store>,
    /// The line that was asked for.
    wanted: SessionId,
    /// Where lines were left for others, on the way to the line that is asked for.
    way: HashMap<SessionId, (u64, SessionId)>,
    /// The resumptions that the way leads through.
    editions: Vec<String>,
    /// The last of them that had the same code.
    current: Option<String>,
    on_divergence: OnDivergence,
    program: Option<Digest>,
    /// What of the store came from elsewhere.
    arrivals: Arrivals,
    actor: Arc<Voice>,
    /// Branches that are still to be read: of which line, in which step, and how they began.
    unread: Vec<(Maker, Forked, SessionId)>,
}

impl Gathering<'_> {
    /// Reads a line, and those on which the run went on instead. Their branches are read later.
    async fn line(&mut self, line: SessionId) -> Result<Branch> {
        let (mut lines, mut next) = (Vec::new(), Some(line));
        while let Some(line) = next {
            let forks = self.forks(line).await?;
            let left = self.left(line, &forks).await?;
            let left_at = left.map(|(seq, _)| seq);
            for (first, forked) in forks {
                if forked.is_of_run() && left_at.is_none_or(|seq| forked.from.seq <= seq) {
                    let point = first.point();
                    let step = first.header().map_err(|why| ErrorKind::Record { point, why: why.into() })?.step;
                    let maker = forked.maker.clone().unwrap_or(Maker { session: line, step });
                    self.unread.push((maker, forked, point.session));
                }
            }
            lines.push((line, left_at));
            next = left.map(|(_, next)| next);
        }
        let mut then: Option<Branch> = None;
        while let Some((line, left_at)) = lines.pop() {
            let mut branch = Branch::load(self.store, line, left_at, &self.arrivals, &self.actor).await?;
            if let Some(then) = then {
                branch.replay.goes_on(then);
            }
            then = Some(branch);
        }
        then.ok_or_else(|| crate::store::Error::NotFound(format!("session {line}")).into())
    }

    /// Where the run left a line, and for which.
    async fn left(&mut self, line: SessionId, forks: &[(Record, Forked)]) -> Result<Option<(u64, SessionId)>> {
        if let Some(known) = self.way.get(&line) {
            return Ok(Some(*known));
        }
        // The line that was asked for is not left, and of the others only those that were left together with it; whoever
        // forks where the code diverges goes on with the youngest.
        let mut youngest: Option<(SessionId, u64, &Instead)> = None;
        for (first, forked) in forks {
            let Some(instead) = &forked.instead else { continue };
            let id = first.point().session;
            let is_together = line != self.wanted && self.editions.contains(&instead.edition);
            let is_meant = is_together || self.on_divergence == OnDivergence::Fork && self.goes_on(id, instead).await?;
            if is_meant && youngest.as_ref().is_none_or(|(known, ..)| *known < id) {
                youngest = Some((id, forked.from.seq, instead));
            }
        }
        let Some((id, seq, instead)) = youngest else { return Ok(None) };
        if self.has_the_code_of(instead) {
            self.current = Some(instead.edition.clone());
        }
        self.editions.push(instead.edition.clone());
        Ok(Some((seq, id)))
    }

    fn has_the_code_of(&self, instead: &Instead) -> bool {
        instead.program.as_ref().map(|program| program.digest) == self.program
    }

    /// Whether code that is made of what this run is made of now can go on on a fork: not where other code came to its
    /// end there.
    async fn goes_on(&self, line: SessionId, instead: &Instead) -> Result<bool> {
        if self.has_the_code_of(instead) {
            return Ok(true);
        }
        let seq = crate::view::row(self.store, line).await?.seq;
        let state = Reader::new(self.store.clone()).state_at(Point { session: line, seq }).await?;
        Ok(state.steps.iter().any(|step| !step.inherited))
    }

    /// Reads the branches of all lines.
    async fn branches(&mut self) -> Result<Tree> {
        let tree = Tree::default();
        while let Some((maker, forked, line)) = self.unread.pop() {
            let branch = self.line(line).await?;
            tree.put(maker, ForkName::of(&forked), branch);
        }
        Ok(tree)
    }

    /// The forks off a line, by their first records.
    async fn forks(&self, line: SessionId) -> Result<Vec<(Record, Forked)>> {
        let mut forks = Vec::new();
        for row in self.store.sessions(Which::ChildrenOf(line).into()).await? {
            let first = self.first_of(row.id).await?;
            if let Some(forked) = forked(&first)? {
                forks.push((first, forked));
            }
        }
        Ok(forks)
    }

    async fn first_of(&self, line: SessionId) -> Result<Record> {
        Ok(Reader::new(self.store.clone()).record(Point { session: line, seq: 0 }).await?)
    }
}

impl Session {
    /// Opens the run that `line` belongs to at its first record, with everything that its branches have recorded.
    /// Where the run went on on other lines it does so again, as far as to `line`.
    pub(super) async fn resume(
        store: &Arc<dyn Store>,
        line: SessionId,
        ancestry: Ancestry,
        actor: Arc<Voice>,
        on_divergence: OnDivergence,
        program: Option<Digest>,
    ) -> Result<Self> {
        let Ancestry { root, left, .. } = ancestry;
        let arrivals = Arrivals::settle(store, &actor.actor).await?;
        if arrivals.is_operator(root) {
            return Err(ErrorKind::Operator(root).into());
        }
        let mut gathering = Gathering {
            store,
            wanted: line,
            way: left.iter().map(|(from, next, _)| (from.session, (from.seq, *next))).collect(),
            current: None,
            editions: left.iter().map(|(.., instead)| instead.edition.clone()).collect(),
            on_divergence,
            program,
            arrivals,
            actor: actor.clone(),
            unread: Vec::new(),
        };
        let same_code = left.iter().find(|(.., instead)| gathering.has_the_code_of(instead));
        gathering.current = same_code.map(|(.., instead)| instead.edition.clone());
        let root = gathering.line(root).await?;
        let tree = gathering.branches().await?;
        // What diverges from here on belongs to what diverged before.
        if let Some(edition) = gathering.current {
            let _ = tree.edition.set(edition);
        }
        let mut gear = Gear::of_run(Some(Arc::new(tree)));
        gear.shared_mut().on_divergence = on_divergence;
        root.into_session(store.clone(), actor, Durability::default(), gear)
    }

    /// A stored line of the run of this session, with what this session carries.
    pub(super) fn revive(&self, branch: Branch) -> Result<Session> {
        let line = &self.0;
        branch.into_session(line.store.clone(), line.actor.clone(), line.durability, line.gear.inherited())
    }

    /// The branch that this fork made before, if the run has it.
    pub(super) fn recorded_fork(&self, forked: &Forked) -> Result<Option<Session>> {
        let Some(tree) = self.0.gear.tree() else { return Ok(None) };
        let fits = |made: &Forked| match (&forked.call, &forked.maker) {
            (Some(_), _) => true,
            (None, Some(_)) => made.from == forked.from && made.why == forked.why,
            (None, None) => made.maker.is_none() && made.why == forked.why && self.forked_here(made.from),
        };
        match tree.take(self.as_maker(), forked, fits) {
            Known::Branch(branch) => self.revive(*branch).map(Some),
            Known::Another(recorded) if self.0.gear.on_divergence() == OnDivergence::Stop => {
                let diverged = Diverged { point: self.point(), recorded, now: in_words(forked), changed: Vec::new() };
                Err(ErrorKind::Diverged(Box::new(diverged)).into())
            }
            Known::Another(_) | Known::Nothing => Ok(None),
        }
    }

    /// This line, in its innermost step.
    pub(super) fn as_maker(&self) -> Maker {
        Maker { session: self.id(), step: self.0.state.step().copied() }
    }

    /// Goes on on another line of the run.
    pub(super) fn move_to(&mut self, line: Session) {
        if let Some(tree) = self.0.gear.tree() {
            tree.moved(self.id(), line.id());
        }
        *self = line;
    }
}
