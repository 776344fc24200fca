//! The stored lines of a run that is resumed.
//!
//! A branch is opened when the program comes to the step in which it was forked, not before: what other steps forked may
//! be at work in another process, or is long over. A branch that is held elsewhere is an error of the fork that asks for it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use super::lease::Lease;
use super::resume::{Replay, head_of};
use super::run::OnDivergence;
use super::run_context::{Broken, Gear};
use super::{Context, Durability, Line, Session, Voice};
use crate::ancestry::{Ancestry, forked};
use crate::arrivals::{Arrival, Arrivals};
use crate::body::{Forked, Instead, Maker, StepLeft};
use crate::clock::Time;
use crate::context::Items;
use crate::error::{Diverged, Error, ErrorKind, Result};
use crate::id::{Digest, Point, RecordId, SessionId};
use crate::kind::Kind;
use crate::list::List;
use crate::reader::{Reader, tampered};
use crate::record::Record;
use crate::state::State;
use crate::store::{self, Holder, Row, Store, Which};

/// Why a run goes on on another line than its first.
const OTHER_CODE: &str = "the run goes on with other code";

/// The branches that a run has stored, by the fork that made them, and the lines that it left for others.
pub(super) struct Tree {
    store: Arc<dyn Store>,
    /// The line that was asked for.
    wanted: SessionId,
    /// Where lines were left for others, on the way to the line that is asked for.
    way: HashMap<SessionId, (u64, SessionId)>,
    on_divergence: OnDivergence,
    program: Option<Digest>,
    /// What of the store came from elsewhere.
    arrivals: Arrivals,
    actor: Arc<Voice>,
    /// The name of this resumption, or of the one that it goes on with.
    edition: OnceLock<String>,
    known: Mutex<Lines>,
}

/// What is known of the lines of a run so far.
#[derive(Default)]
struct Lines {
    /// Branches that are not opened yet, by who forked them.
    unread: HashMap<Maker, Vec<(Forked, SessionId)>>,
    /// Lines whose forks are known.
    noted: HashSet<SessionId>,
    /// Branches that the program may ask for.
    branches: HashMap<ForkKey, Vec<Opened>>,
    /// The line on which the run went on that had been on another one: before this process, as recorded.
    next: HashMap<SessionId, SessionId>,
    /// The same in this process.
    moved: HashMap<SessionId, SessionId>,
    /// The resumptions that the way to the wanted line leads through.
    editions: Vec<String>,
    /// The last of them that had the same code.
    current: Option<String>,
}

/// A stored branch that the program may ask for.
struct Opened {
    forked: Forked,
    /// The branch, or who holds which line of it.
    found: std::result::Result<Branch, (SessionId, Holder)>,
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
    /// It was made, and another process holds this line of its branch.
    Held(SessionId, Holder),
    /// Another one was made in its place, in words.
    Another(String),
}

impl Tree {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out the branch of a fork, if it is one that `fits`.
    pub(super) fn take(&self, maker: Maker, forked: &Forked, fits: impl Fn(&Forked) -> bool) -> Known {
        let which = ForkName::of(forked);
        let mut lines = self.lock();
        let Some(made) = lines.branches.get_mut(&ForkKey { maker, which }) else { return Known::Nothing };
        match made.iter().rposition(|opened| fits(&opened.forked)) {
            Some(at) => match &made[at].found {
                // Whoever asks again hears the same.
                Err((line, holder)) => Known::Held(*line, holder.clone()),
                Ok(_) => match made.remove(at).found {
                    Ok(branch) => Known::Branch(Box::new(branch)),
                    Err((line, holder)) => Known::Held(line, holder),
                },
            },
            None => made.last().map_or(Known::Nothing, |other| Known::Another(in_words(&other.forked))),
        }
    }

    /// The name of this resumption, or of the one that it goes on with.
    pub(super) fn edition(&self) -> String {
        // What diverges from here on belongs to what diverged before.
        let current = || self.lock().current.clone();
        let fresh = || format!("{:016x}", crate::entropy::random_number());
        self.edition.get_or_init(|| current().unwrap_or_else(fresh)).clone()
    }

    /// Remembers that the run went on on another line.
    pub(super) fn moved(&self, from: SessionId, to: SessionId) {
        self.lock().moved.insert(from, to);
    }

