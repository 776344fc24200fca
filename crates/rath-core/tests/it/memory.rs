//! The store in memory does what every store does.

use std::sync::Arc;

use rath_core::{Memory, Store};

fn make() -> (Arc<dyn Store>, ()) {
    (Memory::new(), ())
}

rath_testkit::store_conformance!(make);
