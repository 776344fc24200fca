//! The embedded store under the schedules of the simulator.

use rath_store::Embedded;
use rath_testkit::simulation::compare;

/// How many schedules a run tries: as many as `RATH_STORED_SCHEDULES` says.
fn schedules() -> u64 {
    std::env::var("RATH_STORED_SCHEDULES").ok().and_then(|many| many.parse().ok()).unwrap_or(40)
}

#[test]
fn the_embedded_store_does_what_the_simulated_one_does() {
    for seed in 0..schedules() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::create(dir.path().join("store")).unwrap();
        compare(seed, store).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}
