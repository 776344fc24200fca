//! Runs the conformance tests of all stores on the embedded store.

use crate::support::fresh;

rath_testkit::store_conformance!(fresh);
