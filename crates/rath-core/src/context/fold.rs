//! Reads a context: folds every record behind a place that makes or changes one, oldest first.

use std::sync::LazyLock;

use rustc_hash::FxHashMap as HashMap;

use super::{Item, Items, Shape, merge_items};
use crate::body::{
    self, Compressed, Detached, Forked, Manner, Merged, Replaced, Role, StepEntered, ToolFinished, ToolResult, Trimmed,
};
use crate::history::{History, Reach};
use crate::id::{Point, RecordId, SessionId};
use crate::kind::{InContext, Kind};
use crate::message::{Copied, Message, Said};
use crate::reader::{Reader, tampered};
use crate::record::{Fault, Record};
use crate::store::{Error, Result};

/// Kinds that a context is folded from.
static CONTEXT: LazyLock<Vec<Kind>> =
    LazyLock::new(|| Kind::all(|row| matches!(row.context, InContext::Message | InContext::Edits)));

/// The same, the outputs that results only refer to, and the steps that name agents.
static WITH_WORDS: LazyLock<Vec<Kind>> = LazyLock::new(|| Kind::all(|row| row.context != InContext::Hidden));

/// Shows in `result` what its call came to, where it shows nothing else. An erased body says nothing.
fn show(result: &mut ToolResult, finished: &Record) -> std::result::Result<(), Fault> {
    if finished.body_bytes().is_some() {
        result.show(&finished.body::<ToolFinished>()?);
    }
    Ok(())
}

/// The context items at `point`.
pub(crate) async fn items_at_point(reader: &Reader, point: Point) -> Result<Items> {
    Ok(ContextFold::run(reader, point, false).await?.line.items().clone())
}

/// Folds all context records behind a point into the items there.
pub(crate) struct ContextFold {
    line: Strand,
    /// What was said, by place, when the words are wanted.
    said: HashMap<(Point, u32), Said>,
    /// The agents in whose steps turns and results were said, by place, when the words are wanted.
    agents: HashMap<(Point, u32), String>,
}

/// The items of one line while it is read: those that others may share, and those read since.
#[derive(Clone, Default)]
struct Strand {
    shared: Items,
    fresh: Vec<Item>,
    /// Whether an erased record leaves the items elsewhere than they were: ranges are found by their records.
    shifted: bool,
}

impl Strand {
    fn items(&mut self) -> &mut Items {
        for item in self.fresh.drain(..) {
            self.shared.push(item);
        }
        &mut self.shared
    }

    /// Where a range that was replaced lies now; `None` when it is not there as it was.
    fn place(&self, range: Replaced) -> Option<(usize, usize)> {
        if !self.shifted {
            return Some((range.at as usize, range.count as usize));
        }
        let items = self.to_vec();
        let first = items.iter().position(|item| item.origin == range.first)?;
        let last = items.iter().rposition(|item| item.origin == range.last)?;
        (first <= last).then(|| (first, last - first + 1))
    }

    fn to_vec(&self) -> Vec<Item> {
        let mut all = self.shared.to_vec();
        all.extend(self.fresh.iter().cloned());
        all
    }
}

