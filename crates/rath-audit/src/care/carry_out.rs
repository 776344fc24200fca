//! Does what was planned: written down, put on the record, destroyed, and only then said to be done.

use rath_core::body::{Erased, Removed, Stripped};
use rath_core::store::Error as StoreError;
use rath_core::{Reference, Result, Session};
use rath_store::{Destroyed, Doomed, Quiet};
use serde::Serialize;

use super::plan::Obstacles;
use super::{Care, Erasures, Holds, Plan, WhyNot};
use crate::operator::operator;

/// How many stretches or sessions a record names, at most.
const NAMED: usize = 2000;

/// An erasure that is done.
#[derive(Debug, Serialize)]
pub struct Done {
    /// Its last `erased` record.
    pub record: Reference,
    /// What went.
    pub destroyed: Destroyed,
}

impl Care {
    /// Erases what was planned. A hold that was placed since is obeyed: what it covers is in the plan's `refused` then.
    pub async fn erase(&self, plan: &mut Plan, why: &str, progress: &mut dyn FnMut(u64)) -> Result<Option<Done>> {
        let quiet = self.embedded.quiet()?;
        // While we have the operator session, nobody places a hold.
        let mut operator = operator(&self.store, self.actor.clone()).await?;
        let holds = Holds::of(&self.store).await?;
        let mut late = Vec::new();
        plan.targets.retain(|target| match holds.over(target.record.point()) {
            Some(hold) => {
                late.push((target.record.session, WhyNot::OnHold(Box::new(hold.clone()))));
                false
            }
            None => true,
        });
        plan.posts.retain(|(session, _)| match holds.over_session(*session) {
            Some(hold) => {
                late.push((*session, WhyNot::OnHold(Box::new(hold.clone()))));
                false
            }
            None => true,
        });
        late.into_iter().for_each(|(session, why)| plan.refuse(session, why));
        plan.emptied.retain(|first| holds.over(first.point()).is_none());
        plan.keep_files_of(&holds);
        if plan.is_empty() {
            return Ok(None);
        }
        let doomed = plan.doomed();
        let points = plan.records().map(|record| record.point());
        let erased = Erased {
            erasure: doomed.name.clone(),
            why: why.into(),
            rule: None,
            records: Stripped::stretches(points),
            sessions: Vec::new(),
            posts: plan.posts.len() as u64,
            blobs: plan.weight.blobs,
        };
        self.carry_out(&quiet, &mut operator, &doomed, vec![erased], progress).await.map(Some)
    }

    /// Writes down, records, destroys.
    pub(super) async fn carry_out(
        &self,
        quiet: &Quiet,
        operator: &mut Session,
        doomed: &Doomed,
        erased: Vec<Erased>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Done> {
        self.embedded.intend(quiet, doomed)?;
        let recorded = async {
            for part in erased.into_iter().flat_map(parts) {
                operator.append(part)?;
            }
            operator.publish().await
        };
        if let Err(error) = recorded.await {
            self.embedded.abandon(quiet, &doomed.name)?;
            return Err(error);
        }
        let destroyed = self.destroy(quiet, doomed, progress)?;
        Ok(Done { record: operator.head(), destroyed })
    }

    /// Finishes erasures that were interrupted; those that never got onto the record are forgotten. Says how many were
    /// finished.
    pub async fn finish(&self, progress: &mut dyn FnMut(u64)) -> Result<u64> {
        if self.embedded.unfinished()?.is_empty() {
            return Ok(0);
        }
        let quiet = self.embedded.quiet()?;
        let recorded = Erasures::of(&self.store).await?;
        let mut finished = 0;
        for doomed in self.embedded.unfinished()? {
            if doomed.recorded && !recorded.has(&doomed.name) {
                self.embedded.abandon(&quiet, &doomed.name)?;
            } else if let Err(why) = self.embedded.may_go(&quiet, &doomed) {
                // Somebody went on with a session before it was gone: it stays, and that is said where it was said to go.
                let mut operator = operator(&self.store, self.actor.clone()).await?;
                operator.note(format!("erasure {} was given up: {why}", doomed.name))?;
                operator.publish().await?;
                self.embedded.abandon(&quiet, &doomed.name)?;
            } else {
                self.destroy(&quiet, &doomed, progress)?;
                finished += 1;
            }
        }
        Ok(finished)
    }

    /// Erasures that were begun and did not come to their end: what they destroy is still in files of the store. One that
    /// somebody carries out at this moment is none of them.
    pub async fn unfinished(&self) -> Result<Vec<Doomed>> {
        let mut unfinished = self.embedded.unfinished()?;
        if !unfinished.is_empty() && self.embedded.is_being_cleared() {
            return Ok(Vec::new());
        }
        // Where the operator session cannot be read, who knows.
        if !unfinished.is_empty()
            && let Ok(recorded) = Erasures::of(&self.store).await
        {
            unfinished.retain(|doomed| !doomed.recorded || recorded.has(&doomed.name));
        }
        Ok(unfinished)
    }

    /// Destroys what the record says is gone.
    fn destroy(&self, quiet: &Quiet, doomed: &Doomed, progress: &mut dyn FnMut(u64)) -> Result<Destroyed> {
        let destroyed = self.embedded.destroy(quiet, doomed, progress);
        Ok(destroyed.map_err(|why| StoreError::Unfinished(Box::new(why)))?)
    }

    pub(super) async fn obstacles(&self) -> Result<Obstacles> {
        Obstacles::of(self).await
    }
}

/// A body has a limit: one that names too much becomes several.
fn parts(whole: Erased) -> Vec<Erased> {
    let pieces = whole.records.len().div_ceil(NAMED).max(whole.sessions.len().div_ceil(NAMED)).max(1);
    let piece = |at: usize| {
        fn part<T: Copy>(all: &[T], at: usize) -> Vec<T> {
            all.iter().skip(at * NAMED).take(NAMED).copied().collect()
        }
        let (posts, blobs) = if at == 0 { (whole.posts, whole.blobs) } else { (0, 0) };
        let (records, sessions): (Vec<Stripped>, Vec<Removed>) = (part(&whole.records, at), part(&whole.sessions, at));
        Erased { records, sessions, posts, blobs, ..whole.clone() }
    };
    (0..pieces).map(piece).collect()
}
