//! Schedules: the steps of a simulation, determined by a seed.

use super::entry::mix;

/// The number of steps in a schedule.
const STEPS: usize = 150;

/// One step of a schedule. Numbers of processes and sessions are taken modulo the existing ones. A step that does not
/// apply does nothing, so a schedule remains valid when steps are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A process creates a session.
    Begin { holder: u8 },
    /// A process forks one of its sessions.
    Fork { holder: u8, session: u8 },
    /// It appends a record.
    Write { holder: u8, session: u8 },
    /// It appends the intent of an irreversible side effect.
    Plan { holder: u8, session: u8 },
    /// It performs an effect whose intent was acknowledged.
    Act { holder: u8, session: u8 },
    /// It appends records for the posts in the inbox.
    TakePosts { holder: u8, session: u8 },
    /// It sends the unacknowledged records of a session. With `ahead`, it sends only those that were not sent before.
    Publish { holder: u8, session: u8, ahead: bool },
    /// It sends the unacknowledged records of all its sessions as one batch.
    PublishAll { holder: u8 },
    /// It closes a session.
    Close { holder: u8, session: u8 },
    /// It releases a session.
    Leave { holder: u8, session: u8 },
    /// It requests the lease of a session.
    Ask { holder: u8, session: u8 },
    /// A post is sent to a session, possibly again.
    Post { post: u8 },
    /// A record is erased.
    Erase { session: u8, seq: u8 },
    /// The store handles some requests in any order, and syncs.
    Work { first: u8, count: u8, again: bool, cut: Cut },
    /// Answers are delivered in any order, or lost.
    Deliver { first: u8, count: u8, lost: bool },
    /// A process crashes, and a new one replaces it.
    Crash { holder: u8 },
    /// A process stalls and is considered dead.
    Stall { holder: u8 },
    /// A stalled process resumes without knowing that it was considered dead.
    Wake { holder: u8 },
}

/// When the power fails while the store handles requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// The power does not fail.
    Never,
    /// After the writes and before the sync. A part of the unsynced writes remains.
    BeforeSync {
        /// How many transactions remain.
        kept: u8,
    },
    /// After the sync, before the answers.
    AfterSync,
    /// After the answers were sent.
    AfterAnswers,
}

/// A pseudo-random number generator: SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0, 0)
    }
}

/// Creates a step from random bytes.
type StepFn = fn(&mut Bytes) -> Step;

/// The relative frequency of each step.
const WEIGHTS: &[(u64, StepFn)] = &[
    (3, |r| Step::Begin { holder: r.byte() }),
    (4, |r| Step::Fork { holder: r.byte(), session: r.byte() }),
    (9, |r| Step::Write { holder: r.byte(), session: r.byte() }),
    (6, |r| Step::Plan { holder: r.byte(), session: r.byte() }),
    (7, |r| Step::Act { holder: r.byte(), session: r.byte() }),
    (6, |r| Step::TakePosts { holder: r.byte(), session: r.byte() }),
    (13, |r| Step::Publish { holder: r.byte(), session: r.byte(), ahead: r.one_in(4) }),
    (3, |r| Step::PublishAll { holder: r.byte() }),
    (1, |r| Step::Close { holder: r.byte(), session: r.byte() }),
    (2, |r| Step::Leave { holder: r.byte(), session: r.byte() }),
    (8, |r| Step::Ask { holder: r.byte(), session: r.byte() }),
    (6, |r| Step::Post { post: r.byte() }),
    (2, |r| Step::Erase { session: r.byte(), seq: r.byte() }),
    (17, |r| Step::Work { first: r.byte(), count: r.byte(), again: r.one_in(6), cut: r.cut() }),
    (12, |r| Step::Deliver { first: r.byte(), count: r.byte(), lost: r.one_in(8) }),
    (2, |r| Step::Crash { holder: r.byte() }),
    (3, |r| Step::Stall { holder: r.byte() }),
    (3, |r| Step::Wake { holder: r.byte() }),
];

/// The bytes of one random number.
struct Bytes(u64);

impl Bytes {
    fn byte(&mut self) -> u8 {
        let byte = self.0 as u8;
        self.0 >>= 8;
        byte
    }

    fn one_in(&mut self, many: u8) -> bool {
        self.byte().is_multiple_of(many)
    }

    fn cut(&mut self) -> Cut {
        match self.byte() {
            0..=2 => Cut::BeforeSync { kept: self.byte() },
            3 => Cut::AfterSync,
            4 => Cut::AfterAnswers,
            _ => Cut::Never,
        }
    }
}

/// The schedule of a seed.
pub(super) fn schedule(seed: u64) -> Vec<Step> {
    let total: u64 = WEIGHTS.iter().map(|(weight, _)| weight).sum();
    let mut random = Random(mix(seed, 0x5EED));
    let mut step = || {
        let mut at = random.next() % total;
        let mut bytes = Bytes(random.next());
        for (weight, make) in WEIGHTS {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return make(&mut bytes),
            }
        }
        Step::Begin { holder: 0 }
    };
    (0..STEPS).map(|_| step()).collect()
}

impl Step {
    /// Returns the step without a power cut.
    pub(super) fn powered(self) -> Self {
        match self {
            Step::Work { first, count, again, .. } => Step::Work { first, count, again, cut: Cut::Never },
            other => other,
        }
    }
}
