//! The wait before a failed request to a model is sent again.

use std::time::Duration;

/// The upper limit of a doubled wait. It does not limit the time that a provider asks for.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The default first wait.
pub(super) const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The default number of retries.
pub(super) const RETRIES: u32 = 3;

/// The wait before the next attempt: the time that the provider asks for plus up to 10 %, else twice the last wait. The
/// second half of a doubled wait is random, so that clients that were refused together do not retry together.
pub(super) fn wait(after: Option<Duration>, backoff: Duration, attempts: u32, random: u64) -> Duration {
    let chance = |of: Duration| of.mul_f64((random >> 11) as f64 / (1_u64 << 53) as f64);
    match after {
        Some(after) => after + chance(after / 10),
        None => {
            let doubled = backoff.saturating_mul(1 << attempts.min(16)).min(LONGEST_WAIT);
            doubled / 2 + chance(doubled / 2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_with_chance_and_never_fall_short_of_what_the_provider_asks() {
        let (half, second) = (Duration::from_millis(500), Duration::from_secs(1));
        assert_eq!(wait(None, half, 0, 0), half / 2);
        assert!(wait(None, half, 0, u64::MAX) <= half && wait(None, half, 0, u64::MAX) > half.mul_f64(0.99));
        assert_eq!(wait(None, half, 3, 0), 2 * second);
        assert_eq!(wait(None, second, 40, 0), LONGEST_WAIT / 2);
        assert_eq!(wait(Some(second), half, 5, 0), second);
        assert!(wait(Some(second), half, 5, u64::MAX) <= second.mul_f64(1.1));
        assert_eq!(
            wait(Some(Duration::ZERO), half, 5, u64::MAX),
            Duration::ZERO,
            "the next of a chain is asked at once"
        );
    }
}
