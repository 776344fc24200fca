//! Finds sessions whose run is unfinished and that no process has open.

use std::sync::Arc;

use anyhow::Result;
use rath::inspect::Activity;
use rath::store::Query;
use rath::{Point, Store, View};
use serde::Serialize;

/// Unfinished work in the sessions of a store.
#[derive(Default, Serialize)]
pub(super) struct Unfinished {
    /// Heads of sessions whose run stopped before its end.
    pub(super) stopped: Vec<Point>,
    /// Heads of sessions that wait for an answer from a person.
    pub(super) waiting: Vec<Point>,
    /// Number of messages queued for sessions that no process has open.
    pub(super) posts: u64,
    /// Sessions that cannot be read, or whose inbox cannot be read.
    pub(super) unreadable: Vec<String>,
}

impl Unfinished {
    /// Checks every session that is not closed.
    pub(super) async fn find(store: &Arc<dyn Store>, progress: &mut dyn FnMut(u64)) -> Result<Self> {
        let mut found = Self::default();
        // If listing fails, the store's health report gives the reason.
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
