//! Every backend does what every backend does.

use std::sync::Arc;

use rath_sandbox::{Backend, Host, Local, Tier};

mod host {
    fn host() -> super::Arc<dyn super::Backend> {
        super::Arc::new(super::Host::new())
    }

    rath_testkit::sandbox_conformance!(host());
}

mod local_ns {
    fn local() -> super::Arc<dyn super::Backend> {
        super::Arc::new(super::Local::only(super::Tier::Ns))
    }

    rath_testkit::sandbox_conformance!(local());
}

mod local_landlock {
    fn local() -> super::Arc<dyn super::Backend> {
        super::Arc::new(super::Local::only(super::Tier::Landlock))
    }

    rath_testkit::sandbox_conformance!(local());
}
