//! Runs random programs on a store on disk and compares the result with a simple model. The store must be valid
//! afterwards.

use proptest::prelude::*;
use rath_testkit::scaled;
use rath_testkit::world::{World, ops};

use crate::support::{fresh, verify};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(scaled(60)))]

    #[test]
    fn stored_sessions_agree_with_their_model(ops in ops(50)) {
        let (store, dir) = fresh();
        let mut world = World::new(store);
        for op in &ops {
            world.apply(op);
        }
        world.publish_all();
        world.check();
        drop(world);
        let report = verify(&dir.path().join("store"));
        prop_assert!(report.is_valid(), "{:?}", report.findings);
    }
}
