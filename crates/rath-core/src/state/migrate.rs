//! Using snapshots that another version of the fold made.
//!
//! The state is derived from records; a snapshot saves reading them. For erased bodies the snapshot is the only source.
//! A snapshot of another fold version is used only for that: the records are folded again, and the parts that depend on
//! erased bodies are copied from the snapshot, as far as its version knew them. See
//! docs/decisions/041-snapshots-are-migrated.md.

use super::{FOLD, Refold, State};
use crate::kind::Kind;
use crate::kind::parts::{BASE, FOLDED, Parts, SANDBOX, USAGE, WAITS, WORKSPACE};

/// Kinds that fold version 4 did not know.
pub(super) const FOLDED_LATER: &[Kind] = &[Kind::Awaited, Kind::Received, Kind::Arrived];

/// A parsed snapshot.
#[derive(Clone, Debug)]
pub enum StoredState {
    /// The state after the snapshot's record.
    Current(State),
    /// A state that another fold version made.
    Other(OtherFold),
}

/// A state that another fold version made.
#[derive(Clone, Debug)]
pub struct OtherFold {
    fold: u32,
    state: State,
}

impl OtherFold {
    pub(super) fn new(fold: u32, state: State) -> Self {
        Self { fold, state }
    }

    /// The fold version.
    pub fn fold(&self) -> u32 {
        self.fold
    }

    /// Whether a later version of Rath made it.
    pub fn is_newer(&self) -> bool {
        self.fold > FOLD
    }

    /// The parts of the state that this fold version knew.
    fn known(&self) -> Parts {
        match self.fold {
            // Steps had no keys, and calls had no starts.
            0 | 1 => USAGE,
            2 => USAGE | WORKSPACE | BASE | SANDBOX,
            3 | 4 => FOLDED & !WAITS,
            _ => FOLDED,
        }
    }

    /// The kinds that this fold version did not know, if it is otherwise the same as the current one. If none of these
    /// kinds occur before the snapshot, its state is complete.
    pub fn unknown_kinds(&self) -> Option<&'static [Kind]> {
        (self.fold == 4).then_some(FOLDED_LATER)
    }

    /// The state, for a session in which none of the [unknown kinds](Self::unknown_kinds) occur.
    pub fn into_complete(self) -> State {
        self.state
    }
}

impl Refold {
    /// Whether a snapshot of another fold version is consistent with the records. Copies from it what only it knows.
    pub fn accepts_other(&mut self, other: &OtherFold) -> bool {
        if other.unknown_kinds().is_some() && !self.has_later_kinds {
            return self.accepts(&other.state);
        }
        self.take_from(other);
        true
    }

    /// Copies from a snapshot after the current record what erased bodies contributed. Everything else was derived from
    /// the records.
    pub fn take_from(&mut self, other: &OtherFold) {
        let lost = self.lost;
        self.lost &= other.known();
        if self.lost != 0 {
            let mut derived = self.state.clone();
            self.copy_lost(&mut derived, &other.state);
            self.state = derived;
        }
        self.lost = lost & !other.known();
    }
}
