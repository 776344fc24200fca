//! The context after a merge: the algebra of contexts.

use rustc_hash::FxHashSet as HashSet;

use super::{Brought, Item, Items, Shape};
use crate::body::{Manner, Merged};
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
        Manner::Keep { chosen } => match body.branches.iter().find(|branch| branch.session == *chosen) {
            Some(branch) => branch_items(branch.session, branch.seq),
            None => items,
        },
        Manner::TakeIn | Manner::Unknown(_) => items,
        Manner::Append | Manner::Synthesize => {
            let brought = Brought::new(&body.brought);
            let mut taken = HashSet::default();
            for (part, branch) in body.branches.iter().enumerate() {
                let marker = Item::new(point, part as u32, Shape::Marker, generation);
                items.append_branch(marker, &branch_items(branch.session, branch.seq), &brought, &mut taken);
            }
            items
        }
    }
}
