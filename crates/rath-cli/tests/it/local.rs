//! The isolated backend from the command line.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::workspace::{TestProject, command, has, text, wait_for};

/// The isolation level that `rath doctor` reports for this machine.
pub(crate) fn tier() -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let out = command(dir.path(), &["--json", "doctor", "--offline"]).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    let value: Value = serde_json::from_slice(&out.stdout).unwrap();
    value["sandbox"]["tier"].as_str().map(str::to_owned)
}

/// Whether commands can be isolated here. If not, the tests are skipped.
pub(crate) fn isolates() -> bool {
    let tier = tier();
    if tier.is_none() {
        rath_testkit::Requirement::Sandbox.skip("no isolation on this machine");
    }
    tier.is_some()
}

impl TestProject {
    /// A session in a copy of `work`, isolated.
    pub(crate) fn isolated(&self) -> String {
        self.ok(&["new", "a try", "--in", "work"])
    }

    /// The directory of the session's own files while a command runs: its copy, or the upper layer of its overlay.
    pub(crate) fn own(&self, session: &str) -> PathBuf {
        let copy = self.copy(session);
        let state = if copy.ends_with("files") { copy.parent().unwrap().to_owned() } else { copy.clone() };
        let upper = state.join("upper");
        if upper.exists() { upper } else { copy }
    }
}

#[test]
fn a_session_works_isolated_from_its_first_command() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    project.put("work/a", "one\n");
    project.put("secret", "not for commands\n");
    let session = project.isolated();
    assert_eq!(
        project.sh(&session, "cat a; pwd"),
        format!("one\n{}", project.path("work").canonicalize().unwrap().display())
    );
    // It sees its files and the system; no other files of the machine, not the store, and no network.
    let root = project.root().canonicalize().unwrap();
    assert_eq!(project.sh(&session, &format!("ls -A {}", root.display())), "work");
    project.fails(1, &["exec", &session, "--", "cat", root.join("secret").to_str().unwrap()]);
    project.fails(1, &["exec", &session, "-c", "--", "echo x > /usr/x"]);
    project.sh(&session, "test $(ls /sys/class/net 2>/dev/null | grep -vx lo | wc -l) = 0");
    project.sh(&session, "echo two > a; echo new > b");
    assert_eq!(project.read("work/a"), "one\n");

    let fork = project.ok(&["fork", &session]);
    assert_eq!(project.sh(&fork, "cat a b; echo three > a"), "two\nnew");
    project.ok(&["undo", &session]);
    assert_eq!(project.sh(&session, "cat *"), "one");
    assert_eq!(project.ok(&["cat", &format!("{fork}:a")]), "three");
    project.ok(&["apply", &fork]);
    assert_eq!((project.read("work/a"), project.read("work/b")), ("three\n".into(), "new\n".into()));

    let sites = project.json(&["sandbox", "ls"]);
    assert_eq!(sites.as_array().unwrap().len(), 2);
    for site in sites.as_array().unwrap() {
        assert_eq!((&site["placement"]["backend"], &site["placement"]["isolated"]), (&"local".into(), &true.into()));
    }
    assert!(project.ok(&["sandbox", "ls"]).contains("isolated"));
    let path = project.run(&["sandbox", "path", &session]);
    assert!(matches!(path.status.code(), Some(0 | 1)), "{}", text(&path.stderr));
    // Unneeded copies are removed, and made again when they are needed.
    project.ok(&["close", &fork, "done"]);
    assert_eq!(project.json(&["sandbox", "prune"])["kept"].as_array().unwrap().len(), 1);
    project.ok(&["sandbox", "prune", "--all"]);
    assert_eq!(project.json(&["sandbox", "ls"]), Value::Array(Vec::new()));
    assert_eq!(project.sh(&session, "cat *"), "one");
    project.sound();
}

