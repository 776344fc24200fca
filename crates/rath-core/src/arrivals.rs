//! Foreign records: records of this store that were written elsewhere, which means on another machine, by another user,
//! or in a store from which a bundle was imported.
//!
//! Placement, grants and answers make this machine act, so they apply only if a person gave them here. Foreign records
//! are listed in `arrived` records of the operator session. Before anything is appended to a foreign session here, it
//! gets an `arrived` record of its own, which ends the foreign part. So does a fork that starts from foreign records.
//! The `arrived` record in a session is valid only if it names the listing record, which cannot be known elsewhere.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap as HashMap;

use crate::actor::Actor;
use crate::body::{Arrived, ArrivedSession, Placed};
use crate::error;
use crate::id::{Point, RecordId, SessionId};
use crate::kind::Kind;
use crate::reader::{Reader, tampered};
use crate::session::{OPERATOR, Session};
use crate::store::{BoxFuture, Provenance, Result, Scan, SessionFilter, SessionInfo, Store};

/// The number of stores whose lists stay cached.
const MAX_LISTS: usize = 8;

type ArrivalsBySession = Arc<HashMap<SessionId, Arrival>>;

/// The foreign records of a store.
#[derive(Clone, Default)]
pub(crate) struct Arrivals {
    sessions: ArrivalsBySession,
    /// Whether the whole store was written elsewhere and is not listed yet.
    everything: bool,
    operator: Option<SessionId>,
}

/// The foreign part of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// The seq of the last foreign record.
    to: u64,
    /// The operator session's record that lists it.
    listed: Option<RecordId>,
    /// The seq of the session's own `arrived` record, after which everything was made here.
    pub(crate) ended_at: Option<u64>,
}

impl Arrival {
    /// For a session that is foreign but not listed.
    pub(crate) fn unlisted() -> Self {
        Self { to: u64::MAX, listed: None, ended_at: None }
    }

    /// Whether the record at `seq` is in the foreign part.
    pub(crate) fn covers(&self, seq: u64) -> bool {
        seq <= self.to && self.ended_at.is_none_or(|ended_at| seq < ended_at)
    }

    /// The record that ends the foreign part.
    pub(crate) fn end(&self) -> Arrived {
        Arrived { from: "elsewhere".into(), sessions: Vec::new(), listed: self.listed }
    }
}

/// Cached lists, by the head of the operator session that contains them.
static LISTS: Mutex<Vec<(RecordId, ArrivalsBySession)>> = Mutex::new(Vec::new());

impl Arrivals {
    pub(crate) async fn of(store: &Arc<dyn Store>) -> Result<Self> {
        let everything = matches!(store.provenance()?, Provenance::Elsewhere(_));
        let operator = store.sessions(SessionFilter::Run(OPERATOR.into()).into()).await?.into_iter().next();
        let sessions = match &operator {
            Some(row) => listed_arrivals(store, row).await?,
            None => ArrivalsBySession::default(),
        };
        Ok(Self { sessions, everything, operator: operator.map(|row| row.id) })
    }

    /// Like [`of`](Self::of), but first lists the records of a store that was written elsewhere and claims it for this
    /// user.
    pub(crate) async fn claim(store: &Arc<dyn Store>, actor: &Actor) -> error::Result<Self> {
        match store.provenance()? {
            Provenance::Here => {}
            // A store of an earlier version, or a read-only one.
            Provenance::Unknown => drop(store.claim()),
            Provenance::Elsewhere(_) => {
                let mut operator = store.operator(actor.clone()).await?;
                // Another process may have listed it at the same time.
                if let Provenance::Elsewhere(from) = store.provenance()? {
                    let rows = store.sessions(SessionFilter::All.into()).await?;
                    let sessions = rows.iter().filter(|row| row.id != operator.id());
                    let sessions: Vec<_> =
                        sessions.map(|row| ArrivedSession { session: row.id, to: row.seq }).collect();
                    for list in Arrived::list(&from, &sessions) {
                        operator.append(list)?;
                    }
                    operator.publish().await?;
                    store.claim()?;
                }
            }
        }
        Ok(Self::of(store).await?)
    }

