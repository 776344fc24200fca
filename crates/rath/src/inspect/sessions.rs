//! Lists of sessions, with their activity, size and cost.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use rath_core::store::{Query, SessionInfo};
use rath_core::{Result, SessionId, Store, Time, Usage, View};
use serde::Serialize;

use super::{Activity, LabelFilter};

/// A session in a list.
#[derive(Clone, Debug, Serialize)]
pub struct ListedSession {
    /// The store's row of the session.
    #[serde(flatten)]
    pub row: SessionInfo,
    /// The session's activity.
    pub state: Activity,
    /// The number of its records.
    pub records: u64,
    /// The size of its records in bytes.
    pub bytes: u64,
    /// The usage of its own model calls.
    pub usage: Usage,
}

/// Which sessions are listed, and in which order.
#[derive(Clone, Debug, Default)]
pub struct SessionQuery {
    /// Only sessions with all of these labels.
    pub labels: Vec<LabelFilter>,
    /// Only sessions that are closed, or only those that are not.
    pub closed: Option<bool>,
    /// Only sessions that a process has locked.
    pub held: bool,
    /// Only sessions with one of these activities; any if empty.
    pub doing: Vec<Activity>,
    /// Only sessions that changed since this time.
    pub since: Option<Time>,
    /// The order of the list.
    pub order: SessionOrder,
    /// At most this many.
    pub limit: Option<usize>,
}

/// The sort key of a list of sessions, in descending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionOrder {
    /// Time of the last change.
    #[default]
    Time,
    /// The number of records.
    Records,
    /// Cost of the session's own model calls.
    Cost,
    /// Size of the session's records.
    Size,
}

/// A list of sessions.
#[derive(Clone, Debug)]
pub struct SessionList {
    /// The sessions that match, in the requested order.
    pub listed: Vec<ListedSession>,
    /// The number of further sessions beyond the limit.
    pub more: usize,
    /// The number of sessions in the store.
    pub all: usize,
}

impl SessionList {
    /// Lists the sessions that match `query` and for which `keep` returns true. `sizes` maps sessions to the size of
    /// their records.
    pub async fn of(
        store: &Arc<dyn Store>,
        query: &SessionQuery,
        sizes: &HashMap<SessionId, u64>,
        keep: impl Fn(&SessionInfo) -> bool,
    ) -> Result<Self> {
        let mut rows = store.sessions(Query::default()).await?;
        let all = rows.len();
        rows.retain(|row| query.may_name(row) && keep(row));
        let size = |row: &SessionInfo| sizes.get(&row.id).copied().unwrap_or(0);
        match query.order {
            SessionOrder::Time | SessionOrder::Cost => {}
            SessionOrder::Records => rows.sort_by_key(|row| Reverse(row.seq)),
            SessionOrder::Size => rows.sort_by_key(|row| Reverse(size(row))),
        }
        let limit = query.limit.unwrap_or(usize::MAX);
        let mut more = 0;
        // Sessions beyond the limit are not read.
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
    /// Whether the row alone matches, without reading the session.
    fn may_name(&self, row: &SessionInfo) -> bool {
        let never_closed = !self.doing.is_empty() && !self.doing.contains(&Activity::Closed);
        self.labels.iter().all(|label| label.matches(&row.labels))
            && self.closed.is_none_or(|closed| closed == row.closed)
            && !(row.closed && never_closed)
            && (row.holder.is_some() || !self.held)
            && self.since.is_none_or(|since| row.time >= since)
    }
}

/// The display title of a session.
pub fn session_title(row: &SessionInfo) -> String {
    match (&row.title, row.origin) {
        (Some(title), _) => title.clone(),
        (None, Some(origin)) => format!("fork of {}", origin.point()),
        (None, None) => "(untitled)".to_owned(),
    }
}
