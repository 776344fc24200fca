//! Mistakes, put in on purpose: a simulator that does not find them finds nothing.

use rath_core::RecordId;
use rath_core::protocol::{Entry, Line, Offer, Protocol, Rules, Standing};
use rath_core::store::{Error, Fence, Result};

/// A mistake of a store, or of those who use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A commit under an old fence is taken.
    FenceUnchecked,
    /// A commit that does not follow the head is taken.
    HeadUnchecked,
    /// What is there already is appended once more.
    RetryAppended,
    /// Each part of a batch is a commit of its own.
    PartByPart,
    /// A session is given to a second one while the first lives.
    LeaseForTwo,
    /// Who lost a session can still give it back.
    AnyoneGivesBack,
    /// A post that was taken waits again when it is sent again.
    PostComesAgain,
    /// A post that a record says stays in the inbox.
    PostStays,
    /// The store answers before it has synced.
    AnsweredBeforeSync,
    /// A repeated commit brings back what was erased.
    ErasedComesBack,
    /// A holder acts when its intent was sent, not when it was acknowledged.
    ActsBeforeAnswer,
    /// A holder does what the one before it intended.
    ActsForOthers,
    /// A holder that lost its session acts all the same.
    ActsWhenLost,
    /// A fork that publishes its parent's records leaves the posts they say in the inbox.
    ForkLeavesPosts,
}

impl Planted {
    /// All of them.
    pub const ALL: &[Planted] = &[
        Planted::FenceUnchecked,
        Planted::HeadUnchecked,
        Planted::RetryAppended,
        Planted::PartByPart,
        Planted::LeaseForTwo,
        Planted::AnyoneGivesBack,
        Planted::PostComesAgain,
        Planted::PostStays,
        Planted::AnsweredBeforeSync,
        Planted::ErasedComesBack,
        Planted::ActsBeforeAnswer,
        Planted::ActsForOthers,
        Planted::ActsWhenLost,
        Planted::ForkLeavesPosts,
    ];
}

/// The protocol, with or without a mistake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Play(pub(super) Option<Planted>);

impl Play {
    pub(super) fn has(self, mistake: Planted) -> bool {
        self.0 == Some(mistake)
    }
}

impl Rules for Play {
    fn admit<E: Entry>(
        &self,
        offer: &Offer<'_, E>,
        line: Option<&Line>,
        there: impl FnOnce(u64) -> Result<Option<RecordId>>,
    ) -> Result<usize> {
        if self.has(Planted::FenceUnchecked)
            && let Some(line) = line
        {
            return Protocol.admit(&Offer { fence: line.fence, ..*offer }, Some(line), there);
        }
        match Protocol.admit(offer, line, there) {
            Err(Error::Conflict { .. }) if self.has(Planted::HeadUnchecked) => Ok(0),
            Ok(_) if self.has(Planted::RetryAppended) => Ok(0),
            answer => answer,
        }
    }

    fn grant<H>(&self, fence: Fence, living: Option<H>) -> Result<Fence, H> {
        Protocol.grant(fence, living.filter(|_| !self.has(Planted::LeaseForTwo)))
    }

    fn gives_back(&self, fence: Fence, given: Fence, by_its_holder: bool) -> bool {
        self.has(Planted::AnyoneGivesBack) || Protocol.gives_back(fence, given, by_its_holder)
    }

    fn posted(&self, before: Standing) -> Standing {
        match self.has(Planted::PostComesAgain) {
            true => Standing::Waiting,
            false => Protocol.posted(before),
        }
    }

    fn taken(&self, before: Standing) -> Standing {
        match self.has(Planted::PostStays) {
            true => before,
            false => Protocol.taken(before),
        }
    }
}
