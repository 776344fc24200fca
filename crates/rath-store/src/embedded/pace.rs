//! Who writes, and how fast it goes.

use rath_core::SessionId;

/// A commit that takes fewer microseconds is quick.
const QUICK: u64 = 1_000;

/// As many quick commits promise another.
const IN_A_ROW: u32 = 4;

/// What the last commits were like.
#[derive(Default)]
pub(super) struct Pace {
    /// The session that was written last.
    last: Option<SessionId>,
    /// Whether it was the last one but one too.
    is_alone: bool,
    /// How many in a row were quick.
    quick: u32,
}

impl Pace {
    /// Notes whose records are written.
    pub(super) fn wrote(&mut self, session: SessionId) {
        self.is_alone = self.last.replace(session) == Some(session);
    }

    /// Notes how many microseconds a commit took that synced something.
    pub(super) fn took(&mut self, micros: u64) {
        self.quick = if micros < QUICK { self.quick.saturating_add(1) } else { 0 };
    }

    /// Notes that nothing could be committed.
    pub(super) fn failed(&mut self) {
        self.quick = 0;
    }

    /// Whether a write, of a session's records or of blobs, had better be done by whoever asks for it. Where several
    /// sessions write, their commits share syncs, and where the disk is slow, nobody's thread is to be kept from other
    /// work.
    pub(super) fn suits(&self, session: Option<SessionId>) -> bool {
        self.is_alone && self.quick >= IN_A_ROW && session.is_none_or(|session| self.last == Some(session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: SessionId = SessionId(uuid::Uuid::from_u128(1));
    const OTHER: SessionId = SessionId(uuid::Uuid::from_u128(2));

    fn after(commits: &[(SessionId, u64)]) -> Pace {
        let mut pace = Pace::default();
        for (session, micros) in commits {
            pace.wrote(*session);
            pace.took(*micros);
        }
        pace
    }

    #[test]
    fn one_that_writes_alone_and_quickly_writes_itself() {
        let pace = after(&[(ME, 200); 4]);
        assert!(pace.suits(Some(ME)) && pace.suits(None));
        assert!(!pace.suits(Some(OTHER)), "another session begins to write");
        assert!(!after(&[(ME, 200); 3]).suits(Some(ME)), "too early to say");
    }

    #[test]
    fn several_that_write_in_turns_share_the_thread() {
        let pace = after(&[(ME, 200), (OTHER, 200), (ME, 200), (OTHER, 200), (ME, 200), (OTHER, 200)]);
        assert!(!pace.suits(Some(ME)) && !pace.suits(Some(OTHER)) && !pace.suits(None));
    }

    #[test]
    fn a_disk_that_is_slow_once_has_to_be_quick_for_a_while() {
        assert!(!after(&[(ME, 200), (ME, 200), (ME, 200), (ME, 200), (ME, 30_000)]).suits(Some(ME)));
        assert!(!after(&[(ME, 30_000), (ME, 200), (ME, 200), (ME, 200)]).suits(Some(ME)));
        assert!(after(&[(ME, 30_000), (ME, 200), (ME, 200), (ME, 200), (ME, 200)]).suits(Some(ME)));
    }
}
