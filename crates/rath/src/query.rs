//! Finds what people name: `9f31`, `@`, `9f31@4`, `@-3`, `9f31@~12`, a record's id.

use std::fmt;
use std::sync::Arc;

use rath_core::expression::{Expression, OPERATOR_WORD, Place as At};
use rath_core::store::{Lookup, Query, Row, Which};
use rath_core::{OPERATOR, Point, RecordId, Result, SessionId, Store, View};

/// A place that an expression names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The session.
    pub session: SessionId,
    /// The record; the head if only the session was named.
    pub seq: u64,
    /// Whether a record was named, not only a session.
    pub exact: bool,
}

/// Why an expression does not name one place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unresolved {
    /// It is not an expression.
    #[error("{0:?} names no session or record")]
    NotAnExpression(String),
    /// It names the session that changed last, and there is none.
    #[error("the store has no sessions yet")]
    NoSessions,
    /// It names the operator session, and there is none.
    #[error("the store has no operator session yet: nobody placed a hold, erased, or made a checkpoint")]
    NoOperator,
    /// It names a record that the session does not have.
    #[error("session {} has records 0 to {last}: {text} is not one of them", session.short())]
    OutOfRange {
        /// The expression.
        text: String,
        /// The session.
        session: SessionId,
        /// Its last record.
        last: u64,
    },
    /// It goes back further than the session's history.
    #[error("{text} goes back further than the history of {}", session.short())]
    TooFarBack {
        /// The expression.
        text: String,
        /// The session.
        session: SessionId,
    },
    /// Several sessions begin like this.
    #[error("{base:?} is the beginning of several sessions:\n{}", lines(rows.iter().map(session_line)))]
    SeveralSessions {
        /// What they begin with.
        base: String,
        /// The sessions.
        rows: Vec<Row>,
    },
    /// Several records begin like this.
    #[error("{base:?} is the beginning of several records:\n{}", lines(records.iter().map(|(id, point)| format!("  {}  {point}", id.short()))))]
    SeveralRecords {
        /// What they begin with.
        base: String,
        /// The records.
        records: Vec<(RecordId, Point)>,
    },
    /// Nothing has this name. A session that was removed had it perhaps.
    #[error("there is no session or record {text:?} in this store")]
    NotFound {
        /// The expression.
        text: String,
        /// The name in it, without the place.
        base: String,
    },
    /// A record was named where a session is needed.
    #[error("{0} names a record; a session is needed here")]
    NotASession(String),
    /// The store failed.
    #[error(transparent)]
    Failed(#[from] rath_core::Error),
}

impl From<rath_core::store::Error> for Unresolved {
    fn from(error: rath_core::store::Error) -> Self {
        Self::Failed(error.into())
    }
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join("\n")
}

fn session_line(row: &Row) -> String {
    format!("  {}  {}", row.id.tail(), row.title.as_deref().unwrap_or("")).trim_end().to_owned()
}

/// Finds the session or record that `text` names.
pub async fn resolve(store: &Arc<dyn Store>, text: &str) -> Result<Place, Unresolved> {
    let parsed = Expression::parse(text).map_err(|_| Unresolved::NotAnExpression(text.to_owned()))?;
    let base = parsed.base.to_ascii_lowercase();
    let Some(row) = find_session(store, &base).await? else {
        return find_record(store, text, &base, &parsed).await;
    };
    let (session, last) = (row.id, row.seq);
    let outside = || Unresolved::OutOfRange { text: text.to_owned(), session, last };
    let point = match parsed.at {
        At::Head => Point { session, seq: last },
        At::Seq(seq) if seq <= last => Point { session, seq },
        At::Seq(_) => return Err(outside()),
        At::Before(back) => Point { session, seq: last.checked_sub(back).ok_or_else(outside)? },
        At::Back(back) => {
            let found = View::of(store, session, None).await?.back(back).await?;
            found.ok_or_else(|| Unresolved::TooFarBack { text: text.to_owned(), session })?
        }
    };
    Ok(Place { session: point.session, seq: point.seq, exact: parsed.at != At::Head })
}

/// Finds the session that `text` names; a record is not enough.
pub async fn resolve_session(store: &Arc<dyn Store>, text: &str) -> Result<SessionId, Unresolved> {
    match resolve(store, text).await? {
        Place { session, exact: false, .. } => Ok(session),
        Place { .. } => Err(Unresolved::NotASession(text.to_owned())),
    }
}

/// The session in which the store records what is done to it: holds, erasures, checkpoints.
pub async fn operator_session(store: &Arc<dyn Store>) -> Result<Option<Row>> {
    Ok(store.sessions(Which::Run(OPERATOR.into()).into()).await?.into_iter().next())
}

async fn find_session(store: &Arc<dyn Store>, base: &str) -> Result<Option<Row>, Unresolved> {
    if base.is_empty() {
        // The session that changed last is one that somebody works on: not the operator session.
        let operator = operator_session(store).await?.map(|operator| operator.id);
        let newest = store.sessions(Query::all().limit(2)).await?;
        let newest = newest.into_iter().find(|row| Some(row.id) != operator);
        return newest.ok_or(Unresolved::NoSessions).map(Some);
    }
    if base == OPERATOR_WORD {
        return operator_session(store).await?.ok_or(Unresolved::NoOperator).map(Some);
    }
    let mut rows = store.sessions(Query::from(Which::Prefix(base.into())).limit(10)).await?;
    match rows.len() {
        0 | 1 => Ok(rows.pop()),
        _ => Err(Unresolved::SeveralSessions { base: base.to_owned(), rows }),
    }
}

async fn find_record(
    store: &Arc<dyn Store>,
    text: &str,
    base: &str,
    parsed: &Expression<'_>,
) -> Result<Place, Unresolved> {
    let found = match base.len() >= 4 && parsed.at == At::Head {
        true => store.get(Lookup::Prefix(base.into())).await?,
        false => Vec::new(),
    };
    match &found[..] {
        [] => Err(Unresolved::NotFound { text: text.to_owned(), base: base.to_owned() }),
        [record] => Ok(Place { session: record.session(), seq: record.seq(), exact: true }),
        several => {
            let records = several.iter().map(|record| (record.id(), record.point())).collect();
            Err(Unresolved::SeveralRecords { base: base.to_owned(), records })
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let point = Point { session: self.session, seq: self.seq };
        if self.exact { point.fmt(f) } else { f.write_str(&self.session.short()) }
    }
}
