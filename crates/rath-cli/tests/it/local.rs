//! The isolated backend from the command line.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::workspace::{Bench, command, has, text, wait_for};

/// What `rath doctor` says that this machine gives.
pub(crate) fn tier() -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let out = command(dir.path(), &["--json", "doctor", "--offline"]).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    let value: Value = serde_json::from_slice(&out.stdout).unwrap();
    value["sandbox"]["tier"].as_str().map(str::to_owned)
}

/// Whether commands can be isolated here. Where they cannot, tests say so and pass.
pub(crate) fn isolates() -> bool {
    let tier = tier();
    if tier.is_none() {
        rath_testkit::Requirement::Sandbox.skip("no isolation on this machine");
    }
    tier.is_some()
}

impl Bench {
    /// A session in a copy of `work`, isolated.
    pub(crate) fn isolated(&self) -> String {
        self.ok(&["new", "a try", "--in", "work"])
    }

    /// Where the session's own files are while a command runs: its copy, or the layer that has what it changed.
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
    let bench = Bench::new();
    bench.put("work/a", "one\n");
    bench.put("secret", "not for commands\n");
    let session = bench.isolated();
    assert_eq!(
        bench.sh(&session, "cat a; pwd"),
        format!("one\n{}", bench.path("work").canonicalize().unwrap().display())
    );
    // It sees its files and the system; not the machine's other files, not the store, not the network.
    let root = bench.root().canonicalize().unwrap();
    assert_eq!(bench.sh(&session, &format!("ls -A {}", root.display())), "work");
    bench.fails(1, &["exec", &session, "--", "cat", root.join("secret").to_str().unwrap()]);
    bench.fails(1, &["exec", &session, "-c", "--", "echo x > /usr/x"]);
    bench.sh(&session, "test $(ls /sys/class/net 2>/dev/null | grep -vx lo | wc -l) = 0");
    bench.sh(&session, "echo two > a; echo new > b");
    assert_eq!(bench.read("work/a"), "one\n");

    let fork = bench.ok(&["fork", &session]);
    assert_eq!(bench.sh(&fork, "cat a b; echo three > a"), "two\nnew");
    bench.ok(&["undo", &session]);
    assert_eq!(bench.sh(&session, "cat *"), "one");
    assert_eq!(bench.ok(&["cat", &format!("{fork}:a")]), "three");
    bench.ok(&["apply", &fork]);
    assert_eq!((bench.read("work/a"), bench.read("work/b")), ("three\n".into(), "new\n".into()));

    let sites = bench.json(&["sandbox", "ls"]);
    assert_eq!(sites.as_array().unwrap().len(), 2);
    for site in sites.as_array().unwrap() {
        assert_eq!((&site["placement"]["backend"], &site["placement"]["isolated"]), (&"local".into(), &true.into()));
    }
    assert!(bench.ok(&["sandbox", "ls"]).contains("isolated"));
    let path = bench.run(&["sandbox", "path", &session]);
    assert!(matches!(path.status.code(), Some(0 | 1)), "{}", text(&path.stderr));
    // What is no longer needed goes, and what is asked for again comes back.
    bench.ok(&["close", &fork, "done"]);
    assert_eq!(bench.json(&["sandbox", "prune"])["kept"].as_array().unwrap().len(), 1);
    bench.ok(&["sandbox", "prune", "--all"]);
    assert_eq!(bench.json(&["sandbox", "ls"]), Value::Array(Vec::new()));
    assert_eq!(bench.sh(&session, "cat *"), "one");
    bench.sound();
}

#[test]
fn what_a_command_was_refused_is_shown_and_recorded() {
    if !isolates() {
        return;
    }
    let bench = Bench::new();
    let session = bench.isolated();
    let done = bench.json(&["exec", &session, "--", "unshare", "-U", "true"]);
    has(&done, &["record", "ended", "refused", "beyond", "isolated", "changed", "stdout", "stderr", "duration_us"]);
    assert_eq!(done["isolated"], true);
    assert!(done["refused"].to_string().contains("unshare"), "{done}");
    let said = bench.fails(1, &["exec", &session, "--", "unshare", "-U", "true"]);
    assert!(said.contains("refused: unshare") && said.contains("isolated"), "{said}");
    assert!(!said.contains("not isolated"), "{said}");
    let log = bench.ok(&["log", &session]);
    assert!(log.contains("refused: unshare ×1"), "{log}");
    assert!(log.contains(&format!("isolated by {}", tier().unwrap())), "{log}");
    let shown = bench.ok(&["show", &format!("{session}@~0")]);
    assert!(shown.contains("refused") && shown.contains("unshare"), "{shown}");

    // A limit that was passed is named.
    bench.put(".rath/config.toml", "[sandbox]\ndisk = 4000000\n");
    let fill = "i=0; while :; do head -c 2000000 /dev/urandom > big$i; i=$((i+1)); done";
    let said = bench.fails(1, &["exec", &session, "-c", "--", fill]);
    assert!(said.contains("beyond its limit of disk"), "{said}");
    assert!(bench.ok(&["log", &session]).contains("beyond its limit of disk"));
    assert!(bench.last(&session, "tool_finished").unwrap()["beyond"].as_str().unwrap().starts_with("disk"));
    bench.sound();
}

