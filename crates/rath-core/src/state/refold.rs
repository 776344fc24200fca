//! What a line folds into that may have lost some of its bodies: which parts of the state its records still vouch for.
//!
//! An erasure leaves a snapshot behind each stretch that it empties, because files, steps and usage go on from there.
//! What an erased record may have said stands only in that snapshot; all else can be told, and is.

use std::collections::HashSet;
use std::ops::{BitOr, BitOrAssign};

use super::migrate::FOLDED_LATER;
use super::{OpenStep, Placement, State};
use crate::body::Placed;
use crate::id::RecordId;
use crate::kind::Kind;
use crate::kind::parts::{
    ASKS, BASE, CALLS, CONFLICTS, FOLDED, GRANTS, OPENS, OWNERS, PLACE, Parts, RUNS, SANDBOX, STEPS, USAGE, WAITS,
    WORKSPACE,
};
use crate::record::{Fault, Record};

/// Of which kinds bodies are gone behind a place, as far as a state may say less for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gone(u8);

impl Gone {
    /// Any body.
    pub const ANY: Self = Self(1);
    /// One that said where the session works.
    const PLACE: Self = Self(1 << 1);
    /// One that gave a permission.
    const GRANT: Self = Self(1 << 2);
    /// One that named conflicts, or decided one.
    const CONFLICT: Self = Self(1 << 3);
    /// Each of them alone.
    pub const EACH: [Self; 4] = [Self::ANY, Self::PLACE, Self::GRANT, Self::CONFLICT];

    /// What it means that the body of a record of this kind is gone.
    pub fn of(kind: &Kind) -> Self {
        let lost = kind.row().lost;
        let each = [(PLACE, Self::PLACE), (GRANTS, Self::GRANT), (CONFLICTS, Self::CONFLICT)];
        each.iter().filter(|(part, _)| lost & part != 0).fold(Self::ANY, |gone, (_, one)| gone | *one)
    }

    /// Whether this is among them.
    pub fn has(self, one: Self) -> bool {
        self.0 & one.0 != 0
    }
}

impl BitOr for Gone {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Gone {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

/// A state folded again from records, some of which may have no body.
#[derive(Clone, Debug, Default)]
pub struct Refold {
    pub(super) state: State,
    /// What is gone, here or on the lines behind.
    gone: Gone,
    /// Whether no record of this line has a body so far. An erasure takes the files of a line that lost all of them.
    bare: bool,
    /// What hangs on bodies that are gone, until a stored state says it or a record says it anew.
    pub(super) lost: Parts,
    /// Records without body that may have opened something, since a stored state was taken in.
    nameless: HashSet<RecordId>,
    /// Whether a record stands behind of a kind that fold 4 did not know.
    pub(super) later: bool,
    /// Steps entered where it is not known in which other step: their keys are not known either.
    adrift: HashSet<RecordId>,
}

impl Refold {
    /// Goes on from a state that is taken at its word.
    pub fn of(state: State) -> Self {
        Self { state, ..Self::default() }
    }

    /// The state. A body that is gone changed nothing.
    pub fn into_state(self) -> State {
        self.state
    }

    /// The state so far.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The state that it began with stands on bodies that are gone.
    pub fn stand_on(&mut self, gone: Gone) {
        self.gone |= gone;
    }

    /// Takes in the next record of the line.
    pub fn apply(&mut self, record: &Record) -> Result<(), Fault> {
        let has_body = record.body_bytes().is_some();
        self.later |= FOLDED_LATER.contains(record.kind());
        self.bare = !has_body && (self.bare || record.seq() == 0);
        match record.kind() {
            kind if !has_body => {
                self.gone |= Gone::of(kind);
                let lost = kind.row().lost;
                self.lost |= lost & FOLDED;
                if lost & OPENS != 0 {
                    self.nameless.insert(record.id());
                }
            }
            Kind::StepEntered if self.lost & (STEPS | OWNERS) != 0 => drop(self.adrift.insert(record.id())),
            _ => {}
        }
        if self.lost & (WORKSPACE | BASE) == 0 {
            return self.state.apply(record);
        }
        match record.kind() {
            Kind::Forked => {
                // A fork's base is what its parent has in place.
                if self.lost & WORKSPACE != 0 && self.state.placement.as_ref().is_some_and(|place| place.in_place) {
                    self.lost |= BASE;
                }
                self.state.apply(record)
            }
            _ => {
                if record.body::<Placed>().is_ok() {
                    self.lost &= !BASE;
                }
                // Whoever names a version names it whole: then it is known again.
                let lost = (self.lost & WORKSPACE != 0).then(|| self.state.workspace.take());
                self.state.apply(record)?;
                match (&self.state.workspace, lost) {
                    (None, Some(lost)) => self.state.workspace = lost,
                    (Some(_), Some(_)) => self.lost &= !WORKSPACE,
                    (_, None) => {}
                }
                Ok(())
            }
        }
    }

