//! Computing the context after a merge.

use rustc_hash::FxHashSet as HashSet;

use super::{Item, ItemKind, Items, NewRecords};
use crate::body::{BranchContext, MergeStrategy, Merged};
use crate::id::{Point, SessionId};

/// The items after a merge.
pub(crate) fn merge_items(
    own: Items,
    body: &Merged,
    point: Point,
    generation: u64,
    mut branch_items: impl FnMut(SessionId, u64) -> Items,
) -> Items {
    let mut items = own;
    match &body.how {
        MergeStrategy::Keep { chosen } => match body.branches.iter().find(|branch| branch.session == *chosen) {
            Some(branch) => branch_items(branch.session, branch.seq),
            None => items,
        },
        MergeStrategy::FilesOnly | MergeStrategy::Unknown(_) => items,
        MergeStrategy::Append | MergeStrategy::Synthesize | MergeStrategy::PerBranch => {
            let is_per_branch = body.how == MergeStrategy::PerBranch;
            let kept = body.branches.iter().find(|branch| is_per_branch && branch.context == Some(BranchContext::Keep));
            if let Some(branch) = kept {
                items = branch_items(branch.session, branch.seq);
            }
            let new_records = NewRecords::new(&body.added);
            let mut seen = HashSet::default();
            for (part, branch) in body.branches.iter().enumerate() {
                if is_per_branch && branch.context != Some(BranchContext::Append) {
                    continue;
                }
                let marker = Item::new(point, part as u32, ItemKind::Marker, generation);
                items.append_branch(marker, &branch_items(branch.session, branch.seq), &new_records, &mut seen);
            }
            items
        }
    }
}
