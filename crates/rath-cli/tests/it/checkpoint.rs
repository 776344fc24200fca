//! Checkpoints as a person makes, keeps and holds them against a store.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use rath_testkit::copy_dir;
use serde_json::Value;

use crate::workspace::{Bench, command, text};

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Exit code, and everything that is said.
fn said(bench: &Bench, arguments: &[&str]) -> (i32, String) {
    let out = bench.run(arguments);
    (out.status.code().unwrap(), format!("{}{}", text(&out.stdout), text(&out.stderr)))
}

fn session(bench: &Bench) -> String {
    let session = bench.ok(&["new", "a try"]);
    bench.ok(&["add", &session, "Pay invoice 17."]);
    session
}

#[test]
fn a_store_is_held_against_what_left_it() {
    let bench = Bench::new();
    let session = session(&bench);
    copy_dir(&bench.path(".rath"), &bench.path("older"));
    bench.ok(&["add", &session, "--as", "assistant", "It is paid."]);
    let line = bench.ok(&["checkpoint", "--print", "--note", "before the audit"]);
    bench.put("lines", format!("{line}\n\n"));
    let made: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((made["no"].as_u64(), made["note"].as_str()), (Some(1), Some("before the audit")));
    // By whatever names it.
    let digest = bench.json(&["checkpoint", "list"])["digest"].as_str().unwrap().to_owned();
    for since in
        ["--since", "--since=1", &format!("--since={}", &digest[..8]), &format!("--since={line}"), "--since=lines"]
    {
        let (code, words) = said(&bench, &["verify", since]);
        assert_eq!(code, 0, "{since}: {words}");
        assert!(words.contains("all that checkpoint 1 (") && words.contains("records in 2 sessions"), "{words}");
    }
    assert_eq!(bench.json(&["verify", "--since"])["sound"], true);
    let (code, words) = said(&bench, &["verify", "--against", "older"]);
    assert_eq!(code, 0, "{words}");
    assert!(words.contains(&format!("longer here: {session}")), "{words}");
    // The older copy in its place is sound by itself. Who holds the line knows better.
    fs::rename(bench.path(".rath"), bench.path("newer")).unwrap();
    fs::rename(bench.path("older"), bench.path(".rath")).unwrap();
    assert_eq!(said(&bench, &["verify"]).0, 0);
    let (code, words) = said(&bench, &["verify", "--since", &line]);
    assert_eq!(code, 3, "{words}");
    assert!(words.contains("the store has no checkpoint at all") && words.contains("cut off"), "{words}");
    assert_eq!(said(&bench, &["verify", "--since"]).0, 3);
    let out = bench.run(&["verify", "--json", "--since", "lines"]);
    let value: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (out.status.code(), &value["sound"], &value["findings"][0]["what"]),
        (Some(3), &false.into(), &"cut_off".into())
    );
    // It goes its own way: both copies are told where.
    bench.ok(&["add", &session, "--as", "assistant", "Never."]);
    let (code, words) = said(&bench, &["verify", "--against", "newer"]);
    assert_eq!(code, 3);
    assert!(words.contains("the other copy has another record"), "{words}");
}

