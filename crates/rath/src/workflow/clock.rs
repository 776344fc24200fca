//! The clock of durable timers. Tests can replace it with one that skips.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rath_core::{ErrorKind, Result, Session, Time};

use crate::sleep::sleep;

/// A clock for tests: it stands still, and timers move it forward instead of waiting. Provide it to the session:
/// `session.provide(SkippingClock::default())`.
#[derive(Clone, Debug)]
pub struct SkippingClock(Arc<AtomicU64>);

impl Default for SkippingClock {
    /// A clock that shows the current time.
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(Time::now().0)))
    }
}

impl SkippingClock {
    /// The time that the clock shows.
    pub fn now(&self) -> Time {
        Time(self.0.load(Ordering::Acquire))
    }

    /// Moves the clock forward to `time`, unless it is there.
    pub fn skip_to(&self, time: Time) {
        self.0.fetch_max(time.0, Ordering::AcqRel);
    }
}

/// The current time of timers in this session. Unlike [`Session::now`], it is not recorded.
pub(super) fn now(session: &Session) -> Time {
    session.resources().get::<SkippingClock>().map_or_else(|_| Time::now(), |clock| clock.now())
}

/// Waits until `time`, unless the session is cancelled before.
pub(super) async fn sleep_until_time(session: &mut Session, time: Time) -> Result<()> {
    if let Ok(clock) = session.resources().get::<SkippingClock>() {
        clock.skip_to(time);
        return Ok(());
    }
    let left = Duration::from_micros(time.0.saturating_sub(Time::now().0));
    let cancel = session.cancel_token();
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(ErrorKind::Cancelled { why: cancel.why().unwrap_or_default().to_string() }.into()),
        () = sleep(left) => Ok(()),
    }
}
