//! How a batch goes through the rules.

use std::collections::HashSet;

use super::inbox::Standing;
use super::line::{Entry, Line, Offer};
use super::rules::Rules;
use crate::id::{Point, RecordId, SessionId};
use crate::store::{Error, Part, Result};

/// The part of a batch that one session gets.
pub trait Offered {
    /// What it consists of.
    type Entry: Entry;

    /// It, as the rules see it.
    fn offer(&self) -> Offer<'_, Self::Entry>;
}

impl Offered for Part {
    type Entry = crate::record::Record;

    fn offer(&self) -> Offer<'_, Self::Entry> {
        Offer { session: self.session, fence: self.fence, entries: &self.records }
    }
}

/// Where a store keeps things. It decides nothing.
pub trait Shelf {
    /// What is offered.
    type Part: Offered;
    /// Where a session lies, for whoever appends to it.
    type Place;
    /// A post's name.
    type Post;

    /// A session, and where it lies.
    fn line(&self, session: SessionId) -> Result<Option<(Line, Self::Place)>>;

    /// The id of the record at a place.
    fn id_at(&self, point: Point) -> Result<Option<RecordId>>;

    /// Whether a session may begin with this part: a run has one.
    fn may_begin(&self, part: &Self::Part) -> Result<()>;

    /// Appends what comes after the first `known` records of `part`.
    fn append(&mut self, part: Self::Part, place: Option<Self::Place>, known: usize) -> Result<()>;

    /// Where a post stands.
    fn standing(&self, post: &Self::Post) -> Result<Standing>;

    /// Puts it elsewhere.
    fn stand(&mut self, post: &Self::Post, standing: Standing) -> Result<()>;
}

/// Checks everything, then writes everything, then empties the inbox of what the records say.
pub fn commit<S: Shelf>(rules: &impl Rules, shelf: &mut S, parts: Vec<S::Part>, taken: &[S::Post]) -> Result<()> {
    one_part_a_session(&parts)?;
    let mut work = Vec::with_capacity(parts.len());
    for part in parts {
        let offer = part.offer();
        let found = shelf.line(offer.session)?;
        let there = |seq| shelf.id_at(Point { session: offer.session, seq });
        let known = rules.admit(&offer, found.as_ref().map(|(line, _)| line), there)?;
        let new = known < offer.entries.len();
        if new && found.is_none() {
            shelf.may_begin(&part)?;
        }
        if new {
            work.push((part, found.map(|(_, place)| place), known));
        }
    }
    for (part, place, known) in work {
        shelf.append(part, place, known)?;
    }
    for post in taken {
        let before = shelf.standing(post)?;
        let after = rules.taken(before);
        if after != before {
            shelf.stand(post, after)?;
        }
    }
    Ok(())
}

/// Parts are checked against what is stored, not against each other.
fn one_part_a_session<P: Offered>(parts: &[P]) -> Result<()> {
    if parts.len() < 2 {
        return Ok(());
    }
    let mut seen = HashSet::with_capacity(parts.len());
    match parts.iter().map(|part| part.offer().session).find(|session| !seen.insert(*session)) {
        None => Ok(()),
        Some(twice) => {
            Err(Error::machine("committing", format!("the batch has two parts for session {}", twice.short())))
        }
    }
}
