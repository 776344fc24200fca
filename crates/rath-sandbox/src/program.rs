//! What a command means: its variables and the file that its name stands for.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::Access;

use crate::command::Command;
use crate::error::{Error, Result};

/// The `PATH` of isolated commands that are given none, and where the program of a command without a `PATH` is looked
/// for. Both backends find the same programs.
pub(crate) const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// When to give up on a program that is being written.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_millis(256);

/// What runs shell lines.
pub(crate) const SHELL: &str = "/bin/sh";

/// The variables of a command; of those with the same name the last one counts.
pub(crate) fn environment(command: &Command, base: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let base = if command.clean_env { &[] } else { base };
    let mut env = base.to_vec();
    for (name, value) in &command.env {
        env.retain(|(known, _)| known != name);
        env.extend(value.clone().map(|value| (name.clone(), value)));
    }
    env
}

/// The file that `name` means: a path is taken from `directory`, a plain name is looked for along the command's `PATH`.
pub(crate) fn find(name: &OsStr, env: &[(OsString, OsString)], directory: &Path) -> Result<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Ok(directory.join(name));
    }
    let path = env.iter().rev().find(|(name, _)| name == "PATH");
    let path = path.map_or(OsStr::new(DEFAULT_PATH), |(_, value)| value);
    let mut barred = None;
    for place in std::env::split_paths(path).filter(|_| !name.is_empty()) {
        let file = directory.join(place).join(name);
        match rustix::fs::access(&file, Access::EXEC_OK) {
            Ok(()) if !file.is_dir() => return Ok(file),
            Err(error) if error == rustix::io::Errno::ACCESS => barred = barred.or(Some(file)),
            _ => {}
        }
    }
    let tried = name.to_string_lossy().into_owned();
    Err(match barred {
        Some(file) => Error::CannotStart { tried, why: format!("{} is not executable", file.display()) },
        None => Error::CannotStart { tried, why: format!("there is no such program in {}", path.to_string_lossy()) },
    })
}

/// For a command of no words.
pub(crate) fn nothing_to_start() -> Error {
    Error::CannotStart { tried: "an empty command".into(), why: "name a program".into() }
}

/// Why `program` could not be started in `directory`.
pub(crate) fn not_started(error: &io::Error, program: &Path, directory: &Path) -> Error {
    let why = match error.kind() {
        ErrorKind::NotFound if !directory.is_dir() => {
            return Error::CannotStart {
                tried: format!("a command in {}", directory.display()),
                why: "there is no such directory".into(),
            };
        }
        ErrorKind::NotFound if program.exists() => "the interpreter that it names does not exist".into(),
        ErrorKind::NotFound => "there is no such program".into(),
        ErrorKind::ExecutableFileBusy => "another process is still writing it".into(),
        ErrorKind::PermissionDenied => "it is not an executable file, or its mode forbids it".into(),
        ErrorKind::WouldBlock | ErrorKind::OutOfMemory => {
            return Error::machine("starting a command", error.to_string());
        }
        _ => error.to_string(),
    };
    Error::CannotStart { tried: program.display().to_string(), why }
}
