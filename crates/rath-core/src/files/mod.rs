//! Files as immutable values. A [`Version`] is the digest of a [`Tree`]. Trees and file contents are blobs in the
//! store, so sessions and forks share them, and this module works on any store.
//!
//! [`TreeStore`] reads and writes trees, [`diff`] compares two versions, [`with_changes`] applies changes to a version,
//! [`merge`] merges two versions and returns [`Conflict`]s as values, and [`patch`] formats changes for `git apply`.

mod conflict;
mod diff;
mod driver;
mod tree_store;

mod file_path;
mod merge;
mod patch;
mod quote;
mod text;
mod three_way;
mod tree;
mod version;
mod with_changes;

pub use conflict::{Conflict, ConflictKind};
pub use diff::diff;
pub use driver::{BadPattern, Driver, Drivers};
pub use file_path::FilePath;
pub use merge::{MergeOutcome, marked, merge};
pub use patch::{Patch, Stat, patch};
pub(crate) use text::short_text;
pub use three_way::{Hunk, hunks};
pub use tree::{MODE_BITS, Node, NodeKind, NotATree, TREE, Tree, TreeEntry};
pub use tree_store::TreeStore;
pub use version::{Change, Changes, MAX_LISTED, Version};
pub use with_changes::with_changes;
