//! [`Divergence`]: what several heads share, and which records only the later heads have.
//!
//! The algorithm walks back from all heads at once, newest generation first, as git does to find merge bases. It moves
//! along sessions, not records: from a head to the last merge before it, and to the fork point. It stops when
//! everything left is common, so the cost depends on the length of the branches and not on the length of the history.

use std::collections::BinaryHeap;

use rustc_hash::FxHashMap as HashMap;

use crate::body::RecordRange;
use crate::id::{Point, SessionId};
use crate::reader::{MergePoint, Reader, SessionStart};
use crate::store::Result;

/// How the other heads differ from the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The newest record that all heads descend from.
    pub base: Option<Point>,
    /// The records that some other head descends from and the first does not.
    pub added: Vec<RecordRange>,
}

/// A head: its point and generation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tip {
    pub(crate) point: Point,
    pub(crate) generation: u64,
}

/// The set of heads that reach a record: one bit per head.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HeadSet(Vec<u64>);

impl HeadSet {
    fn one(index: usize, of: usize) -> Self {
        let mut bits = vec![0; of.div_ceil(64)];
        bits[index / 64] = 1 << (index % 64);
        Self(bits)
    }

    fn add(&mut self, other: &HeadSet) {
        self.0.iter_mut().zip(&other.0).for_each(|(bits, more)| *bits |= more);
    }

    fn first(&self) -> bool {
        self.0[0] & 1 == 1
    }

    fn others(&self) -> bool {
        self.count() > u32::from(self.first())
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|bits| bits.count_ones()).sum()
    }
}

/// A record to visit.
struct Open {
    generation: u64,
    point: Point,
    heads: HeadSet,
    visit: Visit,
}

/// Why a record is visited. If a record is visited for several reasons, heads come first.
enum Visit {
    /// A head, a fork point or a merged head.
    Head,
    /// A merge in a session that is walked down.
    Merge(MergePoint),
    /// The first record of a session that is walked down.
    Start,
}

impl Open {
    fn key(&self) -> (u64, Point, bool) {
        (self.generation, self.point, matches!(self.visit, Visit::Head))
    }
}

impl PartialEq for Open {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Open {}
impl PartialOrd for Open {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Open {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// What the walk knows about a session.
struct Seen {
    start: SessionStart,
    /// The heads that reach the session, as far as it is walked.
    heads: HeadSet,
    /// The greatest seq that the first head reaches.
    first: Option<u64>,
    /// The greatest seq that any other head reaches.
    others: Option<u64>,
}

/// The records to visit, newest first, and how many of them the first head is not known to reach.
#[derive(Default)]
struct Agenda {
    open: BinaryHeap<Open>,
    foreign: usize,
}

impl Agenda {
    fn push(&mut self, generation: u64, point: Point, heads: HeadSet, visit: Visit) {
        self.foreign += usize::from(!heads.first());
        self.open.push(Open { generation, point, heads, visit });
    }

    fn pop(&mut self) -> Option<Open> {
        let entry = self.open.pop()?;
        self.foreign -= usize::from(!entry.heads.first());
        Some(entry)
    }

    /// Continues down a session from `to`: to its last merge, or to its first record.
    async fn walk_down(&mut self, reader: &Reader, seen: &Seen, session: SessionId, to: Option<u64>) -> Result<()> {
        let merge = match to {
            Some(to) => reader.last_merge(session, to).await?,
            None => None,
        };
        let heads = seen.heads.clone();
        match merge {
            Some(merge) => {
                let point = Point { session, seq: merge.seq };
                self.push(merge.generation, point, heads, Visit::Merge(merge));
            }
            None => self.push(seen.start.born_generation, Point { session, seq: 0 }, heads, Visit::Start),
        }
        Ok(())
    }
}

/// Records that count as reached by the first head: sessions up to these seqs.
#[derive(Debug, Default)]
pub(crate) struct Reached(HashMap<SessionId, u64>);

impl Reached {
    /// Adds ranges of records, each of which continues what is already reached of its session.
    pub(crate) fn add(&mut self, runs: &[RecordRange]) {
        for run in runs {
            let to = self.0.entry(run.session).or_default();
            *to = run.to.max(*to);
        }
    }
}

impl Divergence {
    /// Compares `tips[0]` with all others.
    pub(crate) async fn of(reader: &Reader, tips: &[Tip]) -> Result<Self> {
        Self::beyond(reader, tips, &Reached::default()).await
    }

    /// Like [`of`](Self::of), where the first head also reaches the records in `reached` and all that they descend
    /// from: the branches that a merge has added before. They are not walked again.
    pub(crate) async fn beyond(reader: &Reader, tips: &[Tip], reached: &Reached) -> Result<Self> {
        let mut agenda = Agenda::default();
        for (index, tip) in tips.iter().enumerate() {
            agenda.push(tip.generation, tip.point, HeadSet::one(index, tips.len()), Visit::Head);
        }
        let mut seen_sessions: HashMap<SessionId, Seen> = HashMap::default();
        let mut base = None;
        while let Some(entry) = agenda.pop() {
            let Point { session, seq } = entry.point;
            match entry.visit {
                Visit::Head => {
                    let new = !seen_sessions.contains_key(&session);
                    if new {
                        let none = HeadSet(vec![0; entry.heads.0.len()]);
                        let start = reader.session_start(session).await?;
                        seen_sessions.insert(session, Seen { start, heads: none, first: None, others: None });
                    }
                    let Some(seen) = seen_sessions.get_mut(&session) else { continue };
                    seen.heads.add(&entry.heads);
                    match reached.0.get(&session) {
                        Some(&to) if to >= seq && new => {
                            seen.first = Some(to);
                            seen.heads.add(&HeadSet::one(0, tips.len()));
                        }
                        Some(&to) if new => {
                            let point = Point { session, seq: to };
                            let generation = reader.record(point).await?.generation();
                            agenda.push(generation, point, HeadSet::one(0, tips.len()), Visit::Head);
                        }
                        _ => {}
                    }
                    if entry.heads.first() {
                        seen.first.get_or_insert(seq);
                    }
                    if entry.heads.others() {
                        seen.others.get_or_insert(seq);
                    }
                    if base.is_none() && seen.heads.count() as usize == tips.len() {
                        base = Some(entry.point);
                    }
                    if new {
                        agenda.walk_down(reader, seen, session, Some(seq)).await?;
                    }
                }
                Visit::Merge(merge) => {
                    let Some(seen) = seen_sessions.get(&session) else { continue };
                    for (point, generation) in merge.others {
                        agenda.push(generation, point, seen.heads.clone(), Visit::Head);
                    }
                    agenda.walk_down(reader, seen, session, merge.seq.checked_sub(1)).await?;
                }
                Visit::Start => {
                    let Some(seen) = seen_sessions.get(&session) else { continue };
                    if let Some(origin) = seen.start.origin {
                        let generation = seen.start.born_generation.saturating_sub(1);
                        agenda.push(generation, origin.point(), seen.heads.clone(), Visit::Head);
                    }
                }
            }
            if agenda.foreign == 0 && base.is_some() {
                break;
            }
        }
        let mut added = Vec::new();
        for (session, seen) in seen_sessions {
            let Some(to) = seen.others else { continue };
            let from = seen.first.map_or(0, |first| first + 1);
            if from > to {
                continue;
            }
            let generation = match from {
                0 => seen.start.born_generation,
                _ => reader.record(Point { session, seq: from }).await?.generation(),
            };
            added.push(RecordRange { session, from, to, generation });
        }
        added.sort_by_key(|run| (run.generation, run.session));
        Ok(Self { base, added })
    }
}
