//! Bundles that did not come in whole, because whoever took them in was stopped.

use std::sync::Arc;

use rath_core::body::Linked;
use rath_core::store::{Store, Which};
use rath_core::{SessionId, Time};
use serde::Serialize;

use super::graph::Graph;
use super::{Error, notes};

/// A bundle of which only a part is here. Taken in again, it goes on where it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CutShort {
    /// Its name.
    pub bundle: Option<String>,
    /// When it began to come.
    pub time: Time,
    /// The sessions that are not whole.
    pub sessions: Vec<Beginning>,
}

/// A session of which only the beginning is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Beginning {
    /// Which.
    pub session: SessionId,
    /// So many records are here.
    pub records: u64,
    /// So many the bundle has.
    pub of: u64,
}

impl CutShort {
    /// Those of a store.
    pub async fn of(store: &Arc<dyn Store>) -> Result<Vec<Self>, Error> {
        let mut coming: Vec<(Time, Linked)> = Vec::new();
        for (time, note) in notes::all(store).await? {
            match note.why.as_deref() {
                Some(notes::COMING) => coming.push((time, note)),
                Some(notes::CAME) => coming.retain(|(_, begun)| begun.heads != note.heads),
                _ => {}
            }
        }
        let mut all: Vec<Self> = Vec::new();
        for (time, note) in coming {
            let Some(bytes) = notes::content(store, &note).await? else { continue };
            let Ok(graph) = serde_json::from_slice::<Graph>(&bytes) else { continue };
            let mut sessions = Vec::new();
            for head in &graph.sessions {
                let row = store.sessions(Which::Id(head.session).into()).await?.into_iter().next();
                // What is not here at all is no part of anything; it may have been removed since.
                if let Some(row) = row.filter(|row| row.seq < head.seq) {
                    sessions.push(Beginning { session: head.session, records: row.seq + 1, of: head.seq + 1 });
                }
            }
            // The same bundle may have been begun twice.
            all.retain(|other| other.sessions != sessions);
            if !sessions.is_empty() {
                all.push(Self { bundle: note.uri, time, sessions });
            }
        }
        Ok(all)
    }
}