    /// The line on which the run goes on that was on `line`.
    pub(super) fn now(&self, mut line: SessionId) -> SessionId {
        let lines = self.lock();
        while let Some(to) = lines.moved.get(&line) {
            line = *to;
        }
        line
    }

    /// Opens the branches that these steps forked, on their lines and on those on which the run went on. With a branch
    /// come those that are forked from it before its program enters a step.
    pub(super) async fn open_branches_of(&self, makers: Vec<Maker>) -> Result<()> {
        let mut makers = makers;
        while let Some(maker) = makers.pop() {
            let unread = {
                let mut lines = self.lock();
                if let Some(next) = lines.next.get(&maker.session) {
                    makers.push(Maker { session: *next, step: maker.step });
                }
                lines.unread.remove(&maker).unwrap_or_default()
            };
            for (forked, id) in unread {
                let found = match self.line(id).await {
                    Ok(branch) => {
                        makers.push(Maker { session: id, step: branch.state.step().copied() });
                        branch.makers_at_hand(&mut makers);
                        Ok(branch)
                    }
                    Err(error) => Err(error.held()?),
                };
                let key = ForkKey { maker: maker.clone(), which: ForkName::of(&forked) };
                self.lock().branches.entry(key).or_default().push(Opened { forked, found });
            }
        }
        Ok(())
    }

    /// Opens all branches of a line that are not open yet.
    pub(super) async fn open_branches_of_line(&self, line: SessionId) -> Result<()> {
        let makers = self.lock().unread.keys().filter(|maker| maker.session == line).cloned().collect();
        self.open_branches_of(makers).await
    }

    /// Reads a line, and those on which the run went on instead. Their branches are noted, and not opened.
    async fn line(&self, line: SessionId) -> Result<Branch> {
        let (mut ids, mut next) = (Vec::new(), Some(line));
        while let Some(line) = next {
            let forks = self.forks(line).await?;
            let left = self.left(line, &forks).await?;
            let left_at = left.map(|(seq, _)| seq);
            self.note(line, forks, left_at)?;
            ids.push((line, left_at));
            next = left.map(|(_, next)| next);
            if let Some(next) = next {
                self.lock().next.insert(line, next);
            }
        }
        let mut then: Option<Branch> = None;
        while let Some((line, left_at)) = ids.pop() {
            let mut branch = Branch::load(&self.store, line, left_at, &self.arrivals, &self.actor).await?;
            if let Some(then) = then {
                branch.replay.goes_on(then);
            }
            then = Some(branch);
        }
        then.ok_or_else(|| store::Error::NotFound(format!("session {line}")).into())
    }

    /// Opens the branches that `maker` forked at records of another line. Nobody may have read that line: its step is over.
    pub(super) async fn open_branches_at(&self, line: SessionId, maker: Maker) -> Result<()> {
        if !self.lock().noted.contains(&line) {
            let forks = self.forks(line).await?;
            self.note(line, forks, None)?;
        }
        self.open_branches_of(vec![maker]).await
    }

    /// Notes the branches that were forked off a line, as far as the run did not leave it before.
    fn note(&self, line: SessionId, forks: Vec<(Record, Forked)>, left_at: Option<u64>) -> Result<()> {
        let mut lines = self.lock();
        if !lines.noted.insert(line) {
            return Ok(());
        }
        for (first, forked) in forks {
            if forked.is_of_run() && left_at.is_none_or(|seq| forked.from.seq <= seq) {
                let point = first.point();
                let step = first.header().map_err(|why| ErrorKind::Record { point, why: why.into() })?.step;
                let maker = forked.maker.clone().unwrap_or(Maker { session: line, step });
                lines.unread.entry(maker).or_default().push((forked, point.session));
            }
        }
        Ok(())
    }

    /// Where the run left a line, and for which.
    async fn left(&self, line: SessionId, forks: &[(Record, Forked)]) -> Result<Option<(u64, SessionId)>> {
        if let Some(known) = self.way.get(&line) {
            return Ok(Some(*known));
        }
        // The line that was asked for is not left, and of the others only those that were left together with it; whoever
        // forks where the code diverges goes on with the youngest.
        let editions = self.lock().editions.clone();
        let mut youngest: Option<(SessionId, u64, &Instead)> = None;
        for (first, forked) in forks {
            let Some(instead) = &forked.instead else { continue };
            let id = first.point().session;
            let is_together = line != self.wanted && editions.contains(&instead.edition);
            let is_meant = is_together || self.on_divergence == OnDivergence::Fork && self.goes_on(id, instead).await?;
            if is_meant && youngest.as_ref().is_none_or(|(known, ..)| *known < id) {
                youngest = Some((id, forked.from.seq, instead));
            }
        }
        let Some((id, seq, instead)) = youngest else { return Ok(None) };
        let mut lines = self.lock();
        if self.has_the_code_of(instead) {
            lines.current = Some(instead.edition.clone());
        }
        lines.editions.push(instead.edition.clone());
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
        let seq = crate::view::row(&self.store, line).await?.seq;
        let state = Reader::new(self.store.clone()).state_at(Point { session: line, seq }).await?;
        Ok(state.steps.iter().any(|step| !step.inherited))
    }

