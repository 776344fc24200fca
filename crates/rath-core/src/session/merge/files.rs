//! What a merge makes of the files.

use super::How;
use crate::body::MergedFiles;
use crate::divergence::{Divergence, Tip};
use crate::error::Result;
use crate::files::{Changes, Drivers, Forest, Version, diff, merge};
use crate::reader::Reader;
use crate::record::Record;
use crate::session::Session;
use crate::state::State;

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
        let mut conflicts = self.0.state.conflicts.clone();
        let mut merged: Option<Version> = ours.cloned();
        match how {
            How::Keep { chosen, .. } => {
                if let Some(kept) = others.iter().find(|other| other.id() == *chosen) {
                    merged = kept.0.state.workspace.clone().or(merged);
                    conflicts.clone_from(&kept.0.state.conflicts);
                }
            }
            How::Append | How::Synthesize(_) | How::TakeIn { .. } => {
                let others: Vec<_> = others.iter().filter(|other| how.takes_files_of(other.id())).collect();
                for (at, other) in others.iter().enumerate() {
                    let base = self.files_before(reader, &others[..at], other).await?;
                    let (before, there) =
                        (base.as_ref().map_or(&[][..], |base| &base.conflicts), &other.0.state.conflicts);
                    // What was open where they parted and is not on the branch was decided there.
                    conflicts.retain(|open| !before.contains(open) || there.contains(open));
                    let new: Vec<_> = there.iter().filter(|open| !before.contains(open)).cloned().collect();
                    conflicts.extend(new);
                    let Some(theirs) = &other.0.state.workspace else { continue };
                    let Some(so_far) = merged.take_if(|so_far| !so_far.same_files(theirs)) else {
                        merged.get_or_insert_with(|| theirs.clone());
                        continue;
                    };
                    let base = base.and_then(|base| base.workspace);
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

    /// The state where `other` parted from what is merged so far: from this line, or from a branch before it.
    async fn files_before(&self, reader: &Reader, merged: &[&Session], other: &Session) -> Result<Option<State>> {
        let tip = |session: &Session| Tip { point: session.point(), generation: session.0.head.generation };
        let mut youngest: Option<Record> = None;
        for line in std::iter::once(self).chain(merged.iter().copied()) {
            let Some(base) = Divergence::of(reader, &[tip(line), tip(other)]).await?.base else { continue };
            let base = reader.record(base).await?;
            if youngest.as_ref().is_none_or(|youngest| youngest.generation() < base.generation()) {
                youngest = Some(base);
            }
        }
        match youngest {
            Some(base) => Ok(Some(reader.state_at(base.point()).await?)),
            None => Ok(None),
        }
    }
}
