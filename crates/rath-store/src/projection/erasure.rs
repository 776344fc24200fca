//! Removing erased records from projections.

use rath_core::store::{ErasedSet, Projection, Result};
use rath_core::{Point, Reference};

use super::{Database, Entries, Layout, ProjectionError, layout, remove};
use crate::embedded::{Embedded, ErasePlan};

/// The most records that are removed from the search index one by one. If more records are erased, the whole index is
/// removed, and the next search rebuilds it.
const MAX_ONE_BY_ONE: u64 = 500;

impl Embedded {
    /// Removes the records from the search index, which needs their text to find the words. Must be called before the
    /// bodies are erased.
    pub(crate) fn before_erasure(&self, plan: &ErasePlan) -> Result<()> {
        if !are_few(plan) || !self.paths.root.join("search.db").exists() {
            return Ok(());
        }
        let of_session = |head: &Reference| {
            let session = head.session;
            (0..=head.seq).map(move |seq| Point { session, seq })
        };
        let points: Vec<_> =
            plan.records.iter().map(Reference::point).chain(plan.sessions.iter().flat_map(of_session)).collect();
        self.forget(&points)
    }

    /// Removes the records from all other projections, and removes a search index with too many erased records. Must be
    /// called after the bodies are erased, so that they are not processed again. When it returns, no file of a
    /// projection has data of the erased records.
    pub(crate) fn after_erasure(&self, plan: &ErasePlan) -> Result<()> {
        if !are_few(plan) {
            self.drop_index()?;
        }
        let sessions = plan.sessions.iter().map(|head| head.session).collect();
        let erased = ErasedSet { records: plan.records.clone(), sessions };
        for name in self.stored_projections()? {
            let known = self.known.get(&name);
            let forgotten = known.is_some_and(|known| forget(&self.layout_of(&*known), &*known, &erased).is_ok());
            if !forgotten {
                // A projection of another program, or one that failed. It is rebuilt when it is next used.
                remove(&layout(&self.paths.root, &name, 0, 0))?;
            }
        }
        Ok(())
    }
}

fn are_few(plan: &ErasePlan) -> bool {
    plan.records.len() as u64 + plan.sessions.iter().map(|head| head.seq + 1).sum::<u64>() <= MAX_ONE_BY_ONE
}

fn forget(
    layout: &Layout,
    projection: &dyn Projection,
    erased: &ErasedSet,
) -> std::result::Result<(), ProjectionError> {
    let opened = Database::open(layout)?;
    let (Some(mut database), None) = (opened.database, opened.why) else {
        return Err(ProjectionError::Database(rusqlite::Error::QueryReturnedNoRows));
    };
    let forgetting = database.db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    Entries::of(&forgetting).run(|entries| projection.forget(erased, entries))?;
    forgetting.commit()?;
    // Pages that SQLite merged may have copies of rows.
    database.db.execute_batch("VACUUM")?;
    Ok(database.truncate_wal()?)
}
