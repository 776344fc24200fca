//! The decisions.

use super::inbox::Standing;
use super::line::{self, Entry, Line, Offer};
use crate::id::RecordId;
use crate::store::{Fence, Result};

/// The decisions of a store. The methods as they stand here are the protocol; nobody replaces one but a simulator that
/// wants to see the mistake found.
pub trait Rules {
    /// How many of the offered records are there already; the others may be appended. `there` looks up the id at a seq
    /// before the last.
    fn admit<E: Entry>(
        &self,
        offer: &Offer<'_, E>,
        line: Option<&Line>,
        there: impl FnOnce(u64) -> Result<Option<RecordId>>,
    ) -> Result<usize> {
        line::admit(offer, line, there)
    }

    /// The fence of a new holder, or who stands in its way: the one who has the session and lives. `fence` is that of
    /// the last holder.
    fn grant<H>(&self, fence: Fence, living: Option<H>) -> Result<Fence, H> {
        match living {
            Some(holder) => Err(holder),
            None => Ok(fence + 1),
        }
    }

    /// Whether a session is free when it is given back under `given`: only who has it now can give it back.
    fn gives_back(&self, fence: Fence, given: Fence, by_its_holder: bool) -> bool {
        fence == given && by_its_holder
    }

    /// Where a post stands after it came in.
    fn posted(&self, before: Standing) -> Standing {
        match before {
            Standing::Unknown | Standing::Waiting => Standing::Waiting,
            Standing::Taken => Standing::Taken,
        }
    }

    /// Where a post stands after a record said it. Also one that never came here is known from then on.
    fn taken(&self, _before: Standing) -> Standing {
        Standing::Taken
    }
}

/// The rules as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Protocol;

impl Rules for Protocol {}
