//! Deterministic simulation: several processes, a store that can lose power, and messages that come late, twice or not
//! at all, under a schedule that a seed decides.
//!
//! The store decides by [`rath_core::protocol`], the functions that the real stores use; around it are only a disk whose
//! unsynced writes can be undone and processes that behave as `Session` does. After every step a witness compares what
//! was promised with what is stored: the log, the inbox and the effects. [`explore`] runs many seeds and hands back the
//! first failure, made short; [`Planted`] mistakes show that it finds what there is to find. [`compare`] asks a real store
//! the same.

mod disk;
mod entry;
mod holder;
mod mirror;
mod planted;
mod scene;
mod step;
mod tally;
mod wire;
mod witness;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use mirror::Mirror;
use rath_core::Store;
use scene::Scene;
use step::{Step, schedule};

pub use planted::Planted;
pub use tally::Tally;
pub use witness::Violation;

/// A schedule that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// What was broken.
    pub violation: Violation,
    /// How many steps are needed to break it.
    pub steps: usize,
    /// What happens in them, in words.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.violation)?;
        for (n, line) in self.trace.iter().enumerate() {
            writeln!(f, "{:>4}. {line}", n + 1)?;
        }
        write!(f, "RATH_SCHEDULE_SEED={} runs it again", self.seed)
    }
}

/// Runs the schedules of these seeds, up to the first that breaks a promise.
pub fn explore(seeds: Range<u64>, planted: Option<Planted>) -> Result<Tally, Box<Failure>> {
    let mut all = Tally::default();
    for seed in seeds {
        let steps = schedule(seed);
        match play(&steps, planted, false) {
            (scene, Ok(())) => all.add(&scene.tally),
            (_, Err(_)) => return Err(Box::new(shortest(seed, steps, planted))),
        }
    }
    Ok(all)
}

/// Runs the schedule of a seed, without its power cuts, and asks a real, empty store the same: it must answer and keep
/// the same.
pub fn compare(seed: u64, store: Arc<dyn Store>) -> Result<Tally, Violation> {
    let mut scene = Scene::new(None, false);
    scene.mirror = Some(Mirror::new(store));
    schedule(seed).into_iter().try_for_each(|step| scene.step(step.powered())).and_then(|()| scene.end())?;
    Ok(scene.tally)
}

fn play(steps: &[Step], planted: Option<Planted>, traced: bool) -> (Scene, Result<(), Violation>) {
    let mut scene = Scene::new(planted, traced);
    scene.tally.schedules = 1;
    let done = steps.iter().try_for_each(|step| scene.step(*step)).and_then(|()| scene.end());
    (scene, done)
}

/// Leaves out steps, many at a time and then one by one, as long as a promise is still broken.
fn shortest(seed: u64, mut steps: Vec<Step>, planted: Option<Planted>) -> Failure {
    let mut many = steps.len() / 2;
    while many > 0 {
        let (mut at, mut shorter) = (0, false);
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + many).min(steps.len()));
            match play(&fewer, planted, false).1 {
                Err(_) => (steps, shorter) = (fewer, true),
                Ok(()) => at += many,
            }
        }
        // What was needed before may not be any more.
        many = if shorter && many == 1 { 1 } else { many / 2 };
    }
    let (scene, done) = play(&steps, planted, true);
    let violation = done.err().unwrap_or_else(|| Violation("it holds after all".into()));
    Failure { seed, violation, steps: steps.len(), trace: scene.trace.unwrap_or_default() }
}
