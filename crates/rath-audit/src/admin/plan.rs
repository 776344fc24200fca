//! Plans an erasure: what it would destroy, what it must keep, and what it cannot reach.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use rath_core::store::{Holder, SessionFilter, SessionInfo};
use rath_core::{Kind, OPERATOR, Point, Record, RecordId, Reference, Result, SessionId, State, View};
use rath_store::{ErasePlan, EraseReport};
use serde::Serialize;

use super::copies::CopyFinder;
use super::{Hold, Holds, StoreAdmin};

/// What to erase.
#[derive(Clone, Debug, Default)]
pub struct ErasureRequest {
    /// Erase these records.
    pub records: Vec<Record>,
    /// Erase every record of these sessions.
    pub sessions: Vec<SessionId>,
    /// Erase everything that mentions this subject.
    pub about: Option<String>,
    /// Whether to erase known copies of the selected records too.
    pub derived: bool,
}

/// A record that would be erased.
#[derive(Clone, Debug, Serialize)]
pub struct ErasureTarget {
    /// The record.
    pub record: Reference,
    /// The record's kind.
    pub kind: String,
    /// A one-line summary of the record.
    #[serde(rename = "says")]
    pub summary: String,
    /// Why the record would be erased.
    #[serde(rename = "because")]
    pub reason: TargetReason,
}

/// Why a record would be erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetReason {
    /// The record or its session was named.
    Named,
    /// The record mentions the subject.
    About,
    /// The record is a copy of this record.
    CopyOf(Point),
}

/// Records of a session that were selected and cannot be erased.
#[derive(Clone, Debug, Serialize)]
pub struct RefusedRecords {
    /// The session.
    pub session: SessionId,
    /// The number of records.
    pub records: u64,
    /// Why they cannot be erased.
    pub why: Blocker,
}

/// Why records cannot be erased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Blocker {
    /// A hold covers the records.
    OnHold(Box<Hold>),
    /// A process is working on the session.
    #[serde(rename = "at_work")]
    InUse(Holder),
    /// Something unfinished needs the records.
    Open(String),
    /// The records are in the operator session.
    Operator,
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnHold(hold) => hold.fmt(f),
            Self::InUse(holder) => write!(f, "{holder} is working on it: stop it first"),
            Self::Open(what) => write!(f, "{what} is not finished: finish or cancel it first"),
            Self::Operator => f.write_str("operator session records cannot be erased"),
        }
    }
}

/// The preview of an erasure.
#[derive(Debug, Default, Serialize)]
pub struct PlannedErasure {
    /// The records to erase, sorted by session and number.
    pub targets: Vec<ErasureTarget>,
    /// Queued posts to erase, by session and post id.
    pub posts: Vec<(SessionId, String)>,
    /// Known copies that were not selected and stay.
    pub copies: Vec<ErasureTarget>,
    /// Selected records that cannot be erased.
    pub refused: Vec<RefusedRecords>,
    /// Sessions that were forked after a record to erase: their history loses it too.
    #[serde(rename = "standing")]
    pub dependents: Vec<SessionId>,
    /// The number of records whose actor has the subject's name.
    #[serde(rename = "made_by")]
    pub actor_records: u64,
    /// Versioned files that mention the subject.
    pub files: Vec<String>,
    /// Affected sessions with a workspace: files on disk are not searched.
    #[serde(rename = "placed")]
    pub with_workspace: Vec<SessionId>,
    /// Sessions that have no bodies left and whose file versions are to be erased too, by their first records.
    pub emptied: Vec<Reference>,
    /// Sessions under a legal hold. Their file versions are kept.
    #[serde(skip)]
    held: Vec<SessionId>,
    /// What else is destroyed with the bodies, and what stays.
    #[serde(rename = "weight")]
    pub effects: EraseReport,
}

impl PlannedErasure {
    /// Whether nothing would be erased.
    pub fn is_empty(&self) -> bool {
        let leaves_files = self.emptied.is_empty() || self.effects.blobs == 0;
        self.targets.is_empty() && self.posts.is_empty() && leaves_files
    }

    /// The sessions whose records or posts would be erased.
    pub fn sessions(&self) -> BTreeSet<SessionId> {
        self.records().map(|record| record.session).chain(self.posts.iter().map(|(id, _)| *id)).collect()
    }

    pub(super) fn records(&self) -> impl Iterator<Item = Reference> {
        self.targets.iter().map(|target| target.record).chain(self.emptied.iter().copied())
    }

    pub(super) fn keep_files_of(&mut self, holds: &Holds) {
        self.held = holds.sessions();
    }

