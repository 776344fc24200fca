//! What imported bundles omitted, as recorded in the operator session, so that an omission is not mistaken for a loss.

use std::collections::HashMap;
use std::sync::Arc;

use rath_core::store::Store;
use rath_core::{Digest, Point, RecordId};

use super::graph::{BundleGraph, OmittedBlob, OmittedRecord};
use super::{BundleError, notes};

/// Records and blobs that are missing reason a bundle omitted them.
#[derive(Clone, Debug, Default)]
pub struct Omissions {
    /// Records without a body, by record id.
    pub records: HashMap<RecordId, OmittedRecord>,
    /// Missing blobs, by digest.
    pub blobs: HashMap<Digest, OmittedBlob>,
    /// The sessions that were imported without a blob, each up to a record, by digest.
    without: HashMap<Digest, Vec<Point>>,
    /// The reason given in the last such bundle.
    pub reason: Option<String>,
}

impl Omissions {
    /// Reads the records about bundles in the operator session.
    pub async fn of(store: &Arc<dyn Store>) -> Result<Self, BundleError> {
        let mut omissions = Self::default();
        for (_, note) in notes::all(store).await? {
            let Some(bytes) = notes::content(store, &note).await? else { continue };
            if let Ok(graph) = serde_json::from_slice::<BundleGraph>(&bytes) {
                omissions.add(graph);
            } else if let Ok(filled) = serde_json::from_slice::<Vec<Digest>>(&bytes) {
                omissions.fill(&filled);
            }
        }
        Ok(omissions)
    }

    /// Whether all of these records, which refer to the blob, were imported without it.
    pub fn explains(&self, blob: Digest, named_by: &[Point]) -> bool {
        let heads = self.without.get(&blob).map_or(&[][..], Vec::as_slice);
        let is_covered =
            |point: &Point| heads.iter().any(|head| head.session == point.session && point.seq <= head.seq);
        !heads.is_empty() && named_by.iter().all(is_covered)
    }

    fn fill(&mut self, filled: &[Digest]) {
        for digest in filled {
            self.blobs.remove(digest);
            self.without.remove(digest);
        }
    }

    fn add(&mut self, graph: BundleGraph) {
        let heads = graph.sessions.iter().map(|head| Point { session: head.session, seq: head.seq });
        let heads: Vec<Point> = heads.collect();
        for left in &graph.omitted_blobs {
            self.without.entry(left.digest).or_default().extend(&heads);
        }
        if graph.reason.is_some() {
            self.reason = graph.reason;
        }
        self.records.extend(graph.omitted_records.into_iter().map(|left| (left.record.id, left)));
        self.blobs.extend(graph.omitted_blobs.into_iter().map(|left| (left.digest, left)));
    }
}
