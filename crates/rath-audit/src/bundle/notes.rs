//! Records about bundles in the operator session: `linked` records, each with a file that has the details.

use std::sync::Arc;

use rath_core::body::{Arrived, ArrivedSession, Linked};
use rath_core::store::{Lookup, Scan, SessionFilter, Store};
use rath_core::{Actor, Blob, Digest, Kind, OPERATOR, Reference, Time};

use super::BundleError;
use super::graph::BundleGraph;

/// The system name in `linked` records about bundles. Stored: do not change it.
const SYSTEM: &str = "rath bundle";

/// The two values of `why`: an import started, and an import finished. Bundles that early versions imported have only
/// the second. Stored: do not change them.
pub(super) const STARTED: &str = "taking in";
pub(super) const FINISHED: &str = "taken in";

/// All `linked` records about bundles, with their times.
pub(super) async fn all(store: &Arc<dyn Store>) -> Result<Vec<(Time, Linked)>, BundleError> {
    let Some(operator) = store.sessions(SessionFilter::Run(OPERATOR.into()).into()).await?.into_iter().next() else {
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

/// The file of a `linked` record.
pub(super) async fn content(store: &Arc<dyn Store>, linked: &Linked) -> Result<Option<Vec<u8>>, BundleError> {
    match &linked.source {
        Some(source) => Ok(store.blob_get(source.digest).await?.map(|bytes| bytes.to_vec())),
        None => Ok(None),
    }
}

/// Records that missing blobs of existing records were imported. If they are missing later, they were lost.
pub(super) async fn filled(
    store: &Arc<dyn Store>,
    actor: &Actor,
    name: Option<String>,
    digests: &[Digest],
) -> Result<(), BundleError> {
    let list = serde_json::to_vec(digests).unwrap_or_default();
    link(store, actor, name, Blob::new(list, "application/json"), Vec::new(), &[], "filled in").await
}

/// Records the start or the end of an import. Of the omissions, only what the store lacks is recorded.
///
/// `arriving` are the sessions that the import adds records to: from the same commit on, they count as made in another
/// store.
pub(super) async fn remember(
    store: &Arc<dyn Store>,
    actor: &Actor,
    name: Option<String>,
    graph: &BundleGraph,
    arriving: &[ArrivedSession],
    why: &str,
) -> Result<(), BundleError> {
    let mut lacks = graph.clone();
    lacks.omitted_blobs.clear();
    for left in &graph.omitted_blobs {
        if super::blobs::parts(store, left.digest).await?.is_none() {
            lacks.omitted_blobs.push(left.clone());
        }
    }
    lacks.omitted_records.clear();
    for left in &graph.omitted_records {
        let here = store.get(Lookup::At(left.record.point())).await?;
        if here.first().is_none_or(|here| here.body_bytes().is_none()) {
            lacks.omitted_records.push(left.clone());
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
    arriving: &[ArrivedSession],
    why: &str,
) -> Result<(), BundleError> {
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
