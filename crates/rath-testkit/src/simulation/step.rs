//! What may happen next, and in which order: a seed is a schedule.

use super::entry::mix;

/// How many steps a schedule has.
const STEPS: usize = 150;

/// One thing that happens. Numbers name whoever is there, counted round; a step that finds nobody does nothing, so a
/// schedule from which steps were taken is a schedule still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A holder makes a session.
    Begin { holder: u8 },
    /// A holder forks one of its sessions.
    Fork { holder: u8, line: u8 },
    /// It appends a record.
    Write { holder: u8, line: u8 },
    /// It appends the intent of an effect that cannot be taken back.
    Plan { holder: u8, line: u8 },
    /// It does the effect whose intent was acknowledged.
    Act { holder: u8, line: u8 },
    /// It makes records of what waits in the inbox.
    TakePosts { holder: u8, line: u8 },
    /// It sends what is not acknowledged; ahead of the answers: only what it has not sent before.
    Publish { holder: u8, line: u8, ahead: bool },
    /// It sends what is not acknowledged of all its sessions, as one batch.
    PublishAll { holder: u8 },
    /// It ends a session.
    Close { holder: u8, line: u8 },
    /// It gives a session back.
    Leave { holder: u8, line: u8 },
    /// It asks for a session.
    Ask { holder: u8, session: u8 },
    /// Somebody posts to a session, maybe not for the first time.
    Post { post: u8 },
    /// Somebody erases a record.
    Erase { session: u8, seq: u8 },
    /// The store works on some of what it was sent, in any order, and syncs.
    Work { first: u8, count: u8, again: bool, cut: Cut },
    /// Answers arrive in any order, or get lost.
    Hear { first: u8, count: u8, lost: bool },
    /// A holder dies. Another process takes its place.
    Crash { holder: u8 },
    /// A holder stops and is taken for dead.
    Stall { holder: u8 },
    /// It goes on and does not know.
    Wake { holder: u8 },
}

/// Where the power fails while the store works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// It does not.
    Never,
    /// After the work, before the sync: a part of what was not synced is there.
    BeforeSync {
        /// How much of it.
        kept: u8,
    },
    /// After the sync, before the answers.
    AfterSync,
    /// After the answers left.
    AfterAnswers,
}

/// Pseudo-random numbers: splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0, 0)
    }
}

/// A kind of step, made of random bytes.
type Maker = fn(&mut Bytes) -> Step;

/// How often each step comes.
const WEIGHTS: &[(u64, Maker)] = &[
    (3, |r| Step::Begin { holder: r.byte() }),
    (4, |r| Step::Fork { holder: r.byte(), line: r.byte() }),
    (9, |r| Step::Write { holder: r.byte(), line: r.byte() }),
    (6, |r| Step::Plan { holder: r.byte(), line: r.byte() }),
    (7, |r| Step::Act { holder: r.byte(), line: r.byte() }),
    (6, |r| Step::TakePosts { holder: r.byte(), line: r.byte() }),
    (13, |r| Step::Publish { holder: r.byte(), line: r.byte(), ahead: r.one_in(4) }),
    (3, |r| Step::PublishAll { holder: r.byte() }),
    (1, |r| Step::Close { holder: r.byte(), line: r.byte() }),
    (2, |r| Step::Leave { holder: r.byte(), line: r.byte() }),
    (8, |r| Step::Ask { holder: r.byte(), session: r.byte() }),
    (6, |r| Step::Post { post: r.byte() }),
    (2, |r| Step::Erase { session: r.byte(), seq: r.byte() }),
    (17, |r| Step::Work { first: r.byte(), count: r.byte(), again: r.one_in(6), cut: r.cut() }),
    (12, |r| Step::Hear { first: r.byte(), count: r.byte(), lost: r.one_in(8) }),
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
    /// The same without a power cut.
    pub(super) fn powered(self) -> Self {
        match self {
            Step::Work { first, count, again, .. } => Step::Work { first, count, again, cut: Cut::Never },
            other => other,
        }
    }
}
