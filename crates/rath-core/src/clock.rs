//! The time type of records, and the only access to the system clock.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A time in microseconds since 1970, UTC. In JSON it is an integer below 2^53.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// The current time of the system clock.
    #[allow(clippy::disallowed_methods, reason = "this module owns the clock")]
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(since.as_micros() as u64)
    }

    /// The microseconds from `earlier` to `self`; zero if `earlier` is later.
    pub fn micros_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match i64::try_from(self.0).ok().and_then(|us| jiff::Timestamp::from_microsecond(us).ok()) {
            Some(time) => write!(f, "{time:.6}"),
            None => write!(f, "{}µs after 1970", self.0),
        }
    }
}
