//! What becomes of each session of a bundle, decided before anything is written.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rath_core::store::{Store, Which};
use rath_core::{Digest, OPERATOR, Point, Reference, SessionId};

use super::blobs::Names;
use super::check::Contents;
use super::graph::{Graph, Head};
use super::import::{Fate, Records};
use super::source::Source;
use super::{Error, fork};
use crate::care::Erasures;

/// What is to be done with each session.
pub(super) struct Plan {
    pub(super) fates: BTreeMap<SessionId, Fate>,
    /// How many records of a session the store has already.
    pub(super) known: HashMap<SessionId, u64>,
    /// Sessions that went on in two ways, with a place where that shows.
    pub(super) diverged: BTreeMap<SessionId, u64>,
}

impl Plan {
    pub(super) async fn new(
        store: &Arc<dyn Store>,
        contents: &Contents,
        rows: &HashMap<SessionId, (u64, Reference)>,
    ) -> Result<Self, Error> {
        let mut plan = Self { fates: BTreeMap::new(), known: HashMap::new(), diverged: BTreeMap::new() };
        let erasures = Erasures::of(store).await?;
        for Head { session, seq, .. } in &contents.graph.sessions {
            let fate = match rows.get(session) {
                None => match erasures.removed(&session.to_string()).last() {
                    Some((session, erasure)) => {
                        let (by, why) = (erasure.by.to_string(), erasure.erased.why.clone());
                        return Err(Error::Removed { session, by, time: erasure.time, why });
                    }
                    None => Fate::New,
                },
                Some((at, here)) if contents.seen.get(&here.point()) != Some(&here.id) => {
                    plan.diverged.insert(*session, *at);
                    Fate::Kept
                }
                Some((at, _)) => {
                    plan.known.insert(*session, at + 1);
                    if at < seq { Fate::Forwarded { from: at + 1 } } else { Fate::Known }
                }
            };
            plan.fates.insert(*session, fate);
        }
        for (key, there) in &contents.runs {
            let holder = store.sessions(Which::Run(key.clone()).into()).await?.into_iter().next();
            match holder {
                Some(row) if row.id == *there => {}
                _ if key == OPERATOR => return Err(Error::Operator(*there)),
                Some(row) => return Err(Error::RunTaken { key: key.clone(), here: row.id, there: *there }),
                None => {}
            }
        }
        Ok(plan)
    }

    /// What stands on records that cannot be taken in cannot be taken in either.
    pub(super) fn keep(&mut self, contents: &Contents, parted: &BTreeMap<SessionId, u64>) {
        let mut until: HashMap<SessionId, u64> = parted.iter().map(|(session, seq)| (*session, *seq)).collect();
        loop {
            let before = until.len();
            let outside = |at: &Reference, until: &HashMap<SessionId, u64>| {
                until.get(&at.session).is_some_and(|from| at.seq >= *from)
            };
            for head in &contents.graph.sessions {
                if head.origin.is_some_and(|origin| outside(&origin, &until)) {
                    until.entry(head.session).or_insert(0);
                }
            }
            for merge in &contents.graph.merges {
                if merge.took.iter().any(|took| outside(took, &until)) {
                    until.entry(merge.into.session).or_insert(merge.into.seq);
                }
            }
            if until.len() == before {
                break;
            }
        }
        for session in until.into_keys() {
            self.fates.insert(session, Fate::Kept);
        }
    }

    /// How many records are to be taken in.
    pub(super) fn new_records(&self, graph: &Graph) -> u64 {
        let new = graph.sessions.iter().map(|head| match self.fates.get(&head.session) {
            Some(Fate::New) => head.seq + 1,
            Some(Fate::Forwarded { from }) => head.seq + 1 - from,
            _ => 0,
        });
        new.sum()
    }

    /// The blobs that come with what is new. What the store has already, and may have erased, brings none.
    pub(super) fn blobs(
        &self,
        source: &mut Source,
        contents: &Contents,
        parted: &BTreeMap<SessionId, u64>,
    ) -> Result<Vec<Digest>, Error> {
        if self.fates.values().all(|fate| *fate == Fate::New) {
            return Ok(source.blobs().collect());
        }
        let mut names = Names::default();
        let mut records = Records::new(source, contents)?;
        let beyond = fork::Beyond { parted, known: &self.known };
        while let Some(record) = records.next()? {
            let is_kept = || self.fates.get(&record.session()) == Some(&Fate::Kept) && beyond.has(record.point());
            if self.wants(record.point()) || is_kept() {
                names.of(&record);
            }
        }
        drop(records);
        names.walk(source)?;
        Ok(source.blobs().filter(|digest| names.all.contains_key(digest)).collect())
    }

    /// Whether a record is new, and to be taken in.
    pub(super) fn wants(&self, point: Point) -> bool {
        match self.fates.get(&point.session) {
            Some(Fate::New) => true,
            Some(Fate::Forwarded { from }) => point.seq >= *from,
            _ => false,
        }
    }
}
