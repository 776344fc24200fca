//! The erasures that are recorded in the operator session.

use std::sync::Arc;

use rath_core::body::Erased;
use rath_core::store::{Scan, SessionFilter};
use rath_core::{Actor, Kind, OPERATOR, Point, Reference, Result, SessionId, Store, Time};
use serde::Serialize;

use super::holds::unreadable;

/// A recorded erasure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Erasure {
    /// The `erased` record.
    pub record: Reference,
    /// The actor who erased.
    pub by: Actor,
    /// The time of the erasure.
    pub time: Time,
    /// What was erased, and why.
    pub erased: Erased,
}

/// All erasures of a store, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Erasures(Vec<Erasure>);

impl Erasures {
    /// Reads the erasures of a store.
    pub async fn of(store: &Arc<dyn Store>) -> Result<Self> {
        let mut erasures = Vec::new();
        let Some(row) = store.sessions(SessionFilter::Run(OPERATOR.into()).into()).await?.into_iter().next() else {
            return Ok(Self(erasures));
        };
        let mut from = 0;
        loop {
            let page = store.scan(Scan::session(row.id, from, row.seq).kinds(&[Kind::Erased])).await?;
            for record in &page.records {
                if let Ok(erased) = record.body::<Erased>() {
                    let header = record.header().map_err(|why| unreadable(record.point(), why))?;
                    erasures.push(Erasure { record: record.reference(), by: header.actor, time: header.time, erased });
                }
            }
            if !page.more {
                return Ok(Self(erasures));
            }
            from = page.position;
        }
    }

    /// All erasures, oldest first.
    pub fn all(&self) -> &[Erasure] {
        &self.0
    }

    /// The erasure that destroyed the body of a record.
    pub fn over(&self, point: Point) -> Option<&Erasure> {
        self.0.iter().find(|erasure| erasure.erased.covers(point))
    }

    /// Sessions that were removed and whose id starts with `prefix`.
    pub fn removed<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (SessionId, &'a Erasure)> {
        self.0.iter().flat_map(move |erasure| {
            let gone = erasure.erased.sessions.iter().map(|gone| gone.session);
            gone.filter(move |session| session.matches(prefix)).map(move |session| (session, erasure))
        })
    }

    /// Whether an erasure with this name is recorded.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|erasure| erasure.erased.erasure == name)
    }
}
