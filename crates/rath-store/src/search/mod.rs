//! Full-text search over all records.
//!
//! A [`SearchQuery`] is a [`Pattern`] with filters; [`Embedded::search`] returns the [`SearchHit`]s. The index is a
//! projection: a search updates it first, and commits do not touch it. It contains no text. The text of each hit is
//! read from the records again, so an erased record is never shown. [`Embedded::forget`] removes the words of records
//! from the index.
//!
//! ```
//! use rath_core::{Actor, Session};
//! use rath_store::{Embedded, SearchQuery};
//! # pollster::block_on(async {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("store");
//! let store = Embedded::create(&path)?;
//! let mut session = Session::create(&store, Actor::person("ada"));
//! session.user("Why is checkout slow?")?;
//! session.publish().await?;
//!
//! let query = SearchQuery::new("CHECKOUT -fast".parse().unwrap());
//! let found = Embedded::open_as(&path, "example")?.search(&query)?;
//! assert_eq!(found.hits[0].record.point(), session.head().point());
//! # Ok::<(), rath_core::Error>(())
//! # }).unwrap();
//! ```

mod compare;
mod forget;
mod index;
mod pattern;
mod query;
mod text;
mod words;

use std::ops::{ControlFlow, Range};

use rath_core::store::{Error, Result};
use rath_core::{Actor, Header, Kind, Point, Record, SessionId, Time};
use serde::Serialize;

pub use pattern::{Pattern, PatternError};
pub use text::Passage;

use crate::embedded::Embedded;
use crate::embedded::read::last_segment;
use crate::projection;
use index::{Index, Opened};

/// A search: a pattern and filters.
#[derive(Clone, Debug)]
pub struct SearchQuery {
    /// The words to find.
    pub pattern: Pattern,
    /// Only records of these kinds. Empty: all kinds.
    pub kinds: Vec<Kind>,
    /// Only records by this actor.
    pub actor: Option<ActorFilter>,
    /// Only in sessions with all these labels, and with the given values.
    pub labels: Vec<(String, Option<String>)>,
    /// Only records at or after this time.
    pub since: Option<Time>,
    /// Only records at or before this time.
    pub until: Option<Time>,
    /// Only in these sessions, each up to this seq.
    pub within: Option<Vec<(SessionId, u64)>>,
    /// The order of the hits.
    pub order: SearchOrder,
    /// The most hits to return. `None`: all.
    pub limit: Option<usize>,
}

impl SearchQuery {
    /// A query for all records that match the pattern, newest first.
    pub fn new(pattern: Pattern) -> Self {
        Self {
            pattern,
            kinds: Vec::new(),
            actor: None,
            labels: Vec::new(),
            since: None,
            until: None,
            within: None,
            order: SearchOrder::Newest,
            limit: None,
        }
    }

    /// A query for all records that contain `subject` as a phrase.
    pub fn about(subject: &str) -> std::result::Result<Self, PatternError> {
        Ok(Self::new(Pattern::phrase(subject)?))
    }
}

/// Selects records by their actor: `planner` (name), `agent:planner` (kind and name) or `agent:` (kind). Ignores case
/// and accents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActorFilter {
    kind: Option<String>,
    name: Option<String>,
}

impl From<&str> for ActorFilter {
    fn from(text: &str) -> Self {
        let non_empty = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        match text.split_once(':') {
            Some((kind, name)) => Self { kind: non_empty(kind), name: non_empty(name) },
            None => Self { kind: None, name: non_empty(text) },
        }
    }
}

impl ActorFilter {
    fn is(&self, actor: &Actor) -> bool {
        let same = |wanted: &Option<String>, is: &str| {
            wanted.as_ref().is_none_or(|wanted| words::fold(wanted) == words::fold(is))
        };
        same(&self.kind, &actor.kind) && same(&self.name, &actor.name)
    }
}

/// The order of search hits, by commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SearchOrder {
    /// Newest first.
    #[default]
    Newest,
    /// Oldest first.
    Oldest,
}

/// A record that matches a query.
#[derive(Clone, Debug)]
pub struct SearchHit {
    /// The record, as it is stored now.
    pub record: Record,
    /// The header of the record.
    pub header: Header,
    /// The texts of the record with a match.
    pub passages: Vec<MatchedPassage>,
}

/// A text of a record, and the matches in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchedPassage {
    /// The text.
    pub passage: Passage,
    /// The byte ranges of the matches in `passage.text`, in order.
    pub ranges: Vec<Range<usize>>,
}

/// What a search found.
#[derive(Clone, Debug, Default)]
pub struct SearchResults {
    /// The matching records.
    pub hits: Vec<SearchHit>,
    /// Whether there are more hits than the limit.
    pub more: bool,
    /// Why the index could not be updated. The records that are not indexed were then searched one by one.
    pub unindexed: Option<String>,
}

/// The health of the search index.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SearchHealth {
    /// The bytes of the index with its log; `None` if there is no index yet.
    pub bytes: Option<u64>,
    /// The number of segments that are not indexed yet.
    pub behind: u64,
    /// The number of records with a long text of which only the beginning is indexed.
    pub cut: u64,
    /// Whether the index was compared with the records. Large indexes are not compared.
    pub compared: bool,
    /// The damage that was found. [`Embedded::reindex`] rebuilds the index.
    pub damage: Vec<String>,
}