#[test]
fn blocked_system_calls_are_shown_and_recorded() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    let session = project.isolated();
    let done = project.json(&["exec", &session, "--", "unshare", "-U", "true"]);
    has(&done, &["record", "ended", "refused", "beyond", "isolated", "changed", "stdout", "stderr", "duration_us"]);
    assert_eq!(done["isolated"], true);
    assert!(done["refused"].to_string().contains("unshare"), "{done}");
    let said = project.fails(1, &["exec", &session, "--", "unshare", "-U", "true"]);
    assert!(said.contains("blocked: unshare") && said.contains("isolated"), "{said}");
    assert!(!said.contains("not isolated"), "{said}");
    let log = project.ok(&["log", &session]);
    assert!(log.contains("refused: unshare ×1"), "{log}");
    assert!(log.contains(&format!("isolated by {}", tier().unwrap())), "{log}");
    let shown = project.ok(&["show", &format!("{session}@~0")]);
    assert!(shown.contains("refused") && shown.contains("unshare"), "{shown}");

    // The exceeded limit is named.
    project.put(".rath/config.toml", "[sandbox]\ndisk = 4000000\n");
    let fill = "i=0; while :; do head -c 2000000 /dev/urandom > big$i; i=$((i+1)); done";
    let said = project.fails(1, &["exec", &session, "-c", "--", fill]);
    assert!(said.contains("limit exceeded: disk"), "{said}");
    assert!(project.ok(&["log", &session]).contains("limit exceeded: disk"));
    assert!(project.last(&session, "tool_finished").unwrap()["beyond"].as_str().unwrap().starts_with("disk"));
    project.sound();
}

#[test]
fn exit_codes_are_those_of_the_host() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    project.put("work/sub/a", "one\n");
    let session = project.isolated();
    project.ok(&["exec", &session, "--", "true"]);
    project.fails(1, &["exec", &session, "--", "false"]);
    assert!(project.fails(1, &["exec", &session, "-c", "--", "kill -9 $$"]).contains("signal 9"));
    assert!(project.fails(1, &["exec", &session, "--timeout", "100ms", "--", "sleep", "60"]).contains("timed out"));
    assert_eq!(project.last(&session, "tool_finished").unwrap()["outcome"], "timed_out");
    assert!(project.fails(1, &["exec", &session, "--", "no-such-program"]).contains("no-such-program"));
    project.fails(1, &["exec", &session, "--cwd", "nowhere", "--", "true"]);
    project.fails(1, &["exec", &session, "--cwd", "../..", "--", "true"]);
    assert_eq!(project.ok(&["exec", &session, "--cwd", "sub", "--", "cat", "a"]), "one");
    project.fails(2, &["exec", &session]);
    project.fails(2, &["sh", &session]);
    assert!(project.fails(2, &["sh", &session]).contains("not a terminal"));
    // The host backend needs one flag, and is reported as not isolated.
    let said = text(&project.run(&["exec", &session, "--on", "host", "--", "true"]).stderr);
    assert!(said.contains("not isolated"), "{said}");
    assert_eq!(project.ok(&["exec", &session, "--cwd", "sub", "--", "cat", "a"]), "one");
    project.sound();
}

#[test]
fn doctor_reports_the_isolation_of_this_machine() {
    let empty = tempfile::tempdir().unwrap();
    let out = command(empty.path(), &["doctor", "--offline"]).output().unwrap();
    assert!(out.status.success() && text(&out.stdout).contains("sandbox"), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("rath init"), "{}", text(&out.stderr));
    let project = TestProject::new();
    assert!(project.ok(&["doctor", "--offline"]).contains("`local` isolates with"));
    let doctor = project.json(&["doctor", "--offline"]);
    has(&doctor["sandbox"], &["tier", "refusals", "not_enforced"]);
    assert_eq!((&doctor["well"], &doctor["open_sandboxes"]), (&true.into(), &Value::Array(Vec::new())));
    project.fails(1, &["doctor", "--offline", "--store", "nowhere"]);
}

