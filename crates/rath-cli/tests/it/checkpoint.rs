//! Checkpoints: creating them, storing them elsewhere, and comparing a store with them.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use rath_testkit::copy_dir;
use serde_json::Value;

use crate::workspace::{TestProject, command, text};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The exit code, and all output.
fn said(project: &TestProject, arguments: &[&str]) -> (i32, String) {
    let out = project.run(arguments);
    (out.status.code().unwrap(), format!("{}{}", text(&out.stdout), text(&out.stderr)))
}

fn session(project: &TestProject) -> String {
    let session = project.ok(&["new", "a try"]);
    project.ok(&["add", &session, "Pay invoice 17."]);
    session
}

#[test]
fn a_store_is_compared_with_external_checkpoints() {
    let project = TestProject::new();
    let session = session(&project);
    copy_dir(&project.path(".rath"), &project.path("older"));
    project.ok(&["add", &session, "--as", "assistant", "It is paid."]);
    let line = project.ok(&["checkpoint", "--print", "--note", "before the audit"]);
    project.put("lines", format!("{line}\n\n"));
    let made: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((made["no"].as_u64(), made["note"].as_str()), (Some(1), Some("before the audit")));
    // All names of the checkpoint work.
    let digest = project.json(&["checkpoint", "list"])[0]["digest"].as_str().unwrap().to_owned();
    for since in
        ["--since", "--since=1", &format!("--since={}", &digest[..8]), &format!("--since={line}"), "--since=lines"]
    {
        let (code, words) = said(&project, &["verify", since]);
        assert_eq!(code, 0, "{since}: {words}");
        assert!(words.contains("everything that checkpoint 1 (") && words.contains("records in 2 sessions"), "{words}");
    }
    assert_eq!(project.json(&["verify", "--since"])["sound"], true);
    let (code, words) = said(&project, &["verify", "--against", "older"]);
    assert_eq!(code, 0, "{words}");
    assert!(words.contains(&format!("longer here: {session}")), "{words}");
    // The older copy is valid by itself. The checkpoint line shows that records are missing.
    fs::rename(project.path(".rath"), project.path("newer")).unwrap();
    fs::rename(project.path("older"), project.path(".rath")).unwrap();
    assert_eq!(said(&project, &["verify"]).0, 0);
    let (code, words) = said(&project, &["verify", "--since", &line]);
    assert_eq!(code, 3, "{words}");
    assert!(words.contains("the store has no checkpoint") && words.contains("cut off"), "{words}");
    assert_eq!(said(&project, &["verify", "--since"]).0, 3);
    let out = project.run(&["verify", "--json", "--since", "lines"]);
    let value: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (out.status.code(), &value["sound"], &value["findings"][0]["what"]),
        (Some(3), &false.into(), &"cut_off".into())
    );
    // The older copy continues differently: a comparison reports where the two differ.
    project.ok(&["add", &session, "--as", "assistant", "Never."]);
    let (code, words) = said(&project, &["verify", "--against", "newer"]);
    assert_eq!(code, 3);
    assert!(words.contains("the other copy has another record"), "{words}");
}

