//! Where a line of a run comes from: through branches, and lines on which the run went on, back to its first.

use std::collections::HashSet;
use std::sync::Arc;

use crate::blob::BlobRef;
use crate::body::{Created, Forked, Instead};
use crate::error::Result;
use crate::id::{Point, SessionId};
use crate::kind::Kind;
use crate::reader::{Reader, tampered};
use crate::record::{Fault, Record};
use crate::store::{Error, Store};

/// Where a line of a run comes from.
#[derive(Clone, Debug)]
pub struct Ancestry {
    /// The run's first line.
    pub root: SessionId,
    /// What the run is made of on this line, where the text of a program says it.
    pub program: Option<BlobRef>,
    /// The lines that were left on the way here, youngest first: where, for which, and why.
    pub(crate) left: Vec<(Point, SessionId, Instead)>,
}

impl Ancestry {
    /// Walks back from `line`.
    pub async fn of(store: &Arc<dyn Store>, line: SessionId) -> Result<Self> {
        let reader = Reader::new(store.clone());
        let mut ancestry = Self { root: line, program: None, left: Vec::new() };
        let mut seen = HashSet::new();
        loop {
            let first = reader.record(Point { session: ancestry.root, seq: 0 }).await?;
            // A forged fork point may lead back here.
            if !seen.insert(ancestry.root) {
                return Err(Error::Tampered { point: first.point(), why: Fault::Chain }.into());
            }
            let Some(forked) = forked(&first)? else {
                let created = first.body::<Created>().ok();
                ancestry.program = ancestry.program.or(created.and_then(|created| created.program));
                return Ok(ancestry);
            };
            let next = forked.maker.as_ref().map_or(forked.from.session, |maker| maker.session);
            match forked.instead {
                Some(instead) => {
                    ancestry.program = ancestry.program.or(instead.program.clone());
                    ancestry.left.push((forked.from, ancestry.root, instead));
                }
                None if forked.is_of_run() => {}
                None => return Ok(ancestry),
            }
            ancestry.root = next;
        }
    }
}

/// How a line began, if it is a fork.
pub(crate) fn forked(first: &Record) -> Result<Option<Forked>> {
    match first.kind() {
        Kind::Forked => Ok(Some(first.body().map_err(|why| tampered(first, why))?)),
        _ => Ok(None),
    }
}
