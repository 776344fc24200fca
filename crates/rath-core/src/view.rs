//! A session as it was after one of its records. Reads only; any number may look at once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::Serialize;

use crate::body::{self, Assistant, Block, Detached, Merged};
use crate::blob::Content;
use crate::context::{Brought, Item, Items, Shape};
use crate::divergence::{Divergence, Tip};
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
    pub async fn of(store: &Arc<dyn Store>, session: SessionId, seq: Option<u64>) -> Result<Self> {
        let seq = match seq {
            Some(seq) => seq,
            None => row(store, session).await?.seq,
        };
        Self::at(Reader::new(store.clone()), Point { session, seq }).await
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
    pub async fn history(&self) -> Result<History> {
        let reach = Reach::of(&self.reader, &[self.at.point()]).await?;
        Ok(History::new(self.reader.clone(), &reach, &[]))
    }

    /// The records of this session alone, in order.
    pub async fn own(&self) -> Result<Vec<Record>> {
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
    pub async fn context(&self) -> Result<Vec<Message>> {
        let fold = ContextFold::run(&self.reader, self.at.point(), true).await?;
        let mut messages = Vec::with_capacity(fold.items.len());
        for item in fold.items.to_vec() {
            messages.push(fold.message(&item)?);
        }
        Ok(messages)
    }

    /// The last thing a model said here.
    pub async fn text(&self) -> Result<Option<String>> {
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
    pub async fn content(&self, content: &Content) -> Result<String> {
        self.reader.text(content).await
    }

    /// The sessions this one stands on, parents before children, itself last.
    pub async fn lineage(&self) -> Result<Vec<Ancestor>> {
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
    pub async fn back(&self, steps: u64) -> Result<Option<Point>> {
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
    pub async fn divergence(&self, other: &View) -> Result<Divergence> {
        let tip = |view: &View| Tip { point: view.at.point(), generation: view.at.generation() };
        Divergence::of(&self.reader, &[tip(self), tip(other)]).await
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
    Ok(ContextFold::run(reader, point, false).await?.items)
}

/// Folds all context records behind a point into the items there.
struct ContextFold {
    items: Items,
    /// Records by place, when their words are wanted.
    records: HashMap<Point, Record>,
    copied: HashMap<Point, Vec<Copied>>,
}

impl ContextFold {
    async fn run(reader: &Reader, point: Point, keep: bool) -> Result<Self> {
        let reach = Reach::of(reader, &[point]).await?;
        let mut history = History::new(reader.clone(), &reach, CONTEXT);
        let mut lines: HashMap<SessionId, Items> = HashMap::with_capacity(reach.lines.len());
        let mut joints: HashMap<SessionId, Vec<u64>> = HashMap::new();
        for joint in &reach.joints {
            joints.entry(joint.session).or_default().push(joint.seq);
        }
        joints.values_mut().for_each(|seqs| seqs.sort_unstable_by(|a, b| b.cmp(a)));
        let mut saved: HashMap<Point, Items> = HashMap::new();
        let mut fold = Self { items: Items::default(), records: HashMap::new(), copied: HashMap::new() };
        while let Some(record) = history.next().await? {
            let session = record.session();
            let items = lines.entry(session).or_default();
            // What the line was at its joints, now that it moves past them.
            while let Some(joint) = joints.get_mut(&session).and_then(|seqs| seqs.pop_if(|seq| *seq < record.seq())) {
                saved.insert(Point { session, seq: joint }, items.clone());
            }
            let take = |point: Point, saved: &HashMap<Point, Items>, current: Option<Items>| match saved.get(&point) {
                Some(items) => items.clone(),
                None => current.unwrap_or_default(),
            };
            let kind = record.kind().clone();
            let (point, generation) = (record.point(), record.generation());
            let mut kept = true;
            match kind {
                Kind::System | Kind::User => items.push(Item::new(point, 0, Shape::Words, generation)),
                Kind::Assistant | Kind::ToolResult => {
                    let shape = shape(&kind, record.body_bytes()).map_err(|why| tampered(&record, why))?;
                    items.push(Item::new(point, 0, shape, generation));
                }
                Kind::Compressed => {
                    let body: crate::body::Compressed = record.body().map_err(|why| tampered(&record, why))?;
                    let range = (body.replaces.at as usize, body.replaces.count as usize);
                    items
                        .compress(range.0, range.1, point)
                        .map_err(|why| tampered(&record, Fault::Unreadable(why.to_string())))?;
                }
                Kind::Forked => {
                    let body: crate::body::Forked = record.body().map_err(|why| tampered(&record, why))?;
                    let from = body.from.point();
                    let current = lines.get(&from.session).cloned();
                    let inherited = take(from, &saved, current);
                    lines.insert(session, inherited);
                    continue;
                }
                Kind::Detached => {
                    kept = false;
                    let body: Detached = record.body().map_err(|why| tampered(&record, why))?;
                    let copied: Vec<Copied> = serde_json::from_slice(&reader.blob(body.context.digest).await?)
                        .map_err(|e| tampered(&record, Fault::Unreadable(e.to_string())))?;
                    *items = items_of_copies(&copied, point, generation).map_err(|why| tampered(&record, why))?;
                    if keep {
                        fold.copied.insert(point, copied);
                    }
                }
                Kind::Merged => {
                    let body: Merged = record.body().map_err(|why| tampered(&record, why))?;
                    let own = std::mem::take(items);
                    let branch = |session: SessionId, seq: u64| {
                        take(Point { session, seq }, &saved, lines.get(&session).cloned())
                    };
                    let merged = merge_items(own, &body, point, generation, branch);
                    lines.insert(session, merged);
                    if keep {
                        fold.records.insert(point, record);
                    }
                    continue;
                }
                _ => kept = false,
            }
            if keep && kept {
                fold.records.insert(point, record);
            }
        }
        if let Some(items) = lines.remove(&point.session) {
            fold.items = items;
        }
        Ok(fold)
    }

    fn message(&self, item: &Item) -> Result<Message> {
        let said = if let Some(copied) = self.copied.get(&item.origin) {
            let Some(copy) = copied.get(item.part as usize) else {
                return Err(Error::Tampered { point: item.origin, why: Fault::Erased });
            };
            Said::read(&Kind::named(&copy.kind), copy.part, copy.body.as_deref().map(str::as_bytes))
        } else if let Some(record) = self.records.get(&item.origin) {
            Said::read(record.kind(), item.part, record.body_bytes())
        } else {
            Err(Fault::Erased)
        };
        let said = said.map_err(|why| Error::Tampered { point: item.origin, why })?;
        Ok(Message { origin: item.origin, said })
    }
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
        let body: Detached = record.body().map_err(|why| tampered(&record, why))?;
        let copied: Vec<Copied> = serde_json::from_slice(&reader.blob(body.context.digest).await?)
            .map_err(|e| tampered(&record, Fault::Unreadable(e.to_string())))?;
        let copy = copied.into_iter().nth(item.part as usize);
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
    branch_items: impl Fn(SessionId, u64) -> Items,
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
            let mut taken = HashSet::new();
            for (part, branch) in body.branches.iter().enumerate() {
                let marker = Item::new(point, part as u32, Shape::Marker, generation);
                items.append_branch(marker, &branch_items(branch.session, branch.seq), &brought, &mut taken);
            }
            items
        }
    }
}
