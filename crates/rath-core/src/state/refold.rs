//! Folding a session of which some bodies were erased, and checking stored snapshots against the result.
//!
//! An erasure stores a snapshot after each range that it empties, because files, steps and usage continue from there.
//! What an erased record contributed is known only from that snapshot. Everything else is derived from the records and
//! must match the snapshot.

use std::collections::HashSet;
use std::ops::{BitOr, BitOrAssign};

use super::migrate::FOLDED_LATER;
use super::{OpenStep, Placement, State};
use crate::body::Placed;
use crate::id::RecordId;
use crate::kind::Kind;
use crate::kind::parts::{
    ASKS, BASE, CALLS, CONFLICTS, FOLDED, GRANTS, OPENS, OWNERS, PLACEMENT, Parts, RUNS, SANDBOX, STEPS, USAGE, WAITS,
    WORKSPACE,
};
use crate::record::{Record, RecordError};

/// Which parts of a state may be missing because bodies up to some record were erased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErasedParts(u8);

impl ErasedParts {
    /// Any body was erased.
    pub const ANY: Self = Self(1);
    /// A body with a placement was erased.
    const PLACEMENT: Self = Self(1 << 1);
    /// A body with a grant was erased.
    const GRANT: Self = Self(1 << 2);
    /// A body that named or resolved conflicts was erased.
    const CONFLICT: Self = Self(1 << 3);
    /// Each part alone.
    pub const EACH: [Self; 4] = [Self::ANY, Self::PLACEMENT, Self::GRANT, Self::CONFLICT];

    /// The parts that may be missing after the body of a record of this kind was erased.
    pub fn of(kind: &Kind) -> Self {
        let lost = kind.row().lost;
        let each = [(PLACEMENT, Self::PLACEMENT), (GRANTS, Self::GRANT), (CONFLICTS, Self::CONFLICT)];
        each.iter().filter(|(part, _)| lost & part != 0).fold(Self::ANY, |erased, (_, one)| erased | *one)
    }

    /// Whether this contains `one`.
    pub fn has(self, one: Self) -> bool {
        self.0 & one.0 != 0
    }
}

impl BitOr for ErasedParts {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for ErasedParts {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

/// A state that is folded from records of which some bodies may be erased.
#[derive(Clone, Debug, Default)]
pub struct Refold {
    pub(super) state: State,
    /// The parts that may be missing because of erasures in this session or its ancestors.
    erased: ErasedParts,
    /// Whether all bodies of this session so far are erased. An erasure then removes the session's files too.
    all_erased: bool,
    /// The parts of the state that depend on erased bodies and that no stored state or later record has set since.
    pub(super) lost: Parts,
    /// Records with an erased body, since the last accepted snapshot, that may have opened a step, call, question or
    /// wait.
    maybe_opened: HashSet<RecordId>,
    /// Whether a record so far is of a kind that fold version 4 did not know.
    pub(super) has_later_kinds: bool,
    /// Steps whose outer step, and therefore whose key, is unknown.
    unkeyed_steps: HashSet<RecordId>,
}

impl Refold {
    /// Starts from a state that is trusted.
    pub fn of(state: State) -> Self {
        Self { state, ..Self::default() }
    }

    /// The state. Erased bodies changed nothing.
    pub fn into_state(self) -> State {
        self.state
    }

    /// The state so far.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Records that the initial state depends on erased bodies.
    pub fn add_erased(&mut self, erased: ErasedParts) {
        self.erased |= erased;
    }

