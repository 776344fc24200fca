//! The admission rules as a trait, so that the simulator can replace single ones.

use super::inbox::PostStatus;
use super::proposal::{self, ChainEntry, Proposal, StoredHead};
use crate::id::RecordId;
use crate::store::{FencingToken, Result};

/// The decisions of a store. The default methods are the protocol. Only the simulator overrides one, to check that it
/// detects the mistake.
pub trait Rules {
    /// Returns how many of the proposed records are stored already; the rest may be appended. `id_at` looks up the
    /// stored id at a sequence number before the head.
    fn admit<E: ChainEntry>(
        &self,
        proposal: &Proposal<'_, E>,
        head: Option<&StoredHead>,
        id_at: impl FnOnce(u64) -> Result<Option<RecordId>>,
    ) -> Result<usize> {
        proposal::admit(proposal, head, id_at)
    }

    /// Returns the fencing token of a new lease; `fence` is that of the last one. Fails with the current holder while
    /// that one is alive.
    fn grant<H>(&self, fence: FencingToken, living: Option<H>) -> Result<FencingToken, H> {
        match living {
            Some(holder) => Err(holder),
            None => Ok(fence + 1),
        }
    }

    /// Whether a lease is released when its holder gives it back with the token `given`: only the current holder can.
    fn may_release(&self, fence: FencingToken, given: FencingToken, by_its_holder: bool) -> bool {
        fence == given && by_its_holder
    }

    /// The status of a post after it was posted.
    fn posted(&self, before: PostStatus) -> PostStatus {
        match before {
            PostStatus::Unknown | PostStatus::Waiting => PostStatus::Waiting,
            PostStatus::Consumed => PostStatus::Consumed,
        }
    }

    /// The status of a post after a record consumed it. This includes a post that was never posted to this store: it
    /// counts as consumed from then on.
    fn consumed(&self, _before: PostStatus) -> PostStatus {
        PostStatus::Consumed
    }
}

/// The rules without changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Protocol;

impl Rules for Protocol {}