#[test]
fn a_setup_is_run_once_from_the_command_line() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    project.put("work/.gitignore", "deps/\n");
    let session = project.isolated();
    let line = "mkdir -p deps; echo ran >> deps/log";
    project.ok(&["place", &session, "--setup", line]);
    assert_eq!(project.sh(&session, "cat deps/log"), "ran");
    let other = project.ok(&["new", "another", "--in", "work", "--setup", line]);
    assert_eq!(project.sh(&other, "cat deps/log"), "ran");
    let fork = project.ok(&["fork", &session]);
    assert_eq!(project.sh(&fork, "cat deps/log"), "ran");
    assert!(project.ok(&["log", &session]).contains("setup mkdir"), "{}", project.ok(&["log", &session]));
    let broken = project.ok(&["new", "broken", "--in", "work", "--setup", "echo no such package; exit 7"]);
    assert_eq!(project.code(&["exec", &broken, "--", "true"]), "setup-failed");
    let said = project.fails(1, &["exec", &broken, "--", "true"]);
    assert!(said.contains("no such package") && said.contains("exit 7"), "{said}");
    assert_eq!(project.last(&broken, "tool_finished").unwrap()["outcome"], "failed");
    project.sound();
}

#[test]
fn directories_may_have_any_name() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    let names =
        ["with space", "new\nline", "w\u{e9}lt \u{4e16}", "co:lon", "com,ma", "back\\slash", "q'u\"o", "$(true)"];
    for name in names {
        let origin = project.path(name);
        fs::create_dir(&origin).unwrap();
        fs::write(origin.join("a"), "one\n").unwrap();
        for how in ["--in", "--in-place"] {
            let arguments = [OsStr::new("new"), OsStr::new("a try"), OsStr::new(how), origin.as_os_str()];
            let session = project.ok(&arguments);
            let seen = project.run(&["exec", &session, "-c", "--", "pwd; cat a; echo two > b"]);
            let expected = format!("{}\none\n", origin.canonicalize().unwrap().display());
            assert_eq!(text(&seen.stdout), expected, "{name:?}: {}", text(&seen.stderr));
            let fork = project.ok(&["fork", &session]);
            assert_eq!(project.sh(&fork, "cat a b; echo three > b"), "one\ntwo");
            project.ok(&["apply", &fork]);
            assert_eq!(fs::read_to_string(origin.join("b")).unwrap(), "three\n");
            fs::remove_file(origin.join("b")).unwrap();
            project.ok(&["log", &session]);
        }
    }
    project.sound();
}

#[test]
fn the_store_inside_a_workspace_is_hidden_from_commands() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    project.put("a", "one\n");
    for how in ["--in", "--in-place"] {
        let session = project.ok(&["new", "here", how, "."]);
        assert_eq!(project.sh(&session, "cat a; ls -A .rath 2>/dev/null; true"), "one", "{how}");
        project.run(&["exec", &session, "-c", "--", "echo x > .rath/rath.db; rm -rf .rath; mv .rath elsewhere"]);
        project.sound();
        assert_eq!(project.sh(&session, "cat a"), "one");
        assert!(!project.path("elsewhere").exists());
    }
    // From a directory below, and by its name.
    let session = project.ok(&["new", "below", "--in-place", "work"]);
    let root = project.root().canonicalize().unwrap();
    assert_eq!(project.sh(&session, &format!("ls -A {}/.rath 2>/dev/null; true", root.display())), "");
    project.sound();
}

