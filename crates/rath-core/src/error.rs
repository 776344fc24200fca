//! What goes wrong with a session. The error carries the sessions it concerns, so nothing is lost.

use std::fmt;

use crate::body::Outcome;
use crate::context::BadRange;
use crate::id::{Point, SessionId};
use crate::record::Fault;
use crate::session::Session;
use crate::state::Pending;
use crate::store;

/// What session operations return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure, and the sessions that were being worked on: take them back with [`Error::into_sessions`].
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    sessions: Vec<Session>,
    /// The `failed` or `cancelled` record that says so.
    recorded: Option<Point>,
    /// Whether the error was read from the records of a resumed run.
    read_back: bool,
    /// What the kind was before the error left its step, in the process where it happened.
    cause: Option<ErrorKind>,
    /// Why no record says so, where one should.
    not_recorded: Option<String>,
}

/// Where the code no longer makes what is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diverged {
    /// The recorded side.
    pub point: Point,
    /// What it says.
    pub recorded: String,
    /// What the code makes now.
    pub now: String,
    /// What exactly is different, where that can be said.
    pub changed: Vec<String>,
}

impl fmt::Display for Diverged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the code no longer makes what is recorded at {}\n  recorded: {}\n  now:      {}",
            self.point, self.recorded, self.now
        )?;
        self.changed.iter().try_for_each(|changed| write!(f, "\n  changed:  {changed}"))
    }
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The session has ended.
    #[error("session {} is closed; it can be forked, not appended to", .0.short())]
    Closed(SessionId),
    /// Something is open on a branch that is to be merged or closed.
    #[error("session {} has {what} open: finish it first, or cancel it", session.short(), what = describe(pending))]
    Open {
        /// The session.
        session: SessionId,
        /// What is open.
        pending: Box<Pending>,
    },
    /// A body above the limit.
    #[error("a record's body is at most {limit} bytes; this one has {size}: put the content into a blob", limit = crate::session::BODY_LIMIT)]
    TooLarge {
        /// Its size.
        size: usize,
    },
    /// A body that is not what it should be.
    #[error("the body of a {kind} record cannot be written: {why}")]
    BadBody {
        /// The kind.
        kind: String,
        /// What is wrong.
        why: String,
    },
    /// The store's own session, which only the store's operations write to.
    #[error("session {} is the operator session, the store's account of what was done to it: nothing is added to it by hand", .0.short())]
    Operator(SessionId),
    /// A session that came from elsewhere, and was given no place here.
    #[error("session {} came from elsewhere and has no place here: it worked {was} there", session.short())]
    NoPlaceHere {
        /// The session.
        session: SessionId,
        /// Where it worked, in words.
        was: String,
    },
    /// A range of context items that cannot leave.
    #[error(transparent)]
    Range(#[from] BadRange),
    /// A fork point that is not behind the session.
    #[error("record {0} is not in the history of this session")]
    NotBehind(Point),
    /// A session that would be no part of the run it is made in.
    #[error("session {} is in the middle of a run, which could not find a detached session again", .0.short())]
    DetachInRun(SessionId),
    /// There is no step to leave.
    #[error("session {} has no step of its own open", .0.short())]
    NoStep(SessionId),
    /// A merge that names no, or an unknown, branch.
    #[error("{0}")]
    BadMerge(String),
    /// A stored record could not be used.
    #[error("record {point}: {why}")]
    Record {
        /// Where.
        point: Point,
        /// What is wrong.
        why: Fault,
    },
    /// A resumed run does not make what is recorded.
    #[error("{0}")]
    Diverged(Box<Diverged>),
    /// A step failed or was cancelled, and a record says so. Every error that ends a step becomes this when it leaves
    /// the step, so that the code around the step sees the same error when it happens and when a run is resumed.
    #[error("{}{why}", if *outcome == Outcome::Cancelled { "cancelled: " } else { "" })]
    Ended {
        /// The name of the step that the error left last.
        step: String,
        /// How the step ended.
        outcome: Outcome,
        /// The message, as recorded.
        why: String,
        /// The error's code, as recorded; empty where the record names none.
        code: String,
        /// Whether trying again may help, as recorded.
        transient: bool,
    },
    /// Somebody said stop.
    #[error("cancelled: {why}")]
    Cancelled {
        /// The reason.
        why: String,
    },
    /// A person has been asked and has not answered. The run goes on when it is resumed after that.
    #[error("session {} waits for an answer", .0.short())]
    Waiting(SessionId),
    /// An agent used all that it may use.
    #[error("the budget of agent {agent:?} is spent: {spent}")]
    Budget {
        /// The agent.
        agent: String,
        /// Which part of it, and how much was used.
        spent: String,
    },
    /// A model did not answer.
    #[error("model {model} did not answer: {why}")]
    Model {
        /// The model.
        model: String,
        /// What happened.
        why: String,
        /// Whether trying again may help.
        transient: bool,
    },
    /// A workflow failed.
    #[error("{0}")]
    Workflow(Box<dyn std::error::Error + Send + Sync>),
    /// A workflow failed with a code of its own.
    #[error("{why}")]
    Coded {
        /// The code: a few words in lower case with hyphens, e.g. `tests-failed`.
        code: String,
        /// What happened.
        why: Box<dyn std::error::Error + Send + Sync>,
    },
}

