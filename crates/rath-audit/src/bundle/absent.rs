//! What bundles that were taken in had left out: a store knows it from its operator session, so that what was left out on
//! purpose is never taken for lost.

use std::collections::HashMap;
use std::sync::Arc;

use rath_core::store::Store;
use rath_core::{Digest, Point, RecordId};

use super::graph::{Graph, LeftOutBlob, LeftOutRecord};
use super::{Error, notes};

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
        for (_, note) in notes::all(store).await? {
            let Some(bytes) = notes::content(store, &note).await? else { continue };
            if let Ok(graph) = serde_json::from_slice::<Graph>(&bytes) {
                left_out.add(graph);
            } else if let Ok(filled) = serde_json::from_slice::<Vec<Digest>>(&bytes) {
                left_out.fill(&filled);
            }
        }
        Ok(left_out)
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
