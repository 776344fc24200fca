//! Reads the checkpoints of a store.

use std::sync::Arc;

use rath_core::body::Checkpointed;
use rath_core::checkpoint::{Checkpoint, Heads};
use rath_core::store::{Scan, SessionFilter};
use rath_core::verify::{Finding, FindingKind};
use rath_core::{BlobRef, Kind, OPERATOR, Record, Reference, SessionId, Store};

/// A checkpoint in a store.
#[derive(Clone, Debug)]
pub struct StoredCheckpoint {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Its record in the operator session.
    pub record: Reference,
    /// The blob with the list of heads.
    heads: BlobRef,
}

impl StoredCheckpoint {
    /// The heads; `None` if the store does not have the list.
    pub async fn heads(&self, store: &Arc<dyn Store>) -> Option<Heads> {
        match self.heads.digest == self.checkpoint.heads {
            true => heads(store, &self.checkpoint).await,
            false => None,
        }
    }
}

/// The heads of a checkpoint; `None` if the store does not have the list, or if the list does not match its digest.
pub(super) async fn heads(store: &Arc<dyn Store>, checkpoint: &Checkpoint) -> Option<Heads> {
    let bytes = store.blob_get(checkpoint.heads).await.ok().flatten()?;
    Heads::parse(std::str::from_utf8(&bytes).ok()?)
}

/// All checkpoints of a store, oldest first.
#[derive(Clone, Debug, Default)]
pub struct CheckpointChain {
    /// The store's operator session, which identifies the store. `None` if the store never had one.
    pub store: Option<SessionId>,
    /// The valid checkpoints.
    pub stored: Vec<StoredCheckpoint>,
    /// Findings about records that should be checkpoints and are invalid.
    pub findings: Vec<Finding>,
}

/// Reads all checkpoints of a store.
pub async fn chain(store: &Arc<dyn Store>) -> rath_core::Result<CheckpointChain> {
    let row = store.sessions(SessionFilter::Run(OPERATOR.into()).into()).await?.into_iter().next();
    let Some(row) = row else { return Ok(CheckpointChain::default()) };
    let mut chain = CheckpointChain { store: Some(row.id), ..CheckpointChain::default() };
    let mut from = 0;
    loop {
        let page = store.scan(Scan::session(row.id, from, row.seq).kinds(&[Kind::Checkpointed])).await?;
        for record in &page.records {
            match read(record) {
                Ok(stored) => chain.stored.push(stored),
                Err(why) => chain.findings.push(Finding {
                    what: FindingKind::Checkpoint,
                    session: Some(row.id),
                    seq: Some(record.seq()),
                    why: format!("the record is not a valid checkpoint: {why}"),
                }),
            }
        }
        from = page.position;
        if !page.more {
            return Ok(chain);
        }
    }
}

/// The last checkpoint record of the operator session.
pub(super) async fn last(store: &Arc<dyn Store>, operator: SessionId, seq: u64) -> rath_core::Result<Option<Record>> {
    let scan = Scan::session(operator, 0, seq).kinds(&[Kind::Checkpointed]).backwards().limit(1);
    Ok(store.scan(scan).await?.records.into_iter().next())
}

pub(super) fn read(record: &Record) -> Result<StoredCheckpoint, String> {
    let body: Checkpointed = record.body().map_err(|fault| fault.to_string())?;
    let checkpoint = Checkpoint::parse(&body.line).map_err(|why| why.to_string())?;
    Ok(StoredCheckpoint { checkpoint, record: record.reference(), heads: body.heads })
}