fn describe(pending: &Pending) -> String {
    let steps = pending.steps.iter().map(|step| format!("step {:?}", step.name));
    let calls = pending.calls.iter().map(|call| format!("call {} of {}", call.id, call.tool));
    let conflicts = pending.conflicts.iter().map(|conflict| format!("a conflict on {}", conflict.path));
    steps.chain(calls).chain(conflicts).collect::<Vec<_>>().join(", ")
}

impl Error {
    /// A failure that concerns these sessions.
    pub fn new(kind: impl Into<ErrorKind>, sessions: Vec<Session>) -> Self {
        let kind = kind.into();
        Self(Box::new(Inner { kind, sessions, recorded: None, read_back: false, cause: None, not_recorded: None }))
    }

    /// A failure of a workflow, with the session it had.
    pub fn workflow(why: impl Into<Box<dyn std::error::Error + Send + Sync>>, session: Session) -> Self {
        Self::new(ErrorKind::Workflow(why.into()), vec![session])
    }

    /// A failure with a code that callers can tell apart, with the session that the workflow had.
    pub fn coded(
        code: impl Into<String>,
        why: impl Into<Box<dyn std::error::Error + Send + Sync>>,
        session: Session,
    ) -> Self {
        Self::new(ErrorKind::Coded { code: code.into(), why: why.into() }, vec![session])
    }

    /// What went wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// For an error that left its step: the kind it had in the step, with everything a program may look into. A record
    /// does not keep that, so there is none on resume: log it, but do not decide by it.
    pub fn cause(&self) -> Option<&ErrorKind> {
        self.0.cause.as_ref()
    }

