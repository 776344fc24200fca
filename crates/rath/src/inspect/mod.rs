//! Answers about stored sessions, typed and serialisable: what the command line prints as `--json`, and what a page or
//! another language needs.
//!
//! Nothing here holds a session, appends to one or knows of a terminal. Field names are what `--json` prints; a field that
//! is added is optional for readers.

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

use std::sync::Arc;

use rath_core::store::Scan;
use rath_core::{BlobRef, Kind, Record, Result, SessionId, Store};

use crate::agent::AgentConfig;

pub use blame::{BlamedFile, BlamedLine, blame};
pub use compare::{Comparison, ContextComparison, FileComparison};
pub use graph::{Graph, GraphNode};
pub use label::{LabelFilter, label_text};
pub use record::RecordDetails;
pub use responses::{
    ApplyOutcome, CommandOutcome, FileListing, ListedFile, RestoreOutcome, RunOutcome, SaveOutcome, SessionCreated,
    UndoneChange,
};
pub use sessions::{ListedSession, SessionList, SessionOrder, SessionQuery, session_title};
pub use state::{FoldedState, NextAction, SessionSummary, placement_text};
pub use stats::{ActiveSession, Amount, Statistics};
pub use status::{Activity, RunState, RunStatus, WaitingQuestion};
pub use steps::{StepMore, StepNode, steps};

/// The records `from..=to` of a session, or those of some kinds, read page by page.
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

/// The name of the model in an agent's configuration; `None` if the configuration is gone.
pub(crate) async fn model_of(store: &Arc<dyn Store>, config: Option<&BlobRef>) -> Result<Option<String>> {
    let Some(blob) = config else { return Ok(None) };
    let bytes = store.blob_get(blob.digest).await?;
    Ok(bytes.and_then(|bytes| AgentConfig::read(&bytes)).and_then(|config| config.model))
}
