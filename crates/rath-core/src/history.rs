//! [`History`]: all records that some heads descend from, parents before children.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use crate::error;
use crate::id::{Point, SessionId};
use crate::kind::Kind;
use crate::reader::{Reader, tampered};
use crate::record::{Record, RecordError};
use crate::store::Result;

/// The records that some heads descend from: of each session, the records up to a seq.
#[derive(Debug, Default)]
pub(crate) struct Reachable {
    pub(crate) sessions: HashMap<SessionId, Extent>,
    /// Fork points and merged heads: where another session uses the items of this one.
    pub(crate) branch_points: HashSet<Point>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) to: u64,
    pub(crate) born_generation: u64,
}

impl Reachable {
    /// Walks all sessions that `heads` descend from. Iterative, and linear in the number of sessions and merges.
    pub(crate) async fn of(reader: &Reader, heads: &[Point]) -> Result<Self> {
        let mut reachable = Reachable::default();
        let mut open: Vec<Point> = heads.to_vec();
        while let Some(point) = open.pop() {
            let known = reachable.sessions.get(&point.session).copied();
            if known.is_some_and(|extent| extent.to >= point.seq) {
                continue;
            }
            let born_generation = match known {
                Some(extent) => extent.born_generation,
                None => {
                    let start = reader.session_start(point.session).await?;
                    if let Some(origin) = start.origin {
                        reachable.branch_points.insert(origin.point());
                        open.push(origin.point());
                    }
                    start.born_generation
                }
            };
            let mut to = point.seq;
            while let Some(merge) = reader.last_merge(point.session, to).await? {
                if known.is_some_and(|extent| merge.seq <= extent.to) {
                    break;
                }
                for (other, _) in merge.others {
                    reachable.branch_points.insert(other);
                    open.push(other);
                }
                match merge.seq.checked_sub(1) {
                    Some(before) => to = before,
                    None => break,
                }
            }
            reachable.sessions.insert(point.session, Extent { to: point.seq, born_generation });
        }
        Ok(reachable)
    }
}

/// Reads the records of a [`Reachable`] in order of generation.
pub struct History {
    reader: Reader,
    kinds: Vec<Kind>,
    /// Sessions by the least generation that their next record can have.
    order: BinaryHeap<Reverse<(u64, SessionId)>>,
    sessions: HashMap<SessionId, SessionCursor>,
}

struct SessionCursor {
    page: VecDeque<Record>,
    next: u64,
    to: u64,
    last: Option<Record>,
}

impl History {
    pub(crate) fn new(reader: Reader, reachable: &Reachable, kinds: &[Kind]) -> Self {
        let order = reachable.sessions.iter().map(|(id, extent)| Reverse((extent.born_generation, *id))).collect();
        let cursor = |extent: &Extent| SessionCursor { page: VecDeque::new(), next: 0, to: extent.to, last: None };
        let sessions = reachable.sessions.iter().map(|(id, extent)| (*id, cursor(extent))).collect();
        Self { reader, kinds: kinds.to_vec(), order, sessions }
    }

    /// The next record; `None` after the last.
    pub async fn next(&mut self) -> error::Result<Option<Record>> {
        Ok(self.next_record().await?)
    }

    pub(crate) async fn next_record(&mut self) -> Result<Option<Record>> {
        while let Some(Reverse((key, id))) = self.order.pop() {
            let Some(cursor) = self.sessions.get_mut(&id) else { continue };
            if cursor.page.is_empty() {
                if cursor.next > cursor.to {
                    self.sessions.remove(&id);
                    continue;
                }
                let page = match self.reader.page(id, cursor.next, cursor.to, &self.kinds).await {
                    Ok(page) => page,
                    Err(error) => {
                        // Keep the entry: the next call reads the page again.
                        self.order.push(Reverse((key, id)));
                        return Err(error);
                    }
                };
                cursor.next = if page.more { page.position } else { cursor.to + 1 };
                cursor.page = page.records.into();
                let least = cursor.page.front().map_or(key, Record::generation);
                if cursor.page.is_empty() || least > key {
                    self.order.push(Reverse((least, id)));
                    continue;
                }
            }
            let Some(record) = cursor.page.pop_front() else { continue };
            let least = cursor.page.front().map_or(record.generation() + 1, Record::generation);
            self.order.push(Reverse((least, id)));
            // Check the link between adjacent records. `verify` checks the whole chain.
            if let Some(last) = cursor.last.replace(record.clone())
                && last.seq() + 1 == record.seq()
                && record.first_parent() != Some(last.id())
            {
                return Err(tampered(&last, RecordError::Chain));
            }
            return Ok(Some(record));
        }
        Ok(None)
    }

    /// All remaining records.
    pub async fn all(mut self) -> error::Result<Vec<Record>> {
        let mut records = Vec::new();
        while let Some(record) = self.next().await? {
            records.push(record);
        }
        Ok(records)
    }
}