impl ContextFold {
    pub(crate) async fn run(reader: &Reader, point: Point, keep: bool) -> Result<Self> {
        let reach = Reach::of(reader, &[point]).await?;
        let mut history = History::new(reader.clone(), &reach, if keep { &WITH_WORDS } else { &CONTEXT });
        let mut outputs: HashMap<RecordId, Record> = HashMap::default();
        let mut lines: HashMap<SessionId, Strand> = HashMap::default();
        let mut joints: HashMap<SessionId, Vec<u64>> = HashMap::default();
        for joint in &reach.joints {
            joints.entry(joint.session).or_default().push(joint.seq);
        }
        joints.values_mut().for_each(|seqs| seqs.sort_unstable_by(|a, b| b.cmp(a)));
        let mut saved: HashMap<Point, Items> = HashMap::default();
        let mut fold = Self { line: Strand::default(), said: HashMap::default(), agents: HashMap::default() };
        let mut steps: HashMap<RecordId, String> = HashMap::default();
        while let Some(record) = history.step().await? {
            let session = record.session();
            let strand = lines.entry(session).or_default();
            // What the line was at its joints, now that it moves past them.
            while let Some(joint) = joints.get_mut(&session).and_then(|seqs| seqs.pop_if(|seq| *seq < record.seq())) {
                saved.insert(Point { session, seq: joint }, strand.items().clone());
            }
            let bad = |why| tampered(&record, why);
            let (point, generation) = (record.point(), record.generation());
            if *record.kind() == Kind::ToolFinished {
                outputs.insert(record.id(), record);
                continue;
            }
            if *record.kind() == Kind::StepEntered {
                if let Ok(StepEntered { name, role: Some(Role::Agent), .. }) = record.body() {
                    steps.insert(record.id(), name);
                }
                continue;
            }
            let mut said = |part: u32| -> Result<()> {
                if keep {
                    let mut said = Said::read(record.kind(), part, record.body_bytes()).map_err(bad)?;
                    if let Said::Tool(result @ ToolResult { shown: None, finished: Some(_), .. }) = &mut said
                        && let Some(finished) = result.finished.and_then(|finished| outputs.remove(&finished))
                    {
                        show(result, &finished).map_err(bad)?;
                    }
                    fold.said.insert((point, part), said);
                }
                Ok(())
            };
            match record.kind() {
                Kind::System | Kind::User => {
                    said(0)?;
                    strand.fresh.push(Item::new(point, 0, Shape::Words, generation));
                }
                kind @ (Kind::Assistant | Kind::ToolResult) => {
                    said(0)?;
                    if keep
                        && !steps.is_empty()
                        && let Some(agent) = record.header().ok().and_then(|header| steps.get(&header.step?))
                    {
                        fold.agents.insert((point, 0), agent.clone());
                    }
                    let shape = shape(kind, record.body_bytes()).map_err(bad)?;
                    strand.fresh.push(Item::new(point, 0, shape, generation));
                }
                // What an erased summary stood for is there again, as far as it was not erased itself.
                Kind::Compressed if record.body_bytes().is_none() => strand.shifted = true,
                Kind::Compressed => {
                    said(0)?;
                    let range = strand.place(record.body::<Compressed>().map_err(bad)?.replaces);
                    if let Some((at, count)) = range {
                        let done = strand.items().compress(at, count, point);
                        done.map_err(|why| bad(Fault::Unreadable(why.to_string())))?;
                    }
                }
                // A free body of that name, from before the kind had a type, changes nothing; an erased one neither.
                Kind::Trimmed => {
                    if let Ok(body) = record.body::<Trimmed>() {
                        said(0)?;
                        let agent = fold.agents.get(&(body.result, body.part)).cloned();
                        fold.agents.extend(agent.map(|agent| ((point, 0), agent)));
                        strand.items().trim((body.result, body.part), point);
                    }
                }
                Kind::Forked => {
                    let from = match record.body::<Forked>() {
                        Ok(body) => body.from,
                        // The store knows it besides.
                        Err(Fault::Erased) => match reader.line(session).await?.origin {
                            Some(origin) => origin.point(),
                            None => return Err(bad(Fault::Erased)),
                        },
                        Err(why) => return Err(bad(why)),
                    };
                    let inherited = items_at(&mut lines, &saved, from);
                    lines.insert(session, Strand { shared: inherited, ..Strand::default() });
                }
                Kind::Detached if record.body_bytes().is_none() => {}
                Kind::Detached => {
                    let copied = read_copies(reader, &record).await?;
                    let items = items_of_copies(&copied, point, generation).map_err(bad)?;
                    *strand = Strand { shared: items, ..Strand::default() };
                    if keep {
                        for (part, copy) in copied.iter().enumerate() {
                            fold.said.insert((point, part as u32), copy.said().map_err(bad)?);
                            if let Some(agent) = &copy.agent {
                                fold.agents.insert((point, part as u32), agent.clone());
                            }
                        }
                    }
                }
                // How they were merged is not known any more: the line's own items stay.
                Kind::Merged if record.body_bytes().is_none() => strand.shifted = true,
                Kind::Merged => {
                    let body: Merged = record.body().map_err(bad)?;
                    (0..body.branches.len()).try_for_each(|part| said(part as u32))?;
                    // A way of merging that is not known leaves the items elsewhere, as an erased merge does.
                    let shifted = strand.shifted || matches!(body.how, Manner::Unknown(_));
                    let own = strand.items().clone();
                    let branch = |session: SessionId, seq: u64| items_at(&mut lines, &saved, Point { session, seq });
                    let merged = merge_items(own, &body, point, generation, branch);
                    lines.insert(session, Strand { shared: merged, shifted, ..Strand::default() });
                }
                _ => {}
            }
        }
        fold.line = lines.remove(&point.session).unwrap_or_default();
        Ok(fold)
    }

