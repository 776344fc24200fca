//! Files and commands from the command line, with their failures.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// A directory with a store and a directory `work`.
pub(crate) struct TestProject {
    dir: tempfile::TempDir,
}

pub(crate) fn command<A: AsRef<OsStr>>(dir: &Path, arguments: &[A]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rath"));
    command.args(arguments).current_dir(dir).env("USER", "ada").stdin(Stdio::null());
    command.env("XDG_CONFIG_HOME", dir.join("config")).env("XDG_STATE_HOME", dir.join("state"));
    // The tests must not use the keyring of the user who runs them.
    command.env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere/bus");
    for key in ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "DEEPSEEK_API_KEY", "RATH_MODEL"] {
        command.env_remove(key);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl TestProject {
    pub(crate) fn new() -> Self {
        let project = Self { dir: tempfile::tempdir().unwrap() };
        project.ok(&["init"]);
        fs::create_dir(project.path("work")).unwrap();
        project
    }

    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), content).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    pub(crate) fn run<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Output {
        command(self.root(), arguments).output().unwrap()
    }

    pub(crate) fn ok<A: AsRef<OsStr> + std::fmt::Debug>(&self, arguments: &[A]) -> String {
        let out = self.run(arguments);
        assert!(out.status.success(), "{arguments:?}: {}", text(&out.stderr));
        text(&out.stdout).trim_end().to_owned()
    }

    /// Checks that the command fails with this exit code, and returns its error output.
    pub(crate) fn fails<A: AsRef<OsStr> + std::fmt::Debug>(&self, code: i32, arguments: &[A]) -> String {
        let out = self.run(arguments);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
        said
    }

    /// The error code with `--json`.
    pub(crate) fn code(&self, arguments: &[&str]) -> String {
        let said = self.fails(1, &[&["--json"], arguments].concat());
        let value: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
        value["code"].as_str().unwrap_or_else(|| panic!("{said}")).to_owned()
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let out = self.run(&[&["--json"], arguments].concat());
        assert!(matches!(out.status.code(), Some(0 | 1 | 3)), "{arguments:?}: {}", text(&out.stderr));
        // A run prints its records first.
        let last = text(&out.stdout).lines().last().unwrap_or_default().to_owned();
        let value: Value = serde_json::from_str(&last).unwrap_or_else(|_| panic!("{arguments:?}: {last}"));
        assert!(value["schema"].is_string(), "{arguments:?}: {value}");
        // A list is its items.
        value.get("items").cloned().unwrap_or(value)
    }

    /// The body of the last record of this kind.
    pub(crate) fn last(&self, session: &str, kind: &str) -> Option<Value> {
        let log = self.ok(&["log", "--json", session]);
        let last = lines(&log).into_iter().rfind(|record| record["header"]["kind"] == kind);
        last.map(|record| record["body"].clone())
    }

    /// A session in a copy of `work`.
    pub(crate) fn copied(&self) -> String {
        let session = self.ok(&["new", "a try"]);
        self.ok(&["place", &session, "--on", "host", "--in", "work"]);
        session
    }

    pub(crate) fn sh(&self, session: &str, line: &str) -> String {
        self.ok(&["exec", session, "-c", "--", line])
    }

    /// The copy that a session works in.
    pub(crate) fn copy(&self, session: &str) -> PathBuf {
        let sites = self.json(&["sandbox", "ls"]);
        let short = |site: &&Value| site["session"].as_str().unwrap().replace('-', "").contains(session);
        let site = sites.as_array().unwrap().iter().find(short);
        match site {
            Some(site) => site["directory"].as_str().unwrap().into(),
            // The copy does not exist: its directory is named after the session's id.
            None => {
                let id = self.json(&["show", &format!("{session}@0")])["session"].as_str().unwrap().to_owned();
                self.path(".rath/workspaces").join(id).join("files")
            }
        }
    }

    pub(crate) fn sound(&self) {
        self.ok(&["verify"]);
    }
}

