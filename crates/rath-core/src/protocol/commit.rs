//! Applies the rules to a batch, then writes it.

use std::collections::HashSet;

use super::inbox::PostStatus;
use super::proposal::{ChainEntry, Proposal, StoredHead};
use super::rules::Rules;
use crate::id::{Point, RecordId, SessionId};
use crate::store::{BatchPart, Error, Result};

/// A part of a batch: the records for one session.
pub trait Propose {
    /// The type of its records.
    type Entry: ChainEntry;

    /// Returns the part as the rules see it.
    fn proposal(&self) -> Proposal<'_, Self::Entry>;
}

impl Propose for BatchPart {
    type Entry = crate::record::Record;

    fn proposal(&self) -> Proposal<'_, Self::Entry> {
        Proposal { session: self.session, fence: self.fence, entries: &self.records }
    }
}

/// The storage of a store. It makes no decisions.
pub trait CommitBackend {
    /// The records proposed for one session.
    type Part: Propose;
    /// Where a session is stored; `append` gets it back from `session_head`.
    type Location;
    /// The id of a post.
    type Post;

    /// The head of a session and where the session is stored; `None` when it is not in the store.
    fn session_head(&self, session: SessionId) -> Result<Option<(StoredHead, Self::Location)>>;

    /// The id of the record at `point`.
    fn id_at(&self, point: Point) -> Result<Option<RecordId>>;

    /// Checks that a new session may start with this part. Fails when its run key already has a session.
    fn check_start(&self, part: &Self::Part) -> Result<()>;

    /// Appends the records of `part` after the first `known` ones, which are stored already.
    fn append(&mut self, part: Self::Part, location: Option<Self::Location>, known: usize) -> Result<()>;

    /// Reads whether a post is queued or consumed.
    fn post_status(&self, post: &Self::Post) -> Result<PostStatus>;

    /// Stores whether a post is queued or consumed.
    fn set_post_status(&mut self, post: &Self::Post, status: PostStatus) -> Result<()>;
}

/// Checks all parts, then writes them, then marks the consumed posts. Writes nothing when a check fails.
pub fn commit<S: CommitBackend>(
    rules: &impl Rules,
    backend: &mut S,
    parts: Vec<S::Part>,
    consumed: &[S::Post],
) -> Result<()> {
    one_part_a_session(&parts)?;
    let mut work = Vec::with_capacity(parts.len());
    for part in parts {
        let proposal = part.proposal();
        let found = backend.session_head(proposal.session)?;
        let id_at = |seq| backend.id_at(Point { session: proposal.session, seq });
        let known = rules.admit(&proposal, found.as_ref().map(|(head, _)| head), id_at)?;
        let has_new = known < proposal.entries.len();
        if has_new && found.is_none() {
            backend.check_start(&part)?;
        }
        if has_new {
            work.push((part, found.map(|(_, location)| location), known));
        }
    }
    for (part, location, known) in work {
        backend.append(part, location, known)?;
    }
    for post in consumed {
        let before = backend.post_status(post)?;
        let after = rules.consumed(before);
        if after != before {
            backend.set_post_status(post, after)?;
        }
    }
    Ok(())
}

/// Fails when two parts are for one session: parts are checked against the store, not against each other.
fn one_part_a_session<P: Propose>(parts: &[P]) -> Result<()> {
    if parts.len() < 2 {
        return Ok(());
    }
    let mut seen = HashSet::with_capacity(parts.len());
    match parts.iter().map(|part| part.proposal().session).find(|session| !seen.insert(*session)) {
        None => Ok(()),
        Some(twice) => {
            Err(Error::machine("committing", format!("the batch has two parts for session {}", twice.short())))
        }
    }
}
