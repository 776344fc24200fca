//! Sessions in a list: what they are doing, how large they are, what they cost.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use rath_core::store::{Query, Row};
use rath_core::{Result, SessionId, Store, Time, Usage, View};
use serde::Serialize;

use super::{Activity, LabelFilter};

/// A session in a list.
#[derive(Clone, Debug, Serialize)]
pub struct ListedSession {
    /// What the store knows of it.
    #[serde(flatten)]
    pub row: Row,
    /// What it is doing.
    pub state: Activity,
    /// How many records it has.
    pub records: u64,
    /// The bytes of its records.
    pub bytes: u64,
    /// What its own model calls used.
    pub usage: Usage,
}

/// Which sessions are listed, and in which order.
#[derive(Clone, Debug, Default)]
pub struct SessionQuery {
    /// Only sessions with all of these labels.
    pub labels: Vec<LabelFilter>,
    /// Only sessions that are closed, or only those that are not.
    pub closed: Option<bool>,
    /// Only sessions that a process holds.
    pub held: bool,
    /// Only sessions that are doing one of these; any if empty.
    pub doing: Vec<Activity>,
    /// Only sessions that changed since.
    pub since: Option<Time>,
    /// What comes first.
    pub order: SessionOrder,
    /// At most this many.
    pub limit: Option<usize>,
}

/// What a list of sessions is sorted by, the most first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionOrder {
    /// The last change.
    #[default]
    Time,
    /// The number of records.
    Records,
    /// What its own model calls cost.
    Cost,
    /// The bytes of its records.
    Size,
}

/// A list of sessions.
#[derive(Clone, Debug)]
pub struct SessionList {
    /// The sessions.
    pub listed: Vec<ListedSession>,
    /// How many more there are, above the limit.
    pub more: usize,
    /// How many sessions the store has.
    pub all: usize,
}

impl SessionList {
    /// Lists the sessions that `query` names and `keep` keeps; `sizes` are the bytes of their records.
    pub async fn of(
        store: &Arc<dyn Store>,
        query: &SessionQuery,
        sizes: &HashMap<SessionId, u64>,
        keep: impl Fn(&Row) -> bool,
    ) -> Result<Self> {
        let mut rows = store.sessions(Query::default()).await?;
        let all = rows.len();
        rows.retain(|row| query.may_name(row) && keep(row));
        let size = |row: &Row| sizes.get(&row.id).copied().unwrap_or(0);
        match query.order {
            SessionOrder::Time | SessionOrder::Cost => {}
            SessionOrder::Records => rows.sort_by_key(|row| Reverse(row.seq)),
            SessionOrder::Size => rows.sort_by_key(|row| Reverse(size(row))),
        }
        let limit = query.limit.unwrap_or(usize::MAX);
        let mut more = 0;
        // A session that is not listed need not be read.
        if query.doing.is_empty() && query.order != SessionOrder::Cost {
            more = rows.len().saturating_sub(limit);
            rows.truncate(limit);
        }
        let mut listed = Vec::with_capacity(rows.len());
        for row in rows {
            let view = View::of(store, row.id, Some(row.seq)).await?;
            let state = Activity::of(&row, &view);
            if query.doing.is_empty() || query.doing.contains(&state) {
                let (records, bytes, usage) = (row.seq + 1, size(&row), view.state().own_usage());
                listed.push(ListedSession { row, state, records, bytes, usage });
            }
        }
        if query.order == SessionOrder::Cost {
            listed.sort_by_key(|one| Reverse(one.usage.cost_nano_usd));
        }
        more += listed.len().saturating_sub(limit);
        listed.truncate(limit);
        Ok(Self { listed, more, all })
    }
}

impl SessionQuery {
    /// What can be said without reading the session.
    fn may_name(&self, row: &Row) -> bool {
        let never_closed = !self.doing.is_empty() && !self.doing.contains(&Activity::Closed);
        self.labels.iter().all(|label| label.matches(&row.labels))
            && self.closed.is_none_or(|closed| closed == row.closed)
            && !(row.closed && never_closed)
            && (row.holder.is_some() || !self.held)
            && self.since.is_none_or(|since| row.time >= since)
    }
}

/// What a session is called.
pub fn session_title(row: &Row) -> String {
    match (&row.title, row.origin) {
        (Some(title), _) => title.clone(),
        (None, Some(origin)) => format!("fork of {}", origin.point()),
        (None, None) => "(untitled)".to_owned(),
    }
}
