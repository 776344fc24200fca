//! What the operator session says about bundles: `linked` records, each with a file that tells more.

use std::sync::Arc;

use rath_core::body::{Arrived, ArrivedLine, Linked};
use rath_core::store::{Lookup, Scan, Store, Which};
use rath_core::{Actor, Blob, Digest, Kind, OPERATOR, Reference, Time};

use super::Error;
use super::graph::Graph;

/// What a `linked` record on the operator session calls a bundle.
const SYSTEM: &str = "rath bundle";

/// Why a bundle is named there: it begins to come, and it has come in whole. Bundles that earlier versions took in are only
/// named by the latter.
pub(super) const COMING: &str = "taking in";
pub(super) const CAME: &str = "taken in";

/// They, and when each was written.
pub(super) async fn all(store: &Arc<dyn Store>) -> Result<Vec<(Time, Linked)>, Error> {
    let Some(operator) = store.sessions(Which::Run(OPERATOR.into()).into()).await?.into_iter().next() else {
        return Ok(Vec::new());
    };
    let (mut notes, mut from) = (Vec::new(), 0);
    loop {
        let scan = Scan::session(operator.id, from, operator.seq).kinds(&[Kind::Linked]);
        let page = store.scan(scan).await?;
        for record in &page.records {
            if let (Ok(linked), Ok(time)) = (record.body::<Linked>(), record.time())
                && linked.system == SYSTEM
            {
                notes.push((time, linked));
            }
        }
        if !page.more {
            return Ok(notes);
        }
        from = page.position;
    }
}

/// The file of one.
pub(super) async fn content(store: &Arc<dyn Store>, linked: &Linked) -> Result<Option<Vec<u8>>, Error> {
    match &linked.source {
        Some(source) => Ok(store.blob_get(source.digest).await?.map(|bytes| bytes.to_vec())),
        None => Ok(None),
    }
}

/// Writes on the operator session that blobs came which records here had been without: where they are missed from now on,
/// they were lost.
pub(super) async fn filled(
    store: &Arc<dyn Store>,
    actor: &Actor,
    name: Option<String>,
    digests: &[Digest],
) -> Result<(), Error> {
    let list = serde_json::to_vec(digests).unwrap_or_default();
    link(store, actor, name, Blob::new(list, "application/json"), Vec::new(), &[], "filled in").await
}

/// Writes on the operator session that a bundle begins to come, or came. Only what the store lacks is remembered as left
/// out.
///
/// `arriving` are the sessions of which records come with it: from the same commit on, they count as made elsewhere.
pub(super) async fn remember(
    store: &Arc<dyn Store>,
    actor: &Actor,
    name: Option<String>,
    graph: &Graph,
    arriving: &[ArrivedLine],
    why: &str,
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
    link(store, actor, name, blob, heads, arriving, why).await
}

async fn link(
    store: &Arc<dyn Store>,
    actor: &Actor,
    name: Option<String>,
    blob: Blob,
    heads: Vec<Reference>,
    arriving: &[ArrivedLine],
    why: &str,
) -> Result<(), Error> {
    let source = Some(blob.reference.clone());
    store.blob_put(vec![blob]).await?;
    let why = Some(why.to_owned());
    let mut operator = crate::operator(store, actor.clone()).await?;
    let from = name.as_ref().map_or("a bundle".into(), |name| format!("bundle {name}"));
    for list in Arrived::list(&from, arriving) {
        operator.append(list)?;
    }
    operator.append(Linked { system: SYSTEM.into(), uri: name, source, why, heads, repairs: Vec::new() })?;
    Ok(operator.publish().await?)
}
