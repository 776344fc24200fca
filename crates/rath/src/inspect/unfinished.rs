//! The unfinished runs of a store, and which of them can continue now.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use rath_core::body::{Created, Forked, StepEntered, WaitKind};
use rath_core::store::{Holder, Lookup, Post, PostContent, Query, SessionInfo};
use rath_core::{Actor, Ancestry, Kind, OpenWait, Point, RecordId, Result, SessionId, Store, Time, View};
use serde::Serialize;

use super::status::{WaitingQuestion, questions};

/// The name of the outermost step of a run.
const RUN: &str = "run";

/// A run that is not finished.
#[derive(Clone, Debug, Serialize)]
pub struct UnfinishedRun {
    /// The session to resume: the run's first one, or the fork on which the run continued after its code changed.
    pub session: SessionId,
    /// The title of the session to resume.
    pub title: Option<String>,
    /// The key of the run, if it has one.
    pub key: Option<String>,
    /// The name of the workflow, as recorded with the run.
    pub workflow: Option<String>,
    /// The version of the workflow, as recorded with the run.
    pub version: Option<String>,
    /// Whether the text of the run's program is stored with it: an agent file or a run file of `rath run`.
    pub has_program: bool,
    /// The actor that started the run.
    pub started_by: Actor,
    /// Whether the run can continue.
    #[serde(flatten)]
    pub readiness: Readiness,
    /// What the records and the inboxes of the run contained when it was read.
    #[serde(skip)]
    pub(crate) signature: u64,
}

/// Whether an unfinished run can continue, and why.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Readiness {
    /// The run continues when it is resumed.
    Ready {
        /// Why; at least one reason.
        because: Vec<ReadyReason>,
    },
    /// The run waits.
    Waiting {
        /// Open questions of the run's sessions.
        questions: Vec<WaitingQuestion>,
        /// Open waits of the run's sessions for a time or an event.
        waits: Vec<WaitingFor>,
    },
    /// A process works on the run, or has one of its sessions locked.
    Locked {
        /// The process.
        holder: Holder,
    },
}

/// Why a run can continue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum ReadyReason {
    /// The run has not started its first step.
    NotStarted,
    /// The process that worked on the run ended in the middle.
    Interrupted {
        /// The session whose work was interrupted.
        session: SessionId,
    },
    /// A question was answered.
    Answered {
        /// The session that asked.
        session: SessionId,
    },
    /// The awaited time has come.
    TimeReached {
        /// The `awaited` record.
        at: Point,
        /// The awaited time.
        until: Time,
    },
    /// An awaited event is in an inbox.
    EventQueued {
        /// The `awaited` record.
        at: Point,
        /// The name of the event.
        name: String,
    },
    /// A cancellation is in an inbox.
    CancelRequested {
        /// The session to cancel.
        session: SessionId,
    },
}

impl std::fmt::Display for ReadyReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotStarted => f.write_str("has not started"),
            Self::Interrupted { .. } => f.write_str("was interrupted"),
            Self::Answered { .. } => f.write_str("its question is answered"),
            Self::TimeReached { until, .. } => write!(f, "the time {until} has come"),
            Self::EventQueued { name, .. } => write!(f, "event {name} has arrived"),
            Self::CancelRequested { .. } => f.write_str("a cancellation was requested"),
        }
    }
}

/// An open wait of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitingFor {
    /// The position of its `awaited` record.
    pub at: Point,
    /// The folded state of the wait.
    #[serde(flatten)]
    pub wait: OpenWait,
}

/// The open waits of a session at `view`.
pub(crate) fn waits(session: SessionId, view: &View) -> Vec<WaitingFor> {
    let at = |wait: &OpenWait| Point { session, seq: wait.seq };
    view.pending().waits.into_iter().map(|wait| WaitingFor { at: at(&wait), wait }).collect()
}

impl UnfinishedRun {
    /// The unfinished runs of a store, those that changed last first. `now` decides which awaited times have come.
    ///
    /// If a process ended between the start of two branches and the first one waits, the run is reported as waiting until
    /// what that branch waits for has come.
    pub async fn list(store: &Arc<dyn Store>, now: Time) -> Result<Vec<Self>> {
        RunScan::default().list(store, now).await
    }

    /// Whether the run can continue now.
    pub fn is_ready(&self) -> bool {
        matches!(self.readiness, Readiness::Ready { .. })
    }

    /// The next time that the run waits for.
    pub fn due(&self) -> Option<Time> {
        match &self.readiness {
            Readiness::Waiting { waits, .. } => waits.iter().filter_map(|one| one.wait.until).min(),
            Readiness::Ready { .. } | Readiness::Locked { .. } => None,
        }
    }
}

