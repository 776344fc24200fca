//! Runs the conformance suite for each backend.

use std::sync::Arc;

use rath_sandbox::{Backend, Host, IsolationLevel, Local};

mod host {
    fn host() -> super::Arc<dyn super::Backend> {
        super::Arc::new(super::Host::new())
    }

    rath_testkit::sandbox_conformance!(host());
}

mod local_ns {
    fn local() -> super::Arc<dyn super::Backend> {
        super::Arc::new(super::Local::only(super::IsolationLevel::Ns))
    }

    rath_testkit::sandbox_conformance!(local());
}

mod local_landlock {
    fn local() -> super::Arc<dyn super::Backend> {
        super::Arc::new(super::Local::only(super::IsolationLevel::Landlock))
    }

    rath_testkit::sandbox_conformance!(local());
}
