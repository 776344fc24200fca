//! A session as it was after one of its records. Reads only; any number may look at once.

use std::sync::Arc;

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};
use serde::Serialize;

use crate::blob::Content;
use crate::body::{self, Assistant, Block, Compressed, Detached, Forked, Merged};
use crate::context::{Brought, Item, Items, Shape};
use crate::divergence::{Divergence, Tip};
use crate::error;
use crate::history::{History, Reach};
use crate::id::{Point, Reference, SessionId};
use crate::kind::Kind;
use crate::message::{Copied, Message, Said};
use crate::reader::{Reader, tampered};
use crate::record::{Fault, Record};
use crate::state::{Pending, State};
use crate::store::{Error, Result, Row, Store, Which};
use crate::usage::Usage;

/// The kinds that make or change a context.
const CONTEXT: &[Kind] = &[
    Kind::Created,
    Kind::Forked,
    Kind::Detached,
    Kind::Imported,
    Kind::Merged,
    Kind::System,
    Kind::User,
    Kind::Assistant,
    Kind::ToolResult,
    Kind::Compressed,
];

/// A session at one of its records.
pub struct View {
    pub(crate) reader: Reader,
    at: Record,
    state: State,
}

impl View {
    /// Looks at a stored session without holding it: at record `seq`, or at its head.
    pub async fn of(store: &Arc<dyn Store>, session: SessionId, seq: Option<u64>) -> error::Result<Self> {
        let seq = match seq {
            Some(seq) => seq,
            None => row(store, session).await?.seq,
        };
        Ok(Self::at(Reader::new(store.clone()), Point { session, seq }).await?)
    }

    pub(crate) async fn at(reader: Reader, point: Point) -> Result<Self> {
        let at = reader.record(point).await?;
        let state = reader.state_at(point).await?;
        Ok(Self { reader, at, state })
    }

    /// The record looked at.
    pub fn record(&self) -> &Record {
        &self.at
    }

    /// Where.
    pub fn reference(&self) -> Reference {
        self.at.reference()
    }

    /// The folded state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What everything up to here used.
    pub fn usage(&self) -> Usage {
        self.state.usage
    }

    /// What was open here.
    pub fn pending(&self) -> Pending {
        self.state.pending()
    }

    /// Every record behind this one, itself included, parents before children.
    pub async fn history(&self) -> error::Result<History> {
        let reach = Reach::of(&self.reader, &[self.at.point()]).await?;
        Ok(History::new(self.reader.clone(), &reach, &[]))
    }

    /// The records of this session alone, in order.
    pub async fn own(&self) -> error::Result<Vec<Record>> {
        let (session, to) = (self.at.session(), self.at.seq());
        let mut records = Vec::new();
        let mut from = 0;
        loop {
            let page = self.reader.page(session, from, to, &[]).await?;
            records.extend(page.records);
            if !page.more {
                return Ok(records);
            }
            from = page.position;
        }
    }

    /// What a model is shown here, item by item.
    pub async fn context(&self) -> error::Result<Vec<Message>> {
        Ok(ContextFold::run(&self.reader, self.at.point(), true).await?.messages()?)
    }

