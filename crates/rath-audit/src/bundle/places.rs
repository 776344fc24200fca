//! Where the records of a bundle stand, by their ids. Only forks and merges ask, so the index catches up when one does: most
//! of a bundle's records are never looked for.

use std::collections::HashMap;

use rath_core::{Point, RecordId, Time};

/// Where a record stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) point: Point,
    pub(super) generation: u64,
    pub(super) time: Time,
    pub(super) has_body: bool,
}

/// The places of records, in their order.
#[derive(Debug, Default)]
pub(super) struct Places {
    all: Vec<(RecordId, Place)>,
    /// Where in the list those are that were indexed.
    index: HashMap<RecordId, usize>,
}

impl Places {
    pub(super) fn with_capacity(count: usize) -> Self {
        Self { all: Vec::with_capacity(count), index: HashMap::new() }
    }

    pub(super) fn push(&mut self, id: RecordId, place: Place) {
        self.all.push((id, place));
    }

    /// The number of the line in which the record at a place stands, if it was among them.
    pub(super) fn line_of(&self, point: Point) -> Option<u64> {
        let before = self.all.iter().position(|(_, place)| place.point == point)?;
        Some(before as u64 + 1)
    }

    /// Indexes what came since.
    pub(super) fn catch_up(&mut self) {
        let behind = self.index.len();
        self.index.extend(self.all.iter().enumerate().skip(behind).map(|(at, (id, _))| (*id, at)));
    }

    /// Where a record stands that was indexed.
    pub(super) fn get(&self, id: &RecordId) -> Option<Place> {
        self.index.get(id).map(|at| self.all[*at].1)
    }
}
