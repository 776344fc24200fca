//! The host backend does what every backend does.

use std::sync::Arc;

use rath_sandbox::{Backend, Host};

fn host() -> Arc<dyn Backend> {
    Arc::new(Host::new())
}

rath_testkit::sandbox_conformance!(host());
