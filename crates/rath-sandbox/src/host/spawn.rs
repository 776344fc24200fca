//! Starts the process of a command.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::command::{Command, CommandLine, Stdin};
use crate::environment;
use crate::error::Result;
use crate::program::{MAX_RETRY_PAUSE, SHELL, find, not_started, nothing_to_start};
use crate::start_lock;

/// Starts a command in `directory`, in a new process group.
///
/// Uses only options with which the standard library can call `posix_spawn`, which is faster than fork and exec: a path
/// instead of a name to search, and no code between fork and exec.
pub(super) fn spawn(command: &Command, base: &[(OsString, OsString)], marker: &str, directory: &Path) -> Result<Child> {
    let env = environment::of_host_command(command, base, marker);
    let (program, argv) = match &command.program {
        CommandLine::Argv(argv) => {
            let Some((name, rest)) = argv.split_first() else {
                return Err(nothing_to_start());
            };
            (find(name, &env, directory)?, (name.as_os_str(), rest.to_vec()))
        }
        CommandLine::Shell(line) => (SHELL.into(), (OsStr::new("sh"), vec!["-c".into(), line.into()])),
    };
    #[allow(clippy::disallowed_methods, reason = "this is the owner")]
    let mut process = std::process::Command::new(&program);
    process.arg0(argv.0).args(argv.1).env_clear().envs(env).current_dir(directory).process_group(0);
    process.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(match &command.stdin {
        Stdin::Null => Stdio::null(),
        Stdin::Bytes(_) => Stdio::piped(),
        Stdin::Inherit => Stdio::inherit(),
    });
    spawn_idle(&mut process).map_err(|error| not_started(&error, &program, directory))
}

/// Starts a process. Retries while another process has the program open for writing: that may be a process between fork
/// and exec, which closes it soon.
fn spawn_idle(process: &mut std::process::Command) -> io::Result<Child> {
    let mut pause = Duration::from_millis(1);
    loop {
        let spawned = {
            let _starting = start_lock::starting();
            process.spawn()
        };
        match spawned {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && pause < MAX_RETRY_PAUSE => {
                std::thread::sleep(pause);
                pause *= 2;
            }
            done => return done,
        }
    }
}