    /// The forks off a line, by their first records.
    async fn forks(&self, line: SessionId) -> Result<Vec<(Record, Forked)>> {
        let (reader, mut forks) = (Reader::new(self.store.clone()), Vec::new());
        for row in self.store.sessions(Which::ChildrenOf(line).into()).await? {
            let first = reader.record(Point { session: row.id, seq: 0 }).await?;
            if let Some(forked) = forked(&first)? {
                forks.push((first, forked));
            }
        }
        Ok(forks)
    }
}

/// A stored line at its first record.
pub(super) struct Branch {
    row: Row,
    hold: Lease,
    first: Record,
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
        let why = forked(&first)?.map_or_else(|| OTHER_CODE.to_owned(), |forked| forked.why);
        let mut replay = Replay::new(until, began, why, left);
        replay.look_ahead(&reader, id, 0).await?;
        Ok(Self { row, hold, first, state, replay, arrival })
    }

    /// The steps at its beginning whose forks the program may ask for without waiting before, here and on the lines on
    /// which the run went on.
    fn makers_at_hand(&self, makers: &mut Vec<Maker>) {
        makers.extend(self.replay.makers_at_hand(self.row.id));
        if let Some(then) = self.replay.then() {
            then.makers_at_hand(makers);
        }
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

impl Error {
    /// For the error that another process holds a line: which, and who. Any other error is passed on.
    fn held(self) -> Result<(SessionId, Holder)> {
        match self.kind() {
            ErrorKind::Store(store::Error::Held { session, holder }) => Ok((*session, holder.clone())),
            _ => Err(self),
        }
    }

    /// What makes a fork unusable, if it is that.
    pub(super) fn to_broken(&self) -> Option<Broken> {
        match self.kind() {
            ErrorKind::Diverged(diverged) => Some(Broken::Diverged(Arc::new((**diverged).clone()))),
            ErrorKind::Store(store::Error::Held { session, holder }) => Some(Broken::Held(*session, holder.clone())),
            _ => None,
        }
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

impl Session {
    /// Opens the run that `line` belongs to at its first record.
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
        let mut tree = Tree {
            store: store.clone(),
            wanted: line,
            way: left.iter().map(|(from, next, _)| (from.session, (from.seq, *next))).collect(),
            on_divergence,
            program,
            arrivals,
            actor: actor.clone(),
            edition: OnceLock::new(),
            known: Mutex::default(),
        };
        let same_code = left.iter().find(|(.., instead)| tree.has_the_code_of(instead));
        let current = same_code.map(|(.., instead)| instead.edition.clone());
        let editions = left.iter().map(|(.., instead)| instead.edition.clone()).collect();
        tree.known = Mutex::new(Lines { editions, current, ..Lines::default() });
        let root = tree.line(root).await?;
        let mut makers = vec![Maker { session: root.row.id, step: None }];
        root.makers_at_hand(&mut makers);
        tree.open_branches_of(makers).await?;
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
            Known::Held(session, holder) => Err(store::Error::Held { session, holder }.into()),
            Known::Another(recorded) if self.0.gear.on_divergence() == OnDivergence::Stop => {
                let diverged = Diverged { point: self.point(), recorded, now: in_words(forked), changed: Vec::new() };
                Err(ErrorKind::Diverged(Box::new(diverged)).into())
            }
            Known::Another(_) | Known::Nothing => Ok(None),
        }
    }

    /// Opens the branches that this step of the line forked before.
    pub(super) async fn open_branches_of(&self, step: RecordId) -> Result<()> {
        match self.0.gear.tree() {
            Some(tree) => tree.open_branches_of(vec![Maker { session: self.id(), step: Some(step) }]).await,
            None => Ok(()),
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