#[test]
fn exit_codes_are_those_of_the_host() {
    if !isolates() {
        return;
    }
    let bench = Bench::new();
    bench.put("work/sub/a", "one\n");
    let session = bench.isolated();
    bench.ok(&["exec", &session, "--", "true"]);
    bench.fails(1, &["exec", &session, "--", "false"]);
    assert!(bench.fails(1, &["exec", &session, "-c", "--", "kill -9 $$"]).contains("signal 9"));
    assert!(bench.fails(1, &["exec", &session, "--timeout", "100ms", "--", "sleep", "60"]).contains("timed out"));
    assert_eq!(bench.last(&session, "tool_finished").unwrap()["outcome"], "timed_out");
    assert!(bench.fails(1, &["exec", &session, "--", "no-such-program"]).contains("no-such-program"));
    bench.fails(1, &["exec", &session, "--cwd", "nowhere", "--", "true"]);
    bench.fails(1, &["exec", &session, "--cwd", "../..", "--", "true"]);
    assert_eq!(bench.ok(&["exec", &session, "--cwd", "sub", "--", "cat", "a"]), "one");
    bench.fails(2, &["exec", &session]);
    bench.fails(2, &["sh", &session]);
    assert!(bench.fails(2, &["sh", &session]).contains("no terminal"));
    // The other backend is a word away, and says what it is.
    let said = text(&bench.run(&["exec", &session, "--on", "host", "--", "true"]).stderr);
    assert!(said.contains("not isolated"), "{said}");
    assert_eq!(bench.ok(&["exec", &session, "--cwd", "sub", "--", "cat", "a"]), "one");
    bench.sound();
}

#[test]
fn the_doctor_says_what_this_machine_isolates() {
    let empty = tempfile::tempdir().unwrap();
    let out = command(empty.path(), &["doctor", "--offline"]).output().unwrap();
    assert!(out.status.success() && text(&out.stdout).contains("sandbox"), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("rath init"), "{}", text(&out.stderr));
    let bench = Bench::new();
    assert!(bench.ok(&["doctor", "--offline"]).contains("`local` isolates by"));
    let doctor = bench.json(&["doctor", "--offline"]);
    has(&doctor["sandbox"], &["tier", "refusals", "not_enforced"]);
    assert_eq!((&doctor["well"], &doctor["open_sandboxes"]), (&true.into(), &Value::Array(Vec::new())));
    bench.fails(1, &["doctor", "--offline", "--store", "nowhere"]);
}

#[test]
fn a_setup_is_run_once_from_the_command_line() {
    if !isolates() {
        return;
    }
    let bench = Bench::new();
    bench.put("work/.gitignore", "deps/\n");
    let session = bench.isolated();
    let line = "mkdir -p deps; echo ran >> deps/log";
    bench.ok(&["place", &session, "--setup", line]);
    assert_eq!(bench.sh(&session, "cat deps/log"), "ran");
    let other = bench.ok(&["new", "another", "--in", "work", "--setup", line]);
    assert_eq!(bench.sh(&other, "cat deps/log"), "ran");
    let fork = bench.ok(&["fork", &session]);
    assert_eq!(bench.sh(&fork, "cat deps/log"), "ran");
    assert!(bench.ok(&["log", &session]).contains("setup mkdir"), "{}", bench.ok(&["log", &session]));
    let broken = bench.ok(&["new", "broken", "--in", "work", "--setup", "echo no such package; exit 7"]);
    assert_eq!(bench.code(&["exec", &broken, "--", "true"]), "setup-failed");
    let said = bench.fails(1, &["exec", &broken, "--", "true"]);
    assert!(said.contains("no such package") && said.contains("exit 7"), "{said}");
    assert_eq!(bench.last(&broken, "tool_finished").unwrap()["outcome"], "failed");
    bench.sound();
}

