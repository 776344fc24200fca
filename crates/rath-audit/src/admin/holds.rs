//! Legal holds: sessions that must not be erased or removed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use rath_core::body::{Held, Released};
use rath_core::store::{Cursor, Scan, SessionFilter, SessionInfo};
use rath_core::{Actor, Kind, OPERATOR, Point, RecordId, Reference, Result, SessionId, Store, Time, View};
use serde::Serialize;

use super::StoreAdmin;
use crate::operator::operator;

/// A hold that is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hold {
    /// The `held` record.
    pub record: Reference,
    /// The actor who added the hold.
    pub by: Actor,
    /// The time at which the hold was added.
    #[serde(rename = "placed")]
    pub added: Time,
    /// What the hold covers, and why.
    pub held: Held,
}

/// The order of holds and label changes in the store. Timestamps are no help: clocks of other machines may be behind.
#[derive(Default)]
struct HoldHistory {
    holds: HashMap<RecordId, usize>,
    changes: Vec<(usize, Point)>,
}

impl Hold {
    /// Whether the hold names the session, or a label that the session has.
    pub fn names(&self, row: &SessionInfo) -> bool {
        self.held.sessions.contains(&row.id) || self.held.labels.iter().any(|label| has_label(&row.labels, label))
    }
}

impl Hold {
    /// Sessions that lost one of the hold's labels while the hold was in force: removing a label does not end a hold.
    async fn lost_label(&self, store: &Arc<dyn Store>, history: &HoldHistory) -> Result<HashSet<SessionId>> {
        let mut lost = HashSet::new();
        let placed = history.holds.get(&self.record.id).copied().unwrap_or(0);
        let since = history.changes.iter().filter(|(order, _)| !self.held.labels.is_empty() && *order > placed);
        for (_, at) in since {
            let Some(before) = at.seq.checked_sub(1) else { continue };
            let view = View::of(store, at.session, Some(before)).await?;
            if self.held.labels.iter().any(|label| has_label(&view.state().labels, label)) {
                lost.insert(at.session);
            }
        }
        Ok(lost)
    }
}

impl HoldHistory {
    async fn of(store: &Arc<dyn Store>) -> Result<Self> {
        let (mut history, mut after, mut order) = (Self::default(), Cursor::start(), 0);
        loop {
            let page = store.scan(Scan::store(after).kinds(&[Kind::Held, Kind::Labelled])).await?;
            for record in &page.records {
                order += 1;
                match record.kind() {
                    Kind::Held => drop(history.holds.insert(record.id(), order)),
                    _ => history.changes.push((order, record.point())),
                }
            }
            if !page.more {
                return Ok(history);
            }
            after = page.cursor;
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hold {}: added by {} at {}: {}", self.record.point(), self.by, self.added, self.held.why)
    }
}

/// Whether the labels include `label`, which is NAME or NAME=VALUE.
pub(super) fn has_label(labels: &BTreeMap<String, String>, label: &str) -> bool {
    let (name, value) = label.split_once('=').map_or((label, None), |(name, value)| (name, Some(value)));
    labels.get(name).is_some_and(|have| value.is_none_or(|value| value == have))
}

/// The holds in force, and the records that they cover.
#[derive(Clone, Debug, Default)]
pub struct Holds {
    /// The holds, oldest first.
    pub all: Vec<Hold>,
    /// By session: the last record that each hold covers, and the hold's index.
    covered_to: HashMap<SessionId, Vec<(u64, usize)>>,
}

impl Holds {
    /// Reads the holds of a store that are in force.
    pub async fn of(store: &Arc<dyn Store>) -> Result<Self> {
        let mut holds = Self { all: in_force(store).await?, covered_to: HashMap::new() };
        if holds.all.is_empty() {
            return Ok(holds);
        }
        let rows = store.sessions(SessionFilter::All.into()).await?;
        let history = match holds.all.iter().any(|hold| !hold.held.labels.is_empty()) {
            true => HoldHistory::of(store).await?,
            false => HoldHistory::default(),
        };
        for (at, hold) in holds.all.iter().enumerate() {
            let lost = hold.lost_label(store, &history).await?;
            let mut covered: HashMap<SessionId, u64> = HashMap::new();
            for row in rows.iter().filter(|row| hold.names(row) || lost.contains(&row.id)) {
                for part in View::of(store, row.id, None).await?.lineage().await? {
                    let to = covered.entry(part.session).or_default();
                    *to = (*to).max(part.to);
                }
            }
            for (session, to) in covered {
                holds.covered_to.entry(session).or_default().push((to, at));
            }
        }
        Ok(holds)
    }

    /// A hold that covers a record.
    pub fn over(&self, point: Point) -> Option<&Hold> {
        let covered_to = self.covered_to.get(&point.session)?;
        covered_to.iter().find(|(to, _)| point.seq <= *to).map(|(_, at)| &self.all[*at])
    }

    /// The sessions that holds cover.
    pub(super) fn sessions(&self) -> Vec<SessionId> {
        self.covered_to.keys().copied().collect()
    }

    /// A hold that covers any part of a session.
    pub fn over_session(&self, session: SessionId) -> Option<&Hold> {
        self.over(Point { session, seq: 0 })
    }
}

/// The holds that were neither released nor expired.
async fn in_force(store: &Arc<dyn Store>) -> Result<Vec<Hold>> {
    let Some(row) = store.sessions(SessionFilter::Run(OPERATOR.into()).into()).await?.into_iter().next() else {
        return Ok(Vec::new());
    };
    let (mut holds, mut released) = (Vec::new(), HashSet::new());
    let mut from = 0;
    loop {
        let scan = Scan::session(row.id, from, row.seq).kinds(&[Kind::Held, Kind::Released]);
        let page = store.scan(scan).await?;
        for record in &page.records {
            if let Ok(held) = record.body::<Held>() {
                let header = record.header().map_err(|why| unreadable(record.point(), why))?;
                holds.push(Hold { record: record.reference(), by: header.actor, added: header.time, held });
            } else if let Ok(body) = record.body::<Released>() {
                released.extend(body.holds);
            }
        }
        if !page.more {
            break;
        }
        from = page.position;
    }
    let now = Time::now();
    holds.retain(|hold| !released.contains(&hold.record.id) && hold.held.until.is_none_or(|until| until > now));
    Ok(holds)
}

pub(super) fn unreadable(point: Point, why: rath_core::Malformed) -> rath_core::Error {
    rath_core::store::Error::Tampered { point, why: why.into() }.into()
}

impl StoreAdmin {
    /// Adds a hold. After this returns, nothing that it covers is erased. An interrupted erasure is finished first: it
    /// was recorded before the hold.
    pub async fn hold(&self, held: Held) -> Result<Reference> {
        self.finish(&mut |_| {}).await?;
        let mut operator = operator(&self.store, self.actor.clone()).await?;
        operator.append(held)?;
        operator.publish().await?;
        Ok(operator.head())
    }

    /// Releases holds.
    pub async fn release(&self, holds: &[Hold], why: &str) -> Result<Reference> {
        let mut operator = operator(&self.store, self.actor.clone()).await?;
        operator.append(Released { holds: holds.iter().map(|hold| hold.record.id).collect(), why: why.into() })?;
        operator.publish().await?;
        Ok(operator.head())
    }
}
