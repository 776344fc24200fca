//! Executes a planned erasure: writes it to the journal, records it, destroys the data, and only then reports success.

use rath_core::body::{Erased, ErasedRange, RemovedSession};
use rath_core::store::Error as StoreError;
use rath_core::{Reference, Result, Session};
use rath_store::{EraseLock, ErasePlan, EraseReport};
use serde::Serialize;

use super::plan::Obstacles;
use super::{Blocker, Erasures, Holds, PlannedErasure, StoreAdmin};
use crate::operator::operator;

/// The maximum number of ranges or sessions in one `erased` record.
const MAX_LISTED: usize = 2000;

/// A completed erasure.
#[derive(Debug, Serialize)]
pub struct CompletedErasure {
    /// The last `erased` record of the erasure.
    pub record: Reference,
    /// What was destroyed.
    pub destroyed: EraseReport,
}

impl StoreAdmin {
    /// Erases what was planned. A hold that was added since planning is respected: what it covers moves to the plan's
    /// `refused`. Returns `None` if nothing is left to erase.
    pub async fn erase(
        &self,
        plan: &mut PlannedErasure,
        why: &str,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Option<CompletedErasure>> {
        let erase_lock = self.embedded.lock_for_erase()?;
        // No hold can be added while this process has the operator session.
        let mut operator = operator(&self.store, self.actor.clone()).await?;
        let holds = Holds::of(&self.store).await?;
        let mut newly_held = Vec::new();
        plan.targets.retain(|target| match holds.over(target.record.point()) {
            Some(hold) => {
                newly_held.push((target.record.session, Blocker::OnHold(Box::new(hold.clone()))));
                false
            }
            None => true,
        });
        plan.posts.retain(|(session, _)| match holds.over_session(*session) {
            Some(hold) => {
                newly_held.push((*session, Blocker::OnHold(Box::new(hold.clone()))));
                false
            }
            None => true,
        });
        newly_held.into_iter().for_each(|(session, why)| plan.refuse(session, why));
        plan.emptied.retain(|first| holds.over(first.point()).is_none());
        plan.keep_files_of(&holds);
        if plan.is_empty() {
            return Ok(None);
        }
        let erase_plan = plan.erase_plan();
        let points = plan.records().map(|record| record.point());
        let erased = Erased {
            erasure: erase_plan.name.clone(),
            why: why.into(),
            rule: None,
            records: ErasedRange::stretches(points),
            sessions: Vec::new(),
            posts: plan.posts.len() as u64,
            blobs: plan.effects.blobs,
        };
        self.execute(&erase_lock, &mut operator, &erase_plan, vec![erased], progress).await.map(Some)
    }

    /// Writes the journal, records the erasure, and destroys the data.
    pub(super) async fn execute(
        &self,
        erase_lock: &EraseLock,
        operator: &mut Session,
        erase_plan: &ErasePlan,
        erased: Vec<Erased>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<CompletedErasure> {
        self.embedded.journal_erase(erase_lock, erase_plan)?;
        let recorded = async {
            for part in erased.into_iter().flat_map(parts) {
                operator.append(part)?;
            }
            operator.publish().await
        };
        if let Err(error) = recorded.await {
            self.embedded.abandon(erase_lock, &erase_plan.name)?;
            return Err(error);
        }
        let destroyed = self.destroy(erase_lock, erase_plan, progress)?;
        Ok(CompletedErasure { record: operator.head(), destroyed })
    }

    /// Finishes interrupted erasures. Erasures that were not recorded before the interruption are abandoned. Returns
    /// the number of finished erasures.
    pub async fn finish(&self, progress: &mut dyn FnMut(u64)) -> Result<u64> {
        if self.embedded.unfinished()?.is_empty() {
            return Ok(0);
        }
        let erase_lock = self.embedded.lock_for_erase()?;
        let recorded = Erasures::of(&self.store).await?;
        let mut finished = 0;
        for erase_plan in self.embedded.unfinished()? {
            if erase_plan.recorded && !recorded.has(&erase_plan.name) {
                self.embedded.abandon(&erase_lock, &erase_plan.name)?;
            } else if let Err(why) = self.embedded.check_removable(&erase_lock, &erase_plan) {
                // A session was continued before it was removed, so it stays. The operator session recorded the
                // removal, so it also records that the removal was abandoned.
                let mut operator = operator(&self.store, self.actor.clone()).await?;
                operator.note(format!("erasure {} was abandoned: {why}", erase_plan.name))?;
                operator.publish().await?;
                self.embedded.abandon(&erase_lock, &erase_plan.name)?;
            } else {
                self.destroy(&erase_lock, &erase_plan, progress)?;
                finished += 1;
            }
        }
        Ok(finished)
    }

    /// Erasures that were started and not finished: their data is still in files of the store. An erasure that another
    /// process is executing right now is not included.
    pub async fn unfinished(&self) -> Result<Vec<ErasePlan>> {
        let mut unfinished = self.embedded.unfinished()?;
        if !unfinished.is_empty() && self.embedded.is_erasing() {
            return Ok(Vec::new());
        }
        // If the operator session cannot be read, all unfinished erasures are returned.
        if !unfinished.is_empty()
            && let Ok(recorded) = Erasures::of(&self.store).await
        {
            unfinished.retain(|erase_plan| !erase_plan.recorded || recorded.has(&erase_plan.name));
        }
        Ok(unfinished)
    }

    /// Destroys the data of a recorded erasure.
    fn destroy(
        &self,
        erase_lock: &EraseLock,
        erase_plan: &ErasePlan,
        progress: &mut dyn FnMut(u64),
    ) -> Result<EraseReport> {
        let destroyed = self.embedded.destroy(erase_lock, erase_plan, progress);
        Ok(destroyed.map_err(|why| StoreError::ErasureUnfinished(Box::new(why)))?)
    }

    pub(super) async fn obstacles(&self) -> Result<Obstacles> {
        Obstacles::of(self).await
    }
}

/// Splits a body that lists too many ranges or sessions.
fn parts(whole: Erased) -> Vec<Erased> {
    let pieces = whole.records.len().div_ceil(MAX_LISTED).max(whole.sessions.len().div_ceil(MAX_LISTED)).max(1);
    let piece = |at: usize| {
        fn part<T: Copy>(all: &[T], at: usize) -> Vec<T> {
            all.iter().skip(at * MAX_LISTED).take(MAX_LISTED).copied().collect()
        }
        let (posts, blobs) = if at == 0 { (whole.posts, whole.blobs) } else { (0, 0) };
        let (records, sessions): (Vec<ErasedRange>, Vec<RemovedSession>) =
            (part(&whole.records, at), part(&whole.sessions, at));
        Erased { records, sessions, posts, blobs, ..whole.clone() }
    };
    (0..pieces).map(piece).collect()
}
