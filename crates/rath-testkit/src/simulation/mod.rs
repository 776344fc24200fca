//! Deterministic simulation: several processes, a store that can lose power, and messages that are delayed, duplicated
//! or lost, following a schedule that is determined by a seed.
//!
//! The simulated store decides by [`rath_core::protocol`], the functions that the real stores use. Simulated are only a
//! disk whose unsynced writes can be undone, and processes that behave like `Session`. After every step, an oracle
//! compares the acknowledgements with the stored records, the inbox and the side effects. [`explore`] runs many seeds
//! and returns the first failure with a minimized schedule. Each [`InjectedBug`] must be found, which tests the
//! simulator itself. [`compare`] runs a schedule on a real store too and compares the results.

mod cluster;
mod disk;
mod entry;
mod holder;
mod injected_bug;
mod message;
mod mirror;
mod oracle;
mod step;
mod tally;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use cluster::Cluster;
use mirror::Mirror;
use rath_core::Store;
use step::{Step, schedule};

pub use injected_bug::InjectedBug;
pub use oracle::Violation;
pub use tally::Tally;

/// A schedule that violates a guarantee.
#[derive(Clone, Debug)]
pub struct SimulationFailure {
    /// The seed of the schedule.
    pub seed: u64,
    /// The violated guarantee.
    pub violation: Violation,
    /// The number of steps in the minimized schedule.
    pub steps: usize,
    /// A description of these steps.
    pub trace: Vec<String>,
}

impl fmt::Display for SimulationFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.violation)?;
        for (n, line) in self.trace.iter().enumerate() {
            writeln!(f, "{:>4}. {line}", n + 1)?;
        }
        write!(f, "RATH_SCHEDULE_SEED={} runs it again", self.seed)
    }
}

/// Runs the schedules of these seeds until one violates a guarantee.
pub fn explore(seeds: Range<u64>, bug: Option<InjectedBug>) -> Result<Tally, Box<SimulationFailure>> {
    let mut all = Tally::default();
    for seed in seeds {
        let steps = schedule(seed);
        match play(&steps, bug, false) {
            (cluster, Ok(())) => all.add(&cluster.tally),
            (_, Err(_)) => return Err(Box::new(shortest(seed, steps, bug))),
        }
    }
    Ok(all)
}

/// Runs the schedule of a seed without power cuts, on the simulated store and on `store`, which must be empty. Fails if
/// their answers or contents differ.
pub fn compare(seed: u64, store: Arc<dyn Store>) -> Result<Tally, Violation> {
    let mut cluster = Cluster::new(None, false);
    cluster.mirror = Some(Mirror::new(store));
    schedule(seed).into_iter().try_for_each(|step| cluster.step(step.powered())).and_then(|()| cluster.end())?;
    Ok(cluster.tally)
}

fn play(steps: &[Step], bug: Option<InjectedBug>, traced: bool) -> (Cluster, Result<(), Violation>) {
    let mut cluster = Cluster::new(bug, traced);
    cluster.tally.schedules = 1;
    let done = steps.iter().try_for_each(|step| cluster.step(*step)).and_then(|()| cluster.end());
    (cluster, done)
}

/// Minimizes a schedule: removes steps, first many at a time and then single ones, as long as a guarantee is still
/// violated.
fn shortest(seed: u64, mut steps: Vec<Step>, bug: Option<InjectedBug>) -> SimulationFailure {
    let mut many = steps.len() / 2;
    while many > 0 {
        let (mut at, mut shorter) = (0, false);
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + many).min(steps.len()));
            match play(&fewer, bug, false).1 {
                Err(_) => (steps, shorter) = (fewer, true),
                Ok(()) => at += many,
            }
        }
        // A step that was needed before may be unnecessary now.
        many = if shorter && many == 1 { 1 } else { many / 2 };
    }
    let (cluster, done) = play(&steps, bug, true);
    let violation = done.err().unwrap_or_else(|| Violation("it holds after all".into()));
    SimulationFailure { seed, violation, steps: steps.len(), trace: cluster.trace.unwrap_or_default() }
}
