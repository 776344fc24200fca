//! What an erasure would destroy, what it must leave, and what it cannot reach.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use rath_core::store::{Holder, Row, Which};
use rath_core::{Kind, OPERATOR, Point, Record, RecordId, Reference, Result, SessionId, State, View};
use rath_store::{Destroyed, Doomed};
use serde::Serialize;

use super::derived::Copies;
use super::{Care, Hold, Holds};

/// What somebody wants erased.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// These records.
    pub records: Vec<Record>,
    /// Every record of these sessions.
    pub sessions: Vec<SessionId>,
    /// Everything that says this.
    pub about: Option<String>,
    /// Known copies of those too.
    pub derived: bool,
}

/// A record that would be erased.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// It.
    pub record: Reference,
    /// Its kind.
    pub kind: String,
    /// What it says, in a line.
    pub says: String,
    /// Why it is among them.
    pub because: Because,
}

/// Why a record is to be erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Because {
    /// It was named, or its session was.
    Named,
    /// It says what was searched for.
    About,
    /// It says again what this one says.
    CopyOf(Point),
}

/// Records of a session that stay although they were meant.
#[derive(Clone, Debug, Serialize)]
pub struct Refused {
    /// The session.
    pub session: SessionId,
    /// How many records.
    pub records: u64,
    /// Why.
    pub why: WhyNot,
}

/// Why records stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyNot {
    /// A hold covers them.
    OnHold(Box<Hold>),
    /// A process works on the session.
    AtWork(Holder),
    /// Something that is not finished needs them.
    Open(String),
    /// They are the store's own account of what was done to it.
    Operator,
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnHold(hold) => hold.fmt(f),
            Self::AtWork(holder) => write!(f, "{holder} works on it: stop it first"),
            Self::Open(what) => write!(f, "{what} is not finished: finish or cancel it first"),
            Self::Operator => f.write_str("they are the store's account of what was done to it"),
        }
    }
}

/// What would be erased.
#[derive(Debug, Default, Serialize)]
pub struct Plan {
    /// Records, by session and place.
    pub targets: Vec<Target>,
    /// Posts that wait, by session and id.
    pub posts: Vec<(SessionId, String)>,
    /// Known copies that stay, because nobody asked for them.
    pub copies: Vec<Target>,
    /// What stays although it was meant.
    pub refused: Vec<Refused>,
    /// Sessions that were forked behind what goes: they lose it too.
    pub standing: Vec<SessionId>,
    /// Records whose maker is called as was searched for.
    pub made_by: u64,
    /// Files of versions that hold what was searched for.
    pub files: Vec<String>,
    /// Sessions concerned that work on files: copies on disk are not looked at.
    pub placed: Vec<SessionId>,
    /// Sessions without any body left that are to lose their versions of files too, by their first records.
    pub emptied: Vec<Reference>,
    /// Sessions that holds cover: they keep their versions of files.
    #[serde(skip)]
    held: Vec<SessionId>,
    /// What else goes with the bodies, and what stays.
    pub weight: Destroyed,
}

impl Plan {
    /// Whether nothing would go.
    pub fn is_empty(&self) -> bool {
        let leaves_files = self.emptied.is_empty() || self.weight.blobs == 0;
        self.targets.is_empty() && self.posts.is_empty() && leaves_files
    }

    /// The sessions whose records go.
    pub fn sessions(&self) -> BTreeSet<SessionId> {
        self.records().map(|record| record.session).chain(self.posts.iter().map(|(id, _)| *id)).collect()
    }

    pub(super) fn records(&self) -> impl Iterator<Item = Reference> {
        self.targets.iter().map(|target| target.record).chain(self.emptied.iter().copied())
    }

    pub(super) fn keep_files_of(&mut self, holds: &Holds) {
        self.held = holds.sessions();
    }

    pub(super) fn doomed(&self) -> Doomed {
        Doomed {
            records: self.records().collect(),
            held: self.held.clone(),
            posts: self.posts.iter().map(|(_, id)| id.clone()).collect(),
            recorded: true,
            ..Doomed::new()
        }
    }
}

fn target(record: &Record, because: Because) -> Target {
    let says = rath_core::summary::of(record);
    Target { record: record.reference(), kind: record.kind().to_string(), says, because }
}

