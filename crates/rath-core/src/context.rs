//! What a model is shown: an ordered list of items, each with the record it comes from.
//!
//! The list is persistent, youngest first: a fork shares it, an append adds one node. Items are references; bodies
//! are read when a [`Message`](crate::Message) is made of them.

mod fold;
mod merge;

use std::sync::Arc;

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use crate::body::Run;
use crate::id::{Point, SessionId};
use crate::list::List;

pub(crate) use fold::{ContextFold, copy_of, items_at_point, items_of_copies, with_output};
pub(crate) use merge::merge_items;

/// One thing in the context.
#[derive(Clone, Debug)]
pub struct Item {
    /// The record it comes from.
    pub origin: Point,
    /// Which of the several items of that record.
    pub part: u32,
    /// What it is.
    pub shape: Shape,
    /// The greatest generation among the records it derives from.
    pub(crate) newest: u64,
    /// The greatest `newest` of this item and all before it.
    top: u64,
}

/// What an item is, as far as the algebra of contexts must know.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Words.
    Words,
    /// A model's turn with these open or answered calls.
    Turn(Arc<[Box<str>]>),
    /// The result of a call.
    Result(Box<str>),
    /// The result of a call, shown shorter than the item that it took the place of.
    Trimmed {
        /// The call.
        call: Box<str>,
        /// The item that had the result before anything was trimmed: its record and part.
        result: (Point, u32),
    },
    /// A summary in place of items that derive from these records, at most one point a line.
    Summary(Arc<[Point]>),
    /// Where a branch's items begin.
    Marker,
}

impl Item {
    pub(crate) fn new(origin: Point, part: u32, shape: Shape, newest: u64) -> Self {
        Self { origin, part, shape, newest, top: newest }
    }

    /// The youngest record of each line that the item derives from.
    pub fn sources(&self) -> &[Point] {
        match &self.shape {
            Shape::Summary(sources) => sources,
            Shape::Trimmed { result: (origin, _), .. } => std::slice::from_ref(origin),
            _ => std::slice::from_ref(&self.origin),
        }
    }

    fn key(&self) -> (Point, u32) {
        (self.origin, self.part)
    }

    /// The call that this is the result of.
    pub(crate) fn result_of(&self) -> Option<&str> {
        match &self.shape {
            Shape::Result(call) | Shape::Trimmed { call, .. } => Some(call),
            _ => None,
        }
    }

    /// The item that had the result before anything was trimmed.
    pub(crate) fn untrimmed(&self) -> (Point, u32) {
        match &self.shape {
            Shape::Trimmed { result, .. } => *result,
            _ => self.key(),
        }
    }
}

/// The items of a context. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub struct Items(List<Item>);

impl Items {
    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// From the youngest to the oldest.
    pub fn newest_first(&self) -> impl Iterator<Item = &Item> {
        self.0.iter()
    }

    /// In the order a model reads them.
    pub fn to_vec(&self) -> Vec<Item> {
        let mut items: Vec<_> = self.0.iter().cloned().collect();
        items.reverse();
        items
    }

    pub(crate) fn push(&mut self, mut item: Item) {
        item.top = item.newest.max(self.0.first().map_or(0, |last| last.top));
        self.0.push(item);
    }

    pub(crate) fn pop(&mut self) -> Option<Item> {
        self.0.pop()
    }

    /// Adds, behind `marker`, what `branch` has that derives from `brought` records; what self has of the shared
    /// prefix stays as it is. `taken` remembers what an earlier branch of the same merge brought.
    pub(crate) fn append_branch(
        &mut self,
        marker: Item,
        branch: &Items,
        brought: &Brought,
        taken: &mut HashSet<(Point, u32)>,
    ) {
        let mut new = Vec::new();
        for item in branch.newest_first() {
            // `top` is a running maximum: below the first generation that is new, nothing is.
            if item.top < brought.oldest {
                break;
            }
            if item.sources().iter().any(|source| brought.contains(source)) && taken.insert(item.key()) {
                new.push(item.clone());
            }
        }
        if new.is_empty() {
            return;
        }
        self.push(marker);
        new.into_iter().rev().for_each(|item| self.push(item));
    }