/// The objects that `--json` printed: one a line, or the items of a list.
pub(crate) fn lines(text: &str) -> Vec<Value> {
    let items = |line: &str| -> Vec<Value> {
        let mut value: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        if let Some(Value::Array(items)) = value.get_mut("items").map(Value::take) {
            return items;
        }
        value.as_object_mut().and_then(|object| object.remove("schema")).unwrap_or_else(|| panic!("no schema: {line}"));
        vec![value]
    };
    text.lines().flat_map(items).collect()
}

pub(crate) fn has(value: &Value, fields: &[&str]) {
    for field in fields {
        assert!(value.get(field).is_some(), "no {field} in {value}");
    }
}

/// A versioned file stays versioned, as in git. Otherwise `apply` would remove it from the original directory.
#[test]
fn a_versioned_file_that_becomes_ignored_stays_versioned() {
    for on in ["host", "local"] {
        if on == "local" && !crate::local::isolates() {
            continue;
        }
        for how in ["--in", "--in-place"] {
            let project = TestProject::new();
            project.put("work/app.conf", "one\n");
            let session = project.ok(&["new", "a try"]);
            project.ok(&["place", &session, "--on", on, how, "work"]);
            project.sh(
                &session,
                "echo app.conf > .gitignore; echo evil >> app.conf; echo x > new; echo new >> .gitignore",
            );
            let changed = project.last(&session, "tool_finished").unwrap()["changed"].to_string();
            assert!(
                changed.contains("app.conf") && changed.contains(".gitignore") && !changed.contains("new"),
                "{changed}"
            );
            assert_eq!(project.ok(&["cat", &format!("{session}:app.conf")]), "one\nevil", "{on} {how}");
            // The same with another process.
            project.sh(&session, "echo more >> app.conf");
            assert!(!text(&project.run(&["diff", &session]).stdout).contains("D app.conf"));
            match how {
                "--in" => {
                    project.ok(&["apply", &session]);
                    assert_eq!(project.read("work/app.conf"), "one\nevil\nmore\n");
                    assert!(!project.path("work/new").exists());
                }
                _ => {
                    project.ok(&["undo", &session]);
                    project.ok(&["undo", &session]);
                    assert_eq!(project.read("work/app.conf"), "one\n");
                    assert!(!project.path("work/.gitignore").exists());
                }
            }
            project.sound();
        }
    }
}

#[test]
fn hidden_paths_are_left_out_of_later_versions() {
    for how in ["--in", "--in-place"] {
        let project = TestProject::new();
        project.put("work/a", "one\n");
        project.put("work/inner/k", "Zebrowski\n");
        let before = project.ok(&["new", "before"]);
        project.ok(&["place", &before, "--on", "host", how, "work"]);
        project.sh(&before, "true");
        assert_eq!(project.ok(&["cat", &format!("{before}:inner/k")]), "Zebrowski");
        project.put(".rath/config.toml", "[sandbox]\nhide = [\"work/inner/k\"]\n");
        // A session that starts after that does not have the file; nor do its bundle and its copies.
        let session = project.ok(&["new", "after"]);
        if how == "--in-place" {
            project.ok(&["close", &before]);
        }
        project.ok(&["place", &session, "--on", "host", how, "work"]);
        project.sh(&session, "echo two >> a");
        project.fails(2, &["cat", &format!("{session}:inner/k")]);
        project.ok(&["export", &session, "--bundle", "bundle"]);
        let found =
            Command::new("grep").args(["-rl", "Zebrowski", "bundle"]).current_dir(project.root()).output().unwrap();
        assert_eq!(text(&found.stdout), "");
        if how == "--in" {
            // A session that had the file loses it with its next version, and it does not count as removed.
            project.sh(&before, "echo three >> a");
            project.fails(2, &["cat", &format!("{before}:inner/k")]);
            assert!(!project.last(&before, "tool_finished").unwrap()["changed"].to_string().contains("inner"));
            project.ok(&["apply", &before]);
        }
        assert_eq!(project.read("work/inner/k"), "Zebrowski\n");
        project.sound();
    }
}

