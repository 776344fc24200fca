//! Deliberate bugs, to check that the simulator finds them.

use rath_core::RecordId;
use rath_core::protocol::{ChainEntry, PostStatus, Proposal, Protocol, Rules, StoredHead};
use rath_core::store::{Error, FencingToken, Result};

/// A bug of the store or of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedBug {
    /// The store accepts a commit with a stale fencing token.
    FenceUnchecked,
    /// The store accepts a commit that does not follow the head.
    HeadUnchecked,
    /// The store appends records again that are stored already.
    RetryAppended,
    /// The store commits each part of a batch separately.
    PartByPart,
    /// The store grants a lease while the current holder is alive.
    TwoLeaseHolders,
    /// The store accepts a release from a process that lost the lease.
    ReleaseByFormerHolder,
    /// A consumed post returns to the inbox when it is sent again.
    ConsumedPostReturns,
    /// A consumed post stays in the inbox.
    ConsumedPostStays,
    /// The store answers before it syncs.
    AnswerBeforeSync,
    /// A repeated commit restores erased bodies.
    ErasedBodyReturns,
    /// A process performs an effect before its intent is acknowledged.
    EffectBeforeAnswer,
    /// A process performs an effect that another process intended.
    EffectOfOtherProcess,
    /// A process performs an effect although it lost the lease.
    EffectAfterLeaseLost,
    /// A fork that publishes its parent's records does not mark their posts as consumed.
    ForkOmitsPosts,
}

impl InjectedBug {
    /// All bugs.
    pub const ALL: &[InjectedBug] = &[
        InjectedBug::FenceUnchecked,
        InjectedBug::HeadUnchecked,
        InjectedBug::RetryAppended,
        InjectedBug::PartByPart,
        InjectedBug::TwoLeaseHolders,
        InjectedBug::ReleaseByFormerHolder,
        InjectedBug::ConsumedPostReturns,
        InjectedBug::ConsumedPostStays,
        InjectedBug::AnswerBeforeSync,
        InjectedBug::ErasedBodyReturns,
        InjectedBug::EffectBeforeAnswer,
        InjectedBug::EffectOfOtherProcess,
        InjectedBug::EffectAfterLeaseLost,
        InjectedBug::ForkOmitsPosts,
    ];
}

/// The protocol, optionally with a bug.
#[derive(Clone, Copy, Debug)]
pub(super) struct BuggyRules(pub(super) Option<InjectedBug>);

impl BuggyRules {
    pub(super) fn has(self, bug: InjectedBug) -> bool {
        self.0 == Some(bug)
    }
}

impl Rules for BuggyRules {
    fn admit<E: ChainEntry>(
        &self,
        proposal: &Proposal<'_, E>,
        head: Option<&StoredHead>,
        id_at: impl FnOnce(u64) -> Result<Option<RecordId>>,
    ) -> Result<usize> {
        if self.has(InjectedBug::FenceUnchecked)
            && let Some(head) = head
        {
            return Protocol.admit(&Proposal { fence: head.fence, ..*proposal }, Some(head), id_at);
        }
        match Protocol.admit(proposal, head, id_at) {
            Err(Error::Conflict { .. }) if self.has(InjectedBug::HeadUnchecked) => Ok(0),
            Ok(_) if self.has(InjectedBug::RetryAppended) => Ok(0),
            answer => answer,
        }
    }

    fn grant<H>(&self, fence: FencingToken, living: Option<H>) -> Result<FencingToken, H> {
        Protocol.grant(fence, living.filter(|_| !self.has(InjectedBug::TwoLeaseHolders)))
    }

    fn may_release(&self, fence: FencingToken, given: FencingToken, by_its_holder: bool) -> bool {
        self.has(InjectedBug::ReleaseByFormerHolder) || Protocol.may_release(fence, given, by_its_holder)
    }

    fn posted(&self, before: PostStatus) -> PostStatus {
        match self.has(InjectedBug::ConsumedPostReturns) {
            true => PostStatus::Waiting,
            false => Protocol.posted(before),
        }
    }

    fn consumed(&self, before: PostStatus) -> PostStatus {
        match self.has(InjectedBug::ConsumedPostStays) {
            true => before,
            false => Protocol.consumed(before),
        }
    }
}
