//! Snapshots of another fold: what they are good for.
//!
//! Records are the source of a state, and a snapshot saves reading them. Where bodies were erased it is the only source.
//! A snapshot of an older or a newer fold serves for that: the records are folded again, and what hangs on bodies that
//! are gone is taken from the snapshot, as far as its fold knew it. See docs/decisions/041-snapshots-are-migrated.md.

use super::{FOLD, Refold, State};
use crate::kind::Kind;
use crate::kind::parts::{BASE, FOLDED, Parts, SANDBOX, USAGE, WAITS, WORKSPACE};

/// Kinds that fold 4 did not know.
pub(super) const FOLDED_LATER: &[Kind] = &[Kind::Awaited, Kind::Received, Kind::Arrived];

/// A snapshot as this version can use it.
#[derive(Clone, Debug)]
pub enum StoredState {
    /// The state after its record.
    Current(State),
    /// A state that another fold made.
    Other(OtherFold),
}

/// A state that another fold made.
#[derive(Clone, Debug)]
pub struct OtherFold {
    fold: u32,
    state: State,
}

impl OtherFold {
    pub(super) fn new(fold: u32, state: State) -> Self {
        Self { fold, state }
    }

    /// Its number.
    pub fn fold(&self) -> u32 {
        self.fold
    }

    /// Whether a later version of Rath made it.
    pub fn is_newer(&self) -> bool {
        self.fold > FOLD
    }

    /// The parts that it can tell.
    fn known(&self) -> Parts {
        match self.fold {
            // Steps had no keys, and calls no starts.
            0 | 1 => USAGE,
            2 => USAGE | WORKSPACE | BASE | SANDBOX,
            3 | 4 => FOLDED & !WAITS,
            _ => FOLDED,
        }
    }

    /// The kinds that its fold did not know, where it knew all else as it is known now: behind none of these the state is
    /// complete.
    pub fn unknown_kinds(&self) -> Option<&'static [Kind]> {
        (self.fold == 4).then_some(FOLDED_LATER)
    }

    /// The state, of a line on which none of the [kinds that its fold did not know](Self::unknown_kinds) stand.
    pub fn into_complete(self) -> State {
        self.state
    }
}

impl Refold {
    /// Whether a snapshot of another fold can be what the records folded into, as far as it is read; what only it knows is
    /// taken from it.
    pub fn accepts_other(&mut self, other: &OtherFold) -> bool {
        if other.unknown_kinds().is_some() && !self.later {
            return self.accepts(&other.state);
        }
        self.take_from(other);
        true
    }

    /// Takes from a snapshot after this record what bodies that are gone said. All else the records have told.
    pub fn take_from(&mut self, other: &OtherFold) {
        let lost = self.lost;
        self.lost &= other.known();
        if self.lost != 0 {
            let mut told = self.state.clone();
            self.take_lost(&mut told, &other.state);
            self.state = told;
        }
        self.lost = lost & !other.known();
    }
}
