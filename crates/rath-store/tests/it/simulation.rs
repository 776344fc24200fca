//! The embedded store under the schedules of the simulator.

use rath_store::Embedded;
use rath_testkit::scaled;
use rath_testkit::simulation::compare;

#[test]
fn the_embedded_store_does_what_the_simulated_one_does() {
    for seed in 0..u64::from(scaled(40)) {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::create(dir.path().join("store")).unwrap();
        compare(seed, store).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}
