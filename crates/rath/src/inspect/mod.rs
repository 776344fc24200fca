//! Read-only queries about stored sessions, with serializable results: the output of the command line with `--json`,
//! and the data for a web page or another language.
//!
//! This module takes no leases, appends no records and does not depend on a terminal. Field names are those that
//! `--json` prints. Readers must tolerate new fields.

mod blame;
mod compare;
mod graph;
mod label;
mod record;
mod responses;
mod sessions;
mod state;
mod stats;
mod status;
mod steps;
pub mod transcript;
mod unfinished;

use std::sync::Arc;

use rath_core::store::Scan;
use rath_core::{BlobRef, Kind, Record, Result, SessionId, Store};

use crate::agent::AgentConfig;

pub use blame::{BlamedFile, BlamedLine, blame};
pub use compare::{ContextComparison, FileComparison, SessionComparison};
pub use graph::{Graph, GraphNode};
pub use label::{LabelFilter, label_text};
pub use record::RecordDetails;
pub use responses::{
    ApplyOutcome, CommandOutcome, FileListing, ListedFile, RestoreSummary, RunOutcome, SaveOutcome, SessionCreated,
    UndoneChange,
};
pub use sessions::{ListedSession, SessionList, SessionOrder, SessionQuery, session_title};
pub use state::{FoldedState, NextAction, SessionSummary, placement_text};
pub use stats::{ActiveSession, RecordTotals, StoreStatistics};
pub use status::{Activity, RunState, RunStatus, WaitingQuestion};
pub use steps::{StepDetails, StepNode, steps};
pub use unfinished::{Readiness, ReadyReason, UnfinishedRun, WaitingFor};
pub(crate) use unfinished::{RunScan, waits};

/// Reads the records `from..=to` of a session, or those of some kinds, page by page.
pub async fn records(
    store: &Arc<dyn Store>,
    session: SessionId,
    mut from: u64,
    to: u64,
    kinds: &[Kind],
) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    loop {
        let page = store.scan(Scan::session(session, from, to).kinds(kinds)).await?;
        records.extend(page.records);
        if !page.more {
            return Ok(records);
        }
        from = page.position;
    }
}

/// The name of the model in an agent's configuration. `None` if the configuration is not stored.
pub(crate) async fn model_of(store: &Arc<dyn Store>, config: Option<&BlobRef>) -> Result<Option<String>> {
    let Some(blob) = config else { return Ok(None) };
    let bytes = store.blob_get(blob.digest).await?;
    Ok(bytes.and_then(|bytes| AgentConfig::read(&bytes)).and_then(|config| config.model))
}
