//! Finds the program of a command, and explains why one could not be started.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::Access;

use crate::environment::DEFAULT_PATH;
use crate::error::{Error, Result};

/// A program that another process is still writing cannot be executed ("text file busy"). The start is retried with
/// doubling pauses up to this one.
pub(crate) const MAX_RETRY_PAUSE: Duration = Duration::from_millis(256);

/// The shell for shell lines.
pub(crate) const SHELL: &str = "/bin/sh";

/// Finds the file of a program. A name with a slash is relative to `directory`; a plain name is searched in the
/// command's `PATH`.
pub(crate) fn find(name: &OsStr, env: &[(OsString, OsString)], directory: &Path) -> Result<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Ok(directory.join(name));
    }
    let path = env.iter().rev().find(|(name, _)| name == "PATH");
    let path = path.map_or(OsStr::new(DEFAULT_PATH), |(_, value)| value);
    let mut not_executable = None;
    for place in std::env::split_paths(path).filter(|_| !name.is_empty()) {
        let file = directory.join(place).join(name);
        match rustix::fs::access(&file, Access::EXEC_OK) {
            Ok(()) if !file.is_dir() => return Ok(file),
            Err(error) if error == rustix::io::Errno::ACCESS => not_executable = not_executable.or(Some(file)),
            _ => {}
        }
    }
    let tried = name.to_string_lossy().into_owned();
    Err(match not_executable {
        Some(file) => Error::CannotStart { tried, why: format!("{} is not executable", file.display()) },
        None => Error::CannotStart { tried, why: format!("program not found in {}", path.to_string_lossy()) },
    })
}

/// The error for a command without a program name.
pub(crate) fn nothing_to_start() -> Error {
    Error::CannotStart { tried: "an empty command".into(), why: "name a program".into() }
}

/// Explains why `program` could not be started in `directory`.
pub(crate) fn not_started(error: &io::Error, program: &Path, directory: &Path) -> Error {
    let why = match error.kind() {
        ErrorKind::NotFound if !directory.is_dir() => {
            return Error::CannotStart {
                tried: format!("a command in {}", directory.display()),
                why: "directory not found".into(),
            };
        }
        ErrorKind::NotFound if program.exists() => "its interpreter does not exist".into(),
        ErrorKind::NotFound => "program not found".into(),
        ErrorKind::ExecutableFileBusy => "another process is still writing it".into(),
        ErrorKind::PermissionDenied => "it is not an executable file, or its mode forbids it".into(),
        ErrorKind::WouldBlock | ErrorKind::OutOfMemory => {
            return Error::machine("starting a command", error.to_string());
        }
        _ => error.to_string(),
    };
    Error::CannotStart { tried: program.display().to_string(), why }
}
