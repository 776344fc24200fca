//! Bad input gets a clear error and loses nothing.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::workspace::lines;

fn rath(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rath"));
    command.args(arguments).current_dir(dir).env("USER", "ada").stdin(Stdio::null()).output().unwrap()
}

fn ok(dir: &Path, arguments: &[&str]) -> String {
    let out = rath(dir, arguments);
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().trim_end().to_owned()
}

fn fails(dir: &Path, code: i32, arguments: &[&str]) -> String {
    let out = rath(dir, arguments);
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(code), "{arguments:?}: {text}");
    assert!(!text.contains("panicked"), "{text}");
    text
}

fn store() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    ok(dir.path(), &["init"]);
    dir
}

#[test]
fn unusual_texts_are_stored_unchanged() {
    let dir = store();
    let texts = [
        "",
        " ",
        "\u{2028}\u{85}\u{0}",
        "🦀 世界 עברית",
        "-",
        "--json",
        "a\r\nb\n\n",
        "\u{1b}[31mred",
        "{\"digest\":1}",
    ];
    for text in texts.iter().filter(|text| !text.contains('\0') && **text != "-") {
        let session = ok(dir.path(), &["new"]);
        ok(dir.path(), &["add", &session, "--", text]);
        let shown = ok(dir.path(), &["show", "--json", &format!("{session}@1")]);
        let value: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(value["body"]["text"], **text);
    }
}