#[test]
fn every_command_prints_json_with_the_documented_fields() {
    let project = TestProject::new();
    project.put("work/a", "one\n");
    let session = project.ok(&["new", "a try"]);
    has(&project.json(&["place", &session, "--on", "host", "--in", "work"]), &["session", "seq", "id"]);
    let done = project.json(&["exec", &session, "--", "sh", "-c", "echo out; echo err >&2; echo two >> a; exit 3"]);
    has(
        &done,
        &["record", "timed_out", "killed", "duration_us", "left_behind", "before", "after", "outside", "isolated"],
    );
    assert_eq!((&done["stdout"], &done["stderr"]), (&"out\n".into(), &"err\n".into()));
    assert_eq!((&done["ended"]["exited"], &done["stdout_bytes"]), (&3.into(), &4.into()));
    assert_eq!(done["changed"][0]["path"], "a");
    assert_eq!(done["isolated"], false);

    fs::write(project.copy(&session).join("by-hand"), "x\n").unwrap();
    assert_eq!(project.json(&["save", &session])["changed"][0]["path"], "by-hand");
    assert_eq!(project.json(&["save", &session])["record"], Value::Null);
    let files = project.json(&["files", &session]);
    assert_eq!(files["files"][1]["path"], "by-hand");
    assert_eq!(files["files"][1]["node"]["size"], 2);
    has(&files["version"], &["tree"]);
    let lines = project.ok(&["--json", "blame", "a", "-S", &session]);
    let lines = self::lines(&lines);
    assert_eq!((&lines[1]["line"], &lines[1]["text"]), (&2.into(), &"two\n".into()));
    has(&lines[1]["origin"], &["record", "kind", "actor", "time", "what"]);

    let fork = project.ok(&["fork", &session]);
    project.sh(&fork, "echo theirs > a");
    project.sh(&session, "echo ours > a");
    let diff = project.json(&["diff", &session, &fork]);
    assert_eq!((&diff["same"], &diff["files"]["stat"][0]["path"]), (&false.into(), &"a".into()));
    has(&project.json(&["merge", &session, &fork]), &["session", "seq", "id"]);
    let open = project.json(&["conflicts", &session]);
    assert_eq!((&open[0]["path"], &open[0]["kind"]), (&"a".into(), &"content".into()));
    has(&open[0], &["base", "ours", "theirs", "branch"]);
    assert_eq!(project.code(&["apply", &session]), "open-conflicts");
    has(&project.json(&["resolve", &session, "a", "--theirs"]), &["session", "seq", "id"]);
    assert_eq!(project.json(&["conflicts", &session]), Value::Array(Vec::new()));
    let dry = project.json(&["apply", &session, "--dry-run"]);
    assert_eq!((&dry["dry_run"], &dry["record"]), (&true.into(), &Value::Null));
    let applied = project.json(&["apply", &session]);
    has(&applied, &["record", "directory", "already"]);
    assert_eq!(applied["changed"].as_array().unwrap().len(), 2);
    assert_eq!(project.read("work/a"), "theirs\n");

    let undone = project.json(&["undo", &session]);
    has(&undone, &["record", "changed", "outside", "kept", "undone"]);
    has(&undone["undone"], &["record", "what"]);
    assert_eq!(project.json(&["restore", &format!("{session}@2")])["undone"], Value::Null);
    let sites = project.json(&["sandbox", "ls"]);
    has(&sites[0], &["session", "placement", "directory", "copy", "exists", "bytes", "closed"]);
    has(&project.json(&["sandbox", "prune", "--all", "--dry-run"]), &["removed", "bytes", "kept"]);
    has(&project.json(&["gc", "--dry-run"]), &["dead", "live"]);
    project.sound();
}