#[test]
fn text_that_is_no_checkpoint_is_an_error() {
    let project = TestProject::new();
    session(&project);
    let line = project.ok(&["checkpoint", "--print"]);
    let altered = line.replace("\"no\":1", "\"no\":1 ");
    let forged = line.replace("\"records\":", "\"records\":1");
    project.put("lines", format!("{line}\nno checkpoint\n"));
    project.put("forged", format!("{line}\n{forged}\n"));
    project.put("empty", "");
    project.put("binary", [0xff, 0xfe, 0]);
    let cut = &line[..line.len() - 20];
    project.put("cut", format!("{cut}\n"));
    project.put("headless", &line[20..]);
    for (since, code, words) in [
        (altered.as_str(), 3, "not in canonical form"),
        (forged.as_str(), 3, "its signature is wrong"),
        ("forged", 3, "line 2 of forged is not what was signed"),
        (cut, 3, "the line is not what was signed"),
        ("cut", 3, "line 1 of cut is not what was signed"),
        ("headless", 3, "line 1 of headless is not what was signed"),
        ("{", 1, "is not a checkpoint"),
        ("lines", 1, "line 2 of lines is not a checkpoint"),
        ("empty", 1, "contains no checkpoint"),
        ("binary", 1, "reading binary"),
        ("nowhere", 2, "is neither a checkpoint of this store, nor a file"),
        ("0", 2, "numbers start at 1"),
        ("7", 3, "checkpoint 7 is not in this store, whose last is 1"),
        ("abcdef0123456789", 3, "is not in this store"),
    ] {
        let (exit, said) = said(&project, &["verify", "--since", since]);
        assert!(exit == code && said.contains(words), "{since}: {exit} {said}");
    }
    // Both flags take a line.
    for (against, code, words) in [(line.as_str(), 0, "covers is present"), (&forged, 3, "its signature is wrong")] {
        let (exit, said) = said(&project, &["verify", "--against", against]);
        assert!(exit == code && said.contains(words), "{against}: {exit} {said}");
    }
    let (code, words) = said(&project, &["verify", "--key", "abc", "--since"]);
    assert!(code == 2 && words.contains("a public key: 64 lower-case hex digits"), "{words}");
    let (code, words) = said(&project, &["checkpoint", "--note", &"n".repeat(501)]);
    assert!(code == 1 && words.contains("longer than 500 bytes"), "{words}");
}