/// How a session belongs to its run.
#[derive(Clone, Debug)]
enum Role {
    /// The first session of a run, or a session without a run.
    First,
    /// A branch that a step of another session forked.
    Branch { of: SessionId, from: Point, step: Option<RecordId> },
    /// The run left another session at this point and continues here.
    Continuation { of: SessionId, at: u64, resume_id: String },
}

/// Lists unfinished runs again and again. Remembers what does not change, so that finished runs are not read again.
#[derive(Default)]
pub(crate) struct RunScan {
    roles: HashMap<SessionId, Role>,
    /// Runs that were finished, by their first session, with the heads of their sessions.
    finished: HashMap<SessionId, u64>,
}

/// The sessions of one run.
struct Members<'a> {
    rows: HashMap<SessionId, &'a SessionInfo>,
    branches: HashMap<SessionId, Vec<(SessionId, Point, Option<RecordId>)>>,
    /// The newest continuation of a session, the last seq of the session before it, and the id of the resume.
    continuations: HashMap<SessionId, (SessionId, u64, &'a str)>,
}

impl RunScan {
    pub(crate) async fn list(&mut self, store: &Arc<dyn Store>, now: Time) -> Result<Vec<UnfinishedRun>> {
        let rows = store.sessions(Query::all()).await?;
        let known: HashMap<SessionId, &SessionInfo> = rows.iter().map(|row| (row.id, row)).collect();
        for row in &rows {
            if row.first_kind == Kind::Forked && !self.roles.contains_key(&row.id) {
                let role = role_of(store, row.id).await?;
                self.roles.insert(row.id, role);
            }
        }
        let mut runs: HashMap<SessionId, Vec<&SessionInfo>> = HashMap::new();
        let mut order = Vec::new();
        for row in &rows {
            let first = self.first_session_of(row.id, &known);
            let members = runs.entry(first).or_insert_with(|| {
                order.push(first);
                Vec::new()
            });
            members.push(row);
        }
        let mut unfinished = Vec::new();
        for first in order {
            let members = &runs[&first];
            let heads = heads_of(members);
            if members.iter().all(|row| row.closed) || self.finished.get(&first) == Some(&heads) {
                continue;
            }
            match self.unfinished_run(store, &rows, first, members, now).await? {
                Some(run) => {
                    self.finished.remove(&first);
                    unfinished.push(run);
                }
                None => {
                    self.finished.insert(first, heads);
                }
            }
        }
        Ok(unfinished)
    }

    /// The first session of the run that a session belongs to.
    fn first_session_of(&self, mut id: SessionId, known: &HashMap<SessionId, &SessionInfo>) -> SessionId {
        // Forged fork points may form a cycle.
        let mut seen = HashSet::new();
        while seen.insert(id)
            && let Some(Role::Branch { of, .. } | Role::Continuation { of, .. }) = self.roles.get(&id)
            && known.contains_key(of)
        {
            id = *of;
        }
        id
    }