#[test]
fn exit_codes_say_what_happened() {
    let project = TestProject::new();
    project.put("work/a", "one\n");
    let session = project.copied();
    project.ok(&["exec", &session, "--", "true"]);
    project.fails(1, &["exec", &session, "--", "false"]);
    assert!(project.fails(1, &["exec", &session, "-c", "--", "kill -9 $$"]).contains("signal 9"));
    assert!(project.fails(1, &["exec", &session, "--timeout", "100ms", "--", "sleep", "60"]).contains("timed out"));
    let finished = project.last(&session, "tool_finished").unwrap();
    assert_eq!(finished["outcome"], "timed_out");
    for wrong in [
        &["exec", &session][..],
        &["exec", &session, "--timeout", "soon", "--", "true"],
        &["exec", &session, "--env", "=x", "--", "true"],
        &["exec", "ffffffffff", "--", "true"],
        &["exec", &format!("{session}@1"), "--", "true"],
        &["place", &session],
        &["place", &session, "--on", "host", "--in", "work", "--in-place", "work"],
        &["undo", "zzzz"],
        &["restore", "@99"],
        &["resolve", &session, "a"],
        &["resolve", &session, "a", "--ours", "--theirs"],
        &["cat", "nowhere"],
        &["files", "0123456789abcdef"],
        &["blame", "a", "-S", "nobody"],
    ] {
        project.fails(2, wrong);
    }
    let elsewhere = project.ok(&["new", "works nowhere"]);
    for arguments in [
        &["exec", &elsewhere, "--", "true"][..],
        &["save", &elsewhere],
        &["apply", &elsewhere],
        &["restore", &elsewhere],
    ] {
        assert_eq!(project.code(arguments), "not-placed", "{arguments:?}");
    }
    assert_eq!(project.code(&["undo", &elsewhere]), "nothing-to-undo");
    project.fails(2, &["files", &elsewhere]);
    assert_eq!(project.code(&["resolve", &session, "a", "--ours"]), "no-conflict");
    assert!(project.fails(2, &["cat", &format!("{session}:nowhere")]).contains("rath file ls"));
    assert!(project.fails(2, &["blame", "nowhere", "-S", &session]).contains("nowhere"));
    assert!(project.fails(1, &["blame", "a:9", "-S", &session]).contains("lines 1 to 1"));
    project.ok(&["diff", &session, &format!("{session}@2"), "--stat"]);
    project.sh(&session, "echo two > a");
    project.fails(3, &["diff", &session, &format!("{session}@2"), "--stat"]);
    project.sound();
}