#[test]
fn the_signing_key_is_private_and_can_be_rotated() {
    let project = TestProject::new();
    session(&project);
    let (code, words) = said(&project, &["checkpoint", "key"]);
    assert!(code == 3 && words.contains("`rath checkpoint key new` creates one"), "{words}");
    let first = project.ok(&["checkpoint", "key", "new"]);
    let file = project.path("config/rath/checkpoint/key");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    project.ok(&["checkpoint"]);
    let (code, words) = said(&project, &["checkpoint", "key", "new"]);
    assert!(code == 1 && words.contains("there is already a key"), "{words}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, words) = said(&project, &["checkpoint"]);
    assert!(
        code == 1 && words.contains("other users on this machine can read") && words.contains("chmod 600"),
        "{words}"
    );
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    // Verification follows a rotation from either key.
    let second = project.ok(&["checkpoint", "key", "rotate"]);
    assert_ne!(first, second);
    let (code, words) = said(&project, &["verify", "--since"]);
    assert!(code == 0 && words.contains("which you have replaced since"), "{words}");
    project.ok(&["checkpoint"]);
    for key in [&first, &second] {
        assert_eq!(said(&project, &["verify", "--since", "--key", key]).0, 0);
    }
    let stranger = "11".repeat(32);
    let (code, words) = said(&project, &["verify", "--since", "--key", &stranger]);
    assert!(code == 3 && words.contains("not with the one that you trust"), "{words}");
    // The user's file can pin a key; the store's own file cannot.
    project.ok(&["config", "set", "--user", "checkpoint.key", &stranger]);
    assert_eq!(said(&project, &["verify", "--since"]).0, 3);
    assert_eq!(said(&project, &["verify", "--since", "--key", &first]).0, 0);
    project.put(".rath/config.toml", format!("[checkpoint]\nkey = \"{second}\"\n"));
    let (code, words) = said(&project, &["verify", "--since"]);
    assert!(code == 1 && words.contains("allowed only in your own configuration file"), "{words}");
    fs::remove_file(project.path(".rath/config.toml")).unwrap();
    project.ok(&["config", "set", "--user", "checkpoint.key", &second]);
    // Without the key, a new chain needs a flag.
    fs::remove_file(&file).unwrap();
    let (code, words) = said(&project, &["checkpoint"]);
    assert!(code == 1 && words.contains("there is no signing key here") && words.contains("--new-chain"), "{words}");
    let (code, words) = said(&project, &["checkpoint", "--new-chain"]);
    assert!(code == 0 && words.contains("no earlier key has signed"), "{words}");
    let (code, words) = said(&project, &["verify", "--since"]);
    assert!(code == 3 && words.contains("starts a new chain"), "{words}");
    let third = project.ok(&["checkpoint", "key"]);
    assert_eq!(said(&project, &["verify", "--since", "--key", &third]).0, 0);
    assert_eq!(project.ok(&["checkpoint", "list"]).lines().count(), 3);
}

/// Whether concurrent commands succeeded, with their standard output and standard error.
fn at_once(commands: Vec<Command>) -> Vec<(bool, String, String)> {
    let running: Vec<_> = commands.into_iter().map(|mut command| command.spawn().unwrap()).collect();
    let ended = running.into_iter().map(|child| child.wait_with_output().unwrap());
    ended.map(|out| (out.status.success(), text(&out.stdout).trim().to_owned(), text(&out.stderr))).collect()
}

#[test]
fn concurrent_processes_create_one_signing_key() {
    let project = TestProject::new();
    session(&project);
    let stores: Vec<String> = (0..4).map(|no| format!("c{no}/.rath")).collect();
    for round in 0..4 {
        let config = project.path(&format!("config-{round}"));
        let with = |arguments: &[&str]| {
            let mut command = command(project.root(), arguments);
            command.env("XDG_CONFIG_HOME", &config);
            command
        };
        let said = |arguments: &[&str]| at_once(vec![with(arguments)]).remove(0);
        for store in &stores {
            let _ = fs::remove_dir_all(project.path(store));
            copy_dir(&project.path(".rath"), &project.path(store));
        }
        // In one round several stores are first, in the other several users.
        let first = match round % 2 {
            0 => at_once(stores.iter().map(|store| with(&["--store", store, "checkpoint"])).collect()),
            _ => at_once(stores.iter().map(|_| with(&["checkpoint", "key", "new"])).collect()),
        };
        let made: Vec<_> = first.iter().filter(|(_, _, words)| words.contains("created a signing key")).collect();
        assert_eq!(made.len(), 1, "{first:?}");
        match round % 2 {
            0 => assert!(first.iter().all(|(is_done, ..)| *is_done), "{first:?}"),
            _ => {
                assert_eq!(made[0].1, said(&["checkpoint", "key"]).1);
                let told = |it: &&(bool, String, String)| !it.0 && it.2.contains("there is already a key");
                assert_eq!(first.iter().filter(told).count(), 3, "{first:?}");
            }
        }
        // Concurrent rotations take turns: each printed key is the current one or a predecessor.
        let rotated = at_once(stores.iter().map(|_| with(&["checkpoint", "key", "rotate"])).collect());
        assert!(rotated.iter().all(|(is_done, ..)| *is_done), "{rotated:?}");
        let key: Value = serde_json::from_str(&said(&["--json", "checkpoint", "key"]).1).unwrap();
        let before = key["before"].as_array().unwrap();
        assert_eq!(before.len(), stores.len());
        for (_, told, _) in &rotated {
            assert!(before.iter().any(|succession| succession["key"] == told.as_str()), "{told}: {key}");
        }
        for store in &stores {
            for arguments in [&["checkpoint"][..], &["verify", "--since", "1"]] {
                let (is_done, out, words) = said(&[&["--store", store], arguments].concat());
                assert!(is_done, "{arguments:?}: {out}{words}");
            }
        }
    }
}

#[test]
fn key_rotations_between_two_checkpoints_are_limited() {
    let project = TestProject::new();
    session(&project);
    project.ok(&["checkpoint"]);
    for _ in 0..64 {
        project.ok(&["checkpoint", "key", "rotate"]);
    }
    let file = project.read("config/rath/checkpoint/key");
    let (code, words) = said(&project, &["checkpoint", "key", "rotate"]);
    assert!(code == 1 && words.contains("was replaced 64 times") && words.contains("rotate --forget"), "{words}");
    assert_eq!(project.read("config/rath/checkpoint/key"), file, "nothing is replaced");
    project.ok(&["checkpoint"]);
    project.ok(&["checkpoint", "key", "rotate", "--forget"]);
    project.ok(&["checkpoint", "key", "rotate"]);
    project.ok(&["checkpoint"]);
    let (code, words) = said(&project, &["verify", "--since", "1"]);
    assert!(code == 0 && words.contains("the chain has 3 checkpoints"), "{words}");
}

#[test]
fn a_copy_is_evidence_as_far_as_it_is_valid() {
    let project = TestProject::new();
    let session = session(&project);
    let key = {
        project.ok(&["checkpoint"]);
        project.ok(&["checkpoint", "key"])
    };
    let database = |at: &str| rusqlite::Connection::open(project.path(at).join("rath.db")).unwrap();
    database(".rath").execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    for copy in ["copy/.rath", "altered", "cut"] {
        copy_dir(&project.path(".rath"), &project.path(copy));
    }
    // The directory that contains the store, or the store itself.
    for copy in ["copy", "copy/.rath"] {
        let (code, words) = said(&project, &["verify", "--against", copy, "--key", &key]);
        assert!(code == 0 && words.contains("the other copy agrees"), "{words}");
    }
    let (code, words) = said(&project, &["verify", "--against", "work"]);
    assert!(code == 2 && words.contains("there is no store in work"), "{words}");
    // A key needs something to compare with.
    let stranger = "11".repeat(32);
    let (code, words) = said(&project, &["verify", "--against", "copy", "--key", &stranger]);
    assert!(code == 3 && words.contains("not with the one that you trust"), "{words}");
    for more in [&[][..], &[session.as_str()], &["--script"]] {
        let (code, words) = said(&project, &[&["verify", "--key", &stranger], more].concat());
        assert!(code == 2 && words.contains("--since"), "{words}");
    }
    // An altered body.
    let mut bytes = fs::read(project.path("altered/rath.db")).unwrap();
    let text = b"Pay invoice 17.";
    let at: Vec<usize> = (0..bytes.len() - text.len()).filter(|at| bytes[*at..].starts_with(text)).collect();
    at.iter().for_each(|at| bytes[at + 12] = b'7');
    assert!(!at.is_empty());
    fs::write(project.path("altered/rath.db"), bytes).unwrap();
    let (code, words) = said(&project, &["verify", "--against", "altered"]);
    assert!(code == 3 && words.contains("in the other copy: the body does not match"), "{words}");
    assert!(!words.contains("the other copy agrees"), "{words}");
    // A session that the store's own checkpoint covers and that was removed.
    let no: i64 = database("cut")
        .query_row("SELECT no FROM sessions WHERE no != (SELECT max(no) FROM sessions)", [], |row| row.get(0))
        .unwrap();
    let gone = format!(
        "DELETE FROM ids WHERE segment IN (SELECT cursor FROM segments WHERE session = {no});
         DELETE FROM segments WHERE session = {no}; DELETE FROM snapshots WHERE session = {no};
         DELETE FROM sessions WHERE no = {no};"
    );
    database("cut").execute_batch(&gone).unwrap();
    assert_eq!(said(&project, &["--store", "cut", "verify"]).0, 0, "it does not show by itself");
    for (store, copy, whose) in [(".rath", "cut", "the other copy"), ("cut", ".rath", "this copy")] {
        let (code, words) = said(&project, &["--store", store, "verify", "--against", copy]);
        let told = format!("{whose}: the session is gone: checkpoint 1 (");
        assert!(code == 3 && words.contains(&told) && !words.contains("the other copy agrees"), "{words}");
    }
}

#[test]
fn checkpoint_lines_verify_with_python() {
    if Command::new("python3").arg("--version").output().is_err() {
        rath_testkit::Requirement::Python.skip("python3 is not installed");
        return;
    }
    let project = TestProject::new();
    let session = session(&project);
    project.ok(&["checkpoint", "--note", "naïve \u{2028} “note”\t\u{1f}"]);
    project.ok(&["checkpoint", "key", "rotate"]);
    let between = project.ok(&["checkpoint", "key"]);
    project.ok(&["checkpoint", "key", "rotate"]);
    project.ok(&["checkpoint"]);
    project.ok(&["checkpoint"]);
    let lines = project.ok(&["checkpoint", "list", "--print"]);
    let check = |lines: &[u8], more: &[&str]| {
        project.put("lines", lines);
        let mut python = Command::new("python3");
        let out =
            python.arg(repository("docs/checkpoint.py")).arg("lines").args(more).current_dir(project.root()).output();
        let out = out.unwrap();
        (out.status.code().unwrap(), format!("{}{}", text(&out.stdout), text(&out.stderr)))
    };
    for key in [project.ok(&["checkpoint", "key"]), between] {
        let (code, words) = check(lines.as_bytes(), &["--key", &key]);
        assert!(code == 0 && words.starts_with("valid: 3 checkpoints"), "{words}");
        assert_eq!(said(&project, &["verify", "--since", "1", "--key", &key]).0, 0);
    }
    let all: Vec<&str> = lines.lines().collect();
    for (altered, words) in [
        (lines.replacen("\"records\":", "\"records\":1", 1), "the signature does not match"),
        ([all[0], all[2]].join("\n"), "comes after"),
        (lines.replacen("\"no\":", " \"no\":", 1), "not in canonical form"),
        ("nothing".into(), "is not a checkpoint"),
        ("{}".into(), "is not a checkpoint"),
        (format!("{}{}", all[0], " ".repeat(40_000)), "more than 32768 bytes"),
    ] {
        let (code, said) = check(altered.as_bytes(), &[]);
        assert!(code == 3 && said.contains(words), "{said}");
    }
    let (code, words) = check(b"\xff\xfe", &[]);
    assert!(code == 3 && words.contains("line 1 is not a checkpoint: it is not UTF-8"), "{words}");
    assert_eq!(check(lines.as_bytes(), &["--key", &"11".repeat(32)]).0, 3);
    // A weak key, for which anyone can produce signatures.
    let mut small: Value = serde_json::from_str(all[0]).unwrap();
    small["key"] = format!("01{}", "00".repeat(31)).into();
    small["signature"] = format!("01{}", "00".repeat(63)).into();
    let (code, words) = check(small.to_string().as_bytes(), &[]);
    assert!(code == 3 && words.contains("the signature does not match") && !words.contains("canonical"), "{words}");
    let (code, words) = said(&project, &["verify", "--since", &small.to_string()]);
    assert!(code == 3 && words.contains("its signature is wrong"), "{words}");
    // The printed records of a valid store; also with headers as strings, as earlier versions printed them.
    let last: Value = serde_json::from_str(all[2]).unwrap();
    let operator = last["store"].as_str().unwrap();
    let exported = project.ok(&["log", operator, "--raw", "--blobs", "blobs"]);
    let records = format!("{}\n{exported}\n", project.ok(&["log", &session, "--raw"]));
    let heads = format!("blobs/{}", last["heads"].as_str().unwrap());
    let hold = |records: &[u8]| {
        project.put("records", records);
        check(lines.as_bytes(), &["--heads", &heads, "--records", "records"])
    };
    let in_strings = |line: &str| {
        let header = line[10..].split(",\"salt\":\"").next().unwrap();
        serde_json::json!({ "header": header }).to_string() + "\n"
    };
    assert!(records.starts_with("{\"header\":{"));
    for records in [records.clone(), records.lines().map(in_strings).collect()] {
        let (code, words) = hold(records.as_bytes());
        assert!(code == 0 && words.starts_with("valid: 3 checkpoints"), "{words}");
    }
    let (code, words) = hold(records.replace("\"name\":\"ada\"", "\"name\":\"bob\"").as_bytes());
    assert!(code == 3 && words.contains("is not the one that was signed"), "{words}");
    let (code, words) = hold(b"\xff\n");
    assert!(code == 3 && words.contains("line 1 of the records is not UTF-8"), "{words}");
}

#[test]
fn upgrading_a_store_reports_the_backup() {
    let project = TestProject::new();
    fs::remove_dir_all(project.path(".rath")).unwrap();
    copy_dir(&repository("corpus/format-2/store"), &project.path(".rath"));
    let (code, words) = said(&project, &["log"]);
    assert!(code == 0 && !words.contains("upgraded"), "{words}");
    let (code, words) = said(&project, &["new", "now"]);
    assert!(code == 0 && words.contains("upgraded the store from format 2 to 6"), "{words}");
    assert!(words.contains("kept in .rath/rath.db.format-2.backup"), "{words}");
    let (_, words) = said(&project, &["new", "again"]);
    assert!(!words.contains("upgraded"), "{words}");
    let (_, words) = said(&project, &["doctor", "--offline"]);
    assert!(words.contains(".rath/rath.db.format-2.backup") && words.contains("delete it after"), "{words}");
    assert_eq!(project.json(&["doctor", "--offline"])["backups"][0]["format"], 2);
}
