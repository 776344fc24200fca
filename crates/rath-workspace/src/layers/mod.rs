//! Workspaces that are stacks of directories, as overlayfs puts them together.
//!
//! The lowest directory is a *checkout*: a version's files, shared by all who began with it. On it lie *sealed* layers,
//! what a session had changed when it was forked, and on top the *upper*, the only one that is ever written to. Which
//! they are is in the site's `stack.json`. A mount shows them as one directory to commands; nothing here needs it:
//! [`Stack`] reads the layers as the mount would show them, and what is written to the upper is what the mount would
//! have written.
//!
//! What lies under the upper is a version, so a save looks at the upper alone.

mod below;
mod checkout;
mod collect;
mod home;
mod marks;
mod relay;
mod rewrite;
mod seal;
mod sift;
mod site;
mod squash;
mod stack;

pub use collect::{CollectedLayers, collect_layers};
pub use home::remove_tree;
pub use seal::Sealed;
pub use site::{Laid, Overlay};

pub(super) use below::{Below, Under};
pub(super) use marks::{Listed, Opacity, list, opacity};
pub(super) use site::{Base, Site};
pub(super) use stack::{Layer, Spot, Stack, TOP};