#[test]
fn invalid_workspaces_are_refused() {
    let project = TestProject::new();
    let session = project.ok(&["new", "a try"]);
    assert_eq!(project.code(&["place", &session, "--on", "host", "--in", "nowhere"]), "no-directory");
    project.put("file", "");
    assert_eq!(project.code(&["place", &session, "--on", "host", "--in", "file"]), "no-directory");
    let said = project.fails(1, &["place", &session, "--on", "elsewhere", "--in", "work"]);
    assert!(said.contains("local") && said.contains("host"), "{said}");
    let said = project.fails(1, &["exec", &session, "--on", "nonsense", "--", "true"]);
    assert!(said.contains("nonsense"), "{said}");

    let home = project.path("home/ada");
    fs::create_dir_all(&home).unwrap();
    let at_home = |arguments: &[&str]| command(project.root(), arguments).env("HOME", &home).output().unwrap();
    for how in ["--in", "--in-place"] {
        for dir in ["/", "home/ada", "home"] {
            let out = at_home(&["place", &session, "--on", "host", how, dir]);
            assert_eq!(out.status.code(), Some(1), "{how} {dir}");
            assert!(text(&out.stderr).contains("protected-directory"), "{}", text(&out.stderr));
        }
    }
    // The flag is needed only once.
    let out =
        at_home(&["exec", &session, "--on", "host", "--in-place", "home/ada", "--anywhere", "-c", "--", "echo 1 > a"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    for arguments in [&["exec", &session, "--", "true"][..], &["undo", &session], &["save", &session]] {
        let out = at_home(arguments);
        assert!(out.status.success(), "{arguments:?}: {}", text(&out.stderr));
    }
    assert!(!home.join("a").exists());
}

#[test]
fn setting_the_same_backend_again_changes_nothing() {
    let project = TestProject::new();
    project.put("work/a", "one\n");
    let session = project.ok(&["new", "a try"]);
    project.ok(&["exec", &session, "--on", "host", "--in", "work", "-c", "--", "echo two > a"]);
    project.ok(&["exec", &session, "--on", "host", "--", "true"]);
    project.ok(&["exec", &session, "--on", "host", "--in", "work/../work", "--", "true"]);
    project.ok(&["apply", &session]);
    assert_eq!(project.read("work/a"), "two\n");
}

#[test]
fn a_record_before_the_fork_point_is_restored_in_the_fork() {
    let project = TestProject::new();
    project.put("work/a", "one\n");
    let session = project.copied();
    project.sh(&session, "echo two > a");
    let fork = project.ok(&["fork", &session]);
    project.sh(&fork, "echo three > a");
    // Restoring goes back through the fork point to the parent's first files.
    project.ok(&["restore", &format!("{fork}@~7")]);
    assert_eq!(project.ok(&["cat", &format!("{fork}:a")]), "one");
    assert_eq!(project.ok(&["cat", &format!("{session}:a")]), "two");
}

#[test]
fn file_names_and_output_cannot_control_the_terminal() {
    let project = TestProject::new();
    let evil: Vec<OsString> = [
        &b"new\nline"[..],
        b"\x1b]0;PWNED\x07",
        b"\x1b[2J",
        "\u{202e}txt.exe".as_bytes(),
        b"\xff\xfe bytes",
        b"quote\"'\\",
        b"-rf",
    ]
    .into_iter()
    .map(|name| OsStr::from_bytes(name).to_owned())
    .collect();
    for name in &evil {
        fs::write(project.path("work").join(name), "one\n").unwrap();
    }
    let session = project.copied();
    let mut shown = Vec::new();
    let mut show = |arguments: &[&OsStr]| {
        let arguments = [&["--color", "always"].map(OsStr::new)[..], arguments].concat();
        let out = project.run(&arguments);
        for stream in [out.stdout, out.stderr] {
            let stream = String::from_utf8(stream).unwrap_or_else(|_| panic!("{arguments:?} is not text"));
            let raw = ["\u{1b}]", "\u{1b}[2J", "\u{7}", "\u{202e}", "new\nline"];
            assert!(!raw.iter().any(|raw| stream.contains(raw)), "{arguments:?}: {stream:?}");
            shown.push(stream);
        }
    };
    let words =
        |line: &str| line.split(' ').map(|word| OsString::from(word.replace('%', &session))).collect::<Vec<_>>();
    let fork = project.ok(&["fork", &session]);
    for line in [
        "files %",
        "files % --long",
        "exec % -- sh -c for\tname\tin\t*;do\techo\ttwo>./$name;done",
        "log %",
        "show %",
        "diff % %@2",
        "diff % %@2 --stat",
        "undo %",
        "restore %@2",
        "apply % --dry-run",
        "sandbox ls",
    ] {
        let line = words(line);
        show(&line.iter().map(OsString::as_os_str).collect::<Vec<_>>());
    }
    project.sh(&fork, "for name in * ; do echo three > \"./$name\"; done");
    project.sh(&session, "for name in * ; do echo two > \"./$name\"; done");
    show(&["merge", &session, &fork].map(OsStr::new));
    show(&["conflicts", &session].map(OsStr::new));
    show(&["apply", &session].map(OsStr::new));
    for name in &evil {
        // The escaped path can be resolved.
        show(&[OsStr::new("conflicts"), OsStr::new(&session), OsStr::new("--"), name]);
        let arguments = [OsStr::new("resolve"), OsStr::new(&session), OsStr::new("--theirs"), OsStr::new("--"), name];
        project.ok(&arguments);
        show(&[OsStr::new("blame"), OsStr::new("-S"), OsStr::new(&session), OsStr::new("--"), name]);
        let path = [format!("{session}:").as_bytes(), name.as_bytes()].concat();
        assert_eq!(project.ok(&[OsStr::new("cat"), OsStr::from_bytes(&path)]), "three");
    }
    fs::write(project.path("work").join(&evil[1]), "mine\n").unwrap();
    show(&["apply", &session].map(OsStr::new));
    fs::write(project.copy(&session).join(&evil[3]), "mine\n").unwrap();
    show(&["undo", &session].map(OsStr::new));
    show(&["exec", &session, "--", "\u{1b}]0;PWNED\u{7}"].map(OsStr::new));
    show(&["place", &session, "--on", "\u{1b}]0;PWNED\u{7}"].map(OsStr::new));

    // The same for the directory itself.
    let home = project.path("work").join(&evil[1]).with_extension("d");
    fs::create_dir(&home).unwrap();
    let other = project.ok(&["new", "there"]);
    let place = ["place", &other, "--on", "host", "--in-place"].map(OsStr::new);
    show(&[&place[..], &[home.as_os_str()]].concat());
    show(&["sandbox", "ls"].map(OsStr::new));
    show(&["show", &other].map(OsStr::new));
    fs::remove_dir(&home).unwrap();
    show(&["exec", &other, "--", "true"].map(OsStr::new));
    show(&["sandbox", "ls"].map(OsStr::new));
    assert!(["\\n", "PWNED"].iter().all(|name| shown.iter().any(|stream| stream.contains(name))));
}

#[test]
fn secrets_stay_with_their_owner() {
    let project = TestProject::new();
    let session = project.copied();
    let run = |arguments: &[&str]| {
        let out = command(project.root(), arguments).env("API_KEY", "hunter2").env("AWS_SECRET", "hunter2").output();
        let out = out.unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stdout)
    };
    let seen = run(&["exec", &session, "--", "env"]);
    assert!(seen.contains("PATH=") && !seen.contains("hunter2") && !seen.contains("API_KEY"), "{seen}");
    run(&["exec", &session, "--pass-env", "API_KEY", "-c", "--", "test ${#API_KEY} = 7"]);
    run(&["exec", &session, "--env", "TOKEN=hunter3", "-c", "--", "test ${#TOKEN} = 7"]);
    let said = project.fails(1, &["exec", &session, "--pass-env", "NOT_THERE", "--", "true"]);
    assert!(said.contains("NOT_THERE"), "{said}");
    let log = project.ok(&["log", &session, "--raw"]);
    assert!(!log.contains("hunter"), "{log}");
    assert!(project.last(&session, "tool_started").unwrap()["arguments"].to_string().contains("TOKEN"));
}

#[test]
fn output_of_any_kind_is_kept_and_truncation_is_shown() {
    let project = TestProject::new();
    let session = project.copied();
    let out = project.run(&["exec", &session, "-c", "--", "printf '\\377\\000\\001'"]);
    assert_eq!(out.stdout, b"\xff\0\x01");
    let finished = project.last(&session, "tool_finished").unwrap();
    assert_eq!(finished["output"][0]["blob"]["bytes"], 3);

    let long = "head -c 20000000 /dev/zero | tr '\\0' x";
    let out = project.run(&["exec", &session, "-c", "--", long]);
    assert!(out.status.success());
    let said = text(&out.stderr);
    assert!(said.contains("20 MB"), "{said}");
    let finished = project.last(&session, "tool_finished").unwrap();
    assert_eq!(finished["output"][0]["cut_from"], 20_000_000);
    let done = project.json(&["exec", &session, "-c", "--", long]);
    assert_eq!(done["stdout_bytes"], 20_000_000);
    assert_eq!(done["stdout_cut"], true);
    assert_eq!(done["stdout"].as_str().unwrap().len(), 16 << 20);

    // A closed pipe does not stop the command.
    let mut child = command(project.root(), &["exec", &session, "-c", "--", "yes | head -c 3000000; echo 1 > done"]);
    let mut child = child.spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    assert_eq!(project.ok(&["cat", &format!("{session}:done")]), "1");
    for arguments in [&["cat", &format!("{session}:big")][..], &["files", &session], &["log", &session]] {
        project.sh(&session, "yes | head -c 3000000 > big");
        let mut child = command(project.root(), arguments).spawn().unwrap();
        drop(child.stdout.take());
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success(), "{arguments:?}: {}", text(&out.stderr));
    }
}

