//! The files of a version, on disk for everybody who begins with it.

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;

use rath_core::Store;
use rath_core::files::{Name, Version};

use super::home::{Home, remove_tree};
use super::site::Laid;
use crate::error::{Error, Result};
use crate::plant::Planter;
use crate::pool::FILES;
use crate::root::Root;

/// Makes the checkout of a version, if there is none. It is made aside and put in its place: what is there is whole.
pub(super) fn check_out(store: &dyn Store, home: &Home, version: &Version) -> Result<(String, Laid)> {
    let name = Home::checkout(version.id());
    let reused = Laid { reused: true, files: 0, bytes: 0 };
    if home.path.join(&name).is_dir() {
        return Ok((name, reused));
    }
    let aside = home.unfinished(&name)?;
    let make = || {
        let root = Root::open(&aside)?;
        let planter = Planter::new(store, &aside);
        let weight = FILES.run(|| planter.tree(root.fd().as_fd(), &Name::root(), version.id()))?;
        fs::set_permissions(&aside, fs::Permissions::from_mode(0o755))
            .map_err(|error| Error::machine(format!("making {}", aside.display()), error))?;
        match home.put(&aside, &name)? {
            true => Ok(Laid { reused: false, files: weight.files, bytes: weight.bytes }),
            false => Ok(reused),
        }
    };
    match make() {
        Ok(laid) => Ok((name, laid)),
        Err(error) => {
            let _ = remove_tree(&aside);
            Err(error)
        }
    }
}