    /// Whether trying again may help: a provider that was overloaded, for example. The same on resume.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind(), ErrorKind::Model { transient: true, .. } | ErrorKind::Ended { transient: true, .. })
    }

    /// Whether the work was stopped, by a person or by the program. The same on resume.
    pub fn is_cancelled(&self) -> bool {
        let outcome = Outcome::Cancelled;
        matches!(self.kind(), ErrorKind::Cancelled { .. })
            || matches!(self.kind(), ErrorKind::Ended { outcome: how, .. } if *how == outcome)
    }

    /// Whether the error was read from the records of a resumed run: it happened before, perhaps in another process.
    pub fn is_read_back(&self) -> bool {
        self.0.read_back
    }

    /// The sessions it concerns: the failed line first.
    pub fn sessions(&self) -> &[Session] {
        &self.0.sessions
    }

    pub(crate) fn sessions_mut(&mut self) -> &mut [Session] {
        &mut self.0.sessions
    }

    /// Takes the sessions back.
    pub fn into_sessions(self) -> Vec<Session> {
        self.0.sessions
    }

    /// Puts sessions in front of those it carries already.
    #[must_use]
    pub fn with_sessions(mut self, mut sessions: Vec<Session>) -> Self {
        sessions.append(&mut self.0.sessions);
        self.0.sessions = sessions;
        self
    }

    /// Whether a record says what went wrong.
    pub fn is_recorded(&self) -> bool {
        self.0.recorded.is_some()
    }

    /// The `failed` or `cancelled` record that says what went wrong.
    pub fn recorded_at(&self) -> Option<Point> {
        self.0.recorded
    }

    /// The same error, now that this record says so.
    #[must_use]
    pub(crate) fn recorded(mut self, at: Point) -> Self {
        self.0.recorded = Some(at);
        self
    }

    /// The error that a step ended with, as its records say.
    pub(crate) fn read_back(kind: ErrorKind, recorded: Point) -> Self {
        let mut error = Self::from(kind).recorded(recorded);
        error.0.read_back = true;
        error
    }

    /// The error as it leaves the step called `name`, which is on the record as ended: what a resumed run will read back.
    #[must_use]
    pub(crate) fn leaving(mut self, name: String, outcome: Outcome) -> Self {
        if let ErrorKind::Ended { step, .. } = &mut self.0.kind {
            *step = name;
            return self;
        }
        let why = match self.kind() {
            ErrorKind::Cancelled { why } => why.clone(),
            kind => kind.to_string(),
        };
        let (code, transient) = (self.code().to_owned(), self.is_transient());
        let ended = ErrorKind::Ended { step: name, outcome, why, code, transient };
        self.0.cause = Some(std::mem::replace(&mut self.0.kind, ended));
        self
    }

    /// The same error, which no record could be made of.
    #[must_use]
    pub(crate) fn not_recorded(mut self, why: &Error) -> Self {
        self.0.not_recorded.get_or_insert_with(|| why.to_string());
        self
    }

    /// Takes out the session with this id.
    pub(crate) fn take_session(&mut self, id: SessionId) -> Option<Session> {
        let at = self.0.sessions.iter().position(|session| session.id() == id)?;
        Some(self.0.sessions.remove(at))
    }

    /// Whether the run is not over: it goes on when it is resumed.
    pub fn leaves_the_run_open(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::Store(_) | ErrorKind::Waiting(_) | ErrorKind::Diverged(_) | ErrorKind::NoPlaceHere { .. }
        )
    }

    /// Why what was open is given up because of it, on a record that says that it was.
    pub fn why_given_up(&self) -> String {
        match self.kind() {
            ErrorKind::Cancelled { why } | ErrorKind::Ended { outcome: Outcome::Cancelled, why, .. } => why.clone(),
            _ => format!("the step failed: {self}"),
        }
    }

    /// A divergence, saying what the code makes.
    #[must_use]
    pub(crate) fn now(mut self, what: String) -> Self {
        if let ErrorKind::Diverged(diverged) = &mut self.0.kind {
            diverged.now = what;
        }
        self
    }

    /// The error's code; `docs/errors/CODE.md` says what to do.
    pub fn code(&self) -> &str {
        match self.kind() {
            ErrorKind::Store(error) => error.code(),
            ErrorKind::Closed(_) => "session-closed",
            ErrorKind::Open { .. } => "still-open",
            ErrorKind::TooLarge { .. } => "body-too-large",
            ErrorKind::BadBody { .. } => "bad-body",
            ErrorKind::Operator(_) => "operator-session",
            ErrorKind::NoPlaceHere { .. } => "not-placed",
            ErrorKind::Range(_) => "bad-range",
            ErrorKind::NotBehind(_) => "not-in-history",
            ErrorKind::DetachInRun(_) => "detach-in-run",
            ErrorKind::NoStep(_) => "no-step",
            ErrorKind::BadMerge(_) => "bad-merge",
            ErrorKind::Record { .. } => "tampered",
            ErrorKind::Workflow(_) => "workflow-failed",
            ErrorKind::Diverged(_) => "diverged",
            ErrorKind::Ended { code, .. } if code.is_empty() => "step-ended",
            ErrorKind::Ended { code, .. } | ErrorKind::Coded { code, .. } => code,
            ErrorKind::Cancelled { .. } => "cancelled",
            ErrorKind::Waiting(_) => "waiting",
            ErrorKind::Budget { .. } => "budget-spent",
            ErrorKind::Model { .. } => "model-failed",
        }
    }
}

impl<K: Into<ErrorKind>> From<K> for Error {
    fn from(kind: K) -> Self {
        Self::new(kind, Vec::new())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.kind.fmt(f)?;
        match &self.0.not_recorded {
            Some(why) => write!(f, "; and no record says so: {why}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (carries {} sessions)", self.0.kind, self.0.sessions.len())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.cause.as_ref().unwrap_or(&self.0.kind).source()
    }
}
