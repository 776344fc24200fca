//! Sessions whose work stopped before it was done, and nobody holds.

use std::sync::Arc;

use anyhow::Result;
use rath::inspect::Activity;
use rath::store::Query;
use rath::{Point, Store, View};
use serde::Serialize;

/// What is left over in the sessions of a store.
#[derive(Default, Serialize)]
pub(super) struct Unfinished {
    /// Heads of sessions that stopped in the middle of their work.
    pub(super) stopped: Vec<Point>,
    /// Heads of sessions that wait for a person.
    pub(super) waiting: Vec<Point>,
    /// Posts in inboxes of sessions that nobody holds.
    pub(super) posts: u64,
    /// Sessions that cannot be read, or whose inbox cannot.
    pub(super) unreadable: Vec<String>,
}

impl Unfinished {
    /// Looks into every session that is not closed.
    pub(super) async fn look(store: &Arc<dyn Store>, progress: &mut dyn FnMut(u64)) -> Result<Self> {
        let mut found = Self::default();
        // Where they cannot be listed, what the store says of its health says why.
        let Ok(rows) = store.sessions(Query::default()).await else { return Ok(found) };
        let open = rows.into_iter().filter(|row| !row.closed);
        for (n, row) in open.enumerate() {
            progress(n as u64);
            let view = match View::of(store, row.id, Some(row.seq)).await {
                Ok(view) => view,
                Err(error) => {
                    found.unreadable.push(format!("{}: {error}", row.id.short()));
                    continue;
                }
            };
            let head = row.head_reference().point();
            match Activity::of(&row, &view) {
                Activity::Stopped => found.stopped.push(head),
                Activity::Waiting => found.waiting.push(head),
                _ => {}
            }
            if row.holder.is_none() {
                match store.posts(row.id).await {
                    Ok(posts) => found.posts += posts.len() as u64,
                    Err(error) => found.unreadable.push(format!("{}: {error}", row.id.short())),
                }
            }
        }
        Ok(found)
    }
}
