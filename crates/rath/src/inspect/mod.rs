//! Answers about stored sessions, typed and serialisable: what the command line prints as `--json`, and what a page or
//! another language needs.
//!
//! Nothing here holds a session, appends to one or knows of a terminal. Field names are what `--json` prints; a field that
//! is added is optional for readers.

mod status;

use std::sync::Arc;

use rath_core::store::Scan;
use rath_core::{Kind, Record, Result, SessionId, Store};

pub use status::{Activity, RunState, RunStatus, WaitingQuestion};

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
