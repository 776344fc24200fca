//! Layered workspaces: stacks of directories that overlayfs can mount as one.
//!
//! - The lowest layer is a *checkout*: the files of a version, shared by all workspaces that started with it.
//! - Above it are *sealed layers*. Each contains the changes that a session had made when it was forked.
//! - On top is the *upper* directory, the only one that is written to.
//!
//! The file `stack.json` in the workspace's state directory lists them ([`LayeredDir`]). Commands see the layers
//! through a mount. The code here needs no mount: [`Stack`] reads the layers with the semantics of overlayfs, and
//! writes to the upper directory what overlayfs would write.
//!
//! The layers below the upper directory together are a saved version, the *lower version*. So a save normally walks the
//! upper directory only.

mod apply_ignores;
mod checkout;
mod collect;
mod layered_dir;
mod layers_dir;
mod lower_version;
mod marks;
mod restore;
mod seal;
mod squash;
mod stack;
mod upper_rewriter;

pub use collect::{CollectedLayers, collect_layers};
pub use layered_dir::{CheckoutStats, OverlayDirs};
pub use layers_dir::remove_tree;
pub use seal::LayerFork;

pub(super) use layered_dir::{Base, LayeredDir};
pub(super) use lower_version::{LowerDir, LowerVersion};
pub(super) use marks::{DirMarker, ListedEntry, dir_marker, list};
pub(super) use stack::{Layer, Lookup, Stack, TOP};