    fn members<'a>(&'a self, sessions: &[&'a SessionInfo]) -> Members<'a> {
        let rows = sessions.iter().map(|row| (row.id, *row)).collect();
        let mut members = Members { rows, branches: HashMap::new(), continuations: HashMap::new() };
        for row in sessions {
            match self.roles.get(&row.id) {
                Some(Role::Branch { of, from, step }) => {
                    members.branches.entry(*of).or_default().push((row.id, *from, *step));
                }
                Some(Role::Continuation { of, at, resume_id }) => {
                    let newest = members.continuations.entry(*of).or_insert((row.id, *at, resume_id));
                    if newest.0 < row.id {
                        *newest = (row.id, *at, resume_id);
                    }
                }
                Some(Role::First) | None => {}
            }
        }
        members
    }

    /// The run, unless it is finished or the session has no run.
    async fn unfinished_run(
        &self,
        store: &Arc<dyn Store>,
        rows: &[SessionInfo],
        first: SessionId,
        sessions: &[&SessionInfo],
        now: Time,
    ) -> Result<Option<UnfinishedRun>> {
        let members = self.members(sessions);
        let (current, left) = members.current(first);
        let Some(row) = members.rows.get(&current).filter(|row| !row.closed) else { return Ok(None) };
        let view = View::of(store, current, Some(row.seq)).await?;
        let first_record = View::of(store, first, Some(0)).await?;
        let first_record = first_record.record();
        let created = first_record.body::<Created>().ok();
        let outermost = view.state().steps.iter().find(|step| !step.inherited);
        let step = match outermost {
            Some(step) if step.name == RUN => {
                let found = store.get(Lookup::Id(step.record)).await?.into_iter().next();
                found.and_then(|record| record.body::<StepEntered>().ok())
            }
            Some(_) => return Ok(None),
            // A run that was created and has not entered its first step.
            None => match &created {
                Some(Created { run: Some(_), program: Some(_), .. }) if view.state().entered == 0 => None,
                _ => return Ok(None),
            },
        };
        let is_started = outermost.is_some();
        // The newest continuation leads to all others of the same resume. Among them, that of the first session is named.
        let newest = members.continuations.values().max_by_key(|(id, ..)| *id);
        let last_resume = left.last().and_then(|(id, _)| members.continuations.get(id)).map(|(.., resume)| *resume);
        let session = match newest {
            Some((_, _, resume_id)) if last_resume == Some(*resume_id) => current,
            Some((id, ..)) => *id,
            None => first,
        };
        let mut reading =
            Reading { store, rows, members: &members, now, findings: Findings::default(), posts: HashMap::new() };
        if is_started {
            reading.read(first).await?;
        } else if let Some(holder) = &row.holder {
            reading.findings.locked_by = Some(holder.clone());
        } else {
            reading.findings.because.push(ReadyReason::NotStarted);
        }
        let mut hasher = DefaultHasher::new();
        (heads_of(sessions), &reading.findings.because).hash(&mut hasher);
        let mut posts: Vec<&str> = reading.posts.values().flatten().map(|post| post.id.as_str()).collect();
        posts.sort_unstable();
        posts.hash(&mut hasher);
        let Findings { locked_by, because, questions, waits, unfinished: _ } = reading.findings;
        let readiness = match locked_by {
            Some(holder) => Readiness::Locked { holder },
            None if !because.is_empty() => Readiness::Ready { because },
            None => Readiness::Waiting { questions, waits },
        };
        let started_by = match first_record.header() {
            Ok(header) => header.actor,
            Err(why) => {
                let point = first_record.point();
                return Err(rath_core::ErrorKind::Record { point, why: why.into() }.into());
            }
        };
        Ok(Some(UnfinishedRun {
            session,
            title: row.title.clone(),
            key: created.as_ref().and_then(|created| created.run.clone()),
            workflow: step.as_ref().and_then(|step| step.workflow.clone()),
            version: step.as_ref().and_then(|step| step.version.clone()),
            has_program: Ancestry::of(store, session).await?.program.is_some(),
            started_by,
            readiness,
            signature: hasher.finish(),
        }))
    }
}

/// A number that changes with the heads of these sessions.
fn heads_of(sessions: &[&SessionInfo]) -> u64 {
    let mut heads: Vec<_> = sessions.iter().map(|row| (row.id, row.seq, row.closed)).collect();
    heads.sort_unstable_by_key(|(id, ..)| *id);
    let mut hasher = DefaultHasher::new();
    heads.hash(&mut hasher);
    hasher.finish()
}

async fn role_of(store: &Arc<dyn Store>, session: SessionId) -> Result<Role> {
    let first = View::of(store, session, Some(0)).await?;
    let record = first.record();
    let Ok(forked) = record.body::<Forked>() else { return Ok(Role::First) };
    let of = forked.forked_by.as_ref().map_or(forked.from.session, |by| by.session);
    Ok(match (&forked.continued_from, forked.is_of_run()) {
        (Some(continued), _) => Role::Continuation { of, at: forked.from.seq, resume_id: continued.resume_id.clone() },
        (None, true) => {
            let step = match &forked.forked_by {
                Some(by) => by.step,
                None => record.header().ok().and_then(|header| header.step),
            };
            Role::Branch { of, from: forked.from, step }
        }
        // A fork that a person made is a run of its own.
        (None, false) => Role::First,
    })
}

impl Members<'_> {
    /// The session on which the run continues that was on `id`, and the sessions that it left on the way, each with the
    /// seq at which it left.
    fn current(&self, mut id: SessionId) -> (SessionId, Vec<(SessionId, u64)>) {
        let mut left: Vec<(SessionId, u64)> = Vec::new();
        while let Some((next, at, _)) = self.continuations.get(&id)
            && left.iter().all(|(seen, _)| seen != next)
        {
            left.push((id, *at));
            id = *next;
        }
        (id, left)
    }
}

/// Reads the sessions of a run.
struct Reading<'a> {
    store: &'a Arc<dyn Store>,
    rows: &'a [SessionInfo],
    members: &'a Members<'a>,
    now: Time,
    findings: Findings,
    posts: HashMap<SessionId, Vec<Post>>,
}

