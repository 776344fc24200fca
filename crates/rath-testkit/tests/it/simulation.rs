//! The protocol of the stores under seeded schedules, and mistakes that must be found.

use rath_core::Memory;
use rath_testkit::scaled;
use rath_testkit::simulation::{Planted, compare, explore};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// `RATH_SCHEDULE_SEED` runs one schedule alone.
#[test]
fn no_schedule_breaks_a_promise() {
    let seeds = match number("RATH_SCHEDULE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..u64::from(scaled(50_000)),
    };
    let many = seeds.end - seeds.start;
    let tally = explore(seeds, None).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(tally.schedules, many);
    println!("{tally:?}");
    if many >= 1_000 {
        let happened = [
            tally.commits,
            tally.records,
            tally.fenced,
            tally.early,
            tally.grants,
            tally.posts,
            tally.effects,
            tally.erased,
            tally.power_cuts,
        ];
        assert!(happened.iter().all(|times| *times > many / 100), "the schedules leave something out: {tally:?}");
    }
}

#[test]
fn every_planted_mistake_is_found() {
    for planted in Planted::ALL {
        let Err(failure) = explore(0..100_000, Some(*planted)) else { panic!("{planted:?} is not found") };
        println!("{planted:?}, {} steps: {failure}\n", failure.steps);
        assert!(failure.steps < 40, "{planted:?} is not made short: {failure}");
        assert!(explore(failure.seed..failure.seed + 1, None).is_ok(), "{planted:?}: {failure}");
        let again = explore(failure.seed..failure.seed + 1, Some(*planted)).err();
        assert_eq!(again.map(|again| again.to_string()), Some(failure.to_string()), "a seed is a schedule");
    }
}

/// The store in memory answers and keeps what the simulated one does.
#[test]
fn the_store_in_memory_does_the_same() {
    for seed in 0..u64::from(scaled(2_000)) {
        compare(seed, Memory::new()).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}
