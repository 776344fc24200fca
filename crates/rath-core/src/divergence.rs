//! What several heads share, and what only the others have.
//!
//! One walk from all heads at once, youngest generation first, as git finds merge bases. It moves along lines, not
//! records: from a head to the youngest merge below it, and to the fork point. It stops where everything left is
//! common, so a merge costs what the branches are long, not what the history is.

use std::collections::BinaryHeap;

use rustc_hash::FxHashMap as HashMap;

use crate::body::Run;
use crate::id::{Point, SessionId};
use crate::reader::{Junction, Line, Reader};
use crate::store::Result;

/// How heads differ, seen from the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The youngest record behind all heads.
    pub base: Option<Point>,
    /// What is behind the others and not behind the first.
    pub brought: Vec<Run>,
}

/// A head: its place and generation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tip {
    pub(crate) point: Point,
    pub(crate) generation: u64,
}

/// Which heads reach a place: one bit a head.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Colours(Vec<u64>);

impl Colours {
    fn one(index: usize, of: usize) -> Self {
        let mut bits = vec![0; of.div_ceil(64)];
        bits[index / 64] = 1 << (index % 64);
        Self(bits)
    }

    fn add(&mut self, other: &Colours) {
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

/// A place to visit.
struct Open {
    generation: u64,
    point: Point,
    colours: Colours,
    visit: Visit,
}

/// Why a place is visited. The order matters where places are equal: who arrives is counted before the line goes on.
enum Visit {
    /// A head, a fork point or a merged head.
    Arrive,
    /// A merge on a line that is walked down.
    Pass(Junction),
    /// The first record of a line that is walked down.
    Bottom,
}

impl Open {
    fn key(&self) -> (u64, Point, bool) {
        (self.generation, self.point, matches!(self.visit, Visit::Arrive))
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

/// What the walk knows of a line.
struct Seen {
    line: Line,
    /// The heads that reach it, so far down.
    colours: Colours,
    /// The greatest seq that the first head reaches.
    first: Option<u64>,
    /// The greatest seq that any other reaches.
    others: Option<u64>,
}

/// The places to visit, youngest first, and how many of them the first head is not known to reach.
#[derive(Default)]
struct Agenda {
    open: BinaryHeap<Open>,
    foreign: usize,
}

impl Agenda {
    fn push(&mut self, generation: u64, point: Point, colours: Colours, visit: Visit) {
        self.foreign += usize::from(!colours.first());
        self.open.push(Open { generation, point, colours, visit });
    }

    fn pop(&mut self) -> Option<Open> {
        let entry = self.open.pop()?;
        self.foreign -= usize::from(!entry.colours.first());
        Some(entry)
    }

    /// Goes on down a line, from `to`: to its youngest merge, or to its first record.
    async fn walk_down(&mut self, reader: &Reader, seen: &Seen, session: SessionId, to: Option<u64>) -> Result<()> {
        let junction = match to {
            Some(to) => reader.junction(session, to).await?,
            None => None,
        };
        let colours = seen.colours.clone();
        match junction {
            Some(junction) => {
                let point = Point { session, seq: junction.seq };
                self.push(junction.generation, point, colours, Visit::Pass(junction));
            }
            None => self.push(seen.line.born_generation, Point { session, seq: 0 }, colours, Visit::Bottom),
        }
        Ok(())
    }
}

/// Records that count as reached by the first head: the lines up to these places.
#[derive(Debug, Default)]
pub(crate) struct Reached(HashMap<SessionId, u64>);

impl Reached {
    /// Adds runs of records, which continue what is reached of their lines.
    pub(crate) fn add(&mut self, runs: &[Run]) {
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

    /// As [`of`](Self::of), where the first head also reaches the records in `reached` and everything behind them: the
    /// branches that a merge took in before. They are not walked again.
    pub(crate) async fn beyond(reader: &Reader, tips: &[Tip], reached: &Reached) -> Result<Self> {
        let mut agenda = Agenda::default();
        for (index, tip) in tips.iter().enumerate() {
            agenda.push(tip.generation, tip.point, Colours::one(index, tips.len()), Visit::Arrive);
        }
        let mut lines: HashMap<SessionId, Seen> = HashMap::default();
        let mut base = None;
        while let Some(entry) = agenda.pop() {
            let Point { session, seq } = entry.point;
            match entry.visit {
                Visit::Arrive => {
                    let new = !lines.contains_key(&session);
                    if new {
                        let nobody = Colours(vec![0; entry.colours.0.len()]);
                        let line = reader.line(session).await?;
                        lines.insert(session, Seen { line, colours: nobody, first: None, others: None });
                    }
                    let Some(seen) = lines.get_mut(&session) else { continue };
                    seen.colours.add(&entry.colours);
                    match reached.0.get(&session) {
                        Some(&to) if to >= seq && new => {
                            seen.first = Some(to);
                            seen.colours.add(&Colours::one(0, tips.len()));
                        }
                        Some(&to) if new => {
                            let point = Point { session, seq: to };
                            let generation = reader.record(point).await?.generation();
                            agenda.push(generation, point, Colours::one(0, tips.len()), Visit::Arrive);
                        }
                        _ => {}
                    }
                    if entry.colours.first() {
                        seen.first.get_or_insert(seq);
                    }
                    if entry.colours.others() {
                        seen.others.get_or_insert(seq);
                    }
                    if base.is_none() && seen.colours.count() as usize == tips.len() {
                        base = Some(entry.point);
                    }
                    if new {
                        agenda.walk_down(reader, seen, session, Some(seq)).await?;
                    }
                }
                Visit::Pass(junction) => {
                    let Some(seen) = lines.get(&session) else { continue };
                    for (point, generation) in junction.others {
                        agenda.push(generation, point, seen.colours.clone(), Visit::Arrive);
                    }
                    agenda.walk_down(reader, seen, session, junction.seq.checked_sub(1)).await?;
                }
                Visit::Bottom => {
                    let Some(seen) = lines.get(&session) else { continue };
                    if let Some(origin) = seen.line.origin {
                        let generation = seen.line.born_generation.saturating_sub(1);
                        agenda.push(generation, origin.point(), seen.colours.clone(), Visit::Arrive);
                    }
                }
            }
            if agenda.foreign == 0 && base.is_some() {
                break;
            }
        }
        let mut brought = Vec::new();
        for (session, seen) in lines {
            let Some(to) = seen.others else { continue };
            let from = seen.first.map_or(0, |first| first + 1);
            if from > to {
                continue;
            }
            let generation = match from {
                0 => seen.line.born_generation,
                _ => reader.record(Point { session, seq: from }).await?.generation(),
            };
            brought.push(Run { session, from, to, generation });
        }
        brought.sort_by_key(|run| (run.generation, run.session));
        Ok(Self { base, brought })
    }
}
