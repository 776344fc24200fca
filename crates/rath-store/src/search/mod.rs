//! Looking for words in everything that was recorded.
//!
//! A [`Question`] is a [`Pattern`] and filters; [`Embedded::search`] answers with [`Hit`]s. The index is a projection: it
//! catches up when somebody asks, and appending knows nothing of it. It holds no text: what is shown is read again from
//! the ledger, so that an erased record is never shown. [`Embedded::forget`] takes words out for good.
//!
//! ```
//! use rath_core::{Actor, Session};
//! use rath_store::{Embedded, Question};
//! # pollster::block_on(async {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("store");
//! let store = Embedded::create(&path)?;
//! let mut session = Session::create(&store, Actor::person("ada"));
//! session.user("Why is checkout slow?")?;
//! session.publish().await?;
//!
//! let found = Embedded::open_here(&path, "example")?.search(&Question::new("CHECKOUT -fast".parse().unwrap()))?;
//! assert_eq!(found.hits[0].record.point(), session.head().point());
//! # Ok::<(), rath_core::Error>(())
//! # }).unwrap();
//! ```

mod ask;
mod compare;
mod forget;
mod index;
mod pattern;
mod text;
mod words;

use std::ops::{ControlFlow, Range};

use rath_core::store::{Error, Result};
use rath_core::{Actor, Header, Kind, Point, Record, SessionId, Time};
use serde::Serialize;

pub use pattern::{NotAPattern, Pattern};
pub use text::Passage;

use crate::embedded::Embedded;
use crate::embedded::read::last_segment;
use crate::projection;
use index::{Index, Opened};

/// What is looked for, and where.
#[derive(Clone, Debug)]
pub struct Question {
    /// The words.
    pub pattern: Pattern,
    /// Only records of these kinds; empty for all.
    pub kinds: Vec<Kind>,
    /// Only records by this actor.
    pub actor: Option<By>,
    /// Only in sessions with these labels, each with its value where one is given.
    pub labels: Vec<(String, Option<String>)>,
    /// Not before.
    pub since: Option<Time>,
    /// Not after.
    pub until: Option<Time>,
    /// Only in these sessions, each up to a record.
    pub within: Option<Vec<(SessionId, u64)>>,
    /// Which come first.
    pub order: Order,
    /// At most so many.
    pub limit: Option<usize>,
}

impl Question {
    /// Everything that has the pattern, the newest first.
    pub fn new(pattern: Pattern) -> Self {
        Self {
            pattern,
            kinds: Vec::new(),
            actor: None,
            labels: Vec::new(),
            since: None,
            until: None,
            within: None,
            order: Order::Newest,
            limit: None,
        }
    }

    /// Everything in which `subject` is named, word for word.
    pub fn about(subject: &str) -> std::result::Result<Self, NotAPattern> {
        Ok(Self::new(Pattern::phrase(subject)?))
    }
}

/// Who made a record: `planner`, `agent:planner`, or `agent:` for all of a kind. Case and accents do not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    kind: Option<String>,
    name: Option<String>,
}

impl From<&str> for By {
    fn from(text: &str) -> Self {
        let said = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        match text.split_once(':') {
            Some((kind, name)) => Self { kind: said(kind), name: said(name) },
            None => Self { kind: None, name: said(text) },
        }
    }
}

impl By {
    fn is(&self, actor: &Actor) -> bool {
        let same = |wanted: &Option<String>, is: &str| {
            wanted.as_ref().is_none_or(|wanted| words::fold(wanted) == words::fold(is))
        };
        same(&self.kind, &actor.kind) && same(&self.name, &actor.name)
    }
}

/// Which answers come first, in the order in which records were committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The newest.
    #[default]
    Newest,
    /// The oldest.
    Oldest,
}

/// A record that answers.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The record, as it is in the ledger now.
    pub record: Record,
    /// Its header.
    pub header: Header,
    /// Its texts in which something was found.
    pub passages: Vec<Matched>,
}

/// A text, and what was found in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matched {
    /// The text.
    pub passage: Passage,
    /// Bytes of it, in order.
    pub places: Vec<Range<usize>>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The records.
    pub hits: Vec<Hit>,
    /// Whether there are more than were asked for.
    pub more: bool,
    /// Why the index could not be written, where it could not: then what it lacks was read from the ledger, record by
    /// record.
    pub unindexed: Option<String>,
}

/// How the index is doing.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SearchHealth {
    /// Bytes of it, with its log; `None` when nobody has searched yet.
    pub bytes: Option<u64>,
    /// Segments that it has not seen yet.
    pub behind: u64,
    /// Records of which only the beginning of a long text is indexed.
    pub cut: u64,
    /// Whether it was held against the records: a large one is not.
    pub compared: bool,
    /// What is wrong with it; [`Embedded::reindex`] makes it anew.
    pub damage: Vec<String>,
}