/// What keeps records of a session from going.
pub(super) struct Obstacles {
    holds: Holds,
    operator: Option<SessionId>,
    rows: HashMap<SessionId, Row>,
    open: HashMap<SessionId, Vec<(RecordId, String)>>,
    /// By session, up to where somebody works on what was forked from it, or from its forks.
    at_work: HashMap<SessionId, (u64, Holder)>,
    /// What was open when forks began that somebody works on.
    in_memory: HashMap<RecordId, Holder>,
}

impl Obstacles {
    pub(super) async fn of(care: &Care) -> Result<Self> {
        let rows = care.store.sessions(Which::All.into()).await?;
        let operator = care.store.sessions(Which::Run(OPERATOR.into()).into()).await?;
        let rows: HashMap<SessionId, Row> = rows.into_iter().map(|row| (row.id, row)).collect();
        let mut in_memory = HashMap::new();
        for (row, holder) in rows.values().filter_map(|row| Some((row, row.origin.and(row.holder.as_ref())?))) {
            // What cannot be read here cannot be worked on either.
            let Ok(view) = View::of(&care.store, row.id, None).await else { continue };
            let State { steps, calls, asks, .. } = view.state();
            let steps = steps.iter().map(|step| step.record);
            let calls = calls.iter().map(|call| call.record);
            let asks = asks.iter().map(|ask| ask.record);
            in_memory.extend(steps.chain(calls).chain(asks).map(|record| (record, holder.clone())));
        }
        Ok(Self {
            holds: Holds::of(&care.store).await?,
            operator: operator.first().map(|row| row.id),
            at_work: at_work(&rows),
            rows,
            open: HashMap::new(),
            in_memory,
        })
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    pub(super) fn is_operator(&self, session: SessionId) -> bool {
        self.operator == Some(session)
    }

    pub(super) fn hold_over(&self, session: SessionId) -> Option<&Hold> {
        self.holds.over_session(session)
    }

    /// Why a record must stay.
    async fn against(&mut self, care: &Care, record: &Record) -> Result<Option<WhyNot>> {
        let session = record.session();
        if self.operator == Some(session) {
            return Ok(Some(WhyNot::Operator));
        }
        if let Some(hold) = self.holds.over(record.point()) {
            return Ok(Some(WhyNot::OnHold(Box::new(hold.clone()))));
        }
        if let Some(holder) = self.rows.get(&session).and_then(|row| row.holder.clone()) {
            return Ok(Some(WhyNot::AtWork(holder)));
        }
        // Whoever works on a fork has its place, its permissions and the names of what is open in memory, and would write
        // them down again.
        let place = matches!(record.kind(), Kind::Placed | Kind::Granted);
        let behind = self.at_work.get(&session).filter(|(seq, _)| place && *seq >= record.seq());
        let in_memory = self.in_memory.get(&record.id());
        if let Some(holder) = behind.map(|(_, holder)| holder).or(in_memory) {
            return Ok(Some(WhyNot::AtWork(holder.clone())));
        }
        if let Entry::Vacant(unknown) = self.open.entry(session) {
            let pending = View::of(&care.store, session, None).await?.pending();
            let steps = pending.steps.into_iter().map(|step| (step.record, format!("step {}", step.name)));
            let calls =
                pending.calls.into_iter().map(|call| (call.record, format!("call {} of {}", call.id, call.tool)));
            let asks = pending.asks.into_iter().map(|ask| (ask.record, "a question".to_owned()));
            let waits = pending.waits.into_iter().map(|wait| (wait.record, format!("a wait for {}", wait.what)));
            unknown.insert(steps.chain(calls).chain(asks).chain(waits).collect());
        }
        let open = self.open.get(&session).into_iter().flatten().find(|(id, _)| *id == record.id());
        Ok(open.map(|(_, what)| WhyNot::Open(what.clone())))
    }
}

/// Walks up from every session that somebody works on. Each line is passed once: what stands behind it is the same from
/// wherever one comes.
fn at_work(rows: &HashMap<SessionId, Row>) -> HashMap<SessionId, (u64, Holder)> {
    let mut at_work: HashMap<SessionId, (u64, Holder)> = HashMap::new();
    for row in rows.values() {
        let (Some(holder), mut origin) = (&row.holder, row.origin) else { continue };
        while let Some(from) = origin {
            match at_work.entry(from.session) {
                Entry::Occupied(mut known) => {
                    let known = known.get_mut();
                    known.0 = known.0.max(from.seq);
                    break;
                }
                Entry::Vacant(unknown) => drop(unknown.insert((from.seq, holder.clone()))),
            }
            origin = rows.get(&from.session).and_then(|row| row.origin);
        }
    }
    at_work
}

impl Care {
    /// Works out what `wish` means, and changes nothing. `progress` hears how many records were read.
    pub async fn plan(&self, wish: Wish, progress: &mut dyn FnMut(u64)) -> Result<Plan> {
        let mut plan = Plan::default();
        let mut meant: BTreeMap<Point, (Record, Because)> = BTreeMap::new();
        for record in wish.records {
            meant.insert(record.point(), (record, Because::Named));
        }
        let mut emptied = Vec::new();
        for session in wish.sessions {
            let own = View::of(&self.store, session, None).await?.own_as_stored().await?;
            if own.iter().all(|record| record.body_bytes().is_none()) {
                emptied.extend(own.first().cloned());
            }
            for record in own {
                meant.insert(record.point(), (record, Because::Named));
            }
        }
        if let Some(subject) = &wish.about {
            let about = self.about(subject, progress).await?;
            for record in about.records {
                meant.entry(record.point()).or_insert((record, Because::About));
            }
            (plan.posts, plan.made_by) = (about.posts, about.made_by);
            plan.files = about.files.into_iter().collect();
        }
        meant.retain(|_, (record, _)| record.body_bytes().is_some());
        let originals = meant.iter().map(|(point, (record, _))| (*point, record.clone())).collect();
        let copies = Copies::of(self, &originals).await?;
        for (point, (record, of)) in copies.found {
            match wish.derived {
                true => drop(meant.insert(point, (record, Because::CopyOf(of)))),
                false => plan.copies.push(target(&record, Because::CopyOf(of))),
            }
        }
        let mut obstacles = Obstacles::of(self).await?;
        plan.keep_files_of(&obstacles.holds);
        for record in emptied {
            if obstacles.against(self, &record).await?.is_none() {
                plan.emptied.push(record.reference());
            }
        }
        for (record, because) in meant.into_values() {
            match obstacles.against(self, &record).await? {
                None => plan.targets.push(target(&record, because)),
                Some(why) => plan.refuse(record.session(), why),
            }
        }
        let mut posts = Vec::new();
        for (session, id) in std::mem::take(&mut plan.posts) {
            match obstacles.holds.over_session(session).cloned() {
                Some(hold) => plan.refuse(session, WhyNot::OnHold(Box::new(hold))),
                None => posts.push((session, id)),
            }
        }
        plan.posts = posts;
        self.complete(plan, &obstacles, progress).await
    }

