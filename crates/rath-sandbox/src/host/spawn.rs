//! From a command to a process.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use super::MARKER;
use crate::command::{Command, Program, Stdin};
use crate::error::Result;
use crate::program::{LONGEST_PAUSE, SHELL, environment, find, not_started, nothing_to_start};
use crate::starting;

/// Starts a command in `directory`, in a process group of its own.
///
/// Program, directory and group are given in the form for which the standard library has its fast way of starting a
/// process (`posix_spawn`): a path instead of a name to look up, and no code between fork and exec.
pub(super) fn spawn(command: &Command, base: &[(OsString, OsString)], marker: &str, directory: &Path) -> Result<Child> {
    let env = environment(command, base);
    let (program, argv) = match &command.program {
        Program::Argv(argv) => {
            let Some((name, rest)) = argv.split_first() else {
                return Err(nothing_to_start());
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
    spawn_idle(&mut process).map_err(|error| not_started(&error, &program, directory))
}

/// Starts a process. Others that are not started by a sandbox may hold the program too; they let go of it soon.
fn spawn_idle(process: &mut std::process::Command) -> io::Result<Child> {
    let mut pause = Duration::from_millis(1);
    loop {
        let spawned = {
            let _starting = starting::one();
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
