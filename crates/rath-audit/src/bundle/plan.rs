//! Decides what happens to each session of a bundle, before anything is written.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rath_core::store::{SessionFilter, Store};
use rath_core::{Digest, OPERATOR, Point, Reference, SessionId};

use super::blobs::NamedBlobs;
use super::check::BundleContents;
use super::graph::{BundleGraph, SessionHead};
use super::import::{Records, SessionImportOutcome};
use super::source::BundleSource;
use super::{BundleError, fork};
use crate::admin::Erasures;

/// The plan of an import.
pub(super) struct ImportPlan {
    pub(super) outcomes: BTreeMap<SessionId, SessionImportOutcome>,
    /// The number of records that the store already has, by session.
    pub(super) known: HashMap<SessionId, u64>,
    /// Diverged sessions, each with the number of a record that differs.
    pub(super) diverged: BTreeMap<SessionId, u64>,
}

impl ImportPlan {
    pub(super) async fn new(
        store: &Arc<dyn Store>,
        contents: &BundleContents,
        rows: &HashMap<SessionId, (u64, Reference)>,
    ) -> Result<Self, BundleError> {
        let mut plan = Self { outcomes: BTreeMap::new(), known: HashMap::new(), diverged: BTreeMap::new() };
        let erasures = Erasures::of(store).await?;
        for SessionHead { session, seq, .. } in &contents.graph.sessions {
            let outcome = match rows.get(session) {
                None => match erasures.removed(&session.to_string()).last() {
                    Some((session, erasure)) => {
                        let (by, why) = (erasure.by.to_string(), erasure.erased.why.clone());
                        return Err(BundleError::Removed { session, by, time: erasure.time, why });
                    }
                    None => SessionImportOutcome::New,
                },
                Some((at, here)) if contents.seen.get(&here.point()) != Some(&here.id) => {
                    plan.diverged.insert(*session, *at);
                    SessionImportOutcome::Kept
                }
                Some((at, _)) => {
                    plan.known.insert(*session, at + 1);
                    if at < seq {
                        SessionImportOutcome::Forwarded { from: at + 1 }
                    } else {
                        SessionImportOutcome::Known
                    }
                }
            };
            plan.outcomes.insert(*session, outcome);
        }
        for (key, there) in &contents.runs {
            let holder = store.sessions(SessionFilter::Run(key.clone()).into()).await?.into_iter().next();
            match holder {
                Some(row) if row.id == *there => {}
                _ if key == OPERATOR => return Err(BundleError::ForeignOperator(*there)),
                Some(row) => return Err(BundleError::RunKeyTaken { key: key.clone(), here: row.id, there: *there }),
                None => {}
            }
        }
        Ok(plan)
    }

    /// Marks sessions that depend on records that cannot be imported: they cannot be imported either.
    pub(super) fn keep_dependents(&mut self, contents: &BundleContents, diverged_at: &BTreeMap<SessionId, u64>) {
        let mut until: HashMap<SessionId, u64> = diverged_at.iter().map(|(session, seq)| (*session, *seq)).collect();
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
            self.outcomes.insert(session, SessionImportOutcome::Kept);
        }
    }

    /// The number of records to import.
    pub(super) fn new_records(&self, graph: &BundleGraph) -> u64 {
        let new = graph.sessions.iter().map(|head| match self.outcomes.get(&head.session) {
            Some(SessionImportOutcome::New) => head.seq + 1,
            Some(SessionImportOutcome::Forwarded { from }) => head.seq + 1 - from,
            _ => 0,
        });
        new.sum()
    }

    /// The blobs that the records to import refer to. Records that the store already has bring no blobs: those may have
    /// been erased.
    pub(super) fn blobs(
        &self,
        source: &mut BundleSource,
        contents: &BundleContents,
        diverged_at: &BTreeMap<SessionId, u64>,
    ) -> Result<Vec<Digest>, BundleError> {
        if self.outcomes.values().all(|outcome| *outcome == SessionImportOutcome::New) {
            return Ok(source.blobs().collect());
        }
        let mut names = NamedBlobs::default();
        let mut records = Records::new(source, contents)?;
        let unshared = fork::UnsharedRecords { diverged_at, known: &self.known };
        while let Some(record) = records.next()? {
            let is_kept = || {
                self.outcomes.get(&record.session()) == Some(&SessionImportOutcome::Kept)
                    && unshared.has(record.point())
            };
            if self.imports(record.point()) || is_kept() {
                names.of(&record);
            }
        }
        drop(records);
        names.walk(source)?;
        Ok(source.blobs().filter(|digest| names.all.contains_key(digest)).collect())
    }

    /// Whether a record is to be imported.
    pub(super) fn imports(&self, point: Point) -> bool {
        match self.outcomes.get(&point.session) {
            Some(SessionImportOutcome::New) => true,
            Some(SessionImportOutcome::Forwarded { from }) => point.seq >= *from,
            _ => false,
        }
    }
}
