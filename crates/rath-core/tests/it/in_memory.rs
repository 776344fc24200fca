//! The in-memory store passes the conformance tests of all stores.

use std::sync::Arc;

use rath_core::{InMemory, Store};

fn make() -> (Arc<dyn Store>, ()) {
    (InMemory::new(), ())
}

rath_testkit::store_conformance!(make);