#[test]
fn a_missing_program_fails_the_call_and_not_the_session() {
    let project = TestProject::new();
    project.put("work/sub/a", "one\n");
    let session = project.copied();
    let said = project.fails(1, &["exec", &session, "--", "no-such-program"]);
    assert!(said.contains("no-such-program"), "{said}");
    project.fails(1, &["exec", &session, "--", "sub"]);
    project.fails(1, &["exec", &session, "--cwd", "nowhere", "--", "true"]);
    project.fails(1, &["exec", &session, "--cwd", "../..", "--", "true"]);
    let finished = project.last(&session, "tool_finished").unwrap();
    assert_eq!(finished["outcome"], "failed");
    assert_eq!(project.ok(&["exec", &session, "--cwd", "sub", "--", "cat", "a"]), "one");
    let mut child = command(project.root(), &["exec", &session, "--stdin", "--", "wc", "-c"]);
    let mut child = child.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&vec![b'x'; 300_000]).unwrap();
    assert_eq!(text(&child.wait_with_output().unwrap().stdout).trim(), "300000");
    project.sound();
}

pub(crate) fn wait_for(path: &Path, child: &mut Child) {
    while !path.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it began");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn an_interrupt_stops_the_command_and_is_recorded() {
    let project = TestProject::new();
    let session = project.copied();
    for signal in ["-INT", "-TERM"] {
        project.sh(&session, "rm -f begun");
        let begun = project.copy(&session).join("begun");
        let line = "echo 1 > begun; sleep 600 & sleep 600";
        let mut child = command(project.root(), &["exec", &session, "-c", "--", line]).spawn().unwrap();
        wait_for(&begun, &mut child);
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
        assert!(text(&out.stderr).contains("stopped"), "{}", text(&out.stderr));
        let finished = project.last(&session, "tool_finished").unwrap();
        assert_eq!(finished["outcome"], "cancelled");
        assert_eq!(finished["changed"]["paths"][0]["path"], "begun");
    }
    project.ok(&["exec", &session, "--", "true"]);
}

