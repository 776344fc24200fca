//! Minimal records: linked like real ones, with a cheap hash function.

use rath_core::protocol::ChainEntry;
use rath_core::store::FencingToken;
use rath_core::{Digest, RecordId, SessionId};
use uuid::Uuid;

/// The number of a session in the schedule.
pub(super) type Session = usize;

/// The number of a post in the schedule.
pub(super) type Post = usize;

/// The n-th side effect of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Effect {
    pub(super) session: Session,
    pub(super) nth: usize,
}

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Created,
    Forked {
        from: Session,
        seq: u64,
    },
    Note,
    Post(Post),
    Intent(Effect),
    Done(Effect),
    /// The outcome of an effect that another process intended is unknown.
    Unknown(Effect),
    Closed,
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) session: Session,
    pub(super) seq: u64,
    pub(super) parent: Option<RecordId>,
    pub(super) id: RecordId,
    /// The fencing token under which the record was created.
    pub(super) fence: FencingToken,
    salt: u64,
    digest: u64,
    /// The content; `None` when erased.
    pub(super) what: Option<Content>,
}

impl Entry {
    pub(super) fn new(
        session: Session,
        seq: u64,
        parent: Option<RecordId>,
        fence: FencingToken,
        salt: u64,
        what: Content,
    ) -> Self {
        let digest = digest(salt, what);
        Self { session, seq, parent, id: link(session, seq, parent, digest), fence, salt, digest, what: Some(what) }
    }

    /// Whether the hashes are correct.
    pub(super) fn is_valid(&self) -> bool {
        self.id == link(self.session, self.seq, self.parent, self.digest)
            && self.what.is_none_or(|what| digest(self.salt, what) == self.digest)
    }
}

impl ChainEntry for Entry {
    fn seq(&self) -> u64 {
        self.seq
    }

    fn id(&self) -> RecordId {
        self.id
    }

    fn parent(&self) -> Option<RecordId> {
        self.parent
    }
}

/// The session id that the protocol sees.
pub(super) fn name(session: Session) -> SessionId {
    SessionId(Uuid::from_u128(session as u128))
}

/// The number of a session id.
pub(super) fn number(session: SessionId) -> Session {
    session.0.as_u128() as usize
}

fn digest(salt: u64, what: Content) -> u64 {
    let (kind, one, two) = match what {
        Content::Created => (1, 0, 0),
        Content::Forked { from, seq } => (2, from as u64, seq),
        Content::Note => (3, 0, 0),
        Content::Post(post) => (4, post as u64, 0),
        Content::Intent(effect) => (5, effect.session as u64, effect.nth as u64),
        Content::Done(effect) => (6, effect.session as u64, effect.nth as u64),
        Content::Unknown(effect) => (7, effect.session as u64, effect.nth as u64),
        Content::Closed => (8, 0, 0),
    };
    mix(mix(mix(mix(salt, kind), one), two), 0)
}

fn link(session: Session, seq: u64, parent: Option<RecordId>, digest: u64) -> RecordId {
    let parent = parent.map_or(0, |parent| u64::from_le_bytes(std::array::from_fn(|at| parent.0.0[at])));
    let hash = mix(mix(mix(parent, session as u64), seq), digest);
    let mut id = [0; 32];
    id[..8].copy_from_slice(&hash.to_le_bytes());
    RecordId(Digest(id))
}

/// One round of SplitMix64 over both numbers.
pub(super) fn mix(one: u64, two: u64) -> u64 {
    let mut x = one.rotate_left(25).wrapping_add(two).wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
