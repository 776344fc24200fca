//! Making one.

use std::sync::Arc;

use rath_core::body::Checkpointed;
use rath_core::checkpoint::{Checkpoint, Heads, LONGEST_LINE, NotACheckpoint, PublicKey, Signature, VERSION};
use rath_core::store::Query;
use rath_core::{Actor, Store, Time};

use super::key::SigningKey;
use super::stored::{self, Stored};

/// What a person wants of a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// Something to remember it by; everybody who sees the line reads it.
    pub note: Option<String>,
    /// The key of the checkpoint before is lost: begin with this one.
    pub anew: bool,
}

/// Why none was made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] rath_core::Error),
    /// The checkpoint before has another key.
    #[error("checkpoint {no} of this store is signed with key {theirs}; the key at hand is {ours}")]
    OtherKey {
        /// The last checkpoint's number.
        no: u64,
        /// Its key.
        theirs: PublicKey,
        /// The key at hand.
        ours: PublicKey,
    },
    /// The key was replaced too often since the checkpoint before.
    #[error(
        "the key was replaced {rotations} times since checkpoint {no} of this store: a checkpoint cannot tell so many"
    )]
    TooManyRotations {
        /// The last checkpoint's number.
        no: u64,
        /// How often.
        rotations: usize,
    },
    /// The last checkpoint cannot be gone on from.
    #[error("the last checkpoint of this store cannot be read: {0}")]
    Unreadable(String),
    /// What was wished cannot be.
    #[error(transparent)]
    Beyond(#[from] NotACheckpoint),
}

/// Signs what the store is now and writes it on the operator session. The heads are those of one moment, whoever else
/// writes; two that make checkpoints at once take turns.
pub async fn make(store: &Arc<dyn Store>, actor: Actor, key: &SigningKey, wish: Wish) -> Result<Checkpoint, Error> {
    let mut operator = crate::operator(store, actor).await?;
    let last = stored::last(store, operator.id(), operator.head().seq).await?;
    let last = last.as_ref().map(stored::read).transpose().map_err(Error::Unreadable)?;
    let before = last.as_ref().map(|Stored { checkpoint, .. }| checkpoint);
    let successions = match before {
        Some(before) => match key.since(before.key) {
            Some(successions) => successions.to_vec(),
            None if wish.anew => Vec::new(),
            None => return Err(Error::OtherKey { no: before.no, theirs: before.key, ours: key.public() }),
        },
        None => Vec::new(),
    };
    let anew = before.is_some_and(|before| before.key != key.public()) && successions.is_empty();
    let rows = store.sessions(Query::default()).await.map_err(rath_core::Error::from)?;
    let heads = Heads::of(&rows);
    let mut checkpoint = Checkpoint {
        anew,
        version: VERSION,
        heads: heads.digest(),
        key: key.public(),
        no: before.map_or(1, |before| before.no + 1),
        note: wish.note,
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
    if let (Some(before), true) = (before, rotations > 0 && checkpoint.line().len() > LONGEST_LINE) {
        if !wish.anew {
            return Err(Error::TooManyRotations { no: before.no, rotations });
        }
        checkpoint.successions.clear();
        checkpoint.anew = true;
    }
    checkpoint.signature = key.sign(&checkpoint.statement());
    let checkpoint = Checkpoint::parse(&checkpoint.line())?;
    operator.append(Checkpointed::new(&checkpoint, &heads))?;
    operator.publish().await?;
    Ok(checkpoint)
}
