//! The backend works without root.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;

const NOBODY: u32 = 65534;

/// The tests that are run, as far as this machine supports their isolation level.
const TESTS: &[&str] = &[
    "conformance::local_",
    "local::input::",
    "local::killed::ns::a_killed",
    "local::killed::landlock::a_killed",
    "local::life::ns::",
    "local::life::landlock::",
    "local::limits::ns::",
    "local::limits::landlock::",
    "local::overlay::",
    "local::terminal::",
    "local::view::",
];

#[test]
fn all_tests_pass_as_a_plain_user() {
    if !rustix::process::geteuid().is_root() {
        rath_testkit::Requirement::Root.skip("this user is plain already");
        return;
    }
    let base = tempfile::tempdir().unwrap();
    fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let own = |name: &str| {
        let path = base.path().join(name);
        fs::create_dir(&path).unwrap();
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        path
    };
    let binary = base.path().join("it");
    fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
    let mut command = std::process::Command::new(&binary);
    command.args(TESTS).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.env("HOME", own("home")).env("TMPDIR", own("tmp")).current_dir("/").uid(NOBODY).gid(NOBODY);
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("test local::life::ns::a_suspended_sandbox_has_no_processes_or_mounts ... ok"), "{out}");
    let left = fs::read_dir(base.path().join("tmp")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.to_string_lossy().starts_with(".rath")));
}
