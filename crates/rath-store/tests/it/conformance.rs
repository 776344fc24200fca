//! The embedded store does what every store does.

use crate::support::fresh;

rath_testkit::store_conformance!(fresh);
