//! Reading a context: folds the records that add or change items, from the oldest one up to a given point.

use std::sync::LazyLock;

use rustc_hash::FxHashMap as HashMap;

use super::{Item, ItemKind, Items, merge_items};
use crate::body::{
    self, Compressed, Detached, Forked, Merged, Replaced, Role, StepEntered, ToolFinished, ToolResult, Trimmed,
};
use crate::history::{History, Reachable};
use crate::id::{Point, RecordId, SessionId};
use crate::kind::{InContext, Kind};
use crate::message::{Copied, Message, MessageBody};
use crate::reader::{Reader, tampered};
use crate::record::{Record, RecordError};
use crate::store::{Error, Result};

/// The kinds that the items of a context are folded from.
static CONTEXT: LazyLock<Vec<Kind>> =
    LazyLock::new(|| Kind::all(|row| matches!(row.context, InContext::Message | InContext::Edits)));

/// Those kinds, the outputs that results refer to, and the steps that name agents.
static WITH_WORDS: LazyLock<Vec<Kind>> = LazyLock::new(|| Kind::all(|row| row.context != InContext::Hidden));

/// Fills in the output of a call if `result` only refers to it. Does nothing if the output is erased.
fn show(result: &mut ToolResult, finished: &Record) -> std::result::Result<(), RecordError> {
    if finished.body_bytes().is_some() {
        result.show(&finished.body::<ToolFinished>()?);
    }
    Ok(())
}

/// The context items at `point`.
pub(crate) async fn items_at_point(reader: &Reader, point: Point) -> Result<Items> {
    Ok(ContextFold::run(reader, point, false).await?.current.items().clone())
}

/// Folds the context records up to a point into the items there.
pub(crate) struct ContextFold {
    current: SessionItems,
    /// The message bodies by item, if messages are requested.
    bodies: HashMap<(Point, u32), MessageBody>,
    /// The agents of turns and results by item, if messages are requested.
    agents: HashMap<(Point, u32), String>,
}

/// The items of one session while it is read: a part that other sessions may share, and items added since.
#[derive(Clone, Default)]
struct SessionItems {
    shared: Items,
    fresh: Vec<Item>,
    /// Whether an erased record has shifted positions. Then ranges are located by their records.
    shifted: bool,
}

impl SessionItems {
    fn items(&mut self) -> &mut Items {
        for item in self.fresh.drain(..) {
            self.shared.push(item);
        }
        &mut self.shared
    }

