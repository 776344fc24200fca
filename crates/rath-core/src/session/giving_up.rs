//! Giving up: what is open on the branches of a step that failed, to which nobody comes back.

use super::Session;
use super::tree::Known;
use crate::body::{CallOutcome, Maker, ToolFinished};
use crate::error::{ErrorKind, Result};
use crate::id::{Point, RecordId};
use crate::kind::Kind;
use crate::state::{OpenCall, Pending};
use crate::store::{BoxFuture, Row, Which};

/// What is remarked at the end of a call in doubt.
const UNSEEN: &str =
    "the process ended in the middle of it, and the run was stopped before anybody said what came of it";

impl Session {
    /// Gives up what is open here and on the branches of this line.
    pub(super) fn give_up<'a>(&'a mut self, why: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.jump_to_the_end().await?;
            self.give_up_branches(0, why).await?;
            // A conflict is not work that could be stopped.
            let is_open = !Pending { conflicts: Vec::new(), ..self.pending() }.is_empty();
            if is_open {
                self.cancel(why)?;
            }
            // What was taken out of its inbox is on the record too.
            match is_open || !self.0.gear.taken().is_empty() {
                true => self.publish().await,
                false => Ok(()),
            }
        })
    }

    /// Gives the calls that began an end on the record, though nobody saw it. Returns the names of all.
    pub(super) fn end_calls(&mut self, calls: Vec<OpenCall>) -> Result<Vec<String>> {
        for call in calls.iter().filter(|call| call.started.is_some() && call.finished.is_none()) {
            let mut finished = ToolFinished::new(&call.id, CallOutcome::Lost);
            finished.remarks.push(UNSEEN.into());
            self.append(finished)?;
        }
        Ok(calls.into_iter().map(|call| call.id).collect())
    }

    /// Gives up the branches that the steps at `depth` and inside it have made.
    pub(super) async fn give_up_branches(&mut self, depth: usize, why: &str) -> Result<()> {
        let steps = self.0.state.steps.iter().skip(depth.saturating_sub(1));
        let steps: Vec<RecordId> = steps.map(|step| step.record).collect();
        match self.0.gear.tree().cloned() {
            Some(tree) if depth == 0 => tree.open_branches_of_line(self.id()).await?,
            Some(tree) => {
                let maker = |step: &RecordId| Maker { session: self.id(), step: Some(*step) };
                tree.open_branches_of(steps.iter().map(maker).collect()).await?;
            }
            None => {}
        }
        for row in self.0.store.sessions(Which::ChildrenOf(self.id()).into()).await? {
            if row.birth != Kind::Forked || row.closed {
                continue;
            }
            if let Some(mut branch) = self.branch_of(&row, |step| depth == 0 || steps.contains(step)).await? {
                branch.give_up(why).await?;
            }
        }
        Ok(())
    }

    /// A branch of this line, if one of these steps made it and nobody works on it.
    async fn branch_of(&self, row: &Row, is_meant: impl Fn(&RecordId) -> bool) -> Result<Option<Session>> {
        let point = Point { session: row.id, seq: 0 };
        let first = self.reader().record(point).await?;
        let Some(forked) = crate::ancestry::forked(&first)?.filter(|forked| forked.is_of_run()) else {
            return Ok(None);
        };
        let step = first.header().map_err(|why| ErrorKind::Record { point, why: why.into() })?.step;
        let maker = forked.maker.clone().unwrap_or(Maker { session: self.id(), step });
        if maker.session != self.id() || !maker.step.as_ref().is_none_or(is_meant) {
            return Ok(None);
        }
        let tree = self.0.gear.tree();
        match tree.map_or(Known::Nothing, |tree| tree.take(maker, &forked, |made| *made == forked)) {
            Known::Branch(branch) => self.revive(*branch).map(Some),
            // Whoever holds it works on it still.
            Known::Held(..) => Ok(None),
            Known::Nothing | Known::Another(_) => {
                match Session::open(&self.0.store, row.id, self.0.actor.actor.clone()).await {
                    Ok(mut session) => {
                        session.0.gear = self.0.gear.inherited();
                        Ok(Some(session))
                    }
                    Err(_) => Ok(None),
                }
            }
        }
    }
}