    /// The last thing a model said here.
    pub async fn text(&self) -> error::Result<Option<String>> {
        let items = items(&self.reader, self.at.point()).await?;
        for item in items.newest_first().filter(|item| matches!(item.shape, Shape::Turn(_))) {
            let record = self.reader.record(item.origin).await?;
            let Ok(turn) = record.body::<Assistant>() else { continue };
            let mut text = String::new();
            for block in &turn.blocks {
                if let Block::Text { text: content } = block {
                    text.push_str(&self.reader.text(content).await?);
                }
            }
            if !text.is_empty() {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    /// The text of some content, read from its blob where it has one.
    pub async fn content(&self, content: &Content) -> error::Result<String> {
        Ok(self.reader.text(content).await?)
    }

    /// The sessions this one stands on, parents before children, itself last.
    pub async fn lineage(&self) -> error::Result<Vec<Ancestor>> {
        let reach = Reach::of(&self.reader, &[self.at.point()]).await?;
        let mut lines = Vec::new();
        for (session, extent) in reach.lines {
            let origin = self.reader.line(session).await?.origin;
            lines.push((extent.born_generation, Ancestor { session, to: extent.to, origin }));
        }
        lines.sort_by_key(|(born, line)| (line.session == self.at.session(), *born, line.session));
        Ok(lines.into_iter().map(|(_, line)| line).collect())
    }

    /// The record `steps` first parents back, through fork points.
    pub async fn back(&self, steps: u64) -> error::Result<Option<Point>> {
        let mut at = self.at.point();
        let mut steps = steps;
        loop {
            if let Some(seq) = at.seq.checked_sub(steps) {
                return Ok(Some(Point { seq, ..at }));
            }
            steps -= at.seq + 1;
            match self.reader.line(at.session).await?.origin {
                Some(origin) => at = origin.point(),
                None => return Ok(None),
            }
        }
    }

    /// What this view and `other` share, and what only the other has.
    pub async fn divergence(&self, other: &View) -> error::Result<Divergence> {
        let tip = |view: &View| Tip { point: view.at.point(), generation: view.at.generation() };
        Ok(Divergence::of(&self.reader, &[tip(self), tip(other)]).await?)
    }
}

/// One line of a lineage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ancestor {
    /// The session.
    pub session: SessionId,
    /// Its last record that counts.
    pub to: u64,
    /// Its fork point.
    pub origin: Option<Reference>,
}

/// The row of one session.
pub(crate) async fn row(store: &Arc<dyn Store>, session: SessionId) -> Result<Row> {
    let rows = store.sessions(Which::Id(session).into()).await?;
    rows.into_iter().next().ok_or_else(|| Error::NotFound(format!("session {session}")))
}

/// The context items at `point`.
pub(crate) async fn items(reader: &Reader, point: Point) -> Result<Items> {
    Ok(ContextFold::run(reader, point, false).await?.line.items().clone())
}

/// Folds all context records behind a point into the items there.
struct ContextFold {
    line: Strand,
    /// What was said, by place, when the words are wanted.
    said: HashMap<(Point, u32), Said>,
}

/// The items of one line while it is read: those that others may share, and those read since.
#[derive(Clone, Default)]
struct Strand {
    shared: Items,
    fresh: Vec<Item>,
}

impl Strand {
    fn items(&mut self) -> &mut Items {
        for item in self.fresh.drain(..) {
            self.shared.push(item);
        }
        &mut self.shared
    }

    fn to_vec(&self) -> Vec<Item> {
        let mut all = self.shared.to_vec();
        all.extend(self.fresh.iter().cloned());
        all
    }
}

impl ContextFold {
    async fn run(reader: &Reader, point: Point, keep: bool) -> Result<Self> {
        let reach = Reach::of(reader, &[point]).await?;
        let mut history = History::new(reader.clone(), &reach, CONTEXT);
        let mut lines: HashMap<SessionId, Strand> = HashMap::default();
        let mut joints: HashMap<SessionId, Vec<u64>> = HashMap::default();
        for joint in &reach.joints {
            joints.entry(joint.session).or_default().push(joint.seq);
        }
        joints.values_mut().for_each(|seqs| seqs.sort_unstable_by(|a, b| b.cmp(a)));
        let mut saved: HashMap<Point, Items> = HashMap::default();
        let mut fold = Self { line: Strand::default(), said: HashMap::default() };
        while let Some(record) = history.step().await? {
            let session = record.session();
            let strand = lines.entry(session).or_default();
            // What the line was at its joints, now that it moves past them.
            while let Some(joint) = joints.get_mut(&session).and_then(|seqs| seqs.pop_if(|seq| *seq < record.seq())) {
                saved.insert(Point { session, seq: joint }, strand.items().clone());
            }
            let bad = |why| tampered(&record, why);
            let (point, generation) = (record.point(), record.generation());
            let mut said = |part: u32| -> Result<()> {
                if keep {
                    let said = Said::read(record.kind(), part, record.body_bytes()).map_err(bad)?;
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
                    let shape = shape(kind, record.body_bytes()).map_err(bad)?;
                    strand.fresh.push(Item::new(point, 0, shape, generation));
                }
                Kind::Compressed => {
                    said(0)?;
                    let range = record.body::<Compressed>().map_err(bad)?.replaces;
                    let done = strand.items().compress(range.at as usize, range.count as usize, point);
                    done.map_err(|why| bad(Fault::Unreadable(why.to_string())))?;
                }
                Kind::Forked => {
                    let from = record.body::<Forked>().map_err(bad)?.from;
                    let inherited = items_at(&mut lines, &saved, from);
                    lines.insert(session, Strand { shared: inherited, fresh: Vec::new() });
                }
                Kind::Detached => {
                    let copied = read_copies(reader, &record).await?;
                    let items = items_of_copies(&copied, point, generation).map_err(bad)?;
                    *strand = Strand { shared: items, fresh: Vec::new() };
                    if keep {
                        for (part, copy) in copied.iter().enumerate() {
                            fold.said.insert((point, part as u32), copy.said().map_err(bad)?);
                        }
                    }
                }
                Kind::Merged => {
                    let body: Merged = record.body().map_err(bad)?;
                    (0..body.branches.len()).try_for_each(|part| said(part as u32))?;
                    let own = strand.items().clone();
                    let branch = |session: SessionId, seq: u64| items_at(&mut lines, &saved, Point { session, seq });
                    let merged = merge_items(own, &body, point, generation, branch);
                    lines.insert(session, Strand { shared: merged, fresh: Vec::new() });
                }
                _ => {}
            }
        }
        fold.line = lines.remove(&point.session).unwrap_or_default();
        Ok(fold)
    }

    /// The words of the items, each taken out of the fold.
    fn messages(mut self) -> Result<Vec<Message>> {
        let items = self.line.to_vec();
        let mut messages = Vec::with_capacity(items.len());
        for Item { origin, part, .. } in items {
            let said = self.said.get_mut(&(origin, part)).map(|said| std::mem::replace(said, Said::Erased));
            let said = said.ok_or(Error::Tampered { point: origin, why: Fault::Erased })?;
            messages.push(Message { origin, said });
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

/// An item as a detached session copies it.
pub(crate) async fn copy_of(reader: &Reader, item: &Item) -> Result<Copied> {
    let record = reader.record(item.origin).await?;
    if *record.kind() == Kind::Detached {
        let copy = read_copies(reader, &record).await?.into_iter().nth(item.part as usize);
        return copy.ok_or_else(|| tampered(&record, Fault::Erased));
    }
    let body = record.body_bytes().map(|body| String::from_utf8_lossy(body).into_owned());
    Ok(Copied { kind: record.kind().to_string(), part: item.part, body })
}

/// The items a detached session starts with.
pub(crate) fn items_of_copies(copied: &[Copied], origin: Point, generation: u64) -> Result<Items, Fault> {
    let mut items = Items::default();
    for (part, copy) in copied.iter().enumerate() {
        let shape = match Kind::named(&copy.kind) {
            kind @ (Kind::Assistant | Kind::ToolResult) => shape(&kind, copy.body.as_deref().map(str::as_bytes))?,
            _ => Shape::Words,
        };
        items.push(Item::new(origin, part as u32, shape, generation));
    }
    Ok(items)
}

/// The items after a merge: the algebra of contexts.
pub(crate) fn merge_items(
    own: Items,
    body: &Merged,
    point: Point,
    generation: u64,
    mut branch_items: impl FnMut(SessionId, u64) -> Items,
) -> Items {
    use crate::body::Manner;
    let mut items = own;
    match &body.how {
        Manner::Keep { chosen } => match body.branches.iter().find(|branch| branch.session == *chosen) {
            Some(branch) => branch_items(branch.session, branch.seq),
            None => items,
        },
        Manner::Append | Manner::Synthesize => {
            let brought = Brought::new(&body.brought);
            let mut taken = HashSet::default();
            for (part, branch) in body.branches.iter().enumerate() {
                let marker = Item::new(point, part as u32, Shape::Marker, generation);
                items.append_branch(marker, &branch_items(branch.session, branch.seq), &brought, &mut taken);
            }
            items
        }
    }
}
