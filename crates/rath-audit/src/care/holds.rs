//! What must not go.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use rath_core::body::{Held, Released};
use rath_core::store::{Cursor, Row, Scan, Which};
use rath_core::{Actor, Kind, OPERATOR, Point, RecordId, Reference, Result, SessionId, Store, Time, View};
use serde::Serialize;

use super::Care;
use crate::operator::operator;

/// A hold in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hold {
    /// Its `held` record.
    pub record: Reference,
    /// Who placed it.
    pub by: Actor,
    /// When.
    pub placed: Time,
    /// What it says.
    pub held: Held,
}

/// Holds and changes of labels, in the order in which the store got them: clocks of others may be behind.
#[derive(Default)]
struct Events {
    holds: HashMap<RecordId, usize>,
    changes: Vec<(usize, Point)>,
}

impl Hold {
    /// Whether it names the session itself, or a label that it has.
    pub fn names(&self, row: &Row) -> bool {
        self.held.sessions.contains(&row.id) || self.held.labels.iter().any(|label| has_label(&row.labels, label))
    }
}

impl Hold {
    /// Sessions that had one of its labels while it was in force. Taking a label away does not end a hold.
    async fn lost(&self, store: &Arc<dyn Store>, events: &Events) -> Result<HashSet<SessionId>> {
        let mut lost = HashSet::new();
        let placed = events.holds.get(&self.record.id).copied().unwrap_or(0);
        let since = events.changes.iter().filter(|(when, _)| !self.held.labels.is_empty() && *when > placed);
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

impl Events {
    async fn of(store: &Arc<dyn Store>) -> Result<Self> {
        let (mut events, mut after, mut when) = (Self::default(), Cursor::start(), 0);
        loop {
            let page = store.scan(Scan::store(after).kinds(&[Kind::Held, Kind::Labelled])).await?;
            for record in &page.records {
                when += 1;
                match record.kind() {
                    Kind::Held => drop(events.holds.insert(record.id(), when)),
                    _ => events.changes.push((when, record.point())),
                }
            }
            if !page.more {
                return Ok(events);
            }
            after = page.cursor;
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hold {}: placed by {} at {}: {}", self.record.point(), self.by, self.placed, self.held.why)
    }
}

/// Whether a session with these labels has `label`, NAME or NAME=VALUE.
pub(super) fn has_label(labels: &BTreeMap<String, String>, label: &str) -> bool {
    let (name, value) = label.split_once('=').map_or((label, None), |(name, value)| (name, Some(value)));
    labels.get(name).is_some_and(|have| value.is_none_or(|value| value == have))
}

/// The holds in force, and what they cover.
#[derive(Clone, Debug, Default)]
pub struct Holds {
    /// They, oldest first.
    pub all: Vec<Hold>,
    /// By session, how far each hold reaches.
    reach: HashMap<SessionId, Vec<(u64, usize)>>,
}

impl Holds {
    /// The holds of a store that are in force now.
    pub async fn of(store: &Arc<dyn Store>) -> Result<Self> {
        let mut holds = Self { all: in_force(store).await?, reach: HashMap::new() };
        if holds.all.is_empty() {
            return Ok(holds);
        }
        let rows = store.sessions(Which::All.into()).await?;
        let events = match holds.all.iter().any(|hold| !hold.held.labels.is_empty()) {
            true => Events::of(store).await?,
            false => Events::default(),
        };
        for (at, hold) in holds.all.iter().enumerate() {
            let lost = hold.lost(store, &events).await?;
            let mut reached: HashMap<SessionId, u64> = HashMap::new();
            for row in rows.iter().filter(|row| hold.names(row) || lost.contains(&row.id)) {
                for line in View::of(store, row.id, None).await?.lineage().await? {
                    let to = reached.entry(line.session).or_default();
                    *to = (*to).max(line.to);
                }
            }
            for (session, to) in reached {
                holds.reach.entry(session).or_default().push((to, at));
            }
        }
        Ok(holds)
    }

    /// The hold that covers a record.
    pub fn over(&self, point: Point) -> Option<&Hold> {
        let reach = self.reach.get(&point.session)?;
        reach.iter().find(|(to, _)| point.seq <= *to).map(|(_, at)| &self.all[*at])
    }

    /// The sessions that holds cover.
    pub(super) fn sessions(&self) -> Vec<SessionId> {
        self.reach.keys().copied().collect()
    }

    /// A hold that covers any part of a session.
    pub fn over_session(&self, session: SessionId) -> Option<&Hold> {
        self.over(Point { session, seq: 0 })
    }
}

/// The holds that were placed, are not released, and have time left.
async fn in_force(store: &Arc<dyn Store>) -> Result<Vec<Hold>> {
    let Some(row) = store.sessions(Which::Run(OPERATOR.into()).into()).await?.into_iter().next() else {
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
                holds.push(Hold { record: record.reference(), by: header.actor, placed: header.time, held });
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

impl Care {
    /// Places a hold. When this returns, nothing it covers will go. An erasure that was interrupted is finished first: it
    /// was on the record before the hold.
    pub async fn hold(&self, held: Held) -> Result<Reference> {
        self.finish(&mut |_| {}).await?;
        let mut operator = operator(&self.store, self.actor.clone()).await?;
        operator.append(held)?;
        operator.publish().await?;
        Ok(operator.head())
    }

    /// Ends holds.
    pub async fn release(&self, holds: &[Hold], why: &str) -> Result<Reference> {
        let mut operator = operator(&self.store, self.actor.clone()).await?;
        operator.append(Released { holds: holds.iter().map(|hold| hold.record.id).collect(), why: why.into() })?;
        operator.publish().await?;
        Ok(operator.head())
    }
}