    /// The current position and length of a replaced range; `None` if it is not there any more.
    fn locate(&self, range: Replaced) -> Option<(usize, usize)> {
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
        let reachable = Reachable::of(reader, &[point]).await?;
        let mut history = History::new(reader.clone(), &reachable, if keep { &WITH_WORDS } else { &CONTEXT });
        let mut outputs: HashMap<RecordId, Record> = HashMap::default();
        let mut sessions: HashMap<SessionId, SessionItems> = HashMap::default();
        let mut branch_points: HashMap<SessionId, Vec<u64>> = HashMap::default();
        for branch_point in &reachable.branch_points {
            branch_points.entry(branch_point.session).or_default().push(branch_point.seq);
        }
        branch_points.values_mut().for_each(|seqs| seqs.sort_unstable_by(|a, b| b.cmp(a)));
        let mut saved: HashMap<Point, Items> = HashMap::default();
        let mut fold =
            Self { current: SessionItems::default(), bodies: HashMap::default(), agents: HashMap::default() };
        let mut steps: HashMap<RecordId, String> = HashMap::default();
        while let Some(record) = history.next_record().await? {
            let session = record.session();
            let session_items = sessions.entry(session).or_default();
            // Save the items at each branch point before moving past it.
            while let Some(branch_point) =
                branch_points.get_mut(&session).and_then(|seqs| seqs.pop_if(|seq| *seq < record.seq()))
            {
                saved.insert(Point { session, seq: branch_point }, session_items.items().clone());
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
            let mut keep_body = |part: u32| -> Result<()> {
                if keep {
                    let mut body = MessageBody::read(record.kind(), part, record.body_bytes()).map_err(bad)?;
                    if let MessageBody::Tool(result @ ToolResult { shown: None, finished: Some(_), .. }) = &mut body
                        && let Some(finished) = result.finished.and_then(|finished| outputs.remove(&finished))
                    {
                        show(result, &finished).map_err(bad)?;
                    }
                    fold.bodies.insert((point, part), body);
                }
                Ok(())
            };
            match record.kind() {
                Kind::System | Kind::User => {
                    keep_body(0)?;
                    session_items.fresh.push(Item::new(point, 0, ItemKind::Message, generation));
                }
                kind @ (Kind::Assistant | Kind::ToolResult) => {
                    keep_body(0)?;
                    if keep
                        && !steps.is_empty()
                        && let Some(agent) = record.header().ok().and_then(|header| steps.get(&header.step?))
                    {
                        fold.agents.insert((point, 0), agent.clone());
                    }
                    let item_kind = item_kind(kind, record.body_bytes()).map_err(bad)?;
                    session_items.fresh.push(Item::new(point, 0, item_kind, generation));
                }
                // The items that an erased summary replaced are visible again, unless they are erased too.
                Kind::Compressed if record.body_bytes().is_none() => session_items.shifted = true,
                Kind::Compressed => {
                    keep_body(0)?;
                    let range = session_items.locate(record.body::<Compressed>().map_err(bad)?.replaces);
                    if let Some((at, count)) = range {
                        let done = session_items.items().compress(at, count, point);
                        done.map_err(|why| bad(RecordError::Unreadable(why.to_string())))?;
                    }
                }
                // Bodies from before the kind had a type may not parse. They change nothing, and neither do erased
                // ones.
                Kind::Trimmed => {
                    if let Ok(body) = record.body::<Trimmed>() {
                        keep_body(0)?;
                        let agent = fold.agents.get(&(body.result, body.part)).cloned();
                        fold.agents.extend(agent.map(|agent| ((point, 0), agent)));
                        session_items.items().trim((body.result, body.part), point);
                    }
                }
                Kind::Forked => {
                    let from = match record.body::<Forked>() {
                        Ok(body) => body.from,
                        // The store also knows the fork point.
                        Err(RecordError::Erased) => match reader.session_start(session).await?.origin {
                            Some(origin) => origin.point(),
                            None => return Err(bad(RecordError::Erased)),
                        },
                        Err(why) => return Err(bad(why)),
                    };
                    let inherited = items_at(&mut sessions, &saved, from);
                    sessions.insert(session, SessionItems { shared: inherited, ..SessionItems::default() });
                }
                Kind::Detached if record.body_bytes().is_none() => {}
                Kind::Detached => {
                    let copied = read_copies(reader, &record).await?;
                    let items = items_of_copies(&copied, point, generation).map_err(bad)?;
                    *session_items = SessionItems { shared: items, ..SessionItems::default() };
                    if keep {
                        for (part, copy) in copied.iter().enumerate() {
                            fold.bodies.insert((point, part as u32), copy.body().map_err(bad)?);
                            if let Some(agent) = &copy.agent {
                                fold.agents.insert((point, part as u32), agent.clone());
                            }
                        }
                    }
                }
                // The merge strategy is lost: keep the session's own items.
                Kind::Merged if record.body_bytes().is_none() => session_items.shifted = true,
                Kind::Merged => {
                    let body: Merged = record.body().map_err(bad)?;
                    (0..body.branches.len()).try_for_each(|part| keep_body(part as u32))?;
                    // An unknown merge strategy shifts positions, as an erased merge does.
                    let shifted = session_items.shifted || body.has_unknown_strategy();
                    let own = session_items.items().clone();
                    let branch = |session: SessionId, seq: u64| items_at(&mut sessions, &saved, Point { session, seq });
                    let merged = merge_items(own, &body, point, generation, branch);
                    sessions.insert(session, SessionItems { shared: merged, shifted, ..SessionItems::default() });
                }
                _ => {}
            }
        }
        fold.current = sessions.remove(&point.session).unwrap_or_default();
        Ok(fold)
    }

    /// The items, oldest first.
    pub(crate) fn items(&self) -> Vec<Item> {
        self.current.to_vec()
    }

    /// The items' messages.
    pub(crate) fn messages(mut self) -> Result<Vec<Message>> {
        let items = self.current.to_vec();
        let mut messages = Vec::with_capacity(items.len());
        for Item { origin, part, .. } in items {
            let body = self.bodies.get_mut(&(origin, part)).map(|body| std::mem::replace(body, MessageBody::Erased));
            let body = body.ok_or(Error::Tampered { point: origin, why: RecordError::Erased })?;
            messages.push(Message { agent: self.agents.remove(&(origin, part)), ..Message::new(origin, body) });
        }
        Ok(messages)
    }
}

/// The items of a session at a branch point: those saved there, or the current ones.
fn items_at(sessions: &mut HashMap<SessionId, SessionItems>, saved: &HashMap<Point, Items>, at: Point) -> Items {
    match saved.get(&at) {
        Some(items) => items.clone(),
        None => sessions.get_mut(&at.session).map(|session_items| session_items.items().clone()).unwrap_or_default(),
    }
}

/// Reads the items that a `detached` record copied.
async fn read_copies(reader: &Reader, record: &Record) -> Result<Vec<Copied>> {
    let body: Detached = record.body().map_err(|why| tampered(record, why))?;
    let copies = reader.blob(body.context.digest).await?;
    serde_json::from_slice(&copies).map_err(|e| tampered(record, RecordError::Unreadable(e.to_string())))
}

/// The kind of a conversation record's item.
fn item_kind(kind: &Kind, body: Option<&[u8]>) -> Result<ItemKind, RecordError> {
    let body = body.map(|body| body::read(kind, body)).transpose()?.flatten();
    Ok(body.and_then(|body| body.item_kind()).unwrap_or(ItemKind::Message))
}

/// Fills in the output that a result refers to. It is in the same session, a few records before the result.
pub(crate) async fn with_output(reader: &Reader, record: &Record, mut result: ToolResult) -> Result<ToolResult> {
    let mut seq = record.seq();
    // The outputs of a turn directly precede its results, so this loop is short.
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

/// Copies an item for a detached session.
pub(crate) async fn copy_of(reader: &Reader, item: &Item) -> Result<Copied> {
    let record = reader.record(item.origin).await?;
    if *record.kind() == Kind::Detached {
        let copy = read_copies(reader, &record).await?.into_iter().nth(item.part as usize);
        return copy.ok_or_else(|| tampered(&record, RecordError::Erased));
    }
    if let Ok(result @ ToolResult { shown: None, finished: Some(_), .. }) = record.body::<ToolResult>() {
        let body = serde_json::to_string(&with_output(reader, &record, result).await?);
        let body = body.map_err(|why| tampered(&record, RecordError::Unreadable(why.to_string())))?;
        return Ok(Copied { kind: record.kind().to_string(), part: item.part, body: Some(body), agent: None });
    }
    let body = record.body_bytes().map(|body| String::from_utf8_lossy(body).into_owned());
    Ok(Copied { kind: record.kind().to_string(), part: item.part, body, agent: None })
}

/// The items that a detached session starts with.
pub(crate) fn items_of_copies(copied: &[Copied], origin: Point, generation: u64) -> Result<Items, RecordError> {
    let mut items = Items::default();
    for (part, copy) in copied.iter().enumerate() {
        let item_kind = match Kind::named(&copy.kind) {
            kind @ (Kind::Assistant | Kind::ToolResult) => item_kind(&kind, copy.body.as_deref().map(str::as_bytes))?,
            Kind::Trimmed => match copy.body()? {
                MessageBody::Tool(result) => ItemKind::Result(result.call.into()),
                _ => ItemKind::Message,
            },
            _ => ItemKind::Message,
        };
        items.push(Item::new(origin, part as u32, item_kind, generation));
    }
    Ok(items)
}
