//! Decides whether a caller writes on its own thread, by which session writes and how long the last commits took.

use rath_core::SessionId;

/// A commit that takes less than this, in microseconds, is fast.
const FAST_MICROS: u64 = 1_000;

/// After this many fast commits in a row, the next one is expected to be fast.
const FAST_IN_A_ROW: u32 = 4;

/// Which sessions the last commits wrote, and how long they took.
#[derive(Default)]
pub(super) struct WriterPacing {
    /// The session that the last commit wrote.
    last: Option<SessionId>,
    /// Whether the commit before wrote the same session.
    is_alone: bool,
    /// How many fast commits there were in a row.
    fast: u32,
}

impl WriterPacing {
    /// Notes which session a commit writes.
    pub(super) fn record_session(&mut self, session: SessionId) {
        self.is_alone = self.last.replace(session) == Some(session);
    }

    /// Notes how many microseconds a synced commit took.
    pub(super) fn record_duration(&mut self, micros: u64) {
        self.fast = if micros < FAST_MICROS { self.fast.saturating_add(1) } else { 0 };
    }

    /// Notes that a commit failed. The next writes go to the writer thread.
    pub(super) fn record_failure(&mut self) {
        self.fast = 0;
    }

    /// Whether the caller should write on its own thread: `session` is the session whose records it writes, `None` for
    /// blobs. That is so if only one session writes and the disk is fast. Commits of several sessions share syncs on
    /// the writer thread, and a slow disk must not block the caller's thread.
    pub(super) fn prefers_inline(&self, session: Option<SessionId>) -> bool {
        self.is_alone && self.fast >= FAST_IN_A_ROW && session.is_none_or(|session| self.last == Some(session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: SessionId = SessionId(uuid::Uuid::from_u128(1));
    const OTHER: SessionId = SessionId(uuid::Uuid::from_u128(2));

    fn after(commits: &[(SessionId, u64)]) -> WriterPacing {
        let mut pacing = WriterPacing::default();
        for (session, micros) in commits {
            pacing.record_session(*session);
            pacing.record_duration(*micros);
        }
        pacing
    }

    #[test]
    fn a_session_that_writes_alone_and_fast_writes_on_its_own_thread() {
        let pacing = after(&[(ME, 200); 4]);
        assert!(pacing.prefers_inline(Some(ME)) && pacing.prefers_inline(None));
        assert!(!pacing.prefers_inline(Some(OTHER)), "another session starts to write");
        assert!(!after(&[(ME, 200); 3]).prefers_inline(Some(ME)), "three fast commits are not enough");
    }

    #[test]
    fn sessions_that_write_in_turns_share_the_writer_thread() {
        let pacing = after(&[(ME, 200), (OTHER, 200), (ME, 200), (OTHER, 200), (ME, 200), (OTHER, 200)]);
        assert!(
            !pacing.prefers_inline(Some(ME)) && !pacing.prefers_inline(Some(OTHER)) && !pacing.prefers_inline(None)
        );
    }

    #[test]
    fn after_one_slow_commit_four_fast_ones_are_needed() {
        assert!(!after(&[(ME, 200), (ME, 200), (ME, 200), (ME, 200), (ME, 30_000)]).prefers_inline(Some(ME)));
        assert!(!after(&[(ME, 30_000), (ME, 200), (ME, 200), (ME, 200)]).prefers_inline(Some(ME)));
        assert!(after(&[(ME, 30_000), (ME, 200), (ME, 200), (ME, 200), (ME, 200)]).prefers_inline(Some(ME)));
    }
}