#[test]
fn what_is_no_checkpoint_is_said_to_be_none() {
    let bench = Bench::new();
    session(&bench);
    let line = bench.ok(&["checkpoint", "--print"]);
    let altered = line.replace("\"no\":1", "\"no\":1 ");
    let forged = line.replace("\"records\":", "\"records\":1");
    bench.put("lines", format!("{line}\nno checkpoint\n"));
    bench.put("forged", format!("{line}\n{forged}\n"));
    bench.put("empty", "");
    bench.put("binary", [0xff, 0xfe, 0]);
    let cut = &line[..line.len() - 20];
    bench.put("cut", format!("{cut}\n"));
    bench.put("headless", &line[20..]);
    for (since, code, words) in [
        (altered.as_str(), 3, "not in canonical form"),
        (forged.as_str(), 3, "its signature does not fit"),
        ("forged", 3, "line 2 of forged is not what was signed"),
        (cut, 3, "the line is not what was signed"),
        ("cut", 3, "line 1 of cut is not what was signed"),
        ("headless", 3, "line 1 of headless is not what was signed"),
        ("{", 1, "is not a checkpoint"),
        ("lines", 1, "line 2 of lines is not a checkpoint"),
        ("empty", 1, "has no checkpoint in it"),
        ("binary", 1, "reading binary"),
        ("nowhere", 2, "is neither a checkpoint of this store nor a file"),
        ("0", 2, "they are counted from 1"),
        ("7", 3, "checkpoint 7 is not in this store, its last is 1"),
        ("abcdef0123456789", 3, "is not in this store"),
    ] {
        let (exit, said) = said(&bench, &["verify", "--since", since]);
        assert!(exit == code && said.contains(words), "{since}: {exit} {said}");
    }
    // A line is one behind either flag.
    for (against, code, words) in
        [(line.as_str(), 0, "vouches for is there"), (&forged, 3, "its signature does not fit")]
    {
        let (exit, said) = said(&bench, &["verify", "--against", against]);
        assert!(exit == code && said.contains(words), "{against}: {exit} {said}");
    }
    let (code, words) = said(&bench, &["verify", "--key", "abc", "--since"]);
    assert!(code == 2 && words.contains("a public key: 64 lower-case hex digits"), "{words}");
    let (code, words) = said(&bench, &["checkpoint", "--note", &"n".repeat(501)]);
    assert!(code == 1 && words.contains("longer than 500 bytes"), "{words}");
}