#[derive(Default)]
struct Findings {
    locked_by: Option<Holder>,
    because: Vec<ReadyReason>,
    questions: Vec<WaitingQuestion>,
    waits: Vec<WaitingFor>,
    /// The sessions in which something is open.
    unfinished: HashSet<SessionId>,
}

impl Reading<'_> {
    /// Reads the session `first`, or the one on which the run continued, and then its branches.
    async fn read(&mut self, first: SessionId) -> Result<()> {
        // Parents come before their branches.
        let (mut found, mut next): (Vec<(View, Vec<SessionId>)>, _) = (Vec::new(), vec![first]);
        let mut seen = HashSet::new();
        while let Some(id) = next.pop() {
            let (current, left) = self.members.current(id);
            let Some(row) = self.members.rows.get(&current).filter(|row| !row.closed && seen.insert(row.id)) else {
                continue;
            };
            if let Some(holder) = &row.holder {
                self.findings.locked_by.get_or_insert_with(|| holder.clone());
            }
            let view = View::of(self.store, current, Some(row.seq)).await?;
            let mut branches = Vec::new();
            for (id, until) in left.into_iter().chain([(current, u64::MAX)]) {
                for (branch, from, step) in self.members.branches.get(&id).into_iter().flatten() {
                    let is_open = step.is_none_or(|step| view.state().steps.iter().any(|open| open.record == step));
                    if is_open && (from.session != id || from.seq <= until) {
                        branches.push(*branch);
                    }
                }
            }
            next.extend(&branches);
            found.push((view, branches));
        }
        for (view, branches) in found.into_iter().rev() {
            self.note(&view, &branches).await?;
        }
        Ok(())
    }

    /// Notes what is open in a session. Its branches were noted before.
    async fn note(&mut self, view: &View, branches: &[SessionId]) -> Result<()> {
        let id = view.reference().session;
        let pending = view.pending();
        let (asks, waits) = (questions(id, view), waits(id, view));
        if pending.steps.is_empty() && pending.calls.is_empty() && asks.is_empty() && waits.is_empty() {
            return Ok(());
        }
        self.findings.unfinished.insert(id);
        for post in self.posts_of(id).await? {
            match post.what {
                PostContent::Cancel { .. } => self.because(ReadyReason::CancelRequested { session: id }),
                PostContent::Answer { asked, .. } | PostContent::Always { asked, .. }
                    if asks.iter().any(|one| one.ask.record == asked) =>
                {
                    self.because(ReadyReason::Answered { session: id });
                }
                _ => {}
            }
        }
        for WaitingFor { at, wait } in &waits {
            match (&wait.name, wait.until) {
                (_, Some(until)) if until <= self.now => {
                    self.because(ReadyReason::TimeReached { at: *at, until });
                }
                (Some(name), _) if wait.what == WaitKind::Event && self.has_event(id, name).await? => {
                    self.because(ReadyReason::EventQueued { at: *at, name: name.clone() });
                }
                _ => {}
            }
        }
        let is_answered = matches!(view.record().kind(), Kind::Answered | Kind::Granted);
        let waits_on_branch = branches.iter().any(|branch| {
            let (current, _) = self.members.current(*branch);
            self.findings.unfinished.contains(&current)
        });
        if is_answered {
            self.because(ReadyReason::Answered { session: id });
        } else if asks.is_empty() && waits.is_empty() && !waits_on_branch {
            self.because(ReadyReason::Interrupted { session: id });
        }
        self.findings.questions.extend(asks);
        self.findings.waits.extend(waits);
        Ok(())
    }

    fn because(&mut self, reason: ReadyReason) {
        if !self.findings.because.contains(&reason) {
            self.findings.because.push(reason);
        }
    }

    async fn posts_of(&mut self, session: SessionId) -> Result<Vec<Post>> {
        if let Some(posts) = self.posts.get(&session) {
            return Ok(posts.clone());
        }
        let posts = self.store.posts(session).await?;
        self.posts.insert(session, posts.clone());
        Ok(posts)
    }

    /// Whether an event is in the inbox of a session or of one that it was forked from.
    async fn has_event(&mut self, session: SessionId, name: &str) -> Result<bool> {
        let (mut next, mut seen) = (Some(session), HashSet::new());
        while let Some(id) = next.filter(|id| seen.insert(*id)) {
            let is_meant =
                |post: &Post| matches!(&post.what, PostContent::Event { name: posted, .. } if posted == name);
            if self.posts_of(id).await?.iter().any(is_meant) {
                return Ok(true);
            }
            let row = self.members.rows.get(&id).copied().or_else(|| self.rows.iter().find(|row| row.id == id));
            next = row.and_then(|row| row.origin).map(|origin| origin.session);
        }
        Ok(false)
    }
}
