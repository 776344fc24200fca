//! Which user of which machine writes to a store: noted beside the database, so that a store that was copied from elsewhere
//! is known.
//!
//! A machine is known by `/etc/machine-id`, a user by the user id and the home directory, where what a person configured
//! and allowed lies. Both are noted as digests. Whoever changes the files of a store can change this note, too, but cannot
//! know what it must say on another machine.

use std::fs;
use std::io::ErrorKind::NotFound;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rath_core::Digest;
use rath_core::store::{Error, Provenance, Result};
use serde::{Deserialize, Serialize};

/// Where it is noted.
const NOTE: &str = "written-by.json";

/// Where the machine's id may be.
const MACHINE: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Writer {
    machine: String,
    user: String,
}

impl Writer {
    fn here() -> Self {
        let id = MACHINE.iter().find_map(|path| fs::read_to_string(path).ok().filter(|id| !id.trim().is_empty()));
        // Without an id, machines without one are taken for the same.
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

fn note(root: &Path) -> PathBuf {
    root.join(NOTE)
}

/// Who wrote to the store at `root`.
pub(super) fn of(root: &Path, database: &Path) -> Result<Provenance> {
    let path = note(root);
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
        // Also one that cannot be read.
        _ => Provenance::Elsewhere("another machine".into()),
    })
}

/// Notes that this user of this machine writes to it.
pub(super) fn claim(root: &Path) -> Result<()> {
    let path = note(root);
    let unfinished = path.with_extension(format!("json.{}.new", rath_core::fresh_name()));
    let bytes = serde_json::to_vec(&Writer::here()).unwrap_or_default();
    let written = fs::write(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, &path));
    written.map_err(|error| {
        let _ = fs::remove_file(&unfinished);
        Error::machine(format!("writing {}", path.display()), error)
    })
}
