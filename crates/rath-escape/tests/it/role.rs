//! Runs the suite as the current user, and as a plain user if the current user is root.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::outside::MARK;

const ROLE: &str = "RATH_ESCAPE_ROLE";
const BASE: &str = "RATH_ESCAPE_BASE";
const TABLE: &str = "RATH_ESCAPE_TABLE";
const ONLY: &str = "RATH_ESCAPE_ONLY";
const NOBODY: u32 = 65534;

/// A user, and a directory with everything that the suite needs.
pub(crate) struct Role {
    pub(crate) name: String,
    pub(crate) base: PathBuf,
    /// Whether to print all results.
    pub(crate) table: bool,
    /// If set, make only this attempt.
    pub(crate) only: Option<String>,
}

/// Runs the named test in one process for each user. In that process, runs `work`.
pub(crate) fn as_each_user(test: &str, work: impl Fn(&Role)) {
    if let (Ok(name), Ok(base)) = (std::env::var(ROLE), std::env::var(BASE)) {
        let (table, only) = (std::env::var(TABLE).is_ok(), std::env::var(ONLY).ok());
        return work(&Role { name, base: base.into(), table, only });
    }
    let done = if unsafe { libc::geteuid() } == 0 {
        vec![run(test, "root", None), run(test, "nobody", Some(NOBODY))]
    } else {
        print_line("escape suite: root part skipped: the tests are not run by root\n");
        vec![run(test, "this user", None)]
    };
    let failed: Vec<String> = done.into_iter().filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Prints a line directly to standard output, because the test runner captures `print!`.
pub(crate) fn print_line(text: &str) {
    let _ = std::io::stdout().write_all(format!("\n{text}").as_bytes());
}

/// Runs the test as a user. Returns its output if it fails.
fn run(test: &str, role: &str, user: Option<u32>) -> Result<(), String> {
    let base = tempfile::tempdir().unwrap();
    prepare(base.path(), user);
    let mut command = Command::new(base.path().join("suite"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).current_dir(base.path()).env_clear();
    command.env(ROLE, role).env(BASE, base.path()).env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.env("HOME", base.path().join("home")).env("TMPDIR", base.path().join("tmp"));
    command.env("RATH_TEST_SECRET", format!("{MARK} of the environment")).env("LD_BIND_NOW", "1");
    command.env("SSH_AUTH_SOCK", base.path().join("outside/agent"));
    command.env("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={}/outside/bus", base.path().display()));
    command.envs([TABLE, ONLY].into_iter().filter_map(|name| Some((name, std::env::var(name).ok()?))));
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        return Err(format!("{test} as {role}: {}\n{out}{err}", output.status));
    }
    assert!(out.contains("1 passed"), "{test} is not the name of one test: {out}");
    print_line(&err);
    Ok(())
}

/// Creates the programs and directories for a user. A set-user-id program must be created by root.
fn prepare(base: &Path, user: Option<u32>) {
    fs::set_permissions(base, Permissions::from_mode(0o755)).unwrap();
    fs::copy(std::env::current_exe().unwrap(), base.join("suite")).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_escape"), base.join("escape")).unwrap();
    let directories = ["", "home", "tmp", "outside", "other", "state", "workspace"].map(|name| base.join(name));
    for directory in &directories[1..] {
        fs::create_dir(directory).unwrap();
    }
    if unsafe { libc::geteuid() } == 0 {
        let program = base.join("workspace/set-user-id");
        fs::copy("/usr/bin/id", &program).unwrap();
        chown(&program, Some(if user.is_some() { 0 } else { NOBODY }), None).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    }
    for path in directories.into_iter().chain(["suite", "escape"].map(|name| base.join(name))) {
        chown(path, user, user).unwrap();
    }
}