    /// Replaces `count` items from position `at` by one summary made by record `by`.
    pub(crate) fn compress(&mut self, at: usize, count: usize, by: Point) -> Result<(), BadRange> {
        let len = self.len();
        if count == 0 || at.checked_add(count).is_none_or(|end| end > len) {
            return Err(BadRange::Outside { at, count, len });
        }
        let mut after: Vec<Item> = (at + count..len).filter_map(|_| self.pop()).collect();
        let mut sources: HashMap<SessionId, u64> = HashMap::default();
        let mut newest = 0;
        for item in (0..count).filter_map(|_| self.pop()) {
            newest = newest.max(item.newest);
            for source in item.sources() {
                let seq = sources.entry(source.session).or_default();
                *seq = source.seq.max(*seq);
            }
        }
        let mut sources: Vec<_> = sources.into_iter().map(|(session, seq)| Point { session, seq }).collect();
        sources.sort();
        self.push(Item::new(by, 0, Shape::Summary(sources.into()), newest));
        while let Some(item) = after.pop() {
            self.push(item);
        }
        Ok(())
    }

    /// Shows a result as record `by` says. It derives from what it did before. A result that left the context stays away.
    pub(crate) fn trim(&mut self, result: (Point, u32), by: Point) {
        let is_it = |item: &Item| item.result_of().is_some() && item.untrimmed() == result;
        let Some(behind) = self.newest_first().position(is_it) else { return };
        let after: Vec<Item> = (0..behind).filter_map(|_| self.pop()).collect();
        let Some(Item { shape: Shape::Result(call) | Shape::Trimmed { call, .. }, newest, .. }) = self.pop() else {
            return;
        };
        self.push(Item::new(by, 0, Shape::Trimmed { call, result }, newest));
        after.into_iter().rev().for_each(|item| self.push(item));
    }

    /// Whether the range can leave the context: it exists, and no call is parted from its result.
    pub(crate) fn check_range(&self, at: usize, count: usize) -> Result<(), BadRange> {
        let items = self.to_vec();
        let len = items.len();
        let range = at..at.saturating_add(count);
        if count == 0 || range.end > len {
            return Err(BadRange::Outside { at, count, len });
        }
        let mut results: HashMap<&str, Vec<usize>> = HashMap::default();
        for (position, item) in items.iter().enumerate() {
            if let Some(call) = item.result_of() {
                results.entry(call).or_default().push(position);
            }
        }
        for (position, item) in items.iter().enumerate() {
            let Shape::Turn(calls) = &item.shape else { continue };
            for call in calls.iter() {
                // Providers reuse ids: a call's result is the next one with its id.
                let result = results.get(&**call).and_then(|at| at.iter().find(|at| **at > position));
                let inside = range.contains(&position);
                match result {
                    None if inside => return Err(BadRange::OpenCall { call: call.to_string() }),
                    Some(result) if range.contains(result) != inside => {
                        return Err(BadRange::PartsCall { call: call.to_string(), turn: position, result: *result });
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// The runs of records that a merge brings, for quick questions.
pub(crate) struct Brought {
    runs: HashMap<SessionId, Vec<Run>>,
    oldest: u64,
}

impl Brought {
    pub(crate) fn new(runs: &[Run]) -> Self {
        let mut by_line: HashMap<SessionId, Vec<Run>> = HashMap::default();
        for run in runs {
            by_line.entry(run.session).or_default().push(*run);
        }
        Self { runs: by_line, oldest: runs.iter().map(|run| run.generation).min().unwrap_or(u64::MAX) }
    }

    fn contains(&self, point: &Point) -> bool {
        self.runs.get(&point.session).is_some_and(|runs| runs.iter().any(|run| run.contains(point)))
    }
}

/// A range of context items that cannot be compressed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRange {
    /// There is nothing, or not so much, there.
    #[error("the context has {len} items; {count} from position {at} is not a range of them")]
    Outside {
        /// Position.
        at: usize,
        /// Number of items.
        count: usize,
        /// Length of the context.
        len: usize,
    },
    /// A call would stay without its result, or a result without its call.
    #[error("call {call:?} stands at {turn} and its result at {result}: they leave the context together")]
    PartsCall {
        /// The call's id.
        call: String,
        /// Position of the turn that makes it.
        turn: usize,
        /// Position of its result.
        result: usize,
    },
    /// Only a result can be shown shorter.
    #[error("what stands at {at} in the context is not the result of a call")]
    NotAResult {
        /// Position.
        at: usize,
    },
    /// A call in the range has no result yet.
    #[error("call {call:?} has no result yet")]
    OpenCall {
        /// The call's id.
        call: String,
    },
}