#[test]
fn a_repository_keeps_its_hooks() {
    if !isolates() || Command::new("git").arg("--version").output().is_err() {
        return;
    }
    let project = TestProject::new();
    project.put("a", "one\n");
    let git = |line: &str| {
        let line = format!("git -c user.name=a -c user.email=a@b {line}");
        let done = Command::new("sh").args(["-c", &line]).current_dir(project.root()).output().unwrap();
        assert!(done.status.success(), "{line}: {done:?}");
    };
    git("init -q && echo .rath >> .git/info/exclude && git add a");
    git("commit -qm first");
    let session = project.ok(&["new", "in the repository", "--in-place", "."]);
    for line in [
        "echo evil > .git/hooks/pre-commit",
        "git config core.fsmonitor evil",
        "mv .git .git2 && mkdir -p .git/hooks",
        "rm -rf .git/hooks && mkdir .git/hooks && echo evil > .git/hooks/pre-commit",
    ] {
        project.run(&["exec", &session, "-c", "--", line]);
        assert!(!project.path(".git/hooks/pre-commit").exists(), "{line}");
        assert!(!project.read(".git/config").contains("evil"), "{line}");
        assert!(project.path(".git/HEAD").exists(), "{line}");
    }
    if tier().as_deref() == Some("ns") {
        project.sh(&session, "echo two > a; git add a; git -c user.name=a -c user.email=a@b commit -qm second");
        project.sh(&session, "test $(git rev-list --count HEAD) = 2");
        git("fsck --no-progress");
    }
    project.sound();
}

#[test]
fn a_home_directory_needs_a_flag_to_be_a_workspace() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    project.put("home/ada/a", "one\n");
    let home = project.path("home/ada");
    let at_home = |arguments: &[&str]| command(project.root(), arguments).env("HOME", &home).output().unwrap();
    for how in ["--in", "--in-place"] {
        assert_eq!(at_home(&["new", "x", how, "home/ada"]).status.code(), Some(1));
        let made = at_home(&["new", "x", how, "home/ada", "--anywhere"]);
        assert!(made.status.success(), "{}", text(&made.stderr));
        let session = text(&made.stdout).trim().to_owned();
        let out = at_home(&["exec", &session, "-c", "--", "cat a; cat ~/a; echo two > b; echo $HOME"]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let expected = format!("one\none\n{}\n", home.canonicalize().unwrap().display());
        assert_eq!(text(&out.stdout), expected, "{how}: {}", text(&out.stderr));
        assert!(at_home(&["undo", &session]).status.success());
    }
    project.sound();
}

#[test]
fn a_missing_origin_does_not_break_a_copy() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    project.put("work/a", "one\n");
    let session = project.isolated();
    let other = project.isolated();
    project.sh(&session, "echo two > a");
    fs::remove_dir_all(project.path("work")).unwrap();
    // One session has its copy, the other does not.
    assert_eq!(project.sh(&session, "cat a; echo three > a"), "two");
    assert_eq!(project.sh(&other, "cat a"), "one");
    assert_eq!(project.code(&["apply", &session]), "no-directory");
    project.ok(&["undo", &session]);
    fs::create_dir(project.path("work")).unwrap();
    project.put("work/a", "one\n");
    project.ok(&["apply", &session]);
    assert_eq!(project.read("work/a"), "two\n");
    project.sound();
}

#[test]
fn an_interrupt_stops_an_isolated_command() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    let session = project.isolated();
    for signal in ["-INT", "-TERM"] {
        project.sh(&session, "rm -f begun");
        let begun = project.own(&session).join("begun");
        let line = "echo 1 > begun; sleep 600 & sleep 600";
        let mut child = command(project.root(), &["exec", &session, "-c", "--", line]).spawn().unwrap();
        wait_for_file(&begun, &mut child);
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
        assert!(text(&out.stderr).contains("stopped"), "{}", text(&out.stderr));
        let finished = project.last(&session, "tool_finished").unwrap();
        assert_eq!(finished["outcome"], "cancelled");
        assert_eq!(finished["changed"]["paths"][0]["path"], "begun");
    }
    assert!(project.last(&session, "sandbox_lost").is_none());
    project.ok(&["exec", &session, "--", "true"]);
}