#[test]
fn directories_may_have_any_name() {
    if !isolates() {
        return;
    }
    let bench = Bench::new();
    let names =
        ["with space", "new\nline", "w\u{e9}lt \u{4e16}", "co:lon", "com,ma", "back\\slash", "q'u\"o", "$(true)"];
    for name in names {
        let origin = bench.path(name);
        fs::create_dir(&origin).unwrap();
        fs::write(origin.join("a"), "one\n").unwrap();
        for how in ["--in", "--in-place"] {
            let arguments = [OsStr::new("new"), OsStr::new("a try"), OsStr::new(how), origin.as_os_str()];
            let session = bench.ok(&arguments);
            let seen = bench.run(&["exec", &session, "-c", "--", "pwd; cat a; echo two > b"]);
            let expected = format!("{}\none\n", origin.canonicalize().unwrap().display());
            assert_eq!(text(&seen.stdout), expected, "{name:?}: {}", text(&seen.stderr));
            let fork = bench.ok(&["fork", &session]);
            assert_eq!(bench.sh(&fork, "cat a b; echo three > b"), "one\ntwo");
            bench.ok(&["apply", &fork]);
            assert_eq!(fs::read_to_string(origin.join("b")).unwrap(), "three\n");
            fs::remove_file(origin.join("b")).unwrap();
            bench.ok(&["log", &session]);
        }
    }
    bench.sound();
}

#[test]
fn the_store_in_the_workspace_is_not_to_be_seen() {
    if !isolates() {
        return;
    }
    let bench = Bench::new();
    bench.put("a", "one\n");
    for how in ["--in", "--in-place"] {
        let session = bench.ok(&["new", "here", how, "."]);
        assert_eq!(bench.sh(&session, "cat a; ls -A .rath 2>/dev/null; true"), "one", "{how}");
        bench.run(&["exec", &session, "-c", "--", "echo x > .rath/rath.db; rm -rf .rath; mv .rath elsewhere"]);
        bench.sound();
        assert_eq!(bench.sh(&session, "cat a"), "one");
        assert!(!bench.path("elsewhere").exists());
    }
    // From a directory below, and by its name.
    let session = bench.ok(&["new", "below", "--in-place", "work"]);
    let root = bench.root().canonicalize().unwrap();
    assert_eq!(bench.sh(&session, &format!("ls -A {}/.rath 2>/dev/null; true", root.display())), "");
    bench.sound();
}

#[test]
fn a_repository_keeps_its_hooks() {
    if !isolates() || Command::new("git").arg("--version").output().is_err() {
        return;
    }
    let bench = Bench::new();
    bench.put("a", "one\n");
    let git = |line: &str| {
        let line = format!("git -c user.name=a -c user.email=a@b {line}");
        let done = Command::new("sh").args(["-c", &line]).current_dir(bench.root()).output().unwrap();
        assert!(done.status.success(), "{line}: {done:?}");
    };
    git("init -q && echo .rath >> .git/info/exclude && git add a");
    git("commit -qm first");
    let session = bench.ok(&["new", "in the repository", "--in-place", "."]);
    for line in [
        "echo evil > .git/hooks/pre-commit",
        "git config core.fsmonitor evil",
        "mv .git .git2 && mkdir -p .git/hooks",
        "rm -rf .git/hooks && mkdir .git/hooks && echo evil > .git/hooks/pre-commit",
    ] {
        bench.run(&["exec", &session, "-c", "--", line]);
        assert!(!bench.path(".git/hooks/pre-commit").exists(), "{line}");
        assert!(!bench.read(".git/config").contains("evil"), "{line}");
        assert!(bench.path(".git/HEAD").exists(), "{line}");
    }
    if tier().as_deref() == Some("ns") {
        bench.sh(&session, "echo two > a; git add a; git -c user.name=a -c user.email=a@b commit -qm second");
        bench.sh(&session, "test $(git rev-list --count HEAD) = 2");
        git("fsck --no-progress");
    }
    bench.sound();
}

#[test]
fn a_home_can_be_a_workspace_if_one_says_so() {
    if !isolates() {
        return;
    }
    let bench = Bench::new();
    bench.put("home/ada/a", "one\n");
    let home = bench.path("home/ada");
    let at_home = |arguments: &[&str]| command(bench.root(), arguments).env("HOME", &home).output().unwrap();
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
    bench.sound();
}

