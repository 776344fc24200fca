//! Merging the files of branches.

use super::{How, MergeProgress};
use crate::body::MergedFiles;
use crate::divergence::Divergence;
use crate::error::Result;
use crate::files::{Changes, Drivers, TreeStore, Version, diff, merge};
use crate::id::Point;
use crate::reader::Reader;
use crate::session::Session;
use crate::state::State;

impl Session {
    /// Merges the files of this session and of `others`. `None` if no session has files.
    pub(super) async fn merge_files(
        &self,
        reader: &Reader,
        others: &[Session],
        so_far: &mut MergeProgress,
        how: &How,
        drivers: &Drivers,
    ) -> Result<Option<MergedFiles>> {
        let has_files =
            |session: &Session| session.0.state.workspace.is_some() || !session.0.state.conflicts.is_empty();
        if !std::iter::once(self).chain(others).any(has_files) {
            return Ok(None);
        }
        let forest = TreeStore::new(&*self.0.store);
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
            How::Append | How::Synthesize(_) | How::FilesOnly { .. } | How::PerBranch { .. } => {
                for other in others.iter().filter(|other| how.takes_files_of(other.id())) {
                    let parted = self.branched_at(reader, so_far, other).await?;
                    let there = &other.0.state.conflicts;
                    let theirs = other.0.state.workspace.as_ref();
                    let differ = match (&merged, theirs) {
                        (Some(merged), Some(theirs)) => !merged.same_files(theirs),
                        _ => false,
                    };
                    let base = match parted.filter(|_| differ || !(conflicts.is_empty() && there.is_empty())) {
                        Some(point) => Some(so_far.state_at(reader, point).await?),
                        None => None,
                    };
                    let before = base.map_or(&[][..], |base| &base.conflicts);
                    // A conflict that was open at the fork point and is not open on the branch was resolved there.
                    conflicts.retain(|open| !before.contains(open) || there.contains(open));
                    let new: Vec<_> = there.iter().filter(|open| !before.contains(open)).cloned().collect();
                    conflicts.extend(new);
                    let Some(theirs) = theirs else { continue };
                    let Some(so_far) = merged.take_if(|so_far| !so_far.same_files(theirs)) else {
                        merged.get_or_insert_with(|| theirs.clone());
                        continue;
                    };
                    let base = base.and_then(|base| base.workspace.as_ref());
                    let merge_outcome = merge(&forest, base, &so_far, theirs, drivers, Some(other.id())).await?;
                    conflicts.extend(merge_outcome.conflicts);
                    merged = Some(merge_outcome.version);
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

    /// The point at which `other` branched off from what is merged so far: this session or an earlier branch. Adds
    /// `other` to `so_far`.
    async fn branched_at(&self, reader: &Reader, so_far: &mut MergeProgress, other: &Session) -> Result<Option<Point>> {
        let found = Divergence::beyond(reader, &[so_far.start, other.tip()], &so_far.reached).await?;
        so_far.reached.add(&found.added);
        Ok(found.base)
    }
}

impl MergeProgress {
    /// The state at the point where a branch branched off.
    async fn state_at(&mut self, reader: &Reader, point: Point) -> Result<&State> {
        let known = match self.base.take() {
            Some((known, state)) if known == point => state,
            _ => reader.state_at(point).await?,
        };
        Ok(&self.base.insert((point, known)).1)
    }
}
