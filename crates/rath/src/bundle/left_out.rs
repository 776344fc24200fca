//! What bundles that were taken in had left out: a store knows it from its operator session, so that what was left out on
//! purpose is never taken for lost.

use std::collections::HashMap;
use std::sync::Arc;

use rath_core::body::Linked;
use rath_core::store::{Lookup, Scan, Store, Which};
use rath_core::{Actor, Blob, Digest, Kind, OPERATOR, Point, RecordId, Reference};

use super::Error;
use super::graph::{Graph, LeftOutBlob, LeftOutRecord};

/// What a `linked` record on the operator session calls a bundle.
const SYSTEM: &str = "rath bundle";

/// Records and blobs that are not here because a bundle came without them.
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    /// Records without a body.
    pub records: HashMap<RecordId, LeftOutRecord>,
    /// Blobs that are not there.
    pub blobs: HashMap<Digest, LeftOutBlob>,
    /// The sessions, each up to a record, that came without a blob.
    without: HashMap<Digest, Vec<Point>>,
    /// The reason that the last such bundle gave.
    pub because: Option<String>,
}

impl LeftOut {
    /// Reads what the operator session says about bundles.
    pub async fn of(store: &Arc<dyn Store>) -> Result<Self, Error> {
        let mut left_out = Self::default();
        let Some(operator) = store.sessions(Which::Run(OPERATOR.into()).into()).await?.into_iter().next() else {
            return Ok(left_out);
        };
        let mut from = 0;
        loop {
            let scan = Scan::session(operator.id, from, operator.seq).kinds(&[Kind::Linked]);
            let page = store.scan(scan).await?;
            for record in &page.records {
                let Ok(linked) = record.body::<Linked>() else { continue };
                let Some(source) = linked.source.filter(|_| linked.system == SYSTEM) else { continue };
                let Some(bytes) = store.blob_get(source.digest).await? else { continue };
                if let Ok(graph) = serde_json::from_slice::<Graph>(&bytes) {
                    left_out.add(graph);
                } else if let Ok(filled) = serde_json::from_slice::<Vec<Digest>>(&bytes) {
                    left_out.fill(&filled);
                }
            }
            if !page.more {
                return Ok(left_out);
            }
            from = page.position;
        }
    }

    /// Whether every one of these records came without the blob that it names.
    pub fn explains(&self, blob: Digest, named_by: &[Point]) -> bool {
        let heads = self.without.get(&blob).map_or(&[][..], Vec::as_slice);
        let came = |point: &Point| heads.iter().any(|head| head.session == point.session && point.seq <= head.seq);
        !heads.is_empty() && named_by.iter().all(came)
    }

    fn fill(&mut self, filled: &[Digest]) {
        for digest in filled {
            self.blobs.remove(digest);
            self.without.remove(digest);
        }
    }

    fn add(&mut self, graph: Graph) {
        let heads = graph.sessions.iter().map(|head| Point { session: head.session, seq: head.seq });
        let heads: Vec<Point> = heads.collect();
        for left in &graph.left_out_blobs {
            self.without.entry(left.digest).or_default().extend(&heads);
        }
        if graph.because.is_some() {
            self.because = graph.because;
        }
        self.records.extend(graph.left_out.into_iter().map(|left| (left.record.id, left)));
        self.blobs.extend(graph.left_out_blobs.into_iter().map(|left| (left.digest, left)));
    }
}

/// Writes on the operator session that blobs came which records here had been without: where they are missed from now on,
/// they were lost.
pub(super) async fn remember_filled(
    store: &Arc<dyn Store>,
    actor: &Actor,
    name: Option<String>,
    filled: &[Digest],
) -> Result<(), Error> {
    let list = serde_json::to_vec(filled).unwrap_or_default();
    link(store, actor, name, Blob::new(list, "application/json"), Vec::new(), "filled in").await
}

/// Writes on the operator session that a bundle was taken in. Only what the store lacks is remembered as
/// left out.
pub(super) async fn remember(
    store: &Arc<dyn Store>,
    actor: &Actor,
    name: Option<String>,
    graph: &Graph,
) -> Result<(), Error> {
    let mut lacks = graph.clone();
    lacks.left_out_blobs.clear();
    for left in &graph.left_out_blobs {
        if super::blobs::parts(store, left.digest).await?.is_none() {
            lacks.left_out_blobs.push(left.clone());
        }
    }
    lacks.left_out.clear();
    for left in &graph.left_out {
        let here = store.get(Lookup::At(left.record.point())).await?;
        if here.first().is_none_or(|here| here.body_bytes().is_none()) {
            lacks.left_out.push(left.clone());
        }
    }
    let blob = Blob::new(lacks.to_bytes(), "application/json");
    let heads = graph.sessions.iter().filter(|head| graph.of.contains(&head.session));
    let heads = heads.map(|head| Reference { session: head.session, seq: head.seq, id: head.head }).collect();
    link(store, actor, name, blob, heads, "taken in").await
}

async fn link(
    store: &Arc<dyn Store>,
    actor: &Actor,
    name: Option<String>,
    blob: Blob,
    heads: Vec<Reference>,
    why: &str,
) -> Result<(), Error> {
    let source = Some(blob.reference.clone());
    store.blob_put(vec![blob]).await?;
    let why = Some(why.to_owned());
    let mut operator = crate::operator(store, actor.clone()).await?;
    operator.append(Linked { system: SYSTEM.into(), uri: name, source, why, heads, repairs: Vec::new() })?;
    Ok(operator.publish().await?)
}