    pub(crate) fn is_operator(&self, session: SessionId) -> bool {
        self.operator == Some(session)
    }

    /// The foreign part of a session, considering its records up to `head`.
    pub(crate) async fn of_line(&self, reader: &Reader, head: Point) -> Result<Option<Arrival>> {
        let Point { session, seq } = head;
        if self.is_operator(session) {
            return Ok(None);
        }
        if self.everything {
            return Ok(Some(Arrival::unlisted()));
        }
        let Some(arrival) = self.sessions.get(&session).copied() else { return Ok(None) };
        let mut from = 0;
        loop {
            let page = reader.page(session, from, seq, &[Kind::Arrived]).await?;
            for record in &page.records {
                if record.body::<Arrived>().is_ok_and(|body| body.listed == arrival.listed) {
                    return Ok(Some(Arrival { ended_at: Some(record.seq()), ..arrival }));
                }
            }
            match page.more {
                true => from = page.position,
                false => return Ok(Some(arrival)),
            }
        }
    }

    /// The foreign part of the session, if the record at `point` is in it.
    pub(crate) async fn at(&self, reader: &Reader, point: Point) -> Result<Option<Arrival>> {
        Ok(self.of_line(reader, point).await?.filter(|arrival| arrival.covers(point.seq)))
    }
}

/// Lists a store's foreign records. Boxed, because listing publishes a session, and publishing may call this.
pub(crate) fn list(store: Arc<dyn Store>, actor: Actor) -> BoxFuture<'static, error::Result<()>> {
    Box::pin(async move { Arrivals::claim(&store, &actor).await.map(drop) })
}

async fn listed_arrivals(store: &Arc<dyn Store>, operator: &SessionInfo) -> Result<ArrivalsBySession> {
    let cached = || LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, sessions)) = cached().iter().find(|(head, _)| *head == operator.head) {
        return Ok(sessions.clone());
    }
    let (mut sessions, mut from) = (HashMap::default(), 0);
    loop {
        let page = store.scan(Scan::session(operator.id, from, operator.seq).kinds(&[Kind::Arrived])).await?;
        for record in &page.records {
            let body: Arrived = record.body().map_err(|why| tampered(record, why))?;
            for ArrivedSession { session, to } in body.sessions {
                sessions.insert(session, Arrival { to, listed: Some(record.id()), ended_at: None });
            }
        }
        if !page.more {
            break;
        }
        from = page.position;
    }
    let sessions = Arc::new(sessions);
    let mut cached = cached();
    cached.insert(0, (operator.head, sessions.clone()));
    cached.truncate(MAX_LISTS);
    Ok(sessions)
}

/// The last placement in a session's records or those of the sessions it was forked from, including foreign ones.
pub async fn last_placement(store: &Arc<dyn Store>, mut at: Point) -> Result<Option<Placed>> {
    let reader = Reader::new(store.clone());
    loop {
        let scan = Scan::session(at.session, 0, at.seq).kinds(&[Kind::Placed]).backwards().limit(1);
        if let Some(record) = store.scan(scan).await?.records.first() {
            return Ok(record.body().ok());
        }
        match reader.session_start(at.session).await?.origin {
            Some(origin) if origin.point() != at => at = origin.point(),
            _ => return Ok(None),
        }
    }
}

impl Session {
    /// Determines the foreign part of this session. Ends it at the head if the state contains foreign authority.
    pub(crate) async fn note_arrival(&mut self, arrivals: &Arrivals) -> error::Result<()> {
        let arrival = arrivals.of_line(&self.reader(), self.head().point()).await?;
        let ends = arrival.filter(|arrival| arrival.covers(self.head().seq) && self.state().has_authority());
        match ends {
            Some(arrival) if !self.state().closed => {
                self.end_arrival(&arrival)?;
                let ended_at = Some(self.head().seq);
                self.set_arrival(Some(Arrival { ended_at, ..arrival }));
            }
            _ => self.set_arrival(arrival),
        }
        Ok(())
    }
}
