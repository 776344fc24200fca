//! Resolves expressions to sessions and records: `9f31`, `@`, `9f31@4`, `@-3`, `9f31@~12`, a record's id.

use std::fmt;
use std::sync::Arc;

use rath_core::expression::{Expression, OPERATOR_WORD, Position as At};
use rath_core::store::{Lookup, Query, SessionFilter, SessionInfo};
use rath_core::{OPERATOR, Point, RecordId, Result, SessionId, Store, View};

/// The session or record that an expression names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The session that is named, or that contains the named record.
    pub session: SessionId,
    /// The record; the head if only the session was named.
    pub seq: u64,
    /// Whether the expression names a record, not only a session.
    pub exact: bool,
}

/// The error of an expression that does not name exactly one session or record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnresolvedExpression {
    /// The text is not an expression.
    #[error("{0:?} names no session or record")]
    NotAnExpression(String),
    /// The expression names the session that changed last, and the store is empty.
    #[error("the store has no sessions yet")]
    NoSessions,
    /// The expression names the operator session, which does not exist yet.
    #[error("the store has no operator session yet: it starts with the first hold, erasure or checkpoint")]
    NoOperator,
    /// The session has no such record.
    #[error("session {} has records 0 to {last}: {text} is not one of them", session.short())]
    OutOfRange {
        /// The expression.
        text: String,
        /// The session that the expression names.
        session: SessionId,
        /// Its last record.
        last: u64,
    },
    /// The expression goes back further than the session's history.
    #[error("{text} goes back further than the history of {}", session.short())]
    TooFarBack {
        /// The expression.
        text: String,
        /// The session where the expression starts.
        session: SessionId,
    },
    /// The prefix matches several sessions.
    #[error("{base:?} is the beginning of several sessions:\n{}", lines(rows.iter().map(session_line)))]
    SeveralSessions {
        /// The prefix.
        base: String,
        /// The sessions that match.
        rows: Vec<SessionInfo>,
    },
    /// The prefix matches several records.
    #[error("{base:?} is the beginning of several records:\n{}", lines(records.iter().map(|(id, point)| format!("  {}  {point}", id.short()))))]
    SeveralRecords {
        /// The prefix.
        base: String,
        /// The records that match, and their positions.
        records: Vec<(RecordId, Point)>,
    },
    /// No session or record has this name. It may have been removed.
    #[error("there is no session or record {text:?} in this store")]
    NotFound {
        /// The expression.
        text: String,
        /// The name in it, without the position.
        base: String,
    },
    /// The expression names a record, but a session is needed.
    #[error("{0} names a record; a session is needed here")]
    NotASession(String),
    /// The store failed.
    #[error(transparent)]
    Failed(#[from] rath_core::Error),
}

impl From<rath_core::store::Error> for UnresolvedExpression {
    fn from(error: rath_core::store::Error) -> Self {
        Self::Failed(error.into())
    }
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join("\n")
}

fn session_line(row: &SessionInfo) -> String {
    format!("  {}  {}", row.id.tail(), row.title.as_deref().unwrap_or("")).trim_end().to_owned()
}

/// Resolves `text` to a session or record.
pub async fn resolve(store: &Arc<dyn Store>, text: &str) -> Result<Location, UnresolvedExpression> {
    let parsed = Expression::parse(text).map_err(|_| UnresolvedExpression::NotAnExpression(text.to_owned()))?;
    let base = parsed.base.to_ascii_lowercase();
    let Some(row) = find_session(store, &base).await? else {
        return find_record(store, text, &base, &parsed).await;
    };
    let (session, last) = (row.id, row.seq);
    let outside = || UnresolvedExpression::OutOfRange { text: text.to_owned(), session, last };
    let point = match parsed.at {
        At::Head => Point { session, seq: last },
        At::Seq(seq) if seq <= last => Point { session, seq },
        At::Seq(_) => return Err(outside()),
        At::BeforeHead(back) => Point { session, seq: last.checked_sub(back).ok_or_else(outside)? },
        At::Ancestor(back) => {
            let found = View::of(store, session, None).await?.back(back).await?;
            found.ok_or_else(|| UnresolvedExpression::TooFarBack { text: text.to_owned(), session })?
        }
    };
    Ok(Location { session: point.session, seq: point.seq, exact: parsed.at != At::Head })
}

/// Resolves `text` to a session. Fails if it names a record.
pub async fn resolve_session(store: &Arc<dyn Store>, text: &str) -> Result<SessionId, UnresolvedExpression> {
    match resolve(store, text).await? {
        Location { session, exact: false, .. } => Ok(session),
        Location { .. } => Err(UnresolvedExpression::NotASession(text.to_owned())),
    }
}

/// The store's audit session, with its holds, erasures and checkpoints.
pub async fn operator_session(store: &Arc<dyn Store>) -> Result<Option<SessionInfo>> {
    Ok(store.sessions(SessionFilter::Run(OPERATOR.into()).into()).await?.into_iter().next())
}

async fn find_session(store: &Arc<dyn Store>, base: &str) -> Result<Option<SessionInfo>, UnresolvedExpression> {
    if base.is_empty() {
        // `@` never names the operator session.
        let operator = operator_session(store).await?.map(|operator| operator.id);
        let newest = store.sessions(Query::all().limit(2)).await?;
        let newest = newest.into_iter().find(|row| Some(row.id) != operator);
        return newest.ok_or(UnresolvedExpression::NoSessions).map(Some);
    }
    if base == OPERATOR_WORD {
        return operator_session(store).await?.ok_or(UnresolvedExpression::NoOperator).map(Some);
    }
    let mut rows = store.sessions(Query::from(SessionFilter::Prefix(base.into())).limit(10)).await?;
    match rows.len() {
        0 | 1 => Ok(rows.pop()),
        _ => Err(UnresolvedExpression::SeveralSessions { base: base.to_owned(), rows }),
    }
}

async fn find_record(
    store: &Arc<dyn Store>,
    text: &str,
    base: &str,
    parsed: &Expression<'_>,
) -> Result<Location, UnresolvedExpression> {
    let found = match base.len() >= 4 && parsed.at == At::Head {
        true => store.get(Lookup::Prefix(base.into())).await?,
        false => Vec::new(),
    };
    match &found[..] {
        [] => Err(UnresolvedExpression::NotFound { text: text.to_owned(), base: base.to_owned() }),
        [record] => Ok(Location { session: record.session(), seq: record.seq(), exact: true }),
        several => {
            let records = several.iter().map(|record| (record.id(), record.point())).collect();
            Err(UnresolvedExpression::SeveralRecords { base: base.to_owned(), records })
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let point = Point { session: self.session, seq: self.seq };
        if self.exact { point.fmt(f) } else { f.write_str(&self.session.short()) }
    }
}
