//! Checkouts: the files of a version on disk, shared by all workspaces that start with it.

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;

use rath_core::Store;
use rath_core::files::{FilePath, Version};

use super::layered_dir::CheckoutStats;
use super::layers_dir::{LayersDir, remove_tree};
use crate::error::{Error, Result};
use crate::pool::FILES;
use crate::root::Root;
use crate::tree_writer::TreeWriter;

/// Creates the checkout of a version unless it exists. It is written to a temporary directory and renamed, so an
/// existing checkout is always complete.
pub(super) fn check_out(
    store: &dyn Store,
    layers_dir: &LayersDir,
    version: &Version,
) -> Result<(String, CheckoutStats)> {
    let name = LayersDir::checkout(version.id());
    let reused = CheckoutStats { reused: true, files: 0, bytes: 0 };
    if layers_dir.path.join(&name).is_dir() {
        return Ok((name, reused));
    }
    let aside = layers_dir.temporary_dir(&name)?;
    let make = || {
        let root = Root::open(&aside)?;
        let tree_writer = TreeWriter::new(store, &aside);
        let usage = FILES.run(|| tree_writer.tree(root.fd().as_fd(), &FilePath::root(), version.id()))?;
        fs::set_permissions(&aside, fs::Permissions::from_mode(0o755))
            .map_err(|error| Error::machine(format!("making {}", aside.display()), error))?;
        match layers_dir.publish(&aside, &name)? {
            true => Ok(CheckoutStats { reused: false, files: usage.files, bytes: usage.bytes }),
            false => Ok(reused),
        }
    };
    match make() {
        Ok(stats) => Ok((name, stats)),
        Err(error) => {
            let _ = remove_tree(&aside);
            Err(error)
        }
    }
}
