//! The environment variables that commands see.
//!
//! The variables of a command are built in these steps, and a later value of the same variable wins:
//!
//! 1. [`Local`](crate::Local) sets `PATH` and `HOME`, and with Landlock alone also `TMPDIR`.
//! 2. The variables of [`SandboxSpec::env`](crate::SandboxSpec) follow. [`Local`](crate::Local) ignores `HOME` and
//!    `TMPDIR` there, because its sandboxes have private directories for both.
//! 3. [`Local`](crate::Local) sets [`MARKER`].
//! 4. The variables of [`Command::env`](crate::Command) follow. [`Command::clean_env`](crate::Command) drops those of
//!    steps 1 to 3.
//! 5. [`Host`](crate::Host) sets [`MARKER`], even in a clean environment.
//!
//! Nothing is inherited from this process.
#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only the backends for Linux run commands"))]

use std::ffi::OsString;
use std::path::PathBuf;

use crate::command::Command;

/// Marks all processes of a command: the sandbox's id, a dot, and a name that is unique for the command.
pub const MARKER: &str = "RATH_EXEC";

/// The `PATH` of isolated commands, unless the sandbox or the command sets another one. Both backends also use it to
/// find the program of a command without a `PATH`.
pub(crate) const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Names and values of environment variables.
pub(crate) type Variables = Vec<(OsString, OsString)>;

/// The variables of an isolated sandbox, before those of a command (steps 1 to 3). `tmp` is `None` if the sandbox has
/// its own `/tmp`.
pub(crate) fn of_isolated_sandbox(
    sandbox: &[(OsString, OsString)],
    home: PathBuf,
    tmp: Option<PathBuf>,
    marker: &str,
) -> Variables {
    let mut env: Variables = vec![("PATH".into(), DEFAULT_PATH.into()), ("HOME".into(), home.into())];
    env.extend(tmp.map(|tmp| ("TMPDIR".into(), tmp.into())));
    for (name, value) in sandbox.iter().filter(|(name, _)| name != "HOME" && name != "TMPDIR") {
        set(&mut env, name.clone(), value.clone());
    }
    set(&mut env, MARKER.into(), marker.into());
    env
}

/// The variables of a command in a sandbox whose variables are `base` (step 4).
pub(crate) fn of_command(command: &Command, base: &[(OsString, OsString)]) -> Variables {
    let base = if command.clean_env { &[] } else { base };
    let mut env = base.to_vec();
    for (name, value) in &command.env {
        env.retain(|(known, _)| known != name);
        env.extend(value.clone().map(|value| (name.clone(), value)));
    }
    env
}

/// The variables of a command without isolation (steps 4 and 5).
pub(crate) fn of_host_command(command: &Command, base: &[(OsString, OsString)], marker: &str) -> Variables {
    let mut env = of_command(command, base);
    set(&mut env, MARKER.into(), marker.into());
    env
}

fn set(env: &mut Variables, name: OsString, value: OsString) {
    env.retain(|(known, _)| *known != name);
    env.push((name, value));
}