impl Embedded {
    /// What answers the question. The index catches up first.
    pub fn search(&self, question: &Question) -> Result<Found> {
        let mut found = Found::default();
        let limit = question.limit.unwrap_or(usize::MAX);
        found.unindexed = self.each_hit(question, &mut |hit| {
            match found.hits.len() < limit {
                true => found.hits.push(hit),
                false => found.more = true,
            }
            if found.more { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }

    /// Shows what answers the question, record by record and whatever its limit, until `each` has enough. Returns why
    /// the index could not be written, where it could not.
    pub fn each_hit(
        &self,
        question: &Question,
        each: &mut dyn FnMut(Hit) -> ControlFlow<()>,
    ) -> Result<Option<String>> {
        let mut shown = 0;
        for attempt in 0.. {
            let Opened { index, why } = self.index_for(&mut |_| {})?;
            let mut passed = 0;
            let mut fresh = |hit: Hit| {
                passed += 1;
                // What was shown before the index turned out to be damaged is not shown again.
                if passed <= shown { ControlFlow::Continue(()) } else { each(hit) }
            };
            match ask::answer(self, index.as_ref(), question, &mut fresh) {
                Ok(()) => return Ok(why.map(|why| why.to_string())),
                Err(trouble) if trouble.is_damage() && attempt == 0 => {
                    shown = shown.max(passed);
                    if let Some(index) = index {
                        index.anew()?;
                    }
                }
                Err(trouble) => return Err(trouble.into()),
            }
        }
        Ok(None)
    }

    /// Brings the search index up to date; `progress` hears how many records were read. Whoever searches need not call
    /// it.
    pub fn index(&self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let Opened { index, why } = self.index_for(progress)?;
        writable(index, why).map(drop)
    }

    /// Makes the search index anew, also for records that were to be forgotten and are still there.
    pub fn reindex(&self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        projection::remove(&index::layout(&self.paths.root))?;
        self.index(progress)
    }

    /// Takes the words of these records out of the search index for good. To be called while their bodies can still be
    /// read, right before they are erased: a body that is gone already costs the whole index, which is then made anew at
    /// the next search.
    pub fn forget(&self, points: &[Point]) -> Result<()> {
        if points.is_empty() {
            return Ok(());
        }
        let Opened { index, why } = Index::open(&self.paths.root)?;
        let mut index = writable(index, why)?;
        match index.forget(self, points) {
            // A damaged index goes as a whole; a new one has no words yet.
            Err(trouble) if trouble.is_damage() => {
                let Opened { index, why } = index.anew()?;
                writable(index, why)?.forget(self, points)?;
                Ok(())
            }
            forgotten => Ok(forgotten?),
        }
    }

    /// Removes the search index. The next search makes it anew.
    pub fn drop_index(&self) -> Result<()> {
        projection::remove(&index::layout(&self.paths.root))
    }

    /// How the search index is doing. Changes nothing.
    pub(crate) fn search_health(&self) -> Result<SearchHealth> {
        let size =
            |end: &str| std::fs::metadata(self.paths.root.join(format!("search.db{end}"))).map(|file| file.len()).ok();
        let last = self.read(last_segment)? as u64;
        let mut health = SearchHealth { behind: last, ..SearchHealth::default() };
        let Some(bytes) = size("") else { return Ok(health) };
        health.bytes = Some(bytes + size("-wal").unwrap_or(0));
        match index::look(&self.paths.root) {
            Ok((reached, cut, damage)) => {
                health.behind = last.saturating_sub(reached);
                health.cut = cut;
                health.damage = damage;
                if health.damage.is_empty() {
                    match compare::is_true(self, bytes) {
                        Ok(same) => {
                            health.compared = same.is_some();
                            let wrong = same == Some(false);
                            health.damage.extend(wrong.then(|| "it does not say what the records say".to_owned()));
                        }
                        Err(trouble) => health.damage.push(Error::from(trouble).to_string()),
                    }
                }
            }
            Err(error) => health.damage.push(error.to_string()),
        }
        Ok(health)
    }

    /// The index, caught up; or why it could not be, where that is no reason not to answer.
    fn index_for(&self, progress: &mut dyn FnMut(u64)) -> Result<Opened> {
        let mut opened = Index::open(&self.paths.root)?;
        for attempt in 0..2 {
            let (Some(index), None) = (opened.index.as_mut(), &opened.why) else { return self.as_it_is(opened) };
            match index.catch_up(self, progress) {
                Ok(()) => return Ok(opened),
                Err(trouble) if trouble.is_damage() && attempt == 0 => {
                    if let Some(index) = opened.index {
                        opened = index.anew()?;
                    }
                }
                Err(trouble) if trouble.is_out_of_room() => {
                    opened.why = Some(trouble.into());
                    return Ok(opened);
                }
                Err(trouble) => return Err(trouble.into()),
            }
        }
        Err(Error::machine("catching up with the search index", "it was damaged twice in a row"))
    }

    /// An index that cannot be written and lacks nothing is as good as any.
    fn as_it_is(&self, mut opened: Opened) -> Result<Opened> {
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
