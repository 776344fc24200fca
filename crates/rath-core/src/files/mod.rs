//! Files as values. A [`Version`] is the digest of a [`Tree`]; trees and contents are blobs of the store, so versions
//! are shared between sessions and forks, and everything here works on any store.
//!
//! [`Forest`] reads trees, [`diff`] compares two versions, [`merge`] brings two together against a third and hands
//! out [`Conflict`]s as values, [`graft`] replaces paths, [`patch`] writes a difference as `git apply` takes it.

mod conflict;
mod diff;
mod driver;
mod forest;
mod graft;
mod merge;
mod name;
mod patch;
mod quote;
mod text;
mod three_way;
mod tree;
mod version;

pub use conflict::{Conflict, ConflictKind};
pub use diff::diff;
pub use driver::{BadPattern, Driver, Drivers};
pub use forest::Forest;
pub use graft::graft;
pub use merge::{Merge, marked, merge};
pub use name::Name;
pub use patch::{Patch, Stat, patch};
pub(crate) use text::short_text;
pub use three_way::{Hunk, hunks};
pub use tree::{Entry, MODE_BITS, Node, NodeKind, NotATree, TREE, Tree};
pub use version::{Change, Changes, LISTED, Version};