#[test]
fn the_key_is_its_owners_and_can_be_replaced() {
    let bench = Bench::new();
    session(&bench);
    let (code, words) = said(&bench, &["checkpoint", "key"]);
    assert!(code == 3 && words.contains("`rath checkpoint key new` makes one"), "{words}");
    let first = bench.ok(&["checkpoint", "key", "new"]);
    let file = bench.path("config/rath/checkpoint/key");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    bench.ok(&["checkpoint"]);
    let (code, words) = said(&bench, &["checkpoint", "key", "new"]);
    assert!(code == 1 && words.contains("there is a key already"), "{words}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, words) = said(&bench, &["checkpoint"]);
    assert!(code == 1 && words.contains("others on this machine can reach") && words.contains("chmod 600"), "{words}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    // A rotation is followed, from either end.
    let second = bench.ok(&["checkpoint", "key", "rotate"]);
    assert_ne!(first, second);
    let (code, words) = said(&bench, &["verify", "--since"]);
    assert!(code == 0 && words.contains("which you have replaced since"), "{words}");
    bench.ok(&["checkpoint"]);
    for key in [&first, &second] {
        assert_eq!(said(&bench, &["verify", "--since", "--key", key]).0, 0);
    }
    let stranger = "11".repeat(32);
    let (code, words) = said(&bench, &["verify", "--since", "--key", &stranger]);
    assert!(code == 3 && words.contains("not with the one that you trust"), "{words}");
    // A pin in the user's file counts; the store's own file cannot say one.
    bench.ok(&["config", "set", "--user", "checkpoint.key", &stranger]);
    assert_eq!(said(&bench, &["verify", "--since"]).0, 3);
    assert_eq!(said(&bench, &["verify", "--since", "--key", &first]).0, 0);
    bench.put(".rath/config.toml", format!("[checkpoint]\nkey = \"{second}\"\n"));
    let (code, words) = said(&bench, &["verify", "--since"]);
    assert!(code == 1 && words.contains("only your own file can"), "{words}");
    fs::remove_file(bench.path(".rath/config.toml")).unwrap();
    bench.ok(&["config", "set", "--user", "checkpoint.key", &second]);
    // Without the key nobody goes on by accident.
    fs::remove_file(&file).unwrap();
    let (code, words) = said(&bench, &["checkpoint"]);
    assert!(code == 1 && words.contains("there is no signing key here") && words.contains("--begin-anew"), "{words}");
    let (code, words) = said(&bench, &["checkpoint", "--begin-anew"]);
    assert!(code == 0 && words.contains("no earlier key vouches"), "{words}");
    let (code, words) = said(&bench, &["verify", "--since"]);
    assert!(code == 3 && words.contains("begins anew"), "{words}");
    let third = bench.ok(&["checkpoint", "key"]);
    assert_eq!(said(&bench, &["verify", "--since", "--key", &third]).0, 0);
    assert_eq!(bench.ok(&["checkpoint", "list"]).lines().count(), 3);
}

/// What several that were started at once say: standard output, standard error.
fn at_once(commands: Vec<Command>) -> Vec<(bool, String, String)> {
    let running: Vec<_> = commands.into_iter().map(|mut command| command.spawn().unwrap()).collect();
    let ended = running.into_iter().map(|child| child.wait_with_output().unwrap());
    ended.map(|out| (out.status.success(), text(&out.stdout).trim().to_owned(), text(&out.stderr))).collect()
}

#[test]
fn of_those_who_need_the_first_key_at_once_one_makes_it() {
    let bench = Bench::new();
    session(&bench);
    let stores: Vec<String> = (0..4).map(|no| format!("c{no}/.rath")).collect();
    for round in 0..4 {
        let config = bench.path(&format!("config-{round}"));
        let with = |arguments: &[&str]| {
            let mut command = command(bench.root(), arguments);
            command.env("XDG_CONFIG_HOME", &config);
            command
        };
        let said = |arguments: &[&str]| at_once(vec![with(arguments)]).remove(0);
        for store in &stores {
            let _ = fs::remove_dir_all(bench.path(store));
            copy_dir(&bench.path(".rath"), &bench.path(store));
        }
        // Each of the stores, or each of the persons, is the first.
        let first = match round % 2 {
            0 => at_once(stores.iter().map(|store| with(&["--store", store, "checkpoint"])).collect()),
            _ => at_once(stores.iter().map(|_| with(&["checkpoint", "key", "new"])).collect()),
        };
        let made: Vec<_> = first.iter().filter(|(_, _, words)| words.contains("made a signing key")).collect();
        assert_eq!(made.len(), 1, "{first:?}");
        match round % 2 {
            0 => assert!(first.iter().all(|(is_done, ..)| *is_done), "{first:?}"),
            _ => {
                assert_eq!(made[0].1, said(&["checkpoint", "key"]).1);
                let told = |it: &&(bool, String, String)| !it.0 && it.2.contains("there is a key already");
                assert_eq!(first.iter().filter(told).count(), 3, "{first:?}");
            }
        }
        // Who rotates at once takes turns: each key that was told is the one at hand, or leads to it.
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
fn a_key_is_not_replaced_more_often_than_a_checkpoint_can_tell() {
    let bench = Bench::new();
    session(&bench);
    bench.ok(&["checkpoint"]);
    for _ in 0..64 {
        bench.ok(&["checkpoint", "key", "rotate"]);
    }
    let file = bench.read("config/rath/checkpoint/key");
    let (code, words) = said(&bench, &["checkpoint", "key", "rotate"]);
    assert!(code == 1 && words.contains("was replaced 64 times") && words.contains("rotate --forget"), "{words}");
    assert_eq!(bench.read("config/rath/checkpoint/key"), file, "nothing is replaced");
    bench.ok(&["checkpoint"]);
    bench.ok(&["checkpoint", "key", "rotate", "--forget"]);
    bench.ok(&["checkpoint", "key", "rotate"]);
    bench.ok(&["checkpoint"]);
    let (code, words) = said(&bench, &["verify", "--since", "1"]);
    assert!(code == 0 && words.contains("the chain has 3 checkpoints"), "{words}");
}

#[test]
fn another_copy_is_a_witness_as_far_as_it_is_whole() {
    let bench = Bench::new();
    let session = session(&bench);
    let key = {
        bench.ok(&["checkpoint"]);
        bench.ok(&["checkpoint", "key"])
    };
    let database = |at: &str| rusqlite::Connection::open(bench.path(at).join("rath.db")).unwrap();
    database(".rath").execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    for copy in ["copy/.rath", "altered", "cut"] {
        copy_dir(&bench.path(".rath"), &bench.path(copy));
    }
    // The directory that holds it, or it itself.
    for copy in ["copy", "copy/.rath"] {
        let (code, words) = said(&bench, &["verify", "--against", copy, "--key", &key]);
        assert!(code == 0 && words.contains("contradicts nothing"), "{words}");
    }
    let (code, words) = said(&bench, &["verify", "--against", "work"]);
    assert!(code == 2 && words.contains("there is no store in work"), "{words}");
    // A key is held against something, or it is a mistake.
    let stranger = "11".repeat(32);
    let (code, words) = said(&bench, &["verify", "--against", "copy", "--key", &stranger]);
    assert!(code == 3 && words.contains("not with the one that you trust"), "{words}");
    for more in [&[][..], &[session.as_str()], &["--script"]] {
        let (code, words) = said(&bench, &[&["verify", "--key", &stranger], more].concat());
        assert!(code == 2 && words.contains("--since"), "{words}");
    }
    // A body that is not the one that was written.
    let mut bytes = fs::read(bench.path("altered/rath.db")).unwrap();
    let text = b"Pay invoice 17.";
    let at: Vec<usize> = (0..bytes.len() - text.len()).filter(|at| bytes[*at..].starts_with(text)).collect();
    at.iter().for_each(|at| bytes[at + 12] = b'7');
    assert!(!at.is_empty());
    fs::write(bench.path("altered/rath.db"), bytes).unwrap();
    let (code, words) = said(&bench, &["verify", "--against", "altered"]);
    assert!(code == 3 && words.contains("in the other copy: the body is not the one"), "{words}");
    assert!(!words.contains("contradicts nothing"), "{words}");
    // A session that its own checkpoint has and it has not.
    let no: i64 = database("cut")
        .query_row("SELECT no FROM sessions WHERE no != (SELECT max(no) FROM sessions)", [], |row| row.get(0))
        .unwrap();
    let gone = format!(
        "DELETE FROM ids WHERE segment IN (SELECT cursor FROM segments WHERE session = {no});
         DELETE FROM segments WHERE session = {no}; DELETE FROM snapshots WHERE session = {no};
         DELETE FROM sessions WHERE no = {no};"
    );
    database("cut").execute_batch(&gone).unwrap();
    assert_eq!(said(&bench, &["--store", "cut", "verify"]).0, 0, "it does not show by itself");
    for (store, copy, whose) in [(".rath", "cut", "the other copy"), ("cut", ".rath", "this copy")] {
        let (code, words) = said(&bench, &["--store", store, "verify", "--against", copy]);
        let told = format!("{whose}: the session is gone: checkpoint 1 (");
        assert!(code == 3 && words.contains(&told) && !words.contains("contradicts nothing"), "{words}");
    }
}

#[test]
fn an_auditor_checks_the_lines_with_python() {
    if Command::new("python3").arg("--version").output().is_err() {
        rath_testkit::Requirement::Python.skip("python3 is not installed");
        return;
    }
    let bench = Bench::new();
    let session = session(&bench);
    bench.ok(&["checkpoint", "--note", "naïve \u{2028} “note”\t\u{1f}"]);
    bench.ok(&["checkpoint", "key", "rotate"]);
    let between = bench.ok(&["checkpoint", "key"]);
    bench.ok(&["checkpoint", "key", "rotate"]);
    bench.ok(&["checkpoint"]);
    bench.ok(&["checkpoint"]);
    let lines = bench.ok(&["checkpoint", "list", "--print"]);
    let check = |lines: &[u8], more: &[&str]| {
        bench.put("lines", lines);
        let mut python = Command::new("python3");
        let out = python.arg(project("docs/checkpoint.py")).arg("lines").args(more).current_dir(bench.root()).output();
        let out = out.unwrap();
        (out.status.code().unwrap(), format!("{}{}", text(&out.stdout), text(&out.stderr)))
    };
    for key in [bench.ok(&["checkpoint", "key"]), between] {
        let (code, words) = check(lines.as_bytes(), &["--key", &key]);
        assert!(code == 0 && words.starts_with("fits: 3 checkpoints"), "{words}");
        assert_eq!(said(&bench, &["verify", "--since", "1", "--key", &key]).0, 0);
    }
    let all: Vec<&str> = lines.lines().collect();
    for (altered, words) in [
        (lines.replacen("\"records\":", "\"records\":1", 1), "the signature does not fit"),
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
    // A key for which anybody can sign.
    let mut small: Value = serde_json::from_str(all[0]).unwrap();
    small["key"] = format!("01{}", "00".repeat(31)).into();
    small["signature"] = format!("01{}", "00".repeat(63)).into();
    let (code, words) = check(small.to_string().as_bytes(), &[]);
    assert!(code == 3 && words.contains("the signature does not fit") && !words.contains("canonical"), "{words}");
    let (code, words) = said(&bench, &["verify", "--since", &small.to_string()]);
    assert!(code == 3 && words.contains("its signature does not fit"), "{words}");
    // The records of a genuine store, as they are printed; headers in strings, as they were printed before.
    let last: Value = serde_json::from_str(all[2]).unwrap();
    let operator = last["store"].as_str().unwrap();
    let exported = bench.ok(&["log", operator, "--raw", "--blobs", "blobs"]);
    let records = format!("{}\n{exported}\n", bench.ok(&["log", &session, "--raw"]));
    let heads = format!("blobs/{}", last["heads"].as_str().unwrap());
    let hold = |records: &[u8]| {
        bench.put("records", records);
        check(lines.as_bytes(), &["--heads", &heads, "--records", "records"])
    };
    let in_strings = |line: &str| {
        let header = line[10..].split(",\"salt\":\"").next().unwrap();
        serde_json::json!({ "header": header }).to_string() + "\n"
    };
    assert!(records.starts_with("{\"header\":{"));
    for records in [records.clone(), records.lines().map(in_strings).collect()] {
        let (code, words) = hold(records.as_bytes());
        assert!(code == 0 && words.starts_with("fits: 3 checkpoints"), "{words}");
    }
    let (code, words) = hold(records.replace("\"name\":\"ada\"", "\"name\":\"bob\"").as_bytes());
    assert!(code == 3 && words.contains("is not the one that was signed"), "{words}");
    let (code, words) = hold(b"\xff\n");
    assert!(code == 3 && words.contains("line 1 of the records is not UTF-8"), "{words}");
}

#[test]
fn who_writes_to_an_older_store_is_told_where_the_old_one_is() {
    let bench = Bench::new();
    fs::remove_dir_all(bench.path(".rath")).unwrap();
    copy_dir(&project("corpus/format-2/store"), &bench.path(".rath"));
    let (code, words) = said(&bench, &["log"]);
    assert!(code == 0 && !words.contains("raised"), "{words}");
    let (code, words) = said(&bench, &["new", "now"]);
    assert!(code == 0 && words.contains("the store is raised from format 2 to 5"), "{words}");
    assert!(words.contains("kept in .rath/rath.db.format-2.backup"), "{words}");
    let (_, words) = said(&bench, &["new", "again"]);
    assert!(!words.contains("raised"), "{words}");
    let (_, words) = said(&bench, &["doctor", "--offline"]);
    assert!(words.contains(".rath/rath.db.format-2.backup") && words.contains("delete it when"), "{words}");
    assert_eq!(bench.json(&["doctor", "--offline"])["backups"][0]["format"], 2);
}