    /// Whether a stored state can be what the records folded into. It is what the line goes on from, then.
    pub fn accepts(&mut self, stored: &State) -> bool {
        if self.gone == Gone::default() {
            return self.state == *stored;
        }
        let mut told = self.state.clone();
        self.take_lost(&mut told, stored);
        self.take_less(&mut told, stored);
        if told != *stored {
            return false;
        }
        // A sandbox that was opened where no place is known any more is the sandbox of the next place.
        self.lost = match stored.placement.is_none() && self.gone.has(Gone::PLACE) {
            true => self.lost & BASE | SANDBOX,
            false => 0,
        };
        self.nameless.clear();
        self.adrift.clear();
        self.state = told;
        true
    }

    fn lost(&self, part: Parts) -> bool {
        self.lost & part != 0
    }

    /// Copies what nobody but `stored` can tell.
    pub(super) fn take_lost(&self, told: &mut State, stored: &State) {
        if self.lost(STEPS | OWNERS) {
            told.entered = stored.entered;
        }
        if self.lost(STEPS | OWNERS | RUNS) && self.steps_fit(&told.steps, &stored.steps) {
            told.steps.clone_from(&stored.steps);
        }
        // What a record opened that has a body is called as it says, and what one without opened has no name.
        let nameless = |record: &RecordId, name: &str| self.nameless.contains(record) && name == State::ERASED;
        if self.lost(CALLS) {
            let fits = stored.calls.iter().all(|call| {
                match told.calls.iter().find(|open| open.record == call.record && open.id == call.id) {
                    // An erased `step_entered` may have adopted it.
                    Some(open) => {
                        (&open.tool, open.own) == (&call.tool, call.own) && (open.inherited || !call.inherited)
                    }
                    None => nameless(&call.record, &call.tool),
                }
            });
            if fits {
                told.calls.clone_from(&stored.calls);
            }
        }
        if self.lost(ASKS) {
            let fits = stored.asks.iter().all(|ask| match told.asks.iter().find(|open| open.record == ask.record) {
                Some(open) => open == ask,
                None => self.nameless.contains(&ask.record) && ask.always.is_none(),
            });
            if fits {
                told.asks.clone_from(&stored.asks);
            }
        }
        if self.lost(WAITS) {
            let fits =
                stored.waits.iter().all(|wait| match told.waits.iter().find(|open| open.record == wait.record) {
                    Some(open) => open == wait,
                    None => self.nameless.contains(&wait.record) && wait.id == State::ERASED && wait.name.is_none(),
                });
            if fits {
                told.waits.clone_from(&stored.waits);
            }
        }
        if self.lost(USAGE) {
            (told.usage, told.own_usage) = (stored.usage, stored.own_usage.clone());
        }
        if self.lost(WORKSPACE) {
            told.workspace.clone_from(&stored.workspace);
        }
        if let (Some(told), Some(Placement { base, sandbox, .. })) = (&mut told.placement, stored.placement.as_deref())
        {
            if self.lost(BASE) {
                told.base.clone_from(base);
            }
            if self.lost(SANDBOX) {
                told.sandbox.clone_from(sandbox);
            }
        }
    }

    /// Whether stored steps can be those that were told, where something about them is lost.
    fn steps_fit(&self, told: &[OpenStep], stored: &[OpenStep]) -> bool {
        let same = told.iter().map(|step| step.record).eq(stored.iter().map(|step| step.record));
        let fits = |step: &OpenStep| match told.iter().find(|open| open.record == step.record) {
            Some(open) => {
                (&open.name, open.generation) == (&step.name, step.generation)
                    && (open.key == step.key || self.adrift.contains(&step.record) || self.lost(OWNERS))
                    && (open.inherited == step.inherited || self.lost(OWNERS))
                    && (open.entered == step.entered || self.lost(STEPS | OWNERS))
                    && (open.run == step.run || self.lost(STEPS | RUNS))
            }
            None => self.nameless.contains(&step.record) && step.name == State::ERASED,
        };
        (same || self.lost(STEPS)) && stored.iter().all(fits)
    }

    /// Leaves out what `stored` leaves out, where an erasure may have taken it: permissions, conflicts and the place that
    /// an erased record gave, and all of those with the files where nothing is left of the line. It never adds any.
    fn take_less(&self, told: &mut State, stored: &State) {
        let may_lack = |part: Gone| self.bare || self.gone.has(part);
        if stored.workspace.is_none() && self.bare {
            told.workspace = None;
        }
        if stored.placement.is_none() && may_lack(Gone::PLACE) {
            told.placement = None;
        }
        if may_lack(Gone::PLACE) {
            told.arrived = stored.arrived;
        }
        if may_lack(Gone::GRANT) {
            told.granted.retain(|grant| stored.granted.contains(grant));
        }
        if may_lack(Gone::CONFLICT) {
            told.conflicts.retain(|conflict| stored.conflicts.contains(conflict));
        }
    }
}
