//! What a merge makes of the files.

use super::How;
use crate::body::MergedFiles;
use crate::divergence::{Divergence, Tip};
use crate::error::Result;
use crate::files::{Changes, Drivers, Forest, Version, diff, merge};
use crate::reader::Reader;
use crate::session::Session;

impl Session {
    /// The files of this line and of `others` together; `None` where nobody has any.
    pub(super) async fn merge_files(
        &self,
        reader: &Reader,
        others: &[Session],
        how: &How,
        drivers: &Drivers,
    ) -> Result<Option<MergedFiles>> {
        let forest = Forest::new(&*self.0.store);
        let ours = self.0.state.workspace.as_ref();
        let mut conflicts = Vec::new();
        let mut merged: Option<Version> = ours.cloned();
        match how {
            How::Keep { chosen, .. } => {
                if let Some(kept) = others.iter().find(|other| other.id() == *chosen) {
                    merged = kept.0.state.workspace.clone().or(merged);
                }
            }
            How::Append | How::Synthesize(_) => {
                for other in others {
                    let Some(theirs) = &other.0.state.workspace else { continue };
                    let Some(so_far) = merged.take_if(|so_far| !so_far.same_files(theirs)) else {
                        merged.get_or_insert_with(|| theirs.clone());
                        continue;
                    };
                    let base = self.files_before(reader, other).await?;
                    let made = merge(&forest, base.as_ref(), &so_far, theirs, drivers, Some(other.id())).await?;
                    conflicts.extend(made.conflicts);
                    merged = Some(made.version);
                }
            }
        }
        let Some(workspace) = merged else { return Ok(None) };
        let changed = match ours {
            Some(ours) => Changes::of(diff(&forest, ours, &workspace).await?),
            None => Changes::default(),
        };
        let rules = drivers.rules().to_vec();
        Ok(Some(MergedFiles { workspace, changed, conflicts, drivers: rules }))
    }

    /// The files where this line and `other` parted.
    async fn files_before(&self, reader: &Reader, other: &Session) -> Result<Option<Version>> {
        let tip = |session: &Session| Tip { point: session.point(), generation: session.0.head.generation };
        match Divergence::of(reader, &[tip(self), tip(other)]).await?.base {
            Some(base) => Ok(reader.state_at(base).await?.workspace),
            None => Ok(None),
        }
    }
}
