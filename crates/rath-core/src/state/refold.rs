//! What a line folds into that may have lost some of its bodies: which parts of the state its records still vouch for.
//!
//! An erasure leaves a snapshot behind each stretch that it empties, because files, steps and usage go on from there.
//! What an erased record may have said stands only in that snapshot; all else can be told, and is.

use super::{Placement, State};
use crate::body::{MOST_GRANTS, Placed};
use crate::kind::Kind;
use crate::record::{Fault, Record};

/// Parts of a state, as bits.
type Parts = u16;

const STEPS: Parts = 1;
const CALLS: Parts = 1 << 1;
const ASKS: Parts = 1 << 2;
const USAGE: Parts = 1 << 3;
const WORKSPACE: Parts = 1 << 4;
const CONFLICTS: Parts = 1 << 5;
const BASE: Parts = 1 << 6;
const SANDBOX: Parts = 1 << 7;

/// The parts that a body of this kind changes, directly or by what follows from them. Title and labels, permissions and
/// the place are not among them: an erasure takes out what the erased record said of those.
fn said_by(kind: &Kind) -> Parts {
    match kind {
        Kind::Forked | Kind::StepEntered | Kind::StepLeft | Kind::ModelRequested | Kind::ModelFailed => STEPS,
        Kind::Merged => USAGE | STEPS | WORKSPACE | CONFLICTS,
        Kind::Assistant | Kind::ToolResult => CALLS | STEPS,
        Kind::ModelResponded => USAGE | STEPS,
        Kind::Cancelled => CALLS | ASKS | STEPS,
        Kind::ToolStarted | Kind::ToolFinished => CALLS | STEPS | WORKSPACE,
        Kind::Asked | Kind::Answered => ASKS | CALLS,
        Kind::Placed => WORKSPACE | BASE | SANDBOX,
        Kind::SandboxOpened | Kind::SandboxClosed | Kind::SandboxLost => SANDBOX,
        Kind::Restored | Kind::Resolved => WORKSPACE | CONFLICTS,
        _ => 0,
    }
}

/// A state folded again from records, some of which may have no body.
#[derive(Clone, Debug, Default)]
pub struct Refold {
    state: State,
    /// Whether a body is gone, here or on the lines behind.
    holes: bool,
    /// What hangs on bodies that are gone, until a stored state says it or a record says it anew.
    lost: Parts,
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

    /// The state that it began with stands on bodies that are gone.
    pub fn stand_on_holes(&mut self) {
        self.holes = true;
    }

    /// Takes in the next record of the line.
    pub fn apply(&mut self, record: &Record) -> Result<(), Fault> {
        if record.body_bytes().is_none() {
            self.holes = true;
            self.lost |= said_by(record.kind());
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

    /// Whether a stored state can be what the records folded into. What they do not tell any more is taken from it, and
    /// has to be so from there on.
    pub fn accepts(&mut self, stored: &State) -> bool {
        if !self.holes {
            return self.state == *stored;
        }
        let mut told = self.state.clone();
        self.take_lost(&mut told, stored);
        if !fits(&told, stored) {
            return false;
        }
        self.lost = match (&told.placement, &stored.placement) {
            (Some(_), None) => self.lost & BASE | SANDBOX,
            _ => 0,
        };
        self.state = told;
        true
    }

    /// Copies what nobody but `stored` can tell.
    fn take_lost(&self, told: &mut State, stored: &State) {
        let lost = |part: Parts| self.lost & part != 0;
        if lost(STEPS) {
            (told.steps, told.entered) = (stored.steps.clone(), stored.entered);
        }
        if lost(CALLS) {
            told.calls.clone_from(&stored.calls);
        }
        if lost(ASKS) {
            told.asks.clone_from(&stored.asks);
        }
        if lost(USAGE) {
            (told.usage, told.own_usage) = (stored.usage, stored.own_usage.clone());
        }
        if lost(WORKSPACE) {
            told.workspace.clone_from(&stored.workspace);
        }
        if lost(CONFLICTS) {
            told.conflicts.clone_from(&stored.conflicts);
        }
        if let (Some(told), Some(Placement { base, sandbox, .. })) = (&mut told.placement, stored.placement.as_deref())
        {
            if lost(BASE) {
                told.base.clone_from(base);
            }
            if lost(SANDBOX) {
                told.sandbox.clone_from(sandbox);
            }
        }
    }
}

/// Whether a stored state says what the records tell, or less: an erasure takes names, permissions, conflicts and the
/// place out of later states too. It never adds any.
fn fits(told: &State, stored: &State) -> bool {
    let (mut told, mut stored) = (told.clone(), stored.clone());
    for state in [&mut told, &mut stored] {
        state.steps.iter_mut().for_each(|step| step.name.clear());
        state.calls.iter_mut().for_each(|call| call.tool.clear());
        state.asks.iter_mut().for_each(|ask| ask.always = None);
    }
    if stored.placement.is_none() {
        told.placement = None;
    }
    // Where no more were taken in, it depends on those that are gone which ones were.
    let full = told.granted.len() >= MOST_GRANTS;
    if full || stored.granted.iter().all(|grant| told.granted.contains(grant)) {
        stored.granted.clone_from(&told.granted);
    }
    if stored.conflicts.iter().all(|conflict| told.conflicts.contains(conflict)) {
        stored.conflicts.clone_from(&told.conflicts);
    }
    told == stored
}
