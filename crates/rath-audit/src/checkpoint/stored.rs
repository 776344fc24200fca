//! The checkpoints that a store has.

use std::sync::Arc;

use rath_core::body::Checkpointed;
use rath_core::checkpoint::{Checkpoint, Heads};
use rath_core::store::{Scan, Which};
use rath_core::verify::{Finding, What};
use rath_core::{BlobRef, Kind, OPERATOR, Record, Reference, SessionId, Store};

/// A checkpoint as a store has it.
#[derive(Clone, Debug)]
pub struct Stored {
    /// What it says.
    pub checkpoint: Checkpoint,
    /// Its record.
    pub record: Reference,
    /// The heads that it digests.
    heads: BlobRef,
}

impl Stored {
    /// The heads, if the store still has the list.
    pub async fn heads(&self, store: &Arc<dyn Store>) -> Option<Heads> {
        match self.heads.digest == self.checkpoint.heads {
            true => heads(store, &self.checkpoint).await,
            false => None,
        }
    }
}

/// The heads that a checkpoint digests, if the store has the list. A list that is not what its digest says is none.
pub(super) async fn heads(store: &Arc<dyn Store>, checkpoint: &Checkpoint) -> Option<Heads> {
    let bytes = store.blob_get(checkpoint.heads).await.ok().flatten()?;
    Heads::parse(std::str::from_utf8(&bytes).ok()?)
}

/// All checkpoints of a store, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// The store's operator session: its identity. A store that never had one has none.
    pub store: Option<SessionId>,
    /// What could be read.
    pub stored: Vec<Stored>,
    /// Records that say they are checkpoints, and are none.
    pub findings: Vec<Finding>,
}

/// Reads the checkpoints of a store.
pub async fn chain(store: &Arc<dyn Store>) -> rath_core::Result<Chain> {
    let row = store.sessions(Which::Run(OPERATOR.into()).into()).await?.into_iter().next();
    let Some(row) = row else { return Ok(Chain::default()) };
    let mut chain = Chain { store: Some(row.id), ..Chain::default() };
    let mut from = 0;
    loop {
        let page = store.scan(Scan::session(row.id, from, row.seq).kinds(&[Kind::Checkpointed])).await?;
        for record in &page.records {
            match read(record) {
                Ok(stored) => chain.stored.push(stored),
                Err(why) => chain.findings.push(Finding {
                    what: What::Checkpoint,
                    session: Some(row.id),
                    seq: Some(record.seq()),
                    why: format!("the record is no checkpoint: {why}"),
                }),
            }
        }
        from = page.position;
        if !page.more {
            return Ok(chain);
        }
    }
}

/// The last checkpoint on a line.
pub(super) async fn last(store: &Arc<dyn Store>, line: SessionId, seq: u64) -> rath_core::Result<Option<Record>> {
    let scan = Scan::session(line, 0, seq).kinds(&[Kind::Checkpointed]).backwards().limit(1);
    Ok(store.scan(scan).await?.records.into_iter().next())
}

pub(super) fn read(record: &Record) -> Result<Stored, String> {
    let body: Checkpointed = record.body().map_err(|fault| fault.to_string())?;
    let checkpoint = Checkpoint::parse(&body.line).map_err(|why| why.to_string())?;
    Ok(Stored { checkpoint, record: record.reference(), heads: body.heads })
}