#[test]
fn long_and_piped_texts_become_blobs() {
    let dir = store();
    let session = ok(dir.path(), &["new", "long"]);
    let text = "0123456789\n".repeat(100_000);
    let mut child = Command::new(env!("CARGO_BIN_EXE_rath"))
        .args(["add", &session, "--as", "note"])
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let shown = ok(dir.path(), &["show", "@-0"]);
    assert!(shown.contains("0123456789\n0123456789"));
    assert!(ok(dir.path(), &["verify", "--json"]).contains(r#""blobs":1"#));
}

#[test]
fn expressions_that_name_nothing_are_usage_errors() {
    let dir = store();
    assert!(fails(dir.path(), 2, &["show"]).contains("no sessions yet"));
    let session = ok(dir.path(), &["new", "one"]);
    for wrong in
        ["zzzz", "ffffffffff", "../../etc", "@99", "@-99", "@~99", "@x", "'; DROP TABLE sessions", "%", "_", ""]
    {
        fails(dir.path(), 2, &["show", wrong]);
    }
    assert!(fails(dir.path(), 2, &["add", &format!("{session}@0"), "text"]).contains("a session is needed"));
    assert!(fails(dir.path(), 2, &["add", &session, "--as", "nonsense", "x"]).contains("possible values"));
    assert!(fails(dir.path(), 1, &["add", &session, "--raw", "Bad Kind", "{}"]).contains("is not a kind"));
    assert!(fails(dir.path(), 1, &["add", &session, "--raw", "note", "[1]"]).contains("JSON object"));
    assert!(fails(dir.path(), 1, &["add", &session, "--file", "nowhere.txt"]).contains("nowhere.txt"));
    assert!(fails(dir.path(), 2, &["merge", &session, &session]).contains("into itself"));
    fails(dir.path(), 2, &["label", &session, "=x"]);
    fails(dir.path(), 2, &["explain", "nonsense"]);
    fails(dir.path(), 2, &["--by", ":", "add", &session, "x"]);
    assert!(fails(dir.path(), 2, &["add", &session]).contains("no text"));
    assert_eq!(lines(&ok(dir.path(), &["log", "--json", &session])).len(), 2);
}

#[test]
fn an_unwritable_directory_is_reported() {
    // Root can write anywhere, so a file stands where a directory should be.
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("wall"), "").unwrap();
    assert!(fails(dir.path(), 1, &["init", "wall"]).contains("wall"));
    assert!(fails(dir.path(), 1, &["log"]).contains("rath init"));
    assert!(fails(dir.path(), 1, &["log", "--store", "nowhere"]).contains("not a rath store"));
    assert!(fails(dir.path(), 1, &["log", "--store", "nowhere", "--json"]).contains(r#""code":"not-a-store""#));
}

#[test]
fn content_cannot_control_the_terminal() {
    let dir = store();
    let evil = "\u{1b}]0;PWNED\u{7}\u{1b}[2J\u{202e}txt";
    let session = ok(dir.path(), &["new", evil]);
    ok(dir.path(), &["add", &session, evil]);
    ok(dir.path(), &["label", &session, &format!("x={evil}")]);
    ok(dir.path(), &["--by", &format!("agent:{evil}"), "fork", &session, evil]);
    let record = format!("{session}@2");
    for arguments in [&["log"][..], &["log", &session], &["show", &session], &["show", &record], &["log", "--graph"]] {
        let shown = ok(dir.path(), &[&["--color", "always"], arguments].concat());
        assert!(
            !shown.contains("\u{1b}]") && !shown.contains("\u{1b}[2J") && !shown.contains('\u{202e}'),
            "{arguments:?}"
        );
        assert!(shown.contains("PWNED"), "{arguments:?}");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let dir = store();
    let session = ok(dir.path(), &["new"]);
    for _ in 0..3 {
        ok(dir.path(), &["add", &session, &"long line ".repeat(800)]);
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_rath"))
        .args(["show", &session])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn hundreds_of_sessions_are_still_drawn() {
    let dir = store();
    let root = ok(dir.path(), &["new", "root"]);
    for n in 0..60 {
        let fork = ok(dir.path(), &["fork", &root, &format!("try {n}")]);
        if n % 3 == 0 {
            ok(dir.path(), &["merge", &root, &fork]);
        }
    }
    let graph = ok(dir.path(), &["log", "--graph"]);
    assert!(graph.lines().count() < 400, "{}", graph.lines().count());
    assert!(graph.contains("◆") && graph.contains("try 59"));
    assert_eq!(lines(&ok(dir.path(), &["ls", "--json", "--all", "-n", "0"])).len(), 61);
}

#[test]
fn completions_and_help_exist_for_everything() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        assert!(ok(dir.path(), &["completions", shell]).contains("rath"));
    }
    let help = ok(dir.path(), &["help"]);
    for command in ["demo", "init", "new", "add", "log", "show", "diff", "fork", "merge", "session", "verify", "doctor"]
    {
        assert!(help.contains(command));
        assert!(ok(dir.path(), &[command, "--help"]).contains("Usage"));
    }
}

#[test]
fn an_export_with_blobs_verifies_without_rath() {
    if Command::new("python3").arg("--version").output().is_err() {
        rath_testkit::Requirement::Python.skip("python3 is not installed");
        return;
    }
    let dir = store();
    let session = ok(dir.path(), &["new", "long"]);
    ok(dir.path(), &["add", &session, &"0123456789 ".repeat(2000)]);
    let fork = ok(dir.path(), &["fork", &session, "try"]);
    ok(dir.path(), &["merge", &session, &fork]);
    let raw = ok(dir.path(), &["log", &session, "--raw", "--blobs", "blobs"]);
    std::fs::write(dir.path().join("s.jsonl"), raw).unwrap();
    std::fs::write(dir.path().join("verify.py"), ok(dir.path(), &["verify", "--script"])).unwrap();
    let check = || {
        let arguments = ["verify.py", "--blobs", "blobs", "s.jsonl"];
        Command::new("python3").args(arguments).current_dir(dir.path()).output().unwrap().status.code()
    };
    assert_eq!(check(), Some(0));
    let blob = std::fs::read_dir(dir.path().join("blobs")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(blob, "something else").unwrap();
    assert_eq!(check(), Some(3));
}

#[test]
fn a_database_that_cannot_be_opened_is_not_valid() {
    let dir = store();
    ok(dir.path(), &["new", "one"]);
    std::fs::write(dir.path().join(".rath/rath.db"), vec![7; 9000]).unwrap();
    let out = rath(dir.path(), &["verify", "--json"]);
    assert_eq!(out.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&out.stdout).contains("unreadable"));
}
