//! What goes wrong with a session. The error carries the sessions it concerns, so nothing is lost.

use std::fmt;

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
    /// A range of context items that cannot leave.
    #[error(transparent)]
    Range(#[from] BadRange),
    /// A fork point that is not behind the session.
    #[error("record {0} is not in the history of this session")]
    NotBehind(Point),
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
    /// A workflow failed.
    #[error("{0}")]
    Workflow(Box<dyn std::error::Error + Send + Sync>),
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
        Self(Box::new(Inner { kind: kind.into(), sessions }))
    }

    /// A failure of a workflow, with the session it had.
    pub fn workflow(why: impl Into<Box<dyn std::error::Error + Send + Sync>>, session: Session) -> Self {
        Self::new(ErrorKind::Workflow(why.into()), vec![session])
    }

    /// What went wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The sessions it concerns: the failed line first.
    pub fn sessions(&self) -> &[Session] {
        &self.0.sessions
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

    /// The error's code; `docs/errors/CODE.md` says what to do.
    pub fn code(&self) -> &'static str {
        match self.kind() {
            ErrorKind::Store(error) => error.code(),
            ErrorKind::Closed(_) => "session-closed",
            ErrorKind::Open { .. } => "still-open",
            ErrorKind::TooLarge { .. } => "body-too-large",
            ErrorKind::BadBody { .. } => "bad-body",
            ErrorKind::Range(_) => "bad-range",
            ErrorKind::NotBehind(_) => "not-in-history",
            ErrorKind::NoStep(_) => "no-step",
            ErrorKind::BadMerge(_) => "bad-merge",
            ErrorKind::Record { .. } => "tampered",
            ErrorKind::Workflow(_) => "workflow-failed",
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
        self.0.kind.fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (carries {} sessions)", self.0.kind, self.0.sessions.len())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.kind.source()
    }
}
