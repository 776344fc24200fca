//! What an erasure tells projections.

use rath_core::store::{Erased, Projection, Result};
use rath_core::{Point, Reference};

use super::{Database, Entries, Layout, Trouble, layout, remove};
use crate::embedded::{Doomed, Embedded};

/// Up to so many records are taken out of the search index one by one. Where there are more the index goes as a whole,
/// and the next search makes it anew.
const ONE_BY_ONE: u64 = 500;

impl Embedded {
    /// Tells those that need what the records say: the search index finds words by their text. To be called while the
    /// bodies can still be read.
    pub(crate) fn before_erasure(&self, doomed: &Doomed) -> Result<()> {
        if !are_few(doomed) || !self.paths.root.join("search.db").exists() {
            return Ok(());
        }
        let of_session = |head: &Reference| {
            let session = head.session;
            (0..=head.seq).map(move |seq| Point { session, seq })
        };
        let points: Vec<_> =
            doomed.records.iter().map(Reference::point).chain(doomed.sessions.iter().flat_map(of_session)).collect();
        self.forget(&points)
    }

    /// Tells all others, and removes what is emptied as a whole. To be called when the bodies are gone, so that nothing of
    /// them is learnt again. When it returns no file of a projection holds anything of them.
    pub(crate) fn after_erasure(&self, doomed: &Doomed) -> Result<()> {
        if !are_few(doomed) {
            self.drop_index()?;
        }
        let sessions = doomed.sessions.iter().map(|head| head.session).collect();
        let erased = Erased { records: doomed.records.clone(), sessions };
        for name in self.stored_projections()? {
            let known = self.known.get(&name);
            let forgotten = known.is_some_and(|known| forget(&self.layout_of(&*known), &*known, &erased).is_ok());
            if !forgotten {
                // Another program's, or one that failed: it is folded again when it is asked.
                remove(&layout(&self.paths.root, &name, 0, 0))?;
            }
        }
        Ok(())
    }
}

fn are_few(doomed: &Doomed) -> bool {
    doomed.records.len() as u64 + doomed.sessions.iter().map(|head| head.seq + 1).sum::<u64>() <= ONE_BY_ONE
}

fn forget(layout: &Layout, projection: &dyn Projection, erased: &Erased) -> std::result::Result<(), Trouble> {
    let opened = Database::open(layout)?;
    let (Some(mut database), None) = (opened.database, opened.why) else {
        return Err(Trouble::Database(rusqlite::Error::QueryReturnedNoRows));
    };
    let forgetting = database.db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    Entries::of(&forgetting).or_broken(|entries| projection.forget(erased, entries))?;
    forgetting.commit()?;
    // Pages that were merged keep copies of rows.
    database.db.execute_batch("VACUUM")?;
    Ok(database.flush()?)
}
