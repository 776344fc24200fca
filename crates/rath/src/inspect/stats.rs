//! What a store holds: records by kind, tokens and cost by model and day, the most active sessions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rath_core::body::ModelResponded;
use rath_core::store::{Cursor, Query, Scan};
use rath_core::{Kind, Record, Result, SessionId, Store, Time, Usage};
use serde::Serialize;

use super::steps::time_of;

/// Sessions that are listed as the most active.
const ACTIVE: usize = 10;

/// What was counted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Statistics {
    /// Only records since this time.
    pub since: Option<Time>,
    /// Sessions with such records.
    pub sessions: u64,
    /// Of those, the closed ones.
    pub closed: u64,
    /// Records.
    pub records: u64,
    /// Bytes of records.
    pub bytes: u64,
    /// What models used.
    pub usage: Usage,
    /// By the kind of record.
    pub kinds: BTreeMap<String, Amount>,
    /// By the model that answered.
    pub models: BTreeMap<String, Usage>,
    /// By the day.
    pub days: BTreeMap<String, Amount>,
    /// The sessions with the most records, the most first.
    pub active: Vec<ActiveSession>,
}

/// Some records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// How many.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What models used in them.
    pub usage: Usage,
}

/// A session with many records.
#[derive(Clone, Debug, Serialize)]
pub struct ActiveSession {
    /// The session.
    pub session: SessionId,
    /// Its title.
    pub title: Option<String>,
    /// Its records.
    #[serde(flatten)]
    pub amount: Amount,
}

impl Statistics {
    /// Counts the records of a store since some time. `day` names the day of a moment, in the time zone that is meant; it
    /// is asked once for each quarter of an hour. `progress` is told how many records were read.
    pub async fn count(
        store: &Arc<dyn Store>,
        since: Option<Time>,
        day: impl Fn(Time) -> String,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self> {
        let mut counted = Self { since, ..Self::default() };
        let mut sessions: HashMap<SessionId, Amount> = HashMap::new();
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
                let (model, amount) = Amount::of(record);
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

impl Amount {
    /// A record, and the model that answered, if it says one did.
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

/// Remembers the last quarter of an hour, and which day it is of: neighbouring records are of the same, mostly.
struct Days<F> {
    quarter: u64,
    name: String,
    day: F,
}

impl<F: Fn(Time) -> String> Days<F> {
    fn of(&mut self, time: Time) -> &str {
        // Time zones differ by quarters of an hour.
        let quarter = time.0 / 900_000_000;
        if self.name.is_empty() || quarter != self.quarter {
            (self.quarter, self.name) = (quarter, (self.day)(time));
        }
        &self.name
    }
}
