//! Makes checkpoints.

use std::sync::Arc;

use rath_core::body::Checkpointed;
use rath_core::checkpoint::{Checkpoint, Heads, MAX_LINE, NotACheckpoint, PublicKey, Signature, VERSION};
use rath_core::store::Query;
use rath_core::{Actor, Store, Time};

use super::key::SigningKey;
use super::stored::{self, StoredCheckpoint};

/// The options of a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct CheckpointOptions {
    /// A note in the checkpoint. It is public.
    pub note: Option<String>,
    /// Accept that the key of the previous checkpoint is lost, and start a new chain of keys with the given key.
    pub previous_key_lost: bool,
}

/// Why no checkpoint was made.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] rath_core::Error),
    /// The previous checkpoint was signed with a key that does not lead to the given one.
    #[error("checkpoint {no} of this store is signed with key {theirs}; the current key is {ours}")]
    OtherKey {
        /// The number of the last checkpoint.
        no: u64,
        /// The key of the last checkpoint.
        theirs: PublicKey,
        /// The given key.
        ours: PublicKey,
    },
    /// The key was rotated too often since the last checkpoint.
    #[error("the key was rotated {rotations} times since checkpoint {no} of this store: too many for one checkpoint")]
    TooManyRotations {
        /// The number of the last checkpoint.
        no: u64,
        /// The number of rotations.
        rotations: usize,
    },
    /// The last checkpoint cannot be read.
    #[error("the last checkpoint of this store cannot be read: {0}")]
    Unreadable(String),
    /// The checkpoint would be invalid, for example because its note is too long.
    #[error(transparent)]
    Invalid(#[from] NotACheckpoint),
}

/// Signs the current state of the store and records the checkpoint in the operator session. The heads are from one
/// moment even if other processes write. Concurrent calls wait for each other.
pub async fn make(
    store: &Arc<dyn Store>,
    actor: Actor,
    key: &SigningKey,
    options: CheckpointOptions,
) -> Result<Checkpoint, CheckpointError> {
    let mut operator = crate::operator(store, actor).await?;
    let last = stored::last(store, operator.id(), operator.head().seq).await?;
    let last = last.as_ref().map(stored::read).transpose().map_err(CheckpointError::Unreadable)?;
    let before = last.as_ref().map(|StoredCheckpoint { checkpoint, .. }| checkpoint);
    let successions = match before {
        Some(before) => match key.since(before.key) {
            Some(successions) => successions.to_vec(),
            None if options.previous_key_lost => Vec::new(),
            None => return Err(CheckpointError::OtherKey { no: before.no, theirs: before.key, ours: key.public() }),
        },
        None => Vec::new(),
    };
    let previous_key_lost = before.is_some_and(|before| before.key != key.public()) && successions.is_empty();
    let rows = store.sessions(Query::default()).await.map_err(rath_core::Error::from)?;
    let heads = Heads::of(&rows);
    let mut checkpoint = Checkpoint {
        previous_key_lost,
        version: VERSION,
        heads: heads.digest(),
        key: key.public(),
        no: before.map_or(1, |before| before.no + 1),
        note: options.note,
        previous: before.map(Checkpoint::digest),
        records: heads.records(),
        sessions: heads.sessions(),
        signature: Signature([0; 64]),
        store: operator.id(),
        successions,
        time: Time::now().max(before.map_or(Time(0), |before| before.time)),
    };
    checkpoint.check()?;
    let rotations = checkpoint.successions.len();
    if let (Some(before), true) = (before, rotations > 0 && checkpoint.line().len() > MAX_LINE) {
        if !options.previous_key_lost {
            return Err(CheckpointError::TooManyRotations { no: before.no, rotations });
        }
        checkpoint.successions.clear();
        checkpoint.previous_key_lost = true;
    }
    checkpoint.signature = key.sign(&checkpoint.statement());
    let checkpoint = Checkpoint::parse(&checkpoint.line())?;
    operator.append(Checkpointed::new(&checkpoint, &heads))?;
    operator.publish().await?;
    Ok(checkpoint)
}
