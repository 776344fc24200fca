//! The context: the ordered list of items that a model is shown, each with the record that it comes from.
//!
//! The list is a persistent data structure, newest first: forks share it, and an append adds one node. Items only refer
//! to records. Bodies are read when a [`Message`](crate::Message) is built from an item.

mod fold;
mod merge;

use std::sync::Arc;

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use crate::body::RecordRange;
use crate::id::{Point, SessionId};
use crate::list::List;

pub(crate) use fold::{ContextFold, copy_of, items_at_point, items_of_copies, with_output};
pub(crate) use merge::merge_items;

/// One item of a context.
#[derive(Clone, Debug)]
pub struct Item {
    /// The record that it comes from.
    pub origin: Point,
    /// The index of this item among the items of its record.
    pub part: u32,
    /// What kind of item it is.
    pub kind: ItemKind,
    /// The greatest generation among the records that it derives from.
    pub(crate) newest: u64,
    /// The greatest `newest` of this item and all items before it.
    top: u64,
}

/// What an item is, as far as merging, compressing and trimming contexts depend on it.
#[derive(Clone, Debug)]
pub enum ItemKind {
    /// A system or user message.
    Message,
    /// A model's turn, with the ids of its calls.
    Turn(Arc<[Box<str>]>),
    /// The result of the call with this id.
    Result(Box<str>),
    /// A shortened result of a call, in place of the original item.
    Trimmed {
        /// The call's id.
        call: Box<str>,
        /// The item with the original result: its record and part.
        result: (Point, u32),
    },
    /// A summary in place of items that derive from these records, at most one point per session.
    Summary(Arc<[Point]>),
    /// The start of a merged branch's items.
    Marker,
}

impl Item {
    pub(crate) fn new(origin: Point, part: u32, kind: ItemKind, newest: u64) -> Self {
        Self { origin, part, kind, newest, top: newest }
    }

    /// The newest record of each session that the item derives from.
    pub fn sources(&self) -> &[Point] {
        match &self.kind {
            ItemKind::Summary(sources) => sources,
            ItemKind::Trimmed { result: (origin, _), .. } => std::slice::from_ref(origin),
            _ => std::slice::from_ref(&self.origin),
        }
    }

    fn key(&self) -> (Point, u32) {
        (self.origin, self.part)
    }

    /// The id of the call, if this item is a result.
    pub(crate) fn result_of(&self) -> Option<&str> {
        match &self.kind {
            ItemKind::Result(call) | ItemKind::Trimmed { call, .. } => Some(call),
            _ => None,
        }
    }

    /// The item with the original result.
    pub(crate) fn untrimmed(&self) -> (Point, u32) {
        match &self.kind {
            ItemKind::Trimmed { result, .. } => *result,
            _ => self.key(),
        }
    }
}

/// The items of a context. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub struct Items(List<Item>);

impl Items {
    /// The number of items.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// The items, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Item> {
        self.0.iter()
    }

    /// The items, oldest first.
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

    /// Appends `marker` and the items of `branch` that derive from records in `new_records`. Items of the shared prefix
    /// are not repeated. `seen` contains items that earlier branches of the same merge added.
    pub(crate) fn append_branch(
        &mut self,
        marker: Item,
        branch: &Items,
        new_records: &NewRecords,
        seen: &mut HashSet<(Point, u32)>,
    ) {
        let mut new = Vec::new();
        for item in branch.newest_first() {
            // `top` is a running maximum: items below the oldest new generation contain nothing new.
            if item.top < new_records.oldest {
                break;
            }
            if item.sources().iter().any(|source| new_records.contains(source)) && seen.insert(item.key()) {
                new.push(item.clone());
            }
        }
        if new.is_empty() {
            return;
        }
        self.push(marker);
        new.into_iter().rev().for_each(|item| self.push(item));
    }

    /// Replaces `count` items from position `at` with one summary, made by record `by`.
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
        self.push(Item::new(by, 0, ItemKind::Summary(sources.into()), newest));
        while let Some(item) = after.pop() {
            self.push(item);
        }
        Ok(())
    }

    /// Replaces a result with the shortened one of record `by`. Its sources stay the same. Does nothing if the result
    /// is not in the context any more.
    pub(crate) fn trim(&mut self, result: (Point, u32), by: Point) {
        let is_it = |item: &Item| item.result_of().is_some() && item.untrimmed() == result;
        let Some(later_items) = self.newest_first().position(is_it) else { return };
        let after: Vec<Item> = (0..later_items).filter_map(|_| self.pop()).collect();
        let Some(Item { kind: ItemKind::Result(call) | ItemKind::Trimmed { call, .. }, newest, .. }) = self.pop()
        else {
            return;
        };
        self.push(Item::new(by, 0, ItemKind::Trimmed { call, result }, newest));
        after.into_iter().rev().for_each(|item| self.push(item));
    }

    /// Checks that a range can be removed from the context: it exists and separates no call from its result.
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
            let ItemKind::Turn(calls) = &item.kind else { continue };
            for call in calls.iter() {
                // Providers reuse ids. A call's result is the next one with its id.
                let result = results.get(&**call).and_then(|at| at.iter().find(|at| **at > position));
                let inside = range.contains(&position);
                match result {
                    None if inside => return Err(BadRange::OpenCall { call: call.to_string() }),
                    Some(result) if range.contains(result) != inside => {
                        return Err(BadRange::SplitsCall { call: call.to_string(), turn: position, result: *result });
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// The records that a merge adds, indexed by session.
pub(crate) struct NewRecords {
    runs: HashMap<SessionId, Vec<RecordRange>>,
    oldest: u64,
}

impl NewRecords {
    pub(crate) fn new(runs: &[RecordRange]) -> Self {
        let mut by_line: HashMap<SessionId, Vec<RecordRange>> = HashMap::default();
        for run in runs {
            by_line.entry(run.session).or_default().push(*run);
        }
        Self { runs: by_line, oldest: runs.iter().map(|run| run.generation).min().unwrap_or(u64::MAX) }
    }

    fn contains(&self, point: &Point) -> bool {
        self.runs.get(&point.session).is_some_and(|runs| runs.iter().any(|run| run.contains(point)))
    }
}

/// A range of context items that cannot be compressed, or an item that cannot be trimmed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRange {
    /// The range is empty or exceeds the context.
    #[error("range of {count} items at position {at} is empty or exceeds the context of {len} items")]
    Outside {
        /// The position of the first item of the range.
        at: usize,
        /// The number of items in the range.
        count: usize,
        /// The number of items in the context.
        len: usize,
    },
    /// The range contains a call without its result, or a result without its call.
    #[error(
        "the range separates call {call:?} at position {turn} from its result at {result}: include both or neither"
    )]
    SplitsCall {
        /// The call's id.
        call: String,
        /// The position of the turn that makes the call.
        turn: usize,
        /// The position of the call's result.
        result: usize,
    },
    /// The item to trim is not a tool result.
    #[error("context item {at} is not a tool result: only tool results can be trimmed")]
    NotAResult {
        /// The position of the item.
        at: usize,
    },
    /// A call in the range has no result yet.
    #[error("call {call:?} in the range has no result yet")]
    OpenCall {
        /// The call's id.
        call: String,
    },
}
