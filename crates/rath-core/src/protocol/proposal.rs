//! The input of a store's admission rules: the head of a session, and the records that are proposed for it.

use crate::id::{RecordId, SessionId};
use crate::record::Record;
use crate::store::{Error, FencingToken, Result};

/// A record as the rules see it: its position in the chain.
pub trait ChainEntry {
    /// The sequence number in the session.
    fn seq(&self) -> u64;

    /// The id.
    fn id(&self) -> RecordId;

    /// The id of its first parent: the previous record of the session, or the fork point.
    fn parent(&self) -> Option<RecordId>;
}

impl ChainEntry for Record {
    fn seq(&self) -> u64 {
        Record::seq(self)
    }

    fn id(&self) -> RecordId {
        Record::id(self)
    }

    fn parent(&self) -> Option<RecordId> {
        self.first_parent()
    }
}

/// The head of a stored session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredHead {
    /// The id of the last record.
    pub id: RecordId,
    /// The sequence number of the last record.
    pub seq: u64,
    /// Whether the session is closed.
    pub closed: bool,
    /// The fencing token of the last lease.
    pub fence: FencingToken,
}

/// The records that a batch contains for one session.
#[derive(Debug)]
pub struct Proposal<'a, E> {
    /// The session that the records are appended to.
    pub session: SessionId,
    /// The fencing token of the sender's lease.
    pub fence: FencingToken,
    /// The records, in order of their sequence numbers.
    pub entries: &'a [E],
}

/// Returns how many of the proposed records are stored already; the rest may be appended. `id_at` looks up the stored
/// id at a sequence number before the head.
///
/// Records that are stored already are skipped, whichever process sends them: a sender that retries wants to know that
/// they are durable. New records need the current fencing token. The token is checked before the head, so that a stale
/// holder gets `LeaseLost`, not `Conflict`.
pub(super) fn admit<E: ChainEntry>(
    proposal: &Proposal<'_, E>,
    head: Option<&StoredHead>,
    id_at: impl FnOnce(u64) -> Result<Option<RecordId>>,
) -> Result<usize> {
    let session = proposal.session;
    let Some(first) = proposal.entries.first() else { return Ok(0) };
    in_order(proposal)?;
    let Some(head) = head else {
        return match first.seq() {
            0 => Ok(0),
            _ => Err(Error::NotFound(format!("session {session}"))),
        };
    };
    let known = proposal.entries.iter().take_while(|entry| entry.seq() <= head.seq).count();
    // Comparing the last known id is enough: it covers all records before it.
    let same = match known.checked_sub(1).map(|last| &proposal.entries[last]) {
        None => true,
        Some(last) if last.seq() == head.seq => last.id() == head.id,
        Some(last) => id_at(last.seq())? == Some(last.id()),
    };
    let next = proposal.entries.get(known);
    if same && next.is_none() {
        return Ok(known);
    }
    if proposal.fence != head.fence {
        return Err(Error::LeaseLost { session });
    }
    let follows = |next: &E| next.seq() == head.seq + 1 && next.parent() == Some(head.id);
    match same && next.is_some_and(follows) {
        false => Err(Error::Conflict { session, seq: head.seq }),
        true if head.closed => Err(Error::Closed { session }),
        true => Ok(known),
    }
}

/// Checks that each record names the one before it as its parent.
fn in_order<E: ChainEntry>(proposal: &Proposal<'_, E>) -> Result<()> {
    let broken = proposal.entries.windows(2).find(|two| {
        let [one, next] = two else { return false };
        next.seq() != one.seq() + 1 || next.parent() != Some(one.id())
    });
    match broken {
        None => Ok(()),
        Some(two) => {
            let (session, seq) = (proposal.session.short(), two[0].seq());
            let why = format!("in the batch, the record after {session}@{seq} does not follow it");
            Err(Error::machine("committing", why))
        }
    }
}