    /// The items, oldest first.
    pub(crate) fn items(&self) -> Vec<Item> {
        self.line.to_vec()
    }

    /// The words of the items, each taken out of the fold.
    pub(crate) fn messages(mut self) -> Result<Vec<Message>> {
        let items = self.line.to_vec();
        let mut messages = Vec::with_capacity(items.len());
        for Item { origin, part, .. } in items {
            let said = self.said.get_mut(&(origin, part)).map(|said| std::mem::replace(said, Said::Erased));
            let said = said.ok_or(Error::Tampered { point: origin, why: Fault::Erased })?;
            messages.push(Message { agent: self.agents.remove(&(origin, part)), ..Message::new(origin, said) });
        }
        Ok(messages)
    }
}

/// The items of a line at a joint: saved when the line went past, or what it has now.
fn items_at(lines: &mut HashMap<SessionId, Strand>, saved: &HashMap<Point, Items>, at: Point) -> Items {
    match saved.get(&at) {
        Some(items) => items.clone(),
        None => lines.get_mut(&at.session).map(|strand| strand.items().clone()).unwrap_or_default(),
    }
}

/// The items that a `detached` record copied.
async fn read_copies(reader: &Reader, record: &Record) -> Result<Vec<Copied>> {
    let body: Detached = record.body().map_err(|why| tampered(record, why))?;
    let copies = reader.blob(body.context.digest).await?;
    serde_json::from_slice(&copies).map_err(|e| tampered(record, Fault::Unreadable(e.to_string())))
}

/// The shape of a conversation record's item.
fn shape(kind: &Kind, body: Option<&[u8]>) -> Result<Shape, Fault> {
    let body = body.map(|body| body::read(kind, body)).transpose()?.flatten();
    Ok(body.and_then(|body| body.shape()).unwrap_or(Shape::Words))
}

/// A result with the output that it refers to: of the line that it stands on, not far before it.
pub(crate) async fn with_output(reader: &Reader, record: &Record, mut result: ToolResult) -> Result<ToolResult> {
    let mut seq = record.seq();
    // Results follow the outputs of their turn: seldom more than a few records back.
    while let Some(before) = seq.checked_sub(1) {
        let finished = reader.record(Point { session: record.session(), seq: before }).await?;
        if Some(finished.id()) == result.finished {
            show(&mut result, &finished).map_err(|why| tampered(&finished, why))?;
            break;
        }
        seq = before;
        if *finished.kind() == Kind::Assistant {
            break;
        }
    }
    Ok(result)
}

/// An item as a detached session copies it.
pub(crate) async fn copy_of(reader: &Reader, item: &Item) -> Result<Copied> {
    let record = reader.record(item.origin).await?;
    if *record.kind() == Kind::Detached {
        let copy = read_copies(reader, &record).await?.into_iter().nth(item.part as usize);
        return copy.ok_or_else(|| tampered(&record, Fault::Erased));
    }
    if let Ok(result @ ToolResult { shown: None, finished: Some(_), .. }) = record.body::<ToolResult>() {
        let body = serde_json::to_string(&with_output(reader, &record, result).await?);
        let body = body.map_err(|why| tampered(&record, Fault::Unreadable(why.to_string())))?;
        return Ok(Copied { kind: record.kind().to_string(), part: item.part, body: Some(body), agent: None });
    }
    let body = record.body_bytes().map(|body| String::from_utf8_lossy(body).into_owned());
    Ok(Copied { kind: record.kind().to_string(), part: item.part, body, agent: None })
}

/// The items a detached session starts with.
pub(crate) fn items_of_copies(copied: &[Copied], origin: Point, generation: u64) -> Result<Items, Fault> {
    let mut items = Items::default();
    for (part, copy) in copied.iter().enumerate() {
        let shape = match Kind::named(&copy.kind) {
            kind @ (Kind::Assistant | Kind::ToolResult) => shape(&kind, copy.body.as_deref().map(str::as_bytes))?,
            Kind::Trimmed => match copy.said()? {
                Said::Tool(result) => Shape::Result(result.call.into()),
                _ => Shape::Words,
            },
            _ => Shape::Words,
        };
        items.push(Item::new(origin, part as u32, shape, generation));
    }
    Ok(items)
}
