//! Sessions as lanes: births, fork points, merges and heads are drawn, the records between them counted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use anyhow::Result;
use rath::body::Merged;
use rath::store::{Of, Query, Row, Scan, Which};
use rath::{Kind, Point, Record, SessionId, Store, Time, View};
use renderdag::{Ancestor, GraphRowRenderer, Renderer as _};
use serde::Serialize;

use crate::commands::log::clip;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::time;

/// Sessions drawn when no limit is given.
const SESSIONS: usize = 200;

/// A drawn record.
#[derive(Serialize)]
struct Node {
    point: Point,
    #[serde(skip)]
    time: Time,
    #[serde(skip)]
    generation: u64,
    parents: Vec<Point>,
    /// Records between this one and the next drawn one below it on its line.
    hidden: u64,
    text: String,
    title: Option<String>,
    head: bool,
    closed: bool,
    merge: bool,
}

/// Draws the sessions of the store, or those that `view` stands on.
pub(crate) async fn draw(
    settings: &Settings,
    store: &Arc<dyn Store>,
    view: Option<&View>,
    limit: Option<usize>,
) -> Result<()> {
    let (rows, more) = match view {
        Some(view) => (lineage(store, view).await?, 0),
        None => {
            let mut rows = store.sessions(Query::default()).await?;
            let drawn = limit.unwrap_or(SESSIONS);
            let more = rows.len().saturating_sub(drawn);
            rows.truncate(drawn);
            (rows, more)
        }
    };
    let mut nodes = nodes(store, &rows).await?;
    nodes.sort_by_key(|node| std::cmp::Reverse((node.time, node.generation, node.point)));
    if settings.json {
        return output::json_lines(&nodes);
    }
    let drawn: BTreeSet<Point> = nodes.iter().map(|node| node.point).collect();
    let mut page = Page::default();
    let mut renderer = GraphRowRenderer::new().output().with_min_row_height(1).build_box_drawing();
    for node in &nodes {
        let parents = node.parents.iter().map(|parent| match drawn.contains(parent) {
            true => Ancestor::Parent(*parent),
            false => Ancestor::Anonymous,
        });
        let glyph = match (node.merge, node.head, node.closed) {
            (true, _, _) => "◆",
            (_, true, true) => "×",
            (_, true, false) => "●",
            _ => "○",
        };
        page.text(renderer.next_row(node.point, parents.collect(), glyph.into(), label(node)));
    }
    if more > 0 {
        page.line(style::dim(format!("{more} older sessions are not drawn; -n {} draws them", rows.len() + more)));
    }
    page.show(settings)
}

fn label(node: &Node) -> String {
    let mut text = style::session(node.point);
    let mut room = 72;
    if let Some(title) = &node.title {
        let title = clip(title, 40);
        room = 72usize.saturating_sub(title.chars().count()).max(24);
        text.push_str(&format!(" {}", style::title(format!("“{title}”"))));
    }
    text.push_str(&format!(" {}", clip(&node.text, room)));
    if node.head {
        text.push_str(&style::dim(format!("  {}", time::ago(node.time))));
    }
    if node.hidden > 0 {
        text.push_str(&style::dim(format!("\n~ {}", output::count(node.hidden, "record"))));
    }
    text
}

/// The rows of the lines behind a view, each cut where the view reaches it.
async fn lineage(store: &Arc<dyn Store>, view: &View) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for line in view.lineage().await? {
        for mut row in store.sessions(Which::Id(line.session).into()).await? {
            row.seq = row.seq.min(line.to);
            rows.push(row);
        }
    }
    Ok(rows)
}

async fn nodes(store: &Arc<dyn Store>, rows: &[Row]) -> Result<Vec<Node>> {
    let listed: HashMap<SessionId, &Row> = rows.iter().map(|row| (row.id, row)).collect();
    // Which records of each line are drawn, and the merges among them.
    let mut drawn: BTreeMap<SessionId, BTreeSet<u64>> = BTreeMap::new();
    let mut merges: HashMap<Point, Vec<Point>> = HashMap::new();
    for row in rows {
        let line = drawn.entry(row.id).or_default();
        line.extend([0, head_of(store, row).await?]);
        if let Some(origin) = row.origin.filter(|origin| listed.contains_key(&origin.session)) {
            drawn.entry(origin.session).or_default().insert(origin.seq);
        }
        for merged in merged_records(store, row).await? {
            let branches: Vec<Point> = merged
                .body::<Merged>()
                .map(|body| body.branches.iter().map(|branch| branch.head()).collect())
                .unwrap_or_default();
            drawn.entry(row.id).or_default().insert(merged.seq());
            for branch in branches.iter().filter(|branch| listed.contains_key(&branch.session)) {
                drawn.entry(branch.session).or_default().insert(branch.seq);
            }
            merges.insert(merged.point(), branches);
        }
    }
    let mut nodes = Vec::new();
    for (session, seqs) in drawn {
        let Some(row) = listed.get(&session) else { continue };
        let (mut below, last) = (None, seqs.last().copied().unwrap_or(0));
        for seq in seqs {
            let point = Point { session, seq };
            let record = store.get(rath::store::Lookup::At(point)).await?.into_iter().next();
            let Some(record) = record else { continue };
            let own: Option<Point> = match below {
                Some(seq) => Some(Point { session, seq }),
                None => row.origin.map(|origin| origin.point()),
            };
            let mut parents: Vec<Point> = own.into_iter().collect();
            parents.extend(merges.get(&point).into_iter().flatten());
            nodes.push(Node {
                point,
                time: record.time()?,
                generation: record.generation(),
                parents,
                hidden: below.map_or(0, |below: u64| seq - below - 1),
                text: match seq == last && *record.kind() != Kind::Merged {
                    true => last_words(store, &record).await?,
                    false => rath::summary::of(&record),
                },
                title: row.title.clone().filter(|_| seq == last),
                head: seq == last,
                closed: row.closed,
                merge: *record.kind() == Kind::Merged,
            });
            below = Some(seq);
        }
    }
    Ok(nodes)
}

/// The last record that says something: a branch that was merged ends where the merge took it in.
async fn head_of(store: &Arc<dyn Store>, row: &Row) -> Result<u64> {
    if row.closed && row.seq > 0 {
        let last = store.get(rath::store::Lookup::At(Point { session: row.id, seq: row.seq })).await?;
        let merged = last.first().and_then(|record| record.body::<rath::body::Closed>().ok()?.merged_into);
        if merged.is_some() {
            return Ok(row.seq - 1);
        }
    }
    Ok(row.seq)
}

/// What was said last on the line of its head; the head itself where nothing was.
async fn last_words(store: &Arc<dyn Store>, head: &Record) -> Result<String> {
    let conversation = [Kind::System, Kind::User, Kind::Assistant, Kind::ToolResult];
    let scan = Scan::session(head.session(), 0, head.seq()).kinds(&conversation).backwards().limit(1);
    Ok(rath::summary::of(store.scan(scan).await?.records.first().unwrap_or(head)))
}

async fn merged_records(store: &Arc<dyn Store>, row: &Row) -> Result<Vec<Record>> {
    let mut found = Vec::new();
    let mut scan = Scan::session(row.id, 0, row.seq).kinds(&[Kind::Merged]);
    loop {
        let page = store.scan(scan.clone()).await?;
        found.extend(page.records);
        if !page.more {
            return Ok(found);
        }
        scan.of = Of::Session { session: row.id, from: page.position, to: row.seq };
    }
}