#[test]
fn one_process_at_a_time_works_in_a_directory() {
    let project = TestProject::new();
    project.put("work/a", "one\n");
    let (one, two) = (project.ok(&["new", "one"]), project.ok(&["new", "two"]));
    for session in [&one, &two] {
        project.ok(&["place", session, "--on", "host", "--in-place", "work"]);
    }
    let line = "echo 1 > begun; while [ ! -e stop ]; do sleep 0.02; done; rm stop begun; echo two > a";
    let mut child = command(project.root(), &["exec", &one, "-c", "--", line]).spawn().unwrap();
    wait_for(&project.path("work/begun"), &mut child);
    assert_eq!(project.code(&["exec", &two, "--", "true"]), "workspace-busy");
    assert_eq!(project.code(&["exec", &one, "--", "true"]), "session-held");
    project.put("work/stop", "");
    assert!(child.wait().unwrap().success());
    let done = project.json(&["exec", &two, "--", "true"]);
    assert_eq!(done["outside"][0]["path"], "a");
    let said = project.fails(1, &["undo", &one, "-n", "2"]);
    assert!(said.contains("nothing"), "{said}");
}

#[test]
fn missing_and_unreadable_directories_are_reported() {
    let project = TestProject::new();
    project.put("work/a", "one\n");
    let session = project.copied();
    project.sh(&session, "echo two > a");
    fs::remove_dir_all(project.copy(&session)).unwrap();
    let done = project.json(&["exec", &session, "--", "cat", "a"]);
    assert_eq!((&done["stdout"], &done["outside"]), (&"two\n".into(), &Value::Array(Vec::new())));
    assert!(project.last(&session, "sandbox_lost").is_some());

    let there = project.ok(&["new", "there"]);
    project.ok(&["place", &there, "--on", "host", "--in-place", "work"]);
    fs::set_permissions(project.path("work"), fs::Permissions::from_mode(0o555)).unwrap();
    let status = project.run(&["exec", &there, "-c", "--", "echo x > b"]).status.code();
    assert!(matches!(status, Some(0 | 1)));
    let status = project.run(&["undo", &there]).status.code();
    assert!(matches!(status, Some(0 | 1)));
    fs::set_permissions(project.path("work"), fs::Permissions::from_mode(0o755)).unwrap();
    project.ok(&["exec", &there, "--", "true"]);
    fs::remove_dir_all(project.path("work")).unwrap();
    for arguments in
        [&["exec", &there, "--", "true"][..], &["restore", &there], &["save", &there], &["apply", &session]]
    {
        assert_eq!(project.code(arguments), "no-directory", "{arguments:?}");
    }
    assert_eq!(project.ok(&["cat", &format!("{there}:a")]), "one");
    fs::create_dir(project.path("work")).unwrap();
    project.ok(&["restore", &there, "--over"]);
    assert_eq!(project.read("work/a"), "one\n");
    project.sound();
}