    /// What goes with the records of a plan, and who misses them.
    async fn complete(&self, mut plan: Plan, obstacles: &Obstacles, progress: &mut dyn FnMut(u64)) -> Result<Plan> {
        let mut firsts: HashMap<SessionId, u64> = HashMap::new();
        for target in &plan.targets {
            let first = firsts.entry(target.record.session).or_insert(u64::MAX);
            *first = (*first).min(target.record.seq);
        }
        let behind = |row: &&Row| {
            row.origin.is_some_and(|origin| firsts.get(&origin.session).is_some_and(|first| origin.seq >= *first))
        };
        plan.standing = obstacles.rows.values().filter(behind).map(|row| row.id).collect();
        plan.standing.sort();
        for session in plan.sessions() {
            if View::of(&self.store, session, None).await?.state().placement.is_some() {
                plan.placed.push(session);
            }
        }
        plan.weight = self.embedded.weigh(&plan.doomed(), progress)?;
        // Copies that go with their sessions need no care.
        let goes = |session: &SessionId| plan.weight.places.iter().any(|place| place.ends_with(session.to_string()));
        plan.placed.retain(|session| !goes(session));
        Ok(plan)
    }
}

impl Plan {
    pub(super) fn refuse(&mut self, session: SessionId, why: WhyNot) {
        match self.refused.iter_mut().find(|refused| refused.session == session && refused.why == why) {
            Some(refused) => refused.records += 1,
            None => self.refused.push(Refused { session, records: 1, why }),
        }
    }
}