/// Like [`wait_for`], for a file that was removed before: an overlay may have a whiteout in its place.
fn wait_for_file(path: &Path, child: &mut std::process::Child) {
    loop {
        wait_for(path, child);
        if fs::metadata(path).is_ok_and(|meta| meta.is_file()) {
            return;
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended before it began");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn two_sessions_work_at_the_same_time() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    project.put("work/a", "one\n");
    let (one, two) = (project.isolated(), project.isolated());
    let mut child =
        command(project.root(), &["exec", &one, "-c", "--", "echo two > a; echo begun; sleep 600"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "begun");
    assert_eq!(project.sh(&two, "cat a; echo 2 > b"), "one");
    assert_eq!(project.code(&["exec", &one, "--", "true"]), "session-held");
    // Forking a session at work does not wait; the fork has the recorded files.
    let fork = project.ok(&["fork", &one]);
    assert_eq!(project.sh(&fork, "cat a"), "one");
    let open = project.json(&["doctor", "--offline"])["open_sandboxes"].clone();
    assert_eq!(open.as_array().unwrap().len(), 1, "{open}");
    assert!(child.try_wait().unwrap().is_none());
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(project.last(&one, "tool_finished").unwrap()["outcome"], "cancelled");
    assert_eq!(project.sh(&one, "cat a"), "two");
    project.sound();
}

#[test]
fn concurrent_sessions_share_a_setup() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    project.put("work/.gitignore", "deps/\n");
    let line = "mkdir deps; echo ran >> deps/log";
    let all = |arguments: Vec<Vec<String>>| {
        let children: Vec<_> =
            arguments.iter().map(|arguments| command(project.root(), arguments).spawn().unwrap()).collect();
        let outs = children.into_iter().map(|child| child.wait_with_output().unwrap());
        outs.map(|out| {
            assert!(out.status.success(), "{}", text(&out.stderr));
            text(&out.stdout).trim_end().to_owned()
        })
        .collect::<Vec<_>>()
    };
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    // The setup is run by one of them, and the others wait for it.
    let new = |_| [words("new x --in work --setup"), vec![line.into()]].concat();
    let sessions = all((0..4).map(new).collect());
    let seen = all(sessions.iter().map(|session| words(&format!("exec {session} -- cat deps/log"))).collect());
    assert_eq!(seen, ["ran"; 4]);
    // Forks of one session do not affect each other.
    project.sh(&sessions[0], "echo mine >> deps/log");
    let forks = all(vec![words(&format!("fork {}", sessions[0])); 6]);
    let seen = all(forks.iter().map(|fork| words(&format!("exec {fork} -- cat deps/log"))).collect());
    assert_eq!(seen, ["ran\nmine"; 6]);
    project.sound();
}

/// Runs the program as a user without privileges.
struct Somebody {
    dir: tempfile::TempDir,
}

impl Somebody {
    const ID: u32 = 65534;

    fn new() -> Self {
        use std::os::unix::fs::{PermissionsExt as _, chown};
        let dir = tempfile::tempdir().unwrap();
        fs::copy(env!("CARGO_BIN_EXE_rath"), dir.path().join("rath")).unwrap();
        for path in ["", "home", "work"] {
            let path = dir.path().join(path);
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            chown(&path, Some(Self::ID), Some(Self::ID)).unwrap();
        }
        Self { dir }
    }

    fn run(&self, arguments: &[&str]) -> std::process::Output {
        self.run_in(".", arguments)
    }

    fn run_in(&self, dir: &str, arguments: &[&str]) -> std::process::Output {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(self.dir.path().join("rath"));
        command.args(arguments).current_dir(self.dir.path().join(dir)).uid(Self::ID).gid(Self::ID).env_clear();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let env: [(&str, OsString); 3] =
            [("PATH", path), ("HOME", self.dir.path().join("home").into()), ("USER", "nobody".into())];
        command.envs(env).output().unwrap()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let out = self.run(arguments);
        assert!(out.status.success(), "{arguments:?}: {}", text(&out.stderr));
        text(&out.stdout).trim_end().to_owned()
    }
}

#[test]
fn a_store_without_read_permission_is_reported_to_a_plain_user() {
    use std::os::unix::fs::PermissionsExt as _;
    if !rustix::process::geteuid().is_root() {
        rath_testkit::Requirement::Root.skip("it acts as another user");
        return;
    }
    let user = Somebody::new();
    user.ok(&["init"]);
    let store = user.dir.path().join(".rath");
    fs::set_permissions(&store, fs::Permissions::from_mode(0o000)).unwrap();
    let work = user.dir.path().join("work");
    fs::write(work.join("script.toml"), "[[turn]]\notherwise = true\ntext = \"Done.\"\n").unwrap();
    let run = ["run", "-m", "scripted/script.toml", "Go."];
    let doctor = ["doctor", "--offline"];
    for (dir, arguments) in [(".", &["log"][..]), (".", &doctor), ("work", &run), ("work", &doctor)] {
        let out = user.run_in(dir, arguments);
        let said = text(&out.stderr);
        assert!(!out.status.success() && said.contains("permission denied: "), "{arguments:?}: {said}");
    }
    assert!(!work.join(".rath").exists(), "no other was made instead");
    user.run_in("work", &["init"]);
    let out = user.run_in("work", &run);
    assert!(out.status.success(), "whoever wants another has one: {}", text(&out.stderr));
}

#[test]
fn isolation_works_for_a_plain_user() {
    if !rustix::process::geteuid().is_root() {
        rath_testkit::Requirement::Root.skip("all other tests run as a plain user already");
        return;
    }
    let user = Somebody::new();
    let doctor: Value = serde_json::from_str(&user.ok(&["--json", "doctor", "--offline"])).unwrap();
    if doctor["sandbox"]["tier"].is_null() {
        rath_testkit::Requirement::Sandbox.skip(format_args!("no isolation for plain users: {doctor}"));
        return;
    }
    user.ok(&["init"]);
    fs::write(user.dir.path().join("work/a"), "one\n").unwrap();
    let session = user.ok(&["new", "a try", "--in", "work", "--setup", "mkdir -p .deps && echo ran > .deps/log"]);
    assert_eq!(user.ok(&["exec", &session, "-c", "--", "id -u; cat a; echo two > a; mkdir -m 500 shut"]), "65534\none");
    let fork = user.ok(&["fork", &session]);
    assert_eq!(user.ok(&["exec", &fork, "-c", "--", "cat a; echo three > a; rmdir shut"]), "two");
    assert_eq!(user.run(&["exec", &fork, "--", "unshare", "-U", "true"]).status.code(), Some(1));
    assert!(user.ok(&["log", &fork]).contains("refused: unshare"));
    user.ok(&["undo", &session]);
    assert_eq!(user.ok(&["exec", &session, "--", "cat", "a"]), "one");
    // The session undid the change from which the fork continues.
    assert_eq!(user.run(&["merge", &session, &fork]).status.code(), Some(3));
    user.ok(&["resolve", &session, "a", "--theirs"]);
    assert_eq!(user.ok(&["exec", &session, "--", "cat", "a"]), "three");
    user.ok(&["apply", &session]);
    assert_eq!(fs::read_to_string(user.dir.path().join("work/a")).unwrap(), "three\n");
    let here = user.ok(&["new", "in place", "--in-place", "work"]);
    assert_eq!(user.ok(&["exec", &here, "-c", "--", "cat a; echo four > a"]), "three");
    user.ok(&["undo", &here]);
    assert_eq!(user.ok(&["exec", &here, "--on", "host", "--", "cat", "a"]), "three");
    user.ok(&["sandbox", "prune", "--all", "--ignored"]);
    assert_eq!(user.ok(&["exec", &session, "--", "cat", "a"]), "three");
    user.ok(&["verify"]);
}
