//! Waits that providers ask for with `Retry-After`. All requests of this process with the same key wait.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rath_core::Digest;
use tokio::time::Instant;

/// When requests may be sent again, by key.
static UNTIL: Mutex<Option<HashMap<Digest, Instant>>> = Mutex::new(None);

/// How often the request of one turn may wait for a rate limit. Afterwards each wait counts as a failed attempt.
pub(super) const MOST_WAITS: u32 = 100;

/// Holds back all requests with this key.
pub(super) fn hold_back(key: Digest, wait: Duration) {
    let until = Instant::now() + wait;
    let mut known = UNTIL.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default().entry(key).or_insert(until);
    *known = until.max(*known);
}

/// How long requests with this key must still wait. `None` if they need not.
pub(super) fn time_left(key: Digest) -> Option<Duration> {
    let mut known = UNTIL.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.as_mut()?;
    let left = known.get(&key)?.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
    if left.is_none() {
        known.remove(&key);
    }
    left
}
