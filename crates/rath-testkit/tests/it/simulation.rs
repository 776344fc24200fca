//! Simulates the commit protocol with seeded schedules, and checks that injected bugs are found.

use rath_core::InMemory;
use rath_testkit::scaled;
use rath_testkit::simulation::{InjectedBug, compare, explore};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// With `RATH_SCHEDULE_SEED`, runs only that schedule.
#[test]
fn no_schedule_violates_a_guarantee() {
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
        assert!(
            happened.iter().all(|times| *times > many / 100),
            "some events do not occur in the schedules: {tally:?}"
        );
    }
}

#[test]
fn every_injected_bug_is_found() {
    for bug in InjectedBug::ALL {
        let Err(failure) = explore(0..100_000, Some(*bug)) else { panic!("{bug:?} is not found") };
        println!("{bug:?}, {} steps: {failure}\n", failure.steps);
        assert!(failure.steps < 40, "{bug:?} is not minimized: {failure}");
        assert!(explore(failure.seed..failure.seed + 1, None).is_ok(), "{bug:?}: {failure}");
        let again = explore(failure.seed..failure.seed + 1, Some(*bug)).err();
        assert_eq!(again.map(|again| again.to_string()), Some(failure.to_string()), "a seed is a schedule");
    }
}

/// The in-memory store gives the same answers and has the same content as the simulated one.
#[test]
fn the_in_memory_store_behaves_like_the_simulated_one() {
    for seed in 0..u64::from(scaled(2_000)) {
        compare(seed, InMemory::new()).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}