#[test]
fn an_origin_that_is_gone_does_not_stop_a_copy() {
    if !isolates() {
        return;
    }
    let bench = Bench::new();
    bench.put("work/a", "one\n");
    let session = bench.isolated();
    let other = bench.isolated();
    bench.sh(&session, "echo two > a");
    fs::remove_dir_all(bench.path("work")).unwrap();
    // One that has its copy, and one that has yet to make it.
    assert_eq!(bench.sh(&session, "cat a; echo three > a"), "two");
    assert_eq!(bench.sh(&other, "cat a"), "one");
    assert_eq!(bench.code(&["apply", &session]), "no-directory");
    bench.ok(&["undo", &session]);
    fs::create_dir(bench.path("work")).unwrap();
    bench.put("work/a", "one\n");
    bench.ok(&["apply", &session]);
    assert_eq!(bench.read("work/a"), "two\n");
    bench.sound();
}

#[test]
fn an_interrupt_stops_an_isolated_command() {
    if !isolates() {
        return;
    }
    let bench = Bench::new();
    let session = bench.isolated();
    for signal in ["-INT", "-TERM"] {
        bench.sh(&session, "rm -f begun");
        let begun = bench.own(&session).join("begun");
        let line = "echo 1 > begun; sleep 600 & sleep 600";
        let mut child = command(bench.root(), &["exec", &session, "-c", "--", line]).spawn().unwrap();
        wait_for_file(&begun, &mut child);
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
        assert!(text(&out.stderr).contains("stopped"), "{}", text(&out.stderr));
        let finished = bench.last(&session, "tool_finished").unwrap();
        assert_eq!(finished["outcome"], "cancelled");
        assert_eq!(finished["changed"]["paths"][0]["path"], "begun");
    }
    assert!(bench.last(&session, "sandbox_lost").is_none());
    bench.ok(&["exec", &session, "--", "true"]);
}

/// As [`wait_for`], for a file that was removed before: in a layer it may be there as a mark that it is gone.
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
    let bench = Bench::new();
    bench.put("work/a", "one\n");
    let (one, two) = (bench.isolated(), bench.isolated());
    let mut child =
        command(bench.root(), &["exec", &one, "-c", "--", "echo two > a; echo begun; sleep 600"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "begun");
    assert_eq!(bench.sh(&two, "cat a; echo 2 > b"), "one");
    assert_eq!(bench.code(&["exec", &one, "--", "true"]), "session-held");
    // A fork of what is being worked in does not wait, and has what is on record.
    let fork = bench.ok(&["fork", &one]);
    assert_eq!(bench.sh(&fork, "cat a"), "one");
    let open = bench.json(&["doctor", "--offline"])["open_sandboxes"].clone();
    assert_eq!(open.as_array().unwrap().len(), 1, "{open}");
    assert!(child.try_wait().unwrap().is_none());
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(bench.last(&one, "tool_finished").unwrap()["outcome"], "cancelled");
    assert_eq!(bench.sh(&one, "cat a"), "two");
    bench.sound();
}

#[test]
fn many_at_once_share_what_is_there() {
    if !isolates() {
        return;
    }
    let bench = Bench::new();
    bench.put("work/.gitignore", "deps/\n");
    let line = "mkdir deps; echo ran >> deps/log";
    let all = |arguments: Vec<Vec<String>>| {
        let children: Vec<_> =
            arguments.iter().map(|arguments| command(bench.root(), arguments).spawn().unwrap()).collect();
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
    // Forks of one session do not get into each other's way.
    bench.sh(&sessions[0], "echo mine >> deps/log");
    let forks = all(vec![words(&format!("fork {}", sessions[0])); 6]);
    let seen = all(forks.iter().map(|fork| words(&format!("exec {fork} -- cat deps/log"))).collect());
    assert_eq!(seen, ["ran\nmine"; 6]);
    bench.sound();
}

/// Runs the program as somebody who may do nothing special.
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
fn a_store_that_a_plain_user_may_not_look_into_is_there() {
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
        assert!(!out.status.success() && said.contains(".rath is closed to you"), "{arguments:?}: {said}");
    }
    assert!(!work.join(".rath").exists(), "no other was made instead");
    user.run_in("work", &["init"]);
    let out = user.run_in("work", &run);
    assert!(out.status.success(), "whoever wants another has one: {}", text(&out.stderr));
}

#[test]
fn a_plain_user_has_it_all_too() {
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
    // One side took back what the other went on from.
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
