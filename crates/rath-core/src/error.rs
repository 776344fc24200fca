//! [`Error`]: a failure of a session operation. It carries the sessions that were passed to the operation by value.

use std::fmt;

use crate::body::Outcome;
use crate::context::BadRange;
use crate::id::{Point, SessionId};
use crate::record::RecordError;
use crate::session::Session;
use crate::state::Pending;
use crate::store;

/// The result of a session operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure, with the sessions that the failed operation had taken. Get them back with [`Error::into_sessions`].
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    sessions: Vec<Session>,
    /// The `failed` or `cancelled` record of this failure.
    recorded: Option<Point>,
    /// Whether the error was read from the records of a resumed run.
    replayed: bool,
    /// The kind before the error left its step, in the process where it happened.
    cause: Option<ErrorKind>,
    /// Why the failure could not be recorded.
    not_recorded: Option<String>,
}

/// A divergence: where the code no longer makes what is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diverged {
    /// The recorded record that the code diverges from.
    pub point: Point,
    /// A summary of the record at `point`.
    pub recorded: String,
    /// A summary of what the code makes now.
    pub now: String,
    /// The differences, if they can be listed.
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
    /// The store failed or refused the operation.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The session is closed.
    #[error("session {} is closed; it can be forked, not appended to", .0.short())]
    Closed(SessionId),
    /// Something is open in a session that should be merged or closed.
    #[error("session {} has {what} open: finish or cancel it first", session.short(), what = describe(pending))]
    Open {
        /// The session with the open item.
        session: SessionId,
        /// What is open.
        pending: Box<Pending>,
    },
    /// A record's body exceeds the limit.
    #[error("record body of {size} bytes exceeds the limit of {limit} bytes: put the content into a blob", limit = crate::session::BODY_LIMIT)]
    TooLarge {
        /// The size of the body in bytes.
        size: usize,
    },
    /// A record's body is invalid.
    #[error("invalid body for a {kind} record: {why}")]
    BadBody {
        /// The record's kind.
        kind: String,
        /// What is wrong.
        why: String,
    },
    /// The session is the operator session, to which only operations on the store append.
    #[error("session {} is the operator session, which records operations on the store: you cannot append to it", .0.short())]
    Operator(SessionId),
    /// The session came from another machine, user or store and has no placement here.
    #[error("session {} came from elsewhere and has no placement here: it worked {was} there", session.short())]
    NotPlacedHere {
        /// The session without a placement here.
        session: SessionId,
        /// A description of its placement there.
        was: String,
    },
    /// A range of context items that cannot be compressed.
    #[error(transparent)]
    Range(#[from] BadRange),
    /// A fork point that is not in the session's history.
    #[error("cannot fork at record {0}: it is not in the history of this session")]
    NotInHistory(Point),
    /// Detaching was attempted inside a run.
    #[error("cannot detach session {} inside a run: resume could not find the new session", .0.short())]
    DetachInRun(SessionId),
    /// The session has no open step of its own.
    #[error("cannot leave a step: session {} has no open step of its own", .0.short())]
    NoStep(SessionId),
    /// A merge without branches, or one that keeps an unknown branch.
    #[error("{0}")]
    BadMerge(String),
    /// A stored record could not be used.
    #[error("record {point}: {why}")]
    Record {
        /// The record.
        point: Point,
        /// What is wrong.
        why: RecordError,
    },
    /// The code of a resumed run no longer makes what is recorded.
    #[error("{0}")]
    Diverged(Box<Diverged>),
    /// A step failed or was cancelled, and this is recorded. Every error that ends a step becomes this kind when it
    /// leaves the step, so that the code around the step gets the same error when it happens and when a run is resumed.
    #[error("{}{why}", if *outcome == Outcome::Cancelled { "cancelled: " } else { "" })]
    Ended {
        /// The name of the outermost step that the error has left so far.
        step: String,
        /// How the step ended.
        outcome: Outcome,
        /// The message, as recorded.
        why: String,
        /// The error's code, as recorded; empty if the record has none.
        code: String,
        /// Whether a retry may succeed, as recorded.
        transient: bool,
    },
    /// The work was cancelled.
    #[error("cancelled: {why}")]
    Cancelled {
        /// The reason.
        why: String,
    },
    /// The run waits for a person's answer, a time or an event. Resume it when that has come.
    #[error("session {} waits for an answer", .0.short())]
    Waiting(SessionId),
    /// Branches changed the same files in different ways, and the merge does not allow conflicts.
    #[error("merge conflict in {}; nothing was merged", paths.join(", "))]
    MergeConflict {
        /// The paths in conflict.
        paths: Vec<String>,
    },
    /// An agent's budget is spent.
    #[error("the budget of agent {agent:?} is spent: {spent}")]
    Budget {
        /// The agent's name.
        agent: String,
        /// Which limit was reached, and how much was used.
        spent: String,
    },
    /// A model request failed.
    #[error("model {model} did not answer: {why}")]
    Model {
        /// The model's name.
        model: String,
        /// What happened.
        why: String,
        /// Whether a retry may succeed.
        transient: bool,
    },
    /// A model refused to give the answer that its agent's output needs.
    #[error("the model of agent {agent:?} refused to answer: {text}")]
    Refused {
        /// The agent's name.
        agent: String,
        /// What the model said instead.
        text: String,
    },
    /// The answer of an agent with a typed output was cut off.
    #[error("the answer of agent {agent:?} was cut off at the token limit")]
    CutOff {
        /// The agent's name.
        agent: String,
    },
    /// An agent with a typed output gave no answer of its type, although it was told what is wrong.
    #[error("agent {agent:?} gave no answer of the required format, attempts: {attempts}: {why}")]
    BadOutput {
        /// The agent's name.
        agent: String,
        /// The number of answers.
        attempts: u32,
        /// What is wrong with the last answer, and its start.
        why: String,
    },
    /// A workflow failed.
    #[error("{0}")]
    Workflow(Box<dyn std::error::Error + Send + Sync>),
    /// A workflow failed with an error code that it chose.
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
    /// A failure that carries these sessions.
    pub fn new(kind: impl Into<ErrorKind>, sessions: Vec<Session>) -> Self {
        let kind = kind.into();
        Self(Box::new(Inner { kind, sessions, recorded: None, replayed: false, cause: None, not_recorded: None }))
    }

    /// A failure of a workflow, with its session.
    pub fn workflow(why: impl Into<Box<dyn std::error::Error + Send + Sync>>, session: Session) -> Self {
        Self::new(ErrorKind::Workflow(why.into()), vec![session])
    }

    /// A failure of a workflow with its session and a code by which callers can distinguish it.
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

    /// For an error that left its step: the kind that it had in the step. Records do not keep it, so it is `None` on
    /// resume: log it, but do not base decisions on it.
    pub fn cause(&self) -> Option<&ErrorKind> {
        self.0.cause.as_ref()
    }

    /// Whether a retry may succeed, because a provider was overloaded, for example. A resumed run returns the same
    /// value.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind(), ErrorKind::Model { transient: true, .. } | ErrorKind::Ended { transient: true, .. })
    }

    /// Whether the work was cancelled, by a person or by the program. A resumed run returns the same value.
    pub fn is_cancelled(&self) -> bool {
        let outcome = Outcome::Cancelled;
        matches!(self.kind(), ErrorKind::Cancelled { .. })
            || matches!(self.kind(), ErrorKind::Ended { outcome: how, .. } if *how == outcome)
    }

    /// Whether the error was read from the records of a resumed run. It happened earlier, perhaps in another process.
    pub fn is_replayed(&self) -> bool {
        self.0.replayed
    }

    /// The sessions that the error carries, the failed one first.
    pub fn sessions(&self) -> &[Session] {
        &self.0.sessions
    }

    pub(crate) fn sessions_mut(&mut self) -> &mut [Session] {
        &mut self.0.sessions
    }

    /// Takes the sessions out of the error.
    pub fn take_sessions(&mut self) -> Vec<Session> {
        std::mem::take(&mut self.0.sessions)
    }

    /// The sessions that the error carries.
    pub fn into_sessions(self) -> Vec<Session> {
        self.0.sessions
    }

    /// Adds sessions before those that the error already carries.
    #[must_use]
    pub fn with_sessions(mut self, mut sessions: Vec<Session>) -> Self {
        sessions.append(&mut self.0.sessions);
        self.0.sessions = sessions;
        self
    }

    /// Whether the failure is recorded.
    pub fn is_recorded(&self) -> bool {
        self.0.recorded.is_some()
    }

    /// The `failed` or `cancelled` record of this failure.
    pub fn recorded_at(&self) -> Option<Point> {
        self.0.recorded
    }

    /// Marks the error as recorded at `at`.
    #[must_use]
    pub(crate) fn recorded(mut self, at: Point) -> Self {
        self.0.recorded = Some(at);
        self
    }

    /// The recorded error that a step ended with.
    pub(crate) fn replayed(kind: ErrorKind, recorded: Point) -> Self {
        let mut error = Self::from(kind).recorded(recorded);
        error.0.replayed = true;
        error
    }

    /// The error as it leaves the step called `name`, whose end is recorded. A resumed run gets the same error from the
    /// records.
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

    /// Marks the error as one that could not be recorded.
    #[must_use]
    pub(crate) fn not_recorded(mut self, why: &Error) -> Self {
        self.0.not_recorded.get_or_insert_with(|| why.to_string());
        self
    }

    /// Removes the session with this id from the error.
    pub(crate) fn take_session(&mut self, id: SessionId) -> Option<Session> {
        let at = self.0.sessions.iter().position(|session| session.id() == id)?;
        Some(self.0.sessions.remove(at))
    }

    /// Whether the run is not finished and continues when it is resumed.
    pub fn leaves_the_run_open(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::Store(_) | ErrorKind::Waiting(_) | ErrorKind::Diverged(_) | ErrorKind::NotPlacedHere { .. }
        )
    }

    /// The reason to record when open work is abandoned because of this error.
    pub fn abandon_reason(&self) -> String {
        match self.kind() {
            ErrorKind::Cancelled { why } | ErrorKind::Ended { outcome: Outcome::Cancelled, why, .. } => why.clone(),
            _ => format!("the step failed: {self}"),
        }
    }

    /// Sets what the code makes now, if this is a divergence.
    #[must_use]
    pub(crate) fn now(mut self, what: String) -> Self {
        if let ErrorKind::Diverged(diverged) = &mut self.0.kind {
            diverged.now = what;
        }
        self
    }

    /// The error's code. `docs/errors/CODE.md` explains it.
    pub fn code(&self) -> &str {
        match self.kind() {
            ErrorKind::Store(error) => error.code(),
            ErrorKind::Closed(_) => "session-closed",
            ErrorKind::Open { .. } => "still-open",
            ErrorKind::TooLarge { .. } => "body-too-large",
            ErrorKind::BadBody { .. } => "bad-body",
            ErrorKind::Operator(_) => "operator-session",
            ErrorKind::NotPlacedHere { .. } => "not-placed",
            ErrorKind::Range(_) => "bad-range",
            ErrorKind::NotInHistory(_) => "not-in-history",
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
            ErrorKind::MergeConflict { .. } => "merge-conflict",
            ErrorKind::Budget { .. } => "budget-spent",
            ErrorKind::Model { .. } => "model-failed",
            ErrorKind::Refused { .. } => "refused",
            ErrorKind::CutOff { .. } => "cut-off",
            ErrorKind::BadOutput { .. } => "bad-output",
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
            Some(why) => write!(f, "; this could not be recorded: {why}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (with {} sessions)", self.0.kind, self.0.sessions.len())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.cause.as_ref().unwrap_or(&self.0.kind).source()
    }
}
