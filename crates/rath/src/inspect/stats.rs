//! Statistics of a store: records by kind, tokens and cost by model and day, the most active sessions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rath_core::body::ModelResponded;
use rath_core::store::{Cursor, Query, Scan};
use rath_core::{Kind, Record, Result, SessionId, Store, Time, Usage};
use serde::Serialize;

use super::steps::time_of;

/// The number of sessions that are listed as the most active.
const ACTIVE: usize = 10;

/// Statistics of a store.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StoreStatistics {
    /// Only records since this time.
    pub since: Option<Time>,
    /// The number of sessions with counted records.
    pub sessions: u64,
    /// The number of these sessions that are closed.
    pub closed: u64,
    /// The number of records.
    pub records: u64,
    /// The size of the records in bytes.
    pub bytes: u64,
    /// The usage of model calls.
    pub usage: Usage,
    /// Totals by kind of record.
    pub kinds: BTreeMap<String, RecordTotals>,
    /// Usage by model.
    pub models: BTreeMap<String, Usage>,
    /// Totals by day.
    pub days: BTreeMap<String, RecordTotals>,
    /// The sessions with the most records, in descending order.
    pub active: Vec<ActiveSession>,
}

/// Totals of a set of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecordTotals {
    /// The number of records.
    pub records: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// The usage of model calls among them.
    pub usage: Usage,
}

/// A session with many records.
#[derive(Clone, Debug, Serialize)]
pub struct ActiveSession {
    /// The id of the session.
    pub session: SessionId,
    /// Its title.
    pub title: Option<String>,
    /// The totals of its records.
    #[serde(flatten)]
    pub amount: RecordTotals,
}

impl StoreStatistics {
    /// Counts the records of a store since some time. `day` returns the name of the day for a time, in a time zone of
    /// its choice, and is called once per quarter of an hour. `progress` gets the number of records read.
    pub async fn count(
        store: &Arc<dyn Store>,
        since: Option<Time>,
        day: impl Fn(Time) -> String,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self> {
        let mut counted = Self { since, ..Self::default() };
        let mut sessions: HashMap<SessionId, RecordTotals> = HashMap::new();
        let mut days = Days { quarter: 0, name: String::new(), day };
        let (mut after, mut seen) = (Cursor::start(), 0);
        loop {
            let page = store.scan(Scan::store(after)).await?;
            seen += page.records.len() as u64;
            progress(seen);
            for record in &page.records {
                let time = time_of(record)?;
                if since.is_some_and(|since| time < since) {
                    continue;
                }
                let (model, amount) = RecordTotals::of(record);
                counted.records += 1;
                counted.bytes += amount.bytes;
                counted.usage += amount.usage;
                counted.kinds.entry(record.kind().to_string()).or_default().add(amount);
                counted.days.entry(days.of(time).to_owned()).or_default().add(amount);
                sessions.entry(record.session()).or_default().add(amount);
                if let Some(model) = model {
                    *counted.models.entry(model).or_default() += amount.usage;
                }
            }
            if !page.more {
                break;
            }
            after = page.cursor;
        }
        let rows = store.sessions(Query::default()).await?;
        counted.sessions = sessions.len() as u64;
        counted.closed = rows.iter().filter(|row| row.closed && sessions.contains_key(&row.id)).count() as u64;
        let mut active: Vec<ActiveSession> = rows
            .into_iter()
            .filter_map(|row| {
                Some(ActiveSession { amount: *sessions.get(&row.id)?, session: row.id, title: row.title })
            })
            .collect();
        active.sort_by_key(|active| Reverse(active.amount.records));
        active.truncate(ACTIVE);
        counted.active = active;
        Ok(counted)
    }
}

impl RecordTotals {
    /// Counts a record, and its model if it is a response.
    fn of(record: &Record) -> (Option<String>, Self) {
        let mut amount = Self { records: 1, bytes: record.size() as u64, usage: Usage::default() };
        if *record.kind() != Kind::ModelResponded {
            return (None, amount);
        }
        let Ok(body) = record.body::<ModelResponded>() else { return (None, amount) };
        amount.usage = body.usage;
        (Some(body.model.unwrap_or_else(|| "(unknown)".into())), amount)
    }

    fn add(&mut self, other: Self) {
        self.records += other.records;
        self.bytes += other.bytes;
        self.usage += other.usage;
    }
}

/// Caches the day of the last quarter of an hour. Consecutive records usually share it.
struct Days<F> {
    quarter: u64,
    name: String,
    day: F,
}

impl<F: Fn(Time) -> String> Days<F> {
    fn of(&mut self, time: Time) -> &str {
        // Time zone offsets are multiples of a quarter of an hour.
        let quarter = time.0 / 900_000_000;
        if self.name.is_empty() || quarter != self.quarter {
            (self.quarter, self.name) = (quarter, (self.day)(time));
        }
        &self.name
    }
}