impl Embedded {
    /// Searches all records. Updates the index first.
    pub fn search(&self, query: &SearchQuery) -> Result<SearchResults> {
        let mut found = SearchResults::default();
        let limit = query.limit.unwrap_or(usize::MAX);
        found.unindexed = self.each_hit(query, &mut |hit| {
            match found.hits.len() < limit {
                true => found.hits.push(hit),
                false => found.more = true,
            }
            if found.more { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }

    /// Calls `each` with every hit until it breaks. Ignores the limit of the query. Returns the reason if the index
    /// could not be updated.
    pub fn each_hit(
        &self,
        query: &SearchQuery,
        each: &mut dyn FnMut(SearchHit) -> ControlFlow<()>,
    ) -> Result<Option<String>> {
        let mut shown = 0;
        for attempt in 0.. {
            let Opened { index, why } = self.updated_index(&mut |_| {})?;
            let mut passed = 0;
            let mut fresh = |hit: SearchHit| {
                passed += 1;
                // After a retry with a rebuilt index, hits that were passed on before are skipped.
                if passed <= shown { ControlFlow::Continue(()) } else { each(hit) }
            };
            match query::run(self, index.as_ref(), query, &mut fresh) {
                Ok(()) => return Ok(why.map(|why| why.to_string())),
                Err(error) if error.is_damage() && attempt == 0 => {
                    shown = shown.max(passed);
                    if let Some(index) = index {
                        index.recreate()?;
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Updates the search index. Calls `progress` with the number of records read so far. A search does this too.
    pub fn index(&self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let Opened { index, why } = self.updated_index(progress)?;
        writable(index, why).map(drop)
    }

    /// Rebuilds the search index, also with records that were [removed](Self::forget) from it and not erased.
    pub fn reindex(&self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        projection::remove(&index::layout(&self.paths.root))?;
        self.index(progress)
    }

    /// Removes the words of these records from the search index. Must be called right before the records are erased,
    /// while their bodies can still be read. If a body is already erased, the whole index is emptied, and the next
    /// search rebuilds it.
    pub fn forget(&self, points: &[Point]) -> Result<()> {
        if points.is_empty() {
            return Ok(());
        }
        let Opened { index, why } = Index::open(&self.paths.root)?;
        let mut index = writable(index, why)?;
        match index.forget(self, points) {
            // A damaged index is replaced by an empty one.
            Err(error) if error.is_damage() => {
                let Opened { index, why } = index.recreate()?;
                writable(index, why)?.forget(self, points)?;
                Ok(())
            }
            forgotten => Ok(forgotten?),
        }
    }

    /// Removes the search index. The next search rebuilds it.
    pub fn drop_index(&self) -> Result<()> {
        projection::remove(&index::layout(&self.paths.root))
    }

    /// Reports the health of the search index. Changes nothing.
    pub(crate) fn search_health(&self) -> Result<SearchHealth> {
        let size =
            |end: &str| std::fs::metadata(self.paths.root.join(format!("search.db{end}"))).map(|file| file.len()).ok();
        let last = self.read(last_segment)? as u64;
        let mut health = SearchHealth { behind: last, ..SearchHealth::default() };
        let Some(bytes) = size("") else { return Ok(health) };
        health.bytes = Some(bytes + size("-wal").unwrap_or(0));
        match index::inspect(&self.paths.root) {
            Ok((reached, cut, damage)) => {
                health.behind = last.saturating_sub(reached);
                health.cut = cut;
                health.damage = damage;
                if health.damage.is_empty() {
                    match compare::matches_records(self, bytes) {
                        Ok(same) => {
                            health.compared = same.is_some();
                            let wrong = same == Some(false);
                            health.damage.extend(wrong.then(|| "it differs from the records".to_owned()));
                        }
                        Err(error) => health.damage.push(Error::from(error).to_string()),
                    }
                }
            }
            Err(error) => health.damage.push(error.to_string()),
        }
        Ok(health)
    }

    /// Opens and updates the index. If it cannot be written, returns it as it is, with the reason.
    fn updated_index(&self, progress: &mut dyn FnMut(u64)) -> Result<Opened> {
        let mut opened = Index::open(&self.paths.root)?;
        for attempt in 0..2 {
            let (Some(index), None) = (opened.index.as_mut(), &opened.why) else {
                return self.ignore_if_complete(opened);
            };
            match index.catch_up(self, progress) {
                Ok(()) => return Ok(opened),
                Err(error) if error.is_damage() && attempt == 0 => {
                    if let Some(index) = opened.index {
                        opened = index.recreate()?;
                    }
                }
                Err(error) if error.is_not_writable() => {
                    opened.why = Some(error.into());
                    return Ok(opened);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::machine("catching up with the search index", "it was damaged twice in a row"))
    }

    /// Drops the reason why an index cannot be written if it has all records.
    fn ignore_if_complete(&self, mut opened: Opened) -> Result<Opened> {
        let reached = opened.index.as_ref().and_then(|index| index.reached().ok());
        if reached.is_some_and(|reached| reached.cursor == self.read(last_segment).unwrap_or(0) as u64) {
            opened.why = None;
        }
        Ok(opened)
    }
}

fn writable(index: Option<Index>, why: Option<Error>) -> Result<Index> {
    match (index, why) {
        (Some(index), None) => Ok(index),
        (_, Some(why)) => Err(why),
        (None, None) => Err(Error::machine("writing the search index", "it cannot be opened")),
    }
}
