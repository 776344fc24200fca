//! Sessions as lanes: births, fork points, merges and heads are nodes, the records between them are counted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use rath_core::body::{Closed, Merged};
use rath_core::store::{Lookup, Query, Row, Scan, Which};
use rath_core::{Kind, Point, Record, Result, SessionId, Store, Time, View};
use serde::Serialize;

use super::records;
use super::steps::time_of;

/// A record of the graph.
#[derive(Clone, Debug, Serialize)]
pub struct GraphNode {
    /// The record.
    pub point: Point,
    /// When it was made.
    #[serde(skip)]
    pub time: Time,
    #[serde(skip)]
    generation: u64,
    /// The nodes below it: its parents, or what stands for them.
    pub parents: Vec<Point>,
    /// The lane it is drawn in, counted from the left.
    pub lane: usize,
    /// Records between this one and the next node below it on its session.
    pub hidden: u64,
    /// What it says, in a line.
    pub text: String,
    /// The title of the session, on its head.
    pub title: Option<String>,
    /// Whether it is the head of its session.
    pub head: bool,
    /// Whether its session has ended.
    pub closed: bool,
    /// Whether it merges branches.
    pub merge: bool,
}

/// The nodes of a graph, the newest first; parents come after their children.
#[derive(Clone, Debug)]
pub struct Graph {
    /// The nodes.
    pub nodes: Vec<GraphNode>,
    /// How many sessions are in it.
    pub sessions: usize,
    /// How many older sessions were left out.
    pub more: usize,
}

impl Graph {
    /// The sessions of a store that changed last, at most so many.
    pub async fn of_store(store: &Arc<dyn Store>, limit: usize) -> Result<Self> {
        let mut rows = store.sessions(Query::default()).await?;
        let more = rows.len().saturating_sub(limit);
        rows.truncate(limit);
        Self::of_rows(store, &rows, more).await
    }

    /// A session and those that it was forked from, each up to where `view` reaches it.
    pub async fn behind(store: &Arc<dyn Store>, view: &View) -> Result<Self> {
        let mut rows = Vec::new();
        for line in view.lineage().await? {
            for mut row in store.sessions(Which::Id(line.session).into()).await? {
                row.seq = row.seq.min(line.to);
                rows.push(row);
            }
        }
        Self::of_rows(store, &rows, 0).await
    }

    async fn of_rows(store: &Arc<dyn Store>, rows: &[Row], more: usize) -> Result<Self> {
        let mut nodes = nodes(store, rows).await?;
        nodes.sort_by_key(|node| std::cmp::Reverse((node.time, node.generation, node.point)));
        assign_lanes(&mut nodes);
        Ok(Self { nodes, sessions: rows.len(), more })
    }
}

/// Puts each node into the leftmost lane that leads to it. A node that no lane leads to begins one.
fn assign_lanes(nodes: &mut [GraphNode]) {
    let drawn: BTreeSet<Point> = nodes.iter().map(|node| node.point).collect();
    // The node that each lane leads to next.
    let mut lanes: Vec<Option<Point>> = Vec::new();
    let begin = |lanes: &mut Vec<Option<Point>>, point| match lanes.iter().position(Option::is_none) {
        Some(free) => {
            lanes[free] = Some(point);
            free
        }
        None => {
            lanes.push(Some(point));
            lanes.len() - 1
        }
    };
    for node in nodes {
        let leads_here = lanes.iter().position(|lane| *lane == Some(node.point));
        node.lane = leads_here.unwrap_or_else(|| begin(&mut lanes, node.point));
        lanes.iter_mut().filter(|lane| **lane == Some(node.point)).for_each(|lane| *lane = None);
        for parent in node.parents.iter().filter(|parent| drawn.contains(parent)) {
            if lanes.contains(&Some(*parent)) {
                continue;
            }
            // The first parent stays in the lane.
            match lanes[node.lane] {
                None => lanes[node.lane] = Some(*parent),
                Some(_) => drop(begin(&mut lanes, *parent)),
            }
        }
    }
}

async fn nodes(store: &Arc<dyn Store>, rows: &[Row]) -> Result<Vec<GraphNode>> {
    let listed: HashMap<SessionId, &Row> = rows.iter().map(|row| (row.id, row)).collect();
    // Which records of each session are nodes, and the merges among them.
    let mut drawn: BTreeMap<SessionId, BTreeSet<u64>> = BTreeMap::new();
    let mut merges: HashMap<Point, Vec<Point>> = HashMap::new();
    for row in rows {
        let line = drawn.entry(row.id).or_default();
        line.extend([0, head_of(store, row).await?]);
        if let Some(origin) = row.origin.filter(|origin| listed.contains_key(&origin.session)) {
            drawn.entry(origin.session).or_default().insert(origin.seq);
        }
        for merged in records(store, row.id, 0, row.seq, &[Kind::Merged]).await? {
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
            let record = store.get(Lookup::At(point)).await?.into_iter().next();
            let Some(record) = record else { continue };
            let own: Option<Point> = match below {
                Some(seq) => Some(Point { session, seq }),
                None => row.origin.map(|origin| origin.point()),
            };
            let mut parents: Vec<Point> = own.into_iter().collect();
            parents.extend(merges.get(&point).into_iter().flatten());
            nodes.push(GraphNode {
                point,
                time: time_of(&record)?,
                generation: record.generation(),
                parents,
                lane: 0,
                hidden: below.map_or(0, |below: u64| seq - below - 1),
                text: match seq == last && *record.kind() != Kind::Merged {
                    true => last_words(store, &record).await?,
                    false => rath_core::summary::of(&record),
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
        let last = store.get(Lookup::At(Point { session: row.id, seq: row.seq })).await?;
        let merged = last.first().and_then(|record| record.body::<Closed>().ok()?.merged_into);
        if merged.is_some() {
            return Ok(row.seq - 1);
        }
    }
    Ok(row.seq)
}

/// What was said last up to a session's head; the head itself if nothing was.
async fn last_words(store: &Arc<dyn Store>, head: &Record) -> Result<String> {
    let conversation = [Kind::System, Kind::User, Kind::Assistant, Kind::ToolResult];
    let scan = Scan::session(head.session(), 0, head.seq()).kinds(&conversation).backwards().limit(1);
    Ok(rath_core::summary::of(store.scan(scan).await?.records.first().unwrap_or(head)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: u128, seq: u64, parents: &[(u128, u64)]) -> GraphNode {
        let point = |(name, seq): (u128, u64)| Point {
            session: format!("00000000-0000-0000-0000-{name:012x}").parse().unwrap(),
            seq,
        };
        GraphNode {
            point: point((name, seq)),
            time: Time(0),
            generation: 0,
            parents: parents.iter().copied().map(point).collect(),
            lane: 0,
            hidden: 0,
            text: String::new(),
            title: None,
            head: false,
            closed: false,
            merge: false,
        }
    }

    #[test]
    fn a_branch_has_a_lane_of_its_own_until_its_fork_point() {
        // 1@3 merges 2@1 and 3@1, which were forked from 1@1; 4 has nothing to do with them, and a parent that is not drawn.
        let mut nodes = [
            node(1, 3, &[(1, 1), (2, 1), (3, 1)]),
            node(3, 1, &[(3, 0)]),
            node(4, 0, &[(5, 0)]),
            node(2, 1, &[(1, 1)]),
            node(3, 0, &[(1, 1)]),
            node(1, 1, &[(1, 0)]),
            node(1, 0, &[]),
        ];
        assign_lanes(&mut nodes);
        assert_eq!(nodes.map(|node| node.lane), [0, 2, 3, 1, 2, 0, 0]);
    }
}
