//! Every record behind some heads, oldest first: parents always before children.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use crate::error;
use crate::id::{Point, SessionId};
use crate::kind::Kind;
use crate::reader::{Reader, tampered};
use crate::record::{Fault, Record};
use crate::store::Result;

/// What can be reached from some heads: of each line, the records up to a seq.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    pub(crate) lines: HashMap<SessionId, Extent>,
    /// Fork points and merged heads: where another line takes over what this one had.
    pub(crate) joints: HashSet<Point>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) to: u64,
    pub(crate) born_generation: u64,
}

impl Reach {
    /// Walks all lines behind `heads`. Iterative, and linear in lines and merges.
    pub(crate) async fn of(reader: &Reader, heads: &[Point]) -> Result<Self> {
        let mut reach = Reach::default();
        let mut open: Vec<Point> = heads.to_vec();
        while let Some(point) = open.pop() {
            let known = reach.lines.get(&point.session).copied();
            if known.is_some_and(|extent| extent.to >= point.seq) {
                continue;
            }
            let born_generation = match known {
                Some(extent) => extent.born_generation,
                None => {
                    let line = reader.line(point.session).await?;
                    if let Some(origin) = line.origin {
                        reach.joints.insert(origin.point());
                        open.push(origin.point());
                    }
                    line.born_generation
                }
            };
            let mut to = point.seq;
            while let Some(junction) = reader.junction(point.session, to).await? {
                if known.is_some_and(|extent| junction.seq <= extent.to) {
                    break;
                }
                for (other, _) in junction.others {
                    reach.joints.insert(other);
                    open.push(other);
                }
                match junction.seq.checked_sub(1) {
                    Some(before) => to = before,
                    None => break,
                }
            }
            reach.lines.insert(point.session, Extent { to: point.seq, born_generation });
        }
        Ok(reach)
    }
}

/// Reads the records of a [`Reach`] in order of generation.
pub struct History {
    reader: Reader,
    kinds: Vec<Kind>,
    /// Lines by the least generation their next record can have.
    order: BinaryHeap<Reverse<(u64, SessionId)>>,
    lines: HashMap<SessionId, Strand>,
}

struct Strand {
    page: VecDeque<Record>,
    next: u64,
    to: u64,
    last: Option<Record>,
}

impl History {
    pub(crate) fn new(reader: Reader, reach: &Reach, kinds: &[Kind]) -> Self {
        let order = reach.lines.iter().map(|(id, extent)| Reverse((extent.born_generation, *id))).collect();
        let strand = |extent: &Extent| Strand { page: VecDeque::new(), next: 0, to: extent.to, last: None };
        let lines = reach.lines.iter().map(|(id, extent)| (*id, strand(extent))).collect();
        Self { reader, kinds: kinds.to_vec(), order, lines }
    }

    /// The next record; `None` after the last.
    pub async fn next(&mut self) -> error::Result<Option<Record>> {
        Ok(self.step().await?)
    }

    pub(crate) async fn step(&mut self) -> Result<Option<Record>> {
        while let Some(Reverse((key, id))) = self.order.pop() {
            let Some(strand) = self.lines.get_mut(&id) else { continue };
            if strand.page.is_empty() {
                if strand.next > strand.to {
                    self.lines.remove(&id);
                    continue;
                }
                let page = match self.reader.page(id, strand.next, strand.to, &self.kinds).await {
                    Ok(page) => page,
                    Err(error) => {
                        // Whoever asks again is told again.
                        self.order.push(Reverse((key, id)));
                        return Err(error);
                    }
                };
                strand.next = if page.more { page.position } else { strand.to + 1 };
                strand.page = page.records.into();
                let least = strand.page.front().map_or(key, Record::generation);
                if strand.page.is_empty() || least > key {
                    self.order.push(Reverse((least, id)));
                    continue;
                }
            }
            let Some(record) = strand.page.pop_front() else { continue };
            let least = strand.page.front().map_or(record.generation() + 1, Record::generation);
            self.order.push(Reverse((least, id)));
            // Neighbours vouch for each other; the whole chain is `verify`'s work.
            if let Some(last) = strand.last.replace(record.clone())
                && last.seq() + 1 == record.seq()
                && record.first_parent() != Some(last.id())
            {
                return Err(tampered(&last, Fault::Chain));
            }
            return Ok(Some(record));
        }
        Ok(None)
    }

    /// All that is left, at once.
    pub async fn all(mut self) -> error::Result<Vec<Record>> {
        let mut records = Vec::new();
        while let Some(record) = self.next().await? {
            records.push(record);
        }
        Ok(records)
    }
}
