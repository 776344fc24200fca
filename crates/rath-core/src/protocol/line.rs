//! What the rules see of a session and of what is offered for it.

use crate::id::{RecordId, SessionId};
use crate::record::Record;
use crate::store::{Error, Fence, Result};

/// What the rules see of a record.
pub trait Entry {
    /// Its place in the session.
    fn seq(&self) -> u64;

    /// Its id.
    fn id(&self) -> RecordId;

    /// The record that it stands on.
    fn parent(&self) -> Option<RecordId>;
}

impl Entry for Record {
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

/// A session as a store has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The last record.
    pub head: RecordId,
    /// Its place.
    pub seq: u64,
    /// Whether it has ended.
    pub closed: bool,
    /// The fence of who held it last.
    pub fence: Fence,
}

/// What a batch brings for one session.
#[derive(Debug)]
pub struct Offer<'a, E> {
    /// The session.
    pub session: SessionId,
    /// The fence under which the sender holds it.
    pub fence: Fence,
    /// In order.
    pub entries: &'a [E],
}

/// How many of the offered records are there already; the others may be appended. `there` looks up the id at a seq
/// before the last.
///
/// What is there already is passed over whoever sends it: the sender asks whether it is durable, and it is. Anything
/// new needs the current fence first, so that who was replaced hears that, and not what the other one wrote.
pub(super) fn admit<E: Entry>(
    offer: &Offer<'_, E>,
    line: Option<&Line>,
    there: impl FnOnce(u64) -> Result<Option<RecordId>>,
) -> Result<usize> {
    let session = offer.session;
    let Some(first) = offer.entries.first() else { return Ok(0) };
    in_order(offer)?;
    let Some(line) = line else {
        return match first.seq() {
            0 => Ok(0),
            _ => Err(Error::NotFound(format!("session {session}"))),
        };
    };
    let known = offer.entries.iter().take_while(|entry| entry.seq() <= line.seq).count();
    // The chain vouches for the ones before the last.
    let same = match known.checked_sub(1).map(|last| &offer.entries[last]) {
        None => true,
        Some(last) if last.seq() == line.seq => last.id() == line.head,
        Some(last) => there(last.seq())? == Some(last.id()),
    };
    let next = offer.entries.get(known);
    if same && next.is_none() {
        return Ok(known);
    }
    if offer.fence != line.fence {
        return Err(Error::LeaseLost { session });
    }
    let follows = |next: &E| next.seq() == line.seq + 1 && next.parent() == Some(line.head);
    match same && next.is_some_and(follows) {
        false => Err(Error::Conflict { session, seq: line.seq }),
        true if line.closed => Err(Error::Closed { session }),
        true => Ok(known),
    }
}

/// Each record stands on the one before it.
fn in_order<E: Entry>(offer: &Offer<'_, E>) -> Result<()> {
    let broken = offer.entries.windows(2).find(|two| {
        let [one, next] = two else { return false };
        next.seq() != one.seq() + 1 || next.parent() != Some(one.id())
    });
    match broken {
        None => Ok(()),
        Some(two) => {
            let (session, seq) = (offer.session.short(), two[0].seq());
            let why = format!("what the batch has after record {seq} of session {session} does not follow it");
            Err(Error::machine("committing", why))
        }
    }
}