    /// Folds the next record of the session.
    pub fn apply(&mut self, record: &Record) -> Result<(), RecordError> {
        let has_body = record.body_bytes().is_some();
        self.has_later_kinds |= FOLDED_LATER.contains(record.kind());
        self.all_erased = !has_body && (self.all_erased || record.seq() == 0);
        match record.kind() {
            kind if !has_body => {
                self.erased |= ErasedParts::of(kind);
                let lost = kind.row().lost;
                self.lost |= lost & FOLDED;
                if lost & OPENS != 0 {
                    self.maybe_opened.insert(record.id());
                }
            }
            Kind::StepEntered if self.lost & (STEPS | OWNERS) != 0 => drop(self.unkeyed_steps.insert(record.id())),
            _ => {}
        }
        if self.lost & (WORKSPACE | BASE) == 0 {
            return self.state.apply(record);
        }
        match record.kind() {
            Kind::Forked => {
                // The base of a fork is what its parent had in place.
                if self.lost & WORKSPACE != 0
                    && self.state.placement.as_ref().is_some_and(|placement| placement.in_place)
                {
                    self.lost |= BASE;
                }
                self.state.apply(record)
            }
            _ => {
                if record.body::<Placed>().is_ok() {
                    self.lost &= !BASE;
                }
                // Every record with a version contains the whole version, so the version is known again.
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

    /// Whether a stored state is consistent with the records. If it is, folding continues from it.
    pub fn accepts(&mut self, stored: &State) -> bool {
        if self.erased == ErasedParts::default() {
            return self.state == *stored;
        }
        let mut derived = self.state.clone();
        self.copy_lost(&mut derived, stored);
        self.drop_erased(&mut derived, stored);
        if derived != *stored {
            return false;
        }
        // A sandbox that was opened while the placement is unknown belongs to the next placement.
        self.lost = match stored.placement.is_none() && self.erased.has(ErasedParts::PLACEMENT) {
            true => self.lost & BASE | SANDBOX,
            false => 0,
        };
        self.maybe_opened.clear();
        self.unkeyed_steps.clear();
        self.state = derived;
        true
    }

    fn lost(&self, part: Parts) -> bool {
        self.lost & part != 0
    }

    /// Copies from `stored` what is known only there.
    pub(super) fn copy_lost(&self, derived: &mut State, stored: &State) {
        if self.lost(STEPS | OWNERS) {
            derived.entered = stored.entered;
        }
        if self.lost(STEPS | OWNERS | RUNS) && self.steps_fit(&derived.steps, &stored.steps) {
            derived.steps.clone_from(&stored.steps);
        }
        // What an intact record opened has the name that its body gives; what an erased record opened has no name.
        let maybe_opened = |record: &RecordId, name: &str| self.maybe_opened.contains(record) && name == State::ERASED;
        if self.lost(CALLS) {
            let fits = stored.calls.iter().all(|call| {
                match derived.calls.iter().find(|open| open.record == call.record && open.id == call.id) {
                    // An erased `step_entered` may have adopted the call.
                    Some(open) => {
                        (&open.tool, open.user_started) == (&call.tool, call.user_started)
                            && (open.inherited || !call.inherited)
                    }
                    None => maybe_opened(&call.record, &call.tool),
                }
            });
            if fits {
                derived.calls.clone_from(&stored.calls);
            }
        }
        if self.lost(ASKS) {
            let fits = stored.asks.iter().all(|ask| match derived.asks.iter().find(|open| open.record == ask.record) {
                Some(open) => open == ask,
                None => self.maybe_opened.contains(&ask.record) && ask.always.is_none(),
            });
            if fits {
                derived.asks.clone_from(&stored.asks);
            }
        }
        if self.lost(WAITS) {
            let fits =
                stored.waits.iter().all(|wait| match derived.waits.iter().find(|open| open.record == wait.record) {
                    Some(open) => open == wait,
                    None => self.maybe_opened.contains(&wait.record) && wait.id == State::ERASED && wait.name.is_none(),
                });
            if fits {
                derived.waits.clone_from(&stored.waits);
            }
        }
        if self.lost(USAGE) {
            (derived.usage, derived.own_usage) = (stored.usage, stored.own_usage.clone());
        }
        if self.lost(WORKSPACE) {
            derived.workspace.clone_from(&stored.workspace);
        }
        if let (Some(derived), Some(Placement { base, sandbox, .. })) =
            (&mut derived.placement, stored.placement.as_deref())
        {
            if self.lost(BASE) {
                derived.base.clone_from(base);
            }
            if self.lost(SANDBOX) {
                derived.sandbox.clone_from(sandbox);
            }
        }
    }

    /// Whether stored steps are consistent with the derived ones, given what is lost.
    fn steps_fit(&self, derived: &[OpenStep], stored: &[OpenStep]) -> bool {
        let same = derived.iter().map(|step| step.record).eq(stored.iter().map(|step| step.record));
        let fits = |step: &OpenStep| match derived.iter().find(|open| open.record == step.record) {
            Some(open) => {
                (&open.name, open.generation) == (&step.name, step.generation)
                    && (open.key == step.key || self.unkeyed_steps.contains(&step.record) || self.lost(OWNERS))
                    && (open.inherited == step.inherited || self.lost(OWNERS))
                    && (open.entered == step.entered || self.lost(STEPS | OWNERS))
                    && (open.run == step.run || self.lost(STEPS | RUNS))
            }
            None => self.maybe_opened.contains(&step.record) && step.name == State::ERASED,
        };
        (same || self.lost(STEPS)) && stored.iter().all(fits)
    }

    /// Removes from `derived` what `stored` lacks and an erasure may have removed: grants, conflicts and the placement
    /// that an erased record gave, and with them the files if every body of the session is erased. Never adds anything.
    fn drop_erased(&self, derived: &mut State, stored: &State) {
        let may_lack = |part: ErasedParts| self.all_erased || self.erased.has(part);
        if stored.workspace.is_none() && self.all_erased {
            derived.workspace = None;
        }
        if stored.placement.is_none() && may_lack(ErasedParts::PLACEMENT) {
            derived.placement = None;
        }
        if may_lack(ErasedParts::PLACEMENT) {
            derived.arrived = stored.arrived;
        }
        if may_lack(ErasedParts::GRANT) {
            derived.granted.retain(|grant| stored.granted.contains(grant));
        }
        if may_lack(ErasedParts::CONFLICT) {
            derived.conflicts.retain(|conflict| stored.conflicts.contains(conflict));
        }
    }
}
