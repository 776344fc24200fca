//! From a command to a process.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use rustix::fs::Access;

use super::MARKER;
use crate::command::{Command, Program, Stdin};
use crate::error::{Error, Result};

/// Where programs are looked for when the command has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

const SHELL: &str = "/bin/sh";

/// When to give up on a program that is being written.
const LONGEST_PAUSE: Duration = Duration::from_millis(256);

/// Starts a command in `directory`, in a process group of its own.
///
/// Program, directory and group are given in the form for which the standard library has its fast way of starting a
/// process (`posix_spawn`): a path instead of a name to look up, and no code between fork and exec.
pub(super) fn spawn(command: &Command, base: &[(OsString, OsString)], marker: &str, directory: &Path) -> Result<Child> {
    let env = environment(command, base);
    let (program, argv) = match &command.program {
        Program::Argv(argv) => {
            let Some((name, rest)) = argv.split_first() else {
                return Err(Error::CannotStart { tried: "an empty command".into(), why: "name a program".into() });
            };
            (find(name, &env, directory)?, (name.as_os_str(), rest.to_vec()))
        }
        Program::Shell(line) => (SHELL.into(), (OsStr::new("sh"), vec!["-c".into(), line.into()])),
    };
    #[allow(clippy::disallowed_methods, reason = "this is the owner")]
    let mut process = std::process::Command::new(&program);
    process.arg0(argv.0).args(argv.1).env_clear().envs(env).env(MARKER, marker).current_dir(directory).process_group(0);
    process.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(match &command.stdin {
        Stdin::Null => Stdio::null(),
        Stdin::Bytes(_) => Stdio::piped(),
        Stdin::Inherit => Stdio::inherit(),
    });
    spawn_idle(&mut process).map_err(|error| {
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
            ErrorKind::WouldBlock | ErrorKind::OutOfMemory => return Error::machine("starting a command", error),
            _ => error.to_string(),
        };
        Error::CannotStart { tried: program.display().to_string(), why }
    })
}

/// A process that is being started has all open files of this one for a moment. If a program is being written at
/// that moment it cannot be run ("text file busy") until the other process has let go of it. So programs are written
/// ([`no_process_starts`]) while none is started.
static STARTING: RwLock<()> = RwLock::new(());

/// Until it is dropped, no sandbox starts a process.
pub(super) fn no_process_starts() -> RwLockWriteGuard<'static, ()> {
    STARTING.write().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a process. Others that are not started by a sandbox may hold the program too; they let go of it soon.
fn spawn_idle(process: &mut std::process::Command) -> io::Result<Child> {
    let mut pause = Duration::from_millis(1);
    loop {
        let spawned = {
            let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
            process.spawn()
        };
        match spawned {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && pause < LONGEST_PAUSE => {
                std::thread::sleep(pause);
                pause *= 2;
            }
            done => return done,
        }
    }
}

/// The variables of a command; of those with the same name the last one counts.
fn environment(command: &Command, base: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let base = if command.clean_env { &[] } else { base };
    let mut env = base.to_vec();
    for (name, value) in &command.env {
        env.retain(|(known, _)| known != name);
        env.extend(value.clone().map(|value| (name.clone(), value)));
    }
    env
}

/// The file that `name` means: a path is taken from `directory`, a plain name is looked for along the command's `PATH`.
fn find(name: &OsStr, env: &[(OsString, OsString)], directory: &Path) -> Result<PathBuf> {
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
