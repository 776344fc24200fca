//! Random programs over sessions, compared with a simple model.

use proptest::prelude::*;
use rath_core::InMemory;
use rath_testkit::scaled;
use rath_testkit::world::{World, ops};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(scaled(2_000)))]

    #[test]
    fn sessions_agree_with_their_model(ops in ops(60)) {
        let mut world = World::new(InMemory::new());
        for op in &ops {
            world.apply(op);
        }
        world.check();
        world.publish_all();
        world.check();
    }

    #[test]
    fn sessions_agree_with_their_model_at_every_step(ops in ops(20)) {
        let mut world = World::new(InMemory::new());
        for op in &ops {
            world.apply(op);
            world.check();
        }
    }
}
