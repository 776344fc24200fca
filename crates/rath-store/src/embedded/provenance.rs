//! Records which user of which machine writes to a store, so that a store that was copied from another machine or user
//! is recognized.
//!
//! A machine is identified by `/etc/machine-id`. A user is identified by the user id and the home directory, which has
//! the user's configuration and permissions. `written-by.json` has digests of both. An attacker who can change the
//! files of a store can change this file too, but does not know the digests of another machine.

use std::fs;
use std::io::ErrorKind::NotFound;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rath_core::Digest;
use rath_core::store::{Error, Provenance, Result};
use serde::{Deserialize, Serialize};

/// The name of the file.
const FILE: &str = "written-by.json";

/// The possible paths of the machine id.
const MACHINE: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Writer {
    machine: String,
    user: String,
}

impl Writer {
    fn here() -> Self {
        let id = MACHINE.iter().find_map(|path| fs::read_to_string(path).ok().filter(|id| !id.trim().is_empty()));
        // All machines without an id count as the same machine.
        let machine = id.unwrap_or_default();
        let home = std::env::home_dir().unwrap_or_default();
        let digest = |parts: [&[u8]; 3]| {
            let text = parts.join(&b'\n');
            Digest::of(&text).hex().as_str()[..32].to_owned()
        };
        let uid = rustix::process::geteuid().as_raw().to_string();
        Self {
            machine: digest([b"rath: the machine of a store", machine.trim().as_bytes(), b""]),
            user: digest([b"rath: the user of a store", uid.as_bytes(), home.as_os_str().as_bytes()]),
        }
    }
}

fn path_in(root: &Path) -> PathBuf {
    root.join(FILE)
}

/// Where the store at `root` was written.
pub(super) fn of(root: &Path, database: &Path) -> Result<Provenance> {
    let path = path_in(root);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == NotFound => {
            let owner = fs::metadata(database).map(|file| file.uid()).ok();
            return Ok(match owner.is_some_and(|owner| owner != rustix::process::geteuid().as_raw()) {
                true => Provenance::Elsewhere("another user".into()),
                false => Provenance::Unknown,
            });
        }
        Err(error) => return Err(Error::machine(format!("reading {}", path.display()), error)),
    };
    let here = Writer::here();
    Ok(match serde_json::from_slice::<Writer>(&bytes) {
        Ok(writer) if writer == here => Provenance::Here,
        Ok(writer) if writer.machine == here.machine => Provenance::Elsewhere("another user".into()),
        // A file that cannot be parsed counts as another machine's.
        _ => Provenance::Elsewhere("another machine".into()),
    })
}

/// Records that this user of this machine writes to the store.
pub(super) fn claim(root: &Path) -> Result<()> {
    let path = path_in(root);
    let unfinished = path.with_extension(format!("json.{}.new", rath_core::fresh_name()));
    let bytes = serde_json::to_vec(&Writer::here()).unwrap_or_default();
    let written = fs::write(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, &path));
    written.map_err(|error| {
        let _ = fs::remove_file(&unfinished);
        Error::machine(format!("writing {}", path.display()), error)
    })
}