    pub(super) fn erase_plan(&self) -> ErasePlan {
        ErasePlan {
            records: self.records().collect(),
            held: self.held.clone(),
            posts: self.posts.iter().map(|(_, id)| id.clone()).collect(),
            recorded: true,
            ..ErasePlan::new()
        }
    }
}

fn target(record: &Record, reason: TargetReason) -> ErasureTarget {
    let summary = rath_core::summary::of(record);
    ErasureTarget { record: record.reference(), kind: record.kind().to_string(), summary, reason }
}

/// Everything that can prevent records from being erased.
pub(super) struct Obstacles {
    holds: Holds,
    operator: Option<SessionId>,
    rows: HashMap<SessionId, SessionInfo>,
    open: HashMap<SessionId, Vec<(RecordId, String)>>,
    /// By session: the last record that a fork in use depends on, and the process that uses the fork.
    in_use: HashMap<SessionId, (u64, Holder)>,
    /// Records of unfinished work that a fork in use inherited, by record id.
    in_memory: HashMap<RecordId, Holder>,
}

impl Obstacles {
    pub(super) async fn of(admin: &StoreAdmin) -> Result<Self> {
        let rows = admin.store.sessions(SessionFilter::All.into()).await?;
        let operator = admin.store.sessions(SessionFilter::Run(OPERATOR.into()).into()).await?;
        let rows: HashMap<SessionId, SessionInfo> = rows.into_iter().map(|row| (row.id, row)).collect();
        let mut in_memory = HashMap::new();
        for (row, holder) in rows.values().filter_map(|row| Some((row, row.origin.and(row.holder.as_ref())?))) {
            // A session that cannot be read cannot be in use.
            let Ok(view) = View::of(&admin.store, row.id, None).await else { continue };
            let State { steps, calls, asks, .. } = view.state();
            let steps = steps.iter().map(|step| step.record);
            let calls = calls.iter().map(|call| call.record);
            let asks = asks.iter().map(|ask| ask.record);
            in_memory.extend(steps.chain(calls).chain(asks).map(|record| (record, holder.clone())));
        }
        Ok(Self {
            holds: Holds::of(&admin.store).await?,
            operator: operator.first().map(|row| row.id),
            in_use: in_use(&rows),
            rows,
            open: HashMap::new(),
            in_memory,
        })
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &SessionInfo> {
        self.rows.values()
    }

    pub(super) fn is_operator(&self, session: SessionId) -> bool {
        self.operator == Some(session)
    }

    pub(super) fn hold_over(&self, session: SessionId) -> Option<&Hold> {
        self.holds.over_session(session)
    }

    /// Why a record cannot be erased.
    async fn against(&mut self, admin: &StoreAdmin, record: &Record) -> Result<Option<Blocker>> {
        let session = record.session();
        if self.operator == Some(session) {
            return Ok(Some(Blocker::Operator));
        }
        if let Some(hold) = self.holds.over(record.point()) {
            return Ok(Some(Blocker::OnHold(Box::new(hold.clone()))));
        }
        if let Some(holder) = self.rows.get(&session).and_then(|row| row.holder.clone()) {
            return Ok(Some(Blocker::InUse(holder)));
        }
        // A process that works on a fork has the fork's workspace, permissions and unfinished work in memory, and would
        // write them again.
        let is_inherited = matches!(record.kind(), Kind::Placed | Kind::Granted);
        let inherited = self.in_use.get(&session).filter(|(seq, _)| is_inherited && *seq >= record.seq());
        let in_memory = self.in_memory.get(&record.id());
        if let Some(holder) = inherited.map(|(_, holder)| holder).or(in_memory) {
            return Ok(Some(Blocker::InUse(holder.clone())));
        }
        if let Entry::Vacant(unknown) = self.open.entry(session) {
            let pending = View::of(&admin.store, session, None).await?.pending();
            let steps = pending.steps.into_iter().map(|step| (step.record, format!("step {}", step.name)));
            let calls =
                pending.calls.into_iter().map(|call| (call.record, format!("call {} of {}", call.id, call.tool)));
            let asks = pending.asks.into_iter().map(|ask| (ask.record, "a question".to_owned()));
            let waits = pending.waits.into_iter().map(|wait| (wait.record, format!("a wait for {}", wait.what)));
            unknown.insert(steps.chain(calls).chain(asks).chain(waits).collect());
        }
        let open = self.open.get(&session).into_iter().flatten().find(|(id, _)| *id == record.id());
        Ok(open.map(|(_, what)| Blocker::Open(what.clone())))
    }
}

/// Follows the fork points of every session in use. A session is visited once: its ancestors are the same from every
/// descendant.
fn in_use(rows: &HashMap<SessionId, SessionInfo>) -> HashMap<SessionId, (u64, Holder)> {
    let mut in_use: HashMap<SessionId, (u64, Holder)> = HashMap::new();
    for row in rows.values() {
        let (Some(holder), mut origin) = (&row.holder, row.origin) else { continue };
        while let Some(from) = origin {
            match in_use.entry(from.session) {
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
    in_use
}

impl StoreAdmin {
    /// Plans the erasure of `request` and changes nothing. `progress` is called with the number of records read so far.
    pub async fn plan(&self, request: ErasureRequest, progress: &mut dyn FnMut(u64)) -> Result<PlannedErasure> {
        let mut plan = PlannedErasure::default();
        let mut selected: BTreeMap<Point, (Record, TargetReason)> = BTreeMap::new();
        for record in request.records {
            selected.insert(record.point(), (record, TargetReason::Named));
        }
        let mut emptied = Vec::new();
        for session in request.sessions {
            let own = View::of(&self.store, session, None).await?.own_records_unchecked().await?;
            if own.iter().all(|record| record.body_bytes().is_none()) {
                emptied.extend(own.first().cloned());
            }
            for record in own {
                selected.insert(record.point(), (record, TargetReason::Named));
            }
        }
        if let Some(subject) = &request.about {
            let matches = self.find_subject(subject, progress).await?;
            for record in matches.records {
                selected.entry(record.point()).or_insert((record, TargetReason::About));
            }
            (plan.posts, plan.actor_records) = (matches.posts, matches.actor_records);
            plan.files = matches.files.into_iter().collect();
        }
        selected.retain(|_, (record, _)| record.body_bytes().is_some());
        let originals = selected.iter().map(|(point, (record, _))| (*point, record.clone())).collect();
        let copies = CopyFinder::of(self, &originals).await?;
        for (point, (record, of)) in copies.found {
            match request.derived {
                true => drop(selected.insert(point, (record, TargetReason::CopyOf(of)))),
                false => plan.copies.push(target(&record, TargetReason::CopyOf(of))),
            }
        }
        let mut obstacles = Obstacles::of(self).await?;
        plan.keep_files_of(&obstacles.holds);
        for record in emptied {
            if obstacles.against(self, &record).await?.is_none() {
                plan.emptied.push(record.reference());
            }
        }
        for (record, reason) in selected.into_values() {
            match obstacles.against(self, &record).await? {
                None => plan.targets.push(target(&record, reason)),
                Some(why) => plan.refuse(record.session(), why),
            }
        }
        let mut posts = Vec::new();
        for (session, id) in std::mem::take(&mut plan.posts) {
            match obstacles.holds.over_session(session).cloned() {
                Some(hold) => plan.refuse(session, Blocker::OnHold(Box::new(hold))),
                None => posts.push((session, id)),
            }
        }
        plan.posts = posts;
        self.complete(plan, &obstacles, progress).await
    }

    /// Adds what else would be destroyed, and which sessions are affected.
    async fn complete(
        &self,
        mut plan: PlannedErasure,
        obstacles: &Obstacles,
        progress: &mut dyn FnMut(u64),
    ) -> Result<PlannedErasure> {
        let mut firsts: HashMap<SessionId, u64> = HashMap::new();
        for target in &plan.targets {
            let first = firsts.entry(target.record.session).or_insert(u64::MAX);
            *first = (*first).min(target.record.seq);
        }
        let loses_history = |row: &&SessionInfo| {
            row.origin.is_some_and(|origin| firsts.get(&origin.session).is_some_and(|first| origin.seq >= *first))
        };
        plan.dependents = obstacles.rows.values().filter(loses_history).map(|row| row.id).collect();
        plan.dependents.sort();
        for session in plan.sessions() {
            if View::of(&self.store, session, None).await?.state().placement.is_some() {
                plan.with_workspace.push(session);
            }
        }
        plan.effects = self.embedded.erase_dry_run(&plan.erase_plan(), progress)?;
        // Workspaces that are removed with their sessions are not reported.
        let is_removed = |session: &SessionId| {
            plan.effects.workspaces.iter().any(|workspace| workspace.ends_with(session.to_string()))
        };
        plan.with_workspace.retain(|session| !is_removed(session));
        Ok(plan)
    }
}

impl PlannedErasure {
    pub(super) fn refuse(&mut self, session: SessionId, why: Blocker) {
        match self.refused.iter_mut().find(|refused| refused.session == session && refused.why == why) {
            Some(refused) => refused.records += 1,
            None => self.refused.push(RefusedRecords { session, records: 1, why }),
        }
    }
}
