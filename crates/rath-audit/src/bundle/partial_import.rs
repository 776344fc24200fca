//! Imports that were interrupted.

use std::sync::Arc;

use rath_core::body::Linked;
use rath_core::store::{SessionFilter, Store};
use rath_core::{SessionId, Time};
use serde::Serialize;

use super::graph::BundleGraph;
use super::{BundleError, notes};

/// A bundle that was imported only in part. Importing it again continues where it stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartialImport {
    /// The bundle's file name.
    pub bundle: Option<String>,
    /// When the import started.
    pub time: Time,
    /// The incomplete sessions.
    pub sessions: Vec<PartialSession>,
}

/// A session that was imported only in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PartialSession {
    /// The session's id.
    pub session: SessionId,
    /// The number of records in the store.
    pub records: u64,
    /// The number of records in the bundle.
    pub of: u64,
}

impl PartialImport {
    /// The interrupted imports of a store.
    pub async fn of(store: &Arc<dyn Store>) -> Result<Vec<Self>, BundleError> {
        let mut started: Vec<(Time, Linked)> = Vec::new();
        for (time, note) in notes::all(store).await? {
            match note.why.as_deref() {
                Some(notes::STARTED) => started.push((time, note)),
                Some(notes::FINISHED) => started.retain(|(_, other)| other.heads != note.heads),
                _ => {}
            }
        }
        let mut all: Vec<Self> = Vec::new();
        for (time, note) in started {
            let Some(bytes) = notes::content(store, &note).await? else { continue };
            let Ok(graph) = serde_json::from_slice::<BundleGraph>(&bytes) else { continue };
            let mut sessions = Vec::new();
            for head in &graph.sessions {
                let row = store.sessions(SessionFilter::Id(head.session).into()).await?.into_iter().next();
                // A session that is not in the store at all may have been removed since.
                if let Some(row) = row.filter(|row| row.seq < head.seq) {
                    sessions.push(PartialSession { session: head.session, records: row.seq + 1, of: head.seq + 1 });
                }
            }
            // The import of the same bundle may have been started twice.
            all.retain(|other| other.sessions != sessions);
            if !sessions.is_empty() {
                all.push(Self { bundle: note.uri, time, sessions });
            }
        }
        Ok(all)
    }
}
