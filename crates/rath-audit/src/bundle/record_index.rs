//! An index of a bundle's records by id. Only forks and merges look up records by id, so the index is brought up to
//! date on demand: most records are never looked up.

use std::collections::HashMap;

use rath_core::{Point, RecordId, Time};

/// What is known of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexedRecord {
    pub(super) point: Point,
    pub(super) generation: u64,
    pub(super) time: Time,
    pub(super) has_body: bool,
}

/// The records of a bundle, in their order, with an index by id.
#[derive(Debug, Default)]
pub(super) struct RecordIndex {
    all: Vec<(RecordId, IndexedRecord)>,
    /// Positions in the list, by record id, of the records indexed so far.
    index: HashMap<RecordId, usize>,
}

impl RecordIndex {
    pub(super) fn with_capacity(count: usize) -> Self {
        Self { all: Vec::with_capacity(count), index: HashMap::new() }
    }

    pub(super) fn push(&mut self, id: RecordId, record: IndexedRecord) {
        self.all.push((id, record));
    }

    /// The line number of a record, if it is in the list.
    pub(super) fn line_of(&self, point: Point) -> Option<u64> {
        let before = self.all.iter().position(|(_, record)| record.point == point)?;
        Some(before as u64 + 1)
    }

    /// Indexes the records that were added since the last call.
    pub(super) fn catch_up(&mut self) {
        let behind = self.index.len();
        self.index.extend(self.all.iter().enumerate().skip(behind).map(|(at, (id, _))| (*id, at)));
    }

    /// Looks up an indexed record.
    pub(super) fn get(&self, id: &RecordId) -> Option<IndexedRecord> {
        self.index.get(id).map(|at| self.all[*at].1)
    }
}