#[test]
fn a_patch_turns_the_original_files_into_the_sessions_files() {
    if Command::new("git").arg("--version").output().is_err() {
        rath_testkit::Requirement::Git.skip("git is not installed");
        return;
    }
    let project = TestProject::new();
    let numbers: String = (0..60).map(|line| format!("{line}\n")).collect();
    for name in
        ["plain", "with space", "gone", "tool.sh", "dir/deep/x", "na\u{ef}ve", "tab\there", "new\nline", "\"q\""]
    {
        project.put(&format!("work/{name}"), &numbers);
    }
    project.put("work/no newline", "one\ntwo");
    project.put("work/empty", "");
    std::os::unix::fs::symlink("plain", project.path("work/link")).unwrap();
    let session = project.copied();
    project.sh(
        &session,
        r#"for name in plain "with space" na*ve tab*here new*line '"q"' dir/deep/x; do
             sed -e 5d -e '20s/$/ more/' -e '40a new' "$name" > t && cat t > "$name"; done; rm t gone
           printf 'one\nthree' > "no newline"; rm empty; : > also-empty; chmod +x tool.sh
           ln -sf dir link; mkdir -p other/dir; echo new > other/dir/file; mv dir/deep/x dir/moved; rmdir dir/deep"#,
    );
    let patch = project.run(&["diff", &format!("{session}@2"), &session, "--patch"]);
    assert_eq!(patch.status.code(), Some(3));
    fs::write(project.path("patch"), patch.stdout).unwrap();
    let out = Command::new("git").args(["apply", "../patch"]).current_dir(project.path("work")).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    let again = project.ok(&["new", "as patched"]);
    project.ok(&["place", &again, "--on", "host", "--in", "work"]);
    let (one, two) = (project.json(&["files", &session]), project.json(&["files", &again]));
    assert_eq!(one["files"], two["files"]);
    project.ok(&["diff", &session, &again, "--stat"]);
    // `apply` finds no changes either.
    assert_eq!(project.json(&["apply", &session])["changed"], Value::Array(Vec::new()));
}
