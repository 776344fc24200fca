//! Runs the schedules of the simulator on the embedded store.

use rath_store::Embedded;
use rath_testkit::scaled;
use rath_testkit::simulation::compare;

#[test]
fn the_embedded_store_behaves_like_the_simulated_one() {
    for seed in 0..u64::from(scaled(40)) {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::create(dir.path().join("store")).unwrap();
        compare(seed, store).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}
