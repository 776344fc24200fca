//! Which records of a store were made elsewhere: on another machine, by another user, or in a store that a bundle came from.
//!
//! Place, permissions and answers count only where a person gave them here, because they make this machine act. What came
//! is listed by `arrived` records on the operator session. A line that came gets an `arrived` record of its own before
//! anything else is appended to it here, and so does a fork that begins with such records. The record on a line counts only
//! where it names the list, which nobody elsewhere can know.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap as HashMap;

use crate::actor::Actor;
use crate::body::{Arrived, ArrivedLine, Placed};
use crate::error;
use crate::id::{Point, RecordId, SessionId};
use crate::kind::Kind;
use crate::reader::{Reader, tampered};
use crate::session::{OPERATOR, Session};
use crate::store::{BoxFuture, Provenance, Result, Row, Scan, Store, Which};

/// The number of stores whose lists stay cached.
const KEPT: usize = 8;

type Lines = Arc<HashMap<SessionId, Arrival>>;

/// What came into a store.
#[derive(Clone, Default)]
pub(crate) struct Arrivals {
    lines: Lines,
    /// Whether all of the store was written elsewhere, and is not listed yet.
    everything: bool,
    operator: Option<SessionId>,
}

/// That records of a line came from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// The last one that came.
    to: u64,
    /// The record that lists it.
    listed: Option<RecordId>,
    /// The record of the line behind which everything was made here.
    pub(crate) behind: Option<u64>,
}

impl Arrival {
    /// That of a line that no list names.
    pub(crate) fn unlisted() -> Self {
        Self { to: u64::MAX, listed: None, behind: None }
    }

    /// Whether what the line says at this place is what was said elsewhere.
    pub(crate) fn covers(&self, seq: u64) -> bool {
        seq <= self.to && self.behind.is_none_or(|behind| seq < behind)
    }

    /// The record that ends it.
    pub(crate) fn end(&self) -> Arrived {
        Arrived { from: "elsewhere".into(), lines: Vec::new(), listed: self.listed }
    }
}

/// Lists, by the head of the operator session that has them.
static AT_HAND: Mutex<Vec<(RecordId, Lines)>> = Mutex::new(Vec::new());

impl Arrivals {
    pub(crate) async fn of(store: &Arc<dyn Store>) -> Result<Self> {
        let everything = matches!(store.provenance()?, Provenance::Elsewhere(_));
        let operator = store.sessions(Which::Run(OPERATOR.into()).into()).await?.into_iter().next();
        let lines = match &operator {
            Some(row) => lines(store, row).await?,
            None => Lines::default(),
        };
        Ok(Self { lines, everything, operator: operator.map(|row| row.id) })
    }

    /// As [`of`](Self::of), after a store that was written elsewhere was listed as such, and is this user's from here on.
    pub(crate) async fn settle(store: &Arc<dyn Store>, actor: &Actor) -> error::Result<Self> {
        match store.provenance()? {
            Provenance::Here => {}
            // A store of an earlier version, or one that cannot be written to.
            Provenance::Unknown => drop(store.claim()),
            Provenance::Elsewhere(_) => {
                let mut operator = store.operator(actor.clone()).await?;
                // Another process may have listed it a moment ago.
                if let Provenance::Elsewhere(from) = store.provenance()? {
                    let rows = store.sessions(Which::All.into()).await?;
                    let lines = rows.iter().filter(|row| row.id != operator.id());
                    let lines: Vec<_> = lines.map(|row| ArrivedLine { session: row.id, to: row.seq }).collect();
                    for list in Arrived::list(&from, &lines) {
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

    /// What came of a line, looked at up to `head`.
    pub(crate) async fn of_line(&self, reader: &Reader, head: Point) -> Result<Option<Arrival>> {
        let Point { session, seq } = head;
        if self.is_operator(session) {
            return Ok(None);
        }
        if self.everything {
            return Ok(Some(Arrival::unlisted()));
        }
        let Some(arrival) = self.lines.get(&session).copied() else { return Ok(None) };
        let mut from = 0;
        loop {
            let page = reader.page(session, from, seq, &[Kind::Arrived]).await?;
            for record in &page.records {
                if record.body::<Arrived>().is_ok_and(|body| body.listed == arrival.listed) {
                    return Ok(Some(Arrival { behind: Some(record.seq()), ..arrival }));
                }
            }
            match page.more {
                true => from = page.position,
                false => return Ok(Some(arrival)),
            }
        }
    }

    /// That the line at this place says what was said elsewhere.
    pub(crate) async fn at(&self, reader: &Reader, point: Point) -> Result<Option<Arrival>> {
        Ok(self.of_line(reader, point).await?.filter(|arrival| arrival.covers(point.seq)))
    }
}

/// Lists what a store has that was written elsewhere. Boxed, because this publishes a line, and publishing one comes here.
pub(crate) fn list(store: Arc<dyn Store>, actor: Actor) -> BoxFuture<'static, error::Result<()>> {
    Box::pin(async move { Arrivals::settle(&store, &actor).await.map(drop) })
}

async fn lines(store: &Arc<dyn Store>, operator: &Row) -> Result<Lines> {
    let at_hand = || AT_HAND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, lines)) = at_hand().iter().find(|(head, _)| *head == operator.head) {
        return Ok(lines.clone());
    }
    let (mut lines, mut from) = (HashMap::default(), 0);
    loop {
        let page = store.scan(Scan::session(operator.id, from, operator.seq).kinds(&[Kind::Arrived])).await?;
        for record in &page.records {
            let body: Arrived = record.body().map_err(|why| tampered(record, why))?;
            for ArrivedLine { session, to } in body.lines {
                lines.insert(session, Arrival { to, listed: Some(record.id()), behind: None });
            }
        }
        if !page.more {
            break;
        }
        from = page.position;
    }
    let lines = Arc::new(lines);
    let mut at_hand = at_hand();
    at_hand.insert(0, (operator.head, lines.clone()));
    at_hand.truncate(KEPT);
    Ok(lines)
}

/// Where a line worked last, as its records and those that it was forked from say; also where that does not count here.
pub async fn last_place(store: &Arc<dyn Store>, mut at: Point) -> Result<Option<Placed>> {
    let reader = Reader::new(store.clone());
    loop {
        let scan = Scan::session(at.session, 0, at.seq).kinds(&[Kind::Placed]).backwards().limit(1);
        if let Some(record) = store.scan(scan).await?.records.first() {
            return Ok(record.body().ok());
        }
        match reader.line(at.session).await?.origin {
            Some(origin) if origin.point() != at => at = origin.point(),
            _ => return Ok(None),
        }
    }
}

impl Session {
    /// Notes what of this line was made elsewhere, and ends that at its head, where there is something to end.
    pub(crate) async fn note_arrival(&mut self, arrivals: &Arrivals) -> error::Result<()> {
        let arrival = arrivals.of_line(&self.reader(), self.head().point()).await?;
        let ends = arrival.filter(|arrival| arrival.covers(self.head().seq) && self.state().would_leave());
        match ends {
            Some(arrival) if !self.state().closed => {
                self.end_arrival(&arrival)?;
                let behind = Some(self.head().seq);
                self.set_arrival(Some(Arrival { behind, ..arrival }));
            }
            _ => self.set_arrival(arrival),
        }
        Ok(())
    }
}
