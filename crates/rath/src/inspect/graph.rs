//! Sessions as a graph with lanes. First records, fork points, merges and heads are nodes; the records between them are
//! counted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use rath_core::body::{Closed, Merged};
use rath_core::store::{Lookup, Query, Scan, SessionFilter, SessionInfo};
use rath_core::{Kind, Point, Record, Result, SessionId, Store, Time, View};
use serde::Serialize;

use super::records;
use super::steps::time_of;

/// A record in the graph.
#[derive(Clone, Debug, Serialize)]
pub struct GraphNode {
    /// The record.
    pub point: Point,
    /// When it was made.
    #[serde(skip)]
    pub time: Time,
    #[serde(skip)]
    generation: u64,
    /// The nodes below it: its parents, or the nearest drawn records behind them.
    pub parents: Vec<Point>,
    /// The lane in which it is drawn, from the left.
    pub lane: usize,
    /// The number of records between this one and the next node below it in its session.
    pub hidden: u64,
    /// Its text, on one line.
    pub text: String,
    /// The title of the session, on its head.
    pub title: Option<String>,
    /// Whether it is the head of its session.
    pub head: bool,
    /// Whether its session is closed.
    pub closed: bool,
    /// Whether it merges branches.
    pub merge: bool,
}

/// A graph of sessions. The newest nodes come first, and parents after their children.
#[derive(Clone, Debug)]
pub struct Graph {
    /// The nodes.
    pub nodes: Vec<GraphNode>,
    /// The number of sessions in it.
    pub sessions: usize,
    /// The number of older sessions that were omitted.
    pub more: usize,
}

impl Graph {
    /// The graph of the sessions of a store that changed last, at most `limit`.
    pub async fn of_store(store: &Arc<dyn Store>, limit: usize) -> Result<Self> {
        let mut rows = store.sessions(Query::default()).await?;
        let more = rows.len().saturating_sub(limit);
        rows.truncate(limit);
        Self::of_rows(store, &rows, more).await
    }

    /// The graph of a session and those that it was forked from, each up to the records behind `view`.
    pub async fn behind(store: &Arc<dyn Store>, view: &View) -> Result<Self> {
        let mut rows = Vec::new();
        for line in view.lineage().await? {
            for mut row in store.sessions(SessionFilter::Id(line.session).into()).await? {
                row.seq = row.seq.min(line.to);
                rows.push(row);
            }
        }
        Self::of_rows(store, &rows, 0).await
    }

    async fn of_rows(store: &Arc<dyn Store>, rows: &[SessionInfo], more: usize) -> Result<Self> {
        let mut nodes = nodes(store, rows).await?;
        nodes.sort_by_key(|node| std::cmp::Reverse((node.time, node.generation, node.point)));
        assign_lanes(&mut nodes);
        Ok(Self { nodes, sessions: rows.len(), more })
    }
}

/// Assigns each node the leftmost lane that leads to it, or a new lane.
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

async fn nodes(store: &Arc<dyn Store>, rows: &[SessionInfo]) -> Result<Vec<GraphNode>> {
    let listed: HashMap<SessionId, &SessionInfo> = rows.iter().map(|row| (row.id, row)).collect();
    // The records of each session that are nodes, and the merges among them.
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

/// The last record with content. A merged branch ends at the record that was merged.
async fn head_of(store: &Arc<dyn Store>, row: &SessionInfo) -> Result<u64> {
    if row.closed && row.seq > 0 {
        let last = store.get(Lookup::At(Point { session: row.id, seq: row.seq })).await?;
        let merged = last.first().and_then(|record| record.body::<Closed>().ok()?.merged_into);
        if merged.is_some() {
            return Ok(row.seq - 1);
        }
    }
    Ok(row.seq)
}

/// The text of the last message up to a session's head, or of the head itself.
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
        // 1@3 merges 2@1 and 3@1, which were forked from 1@1; 4 has nothing to do with them, and a parent that is not
        // drawn.
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
