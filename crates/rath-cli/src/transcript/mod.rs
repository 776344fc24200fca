//! A session's records as a person reads them: steps, words, calls with what they changed, questions, crashes.
//!
//! A [`Teller`] is told the records of one line in order and says what each of them means, in [`Entry`]s. [`Blocks`]
//! puts what belongs to one call together.

mod blocks;
mod call;
mod changes;
mod files;
mod model;
mod people;
mod run;
mod shown;
mod step;
mod teller;
mod tree;
mod words;

pub(crate) use blocks::Blocks;
pub(crate) use changes::changed_files;
pub(crate) use model::unusual_end;
pub(crate) use run::{Is, Status};
pub(crate) use shown::Shown;
pub(crate) use teller::{Entry, How, Teller};
pub(crate) use tree::{Node, of as steps};
pub(crate) use words::{record_line, span, usage};

use std::sync::Arc;

use anyhow::Result;
use rath::store::Scan;
use rath::{Kind, Record, SessionId, Store};

/// The records `from..=to` of a session, or those of some kinds, read page by page.
pub(crate) async fn records(
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
