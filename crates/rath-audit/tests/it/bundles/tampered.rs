//! Changed bytes are found, wherever they are.

use std::path::Path;
use std::process::Command;

use rath::prelude::*;
use rath::store::SessionFilter;
use rath_audit::bundle::{Export, read_zip};

use super::{Family, export, family, files, import};

/// A small bundle: a fork, a blob, a little text.
async fn small(dir: &Path) {
    let store = InMemory::new();
    let mut session = store.create(Actor::person("ada"));
    session.user("a\nb").unwrap();
    session.assistant("x".repeat(8200)).unwrap();
    let mut fork = session.fork("why not");
    fork.user("c").unwrap();
    fork.publish().await.unwrap();
    for name in ["a", "a.zip"] {
        export(&Export::of(fork.id(), None), &store, &dir.join(name)).await;
    }
}

/// The distance between tested bytes: files that only have a checksum are tested at fewer positions.
fn steps(name: &Path) -> usize {
    match name.to_str() {
        Some("README.md") => 61,
        Some("verify.py") => 211,
        Some(blob) if blob.starts_with("blobs") => 97,
        _ => 1,
    }
}

#[tokio::test]
async fn any_flipped_byte_of_a_directory_is_rejected_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    small(dir.path()).await;
    let bundle = dir.path().join("a");
    let into = InMemory::new();
    for (name, bytes) in files(&bundle) {
        for at in (0..bytes.len()).step_by(steps(&name)) {
            let mut flipped = bytes.clone();
            flipped[at] ^= if at % 2 == 0 { 0x01 } else { 0x20 };
            std::fs::write(bundle.join(&name), &flipped).unwrap();
            let refused = import(&into, &bundle).await.expect_err(&format!("{} byte {at}", name.display()));
            assert_eq!(refused.code(), "broken-bundle", "{refused}");
        }
        std::fs::write(bundle.join(&name), &bytes).unwrap();
    }
    assert!(into.sessions(SessionFilter::All.into()).await.unwrap().is_empty());
    import(&into, &bundle).await.unwrap();
}

#[tokio::test]
async fn a_changed_record_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let Family { store, main, .. } = family(InMemory::new()).await;
    export(&Export::of(main, None), &store, &dir.path().join("a")).await;
    let path = dir.path().join("a/records.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let says = |text: String| {
        let (path, bundle) = (path.clone(), dir.path().join("a"));
        async move {
            std::fs::write(path, text).unwrap();
            import(&InMemory::new(), &bundle).await.unwrap_err().to_string()
        }
    };
    let short = main.short();
    let body = says(text.replace("Which colour", "What colour")).await;
    assert!(
        body.starts_with(&format!("record {short}@2 (line 3 of records.jsonl): the body does not match")),
        "{body}"
    );
    let mut lines: Vec<&str> = text.lines().collect();
    let other = lines[2].replace("\"name\":\"ada\"", "\"name\":\"eve\"");
    lines[2] = &other;
    let header = says(lines.join("\n") + "\n").await;
    assert!(
        header.starts_with(&format!("record {short}@2 (line 3 of records.jsonl): its header does not hash")),
        "{header}"
    );
    let mut lines: Vec<&str> = text.lines().collect();
    lines.remove(3);
    let dropped = says(lines.join("\n") + "\n").await;
    assert!(dropped.contains(&format!("record {short}@3")) && dropped.contains("record 3 is missing"), "{dropped}");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.pop();
    let cut = says(lines.join("\n") + "\n").await;
    assert!(cut.contains("is missing"), "{cut}");
    let torn = says(text[..text.len() - 5].to_owned()).await;
    assert!(torn.contains("the line is truncated"), "{torn}");
    let twice = says(format!("{text}{}\n", text.lines().last().unwrap())).await;
    let line = text.lines().count() + 1;
    assert!(
        twice.contains(&format!("(line {line} of records.jsonl): two records have this sequence number")),
        "{twice}"
    );
    let swapped: Vec<&str> = text.lines().rev().collect();
    let swapped = says(swapped.join("\n") + "\n").await;
    assert!(swapped.starts_with("record"), "{swapped}");
}

#[tokio::test]
async fn a_flipped_byte_of_a_zip_is_rejected_or_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    small(dir.path()).await;
    let bytes = std::fs::read(dir.path().join("a.zip")).unwrap();
    let whole = read_zip(&bytes).unwrap();
    let (mut refused, mut same) = (0, 0);
    // Most of the zip is verify.py, which is checked by its digest.
    for at in (0..bytes.len()).filter(|at| *at < 2500 || at % 5 == 0 || *at + 1200 > bytes.len()) {
        let mut flipped = bytes.clone();
        flipped[at] ^= if at % 2 == 0 { 0x01 } else { 0x20 };
        match read_zip(&flipped) {
            Ok(read) => {
                assert_eq!(read.graph, whole.graph, "byte {at}");
                same += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 4 * same, "{refused} rejected, {same} without effect");
    for end in (0..bytes.len()).step_by(101) {
        assert!(read_zip(&bytes[..end]).is_err(), "cut at {end}");
    }
}

/// A script that loads the Python verifier once and runs it on many directories.
const FLIPS: &str = r#"
import contextlib, importlib.util, io, sys
from pathlib import Path
bundle, step = Path(sys.argv[1]), int(sys.argv[2])
spec = importlib.util.spec_from_file_location("verifier", sys.argv[3])
verifier = importlib.util.module_from_spec(spec)
spec.loader.exec_module(verifier)
def run():
    sys.argv = ["verify.py", str(bundle)]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            return verifier.main()
        except SystemExit as end:
            return end.code
assert run() == 0, "sound"
for path in sorted(p for p in bundle.rglob("*") if p.is_file()):
    whole = path.read_bytes()
    few = path.name in ("README.md", "verify.py") or path.parent.name == "blobs"
    for at in range(0, len(whole), 401 if few else step):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 if at % 2 == 0 else 32)]) + whole[at + 1:])
        code = run()
        assert code == 3, f"{path.name} byte {at}: {code}"
    path.write_bytes(whole)
for name in ("records.jsonl", "graph.json", "SHA256SUMS", "README.md"):
    path = bundle / name
    whole = path.read_bytes()
    path.unlink()
    assert run() == 3, name
    path.write_bytes(whole)
(bundle / "more.txt").write_text("x")
assert run() == 3, "extra"
"#;

#[tokio::test]
async fn the_python_verifier_finds_flipped_bytes_too() {
    let dir = tempfile::tempdir().unwrap();
    small(dir.path()).await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/verify.py");
    let step = std::env::var("RATH_TEST_FLIP_STEP").unwrap_or("11".into());
    let run = Command::new("python3")
        .args(["-B", "-c", FLIPS, dir.path().join("a").to_str().unwrap(), &step, script])
        .output();
    let Ok(run) = run else {
        rath_testkit::Requirement::Python.skip("python3 is not installed");
        return;
    };
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

/// Recomputes `SHA256SUMS`, as a forger would.
fn recompute_sums(bundle: &Path) {
    let sums = std::fs::read_to_string(bundle.join("SHA256SUMS")).unwrap();
    let sum = |line: &str| {
        let (_, name) = line.split_once("  ").unwrap();
        format!("{}  {name}\n", rath::Digest::of(&std::fs::read(bundle.join(name)).unwrap()))
    };
    std::fs::write(bundle.join("SHA256SUMS"), sums.lines().map(sum).collect::<String>()).unwrap();
}

#[tokio::test]
async fn the_python_verifier_rejects_what_import_rejects() {
    let dir = tempfile::tempdir().unwrap();
    small(dir.path()).await;
    let bundle = dir.path().join("a");
    let python = || Command::new("python3").args(["-B", "verify.py", "."]).current_dir(&bundle).output();
    let (graph, records) = (bundle.join("graph.json"), bundle.join("records.jsonl"));
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let (said, lines) = (read(&graph), read(&records));
    let own = said.split('"').nth(5).unwrap();
    let other = format!("{}{}", &own[..35], if own.ends_with('0') { "1" } else { "0" });
    let unreferenced =
        format!("\"left_out_blobs\": [{{\"digest\": \"{}\", \"bytes\": 1, \"rule\": \"text\"}}]", "0".repeat(64));
    let count = lines.lines().count();
    let mut children_first: Vec<&str> = lines.lines().collect();
    let fork = children_first.iter().position(|line| line.contains("\"kind\":\"forked\"")).unwrap();
    children_first.rotate_left(fork);
    let children_first: String = children_first.iter().map(|line| format!("{line}\n")).collect();
    let first = lines.find('\n').unwrap();
    for (what, path, text) in [
        ("a duplicate field", &graph, said.replacen("\"graph\": false", "\"graph\": false, \"graph\": false", 1)),
        ("an unknown field", &graph, said.replacen("\"graph\": false", "\"graph\": false, \"more\": 1", 1)),
        ("a missing field", &graph, said.replacen("  \"graph\": false,\n", "", 1)),
        ("another session id", &graph, said.replacen(own, &other, 1)),
        (
            "a number that is not an integer",
            &graph,
            said.replacen(&format!("\"records\": {count}"), &format!("\"records\": {count}.0"), 1),
        ),
        ("a blob that no record refers to", &graph, said.replacen("\"left_out_blobs\": []", &unreferenced, 1)),
        ("a blank line at the end", &records, format!("{lines}\n")),
        ("a blank line", &records, format!("{}\n{}", &lines[..=first], &lines[first + 1..])),
        ("no line break at the end", &records, lines.trim_end().to_owned()),
        ("children before their parents", &records, children_first),
    ] {
        assert_ne!(text, read(path), "{what}");
        let whole = std::fs::read(path).unwrap();
        std::fs::write(path, text).unwrap();
        recompute_sums(&bundle);
        assert_eq!(import(&InMemory::new(), &bundle).await.expect_err(what).code(), "broken-bundle", "{what}");
        if let Ok(verified) = python() {
            assert_eq!(verified.status.code(), Some(3), "{what}: {}", String::from_utf8_lossy(&verified.stdout));
        }
        std::fs::write(path, whole).unwrap();
        recompute_sums(&bundle);
    }
    import(&InMemory::new(), &bundle).await.unwrap();
    if let Ok(verified) = python() {
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    }
}

#[tokio::test]
async fn a_store_with_altered_headers_is_not_exported() {
    let dir = tempfile::tempdir().unwrap();
    let store = super::embedded(dir.path(), "store");
    let mut session = store.create(Actor::person("ada"));
    for word in ["one", "two", "three"] {
        session.user(word).unwrap();
    }
    session.publish().await.unwrap();
    let id = session.id();
    drop((session, store));
    let database = rusqlite::Connection::open(dir.path().join("store/rath.db")).unwrap();
    let data: Vec<u8> = database.query_row("SELECT data FROM segments", [], |row| row.get(0)).unwrap();
    let times: Vec<usize> = memchr::memmem::find_iter(&data, b"\"time\":").collect();
    assert_eq!(times.len(), 4);
    for (seq, at) in times.into_iter().enumerate() {
        // With another last digit, the header can still be parsed, and still has the digest of its body.
        let mut altered = data.clone();
        let digit = at + data[at + 7..].iter().position(|byte| !byte.is_ascii_digit()).unwrap() + 6;
        altered[digit] = if altered[digit] == b'1' { b'2' } else { b'1' };
        database.execute("UPDATE segments SET data = ?1", [altered]).unwrap();
        let store = Embedded::open(dir.path().join("store")).unwrap();
        let error = Export::of(id, None).write(&store, &dir.path().join("out"), &mut |_| {}).await.unwrap_err();
        assert_eq!(error.code(), "tampered");
        assert!(error.to_string().contains(&format!("{}@{seq}", id.short())), "{error}");
        assert!(!dir.path().join("out").exists());
    }
}

#[tokio::test]
async fn a_header_that_only_a_child_in_another_session_covers_is_checked_on_export() {
    let dir = tempfile::tempdir().unwrap();
    let store = super::embedded(dir.path(), "store");
    let mut session = store.create(Actor::person("ada"));
    session.user("one").unwrap();
    session.publish().await.unwrap();
    let mut fork = session.fork("aside");
    fork.user("two").unwrap();
    fork.publish().await.unwrap();
    let ids = [session.id(), fork.id()];
    drop((session, fork, store));
    let database = rusqlite::Connection::open(dir.path().join("store/rath.db")).unwrap();
    let row = "SELECT g.cursor, g.data FROM segments g JOIN sessions s ON s.no = g.session WHERE s.id = ?1";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let (cursor, mut data): (i64, Vec<u8>) = database.query_row(row, [ids[0].0.as_bytes()], read).unwrap();
    let at = memchr::memmem::rfind(&data, b"\"time\":").unwrap();
    let digit = at + data[at + 7..].iter().position(|byte| !byte.is_ascii_digit()).unwrap() + 6;
    data[digit] = if data[digit] == b'1' { b'2' } else { b'1' };
    database.execute("UPDATE segments SET data = ?2 WHERE cursor = ?1", rusqlite::params![cursor, data]).unwrap();
    let store = Embedded::open(dir.path().join("store")).unwrap();
    let error = Export::of(ids[1], None).write(&store, &dir.path().join("out"), &mut |_| {}).await.unwrap_err();
    assert_eq!(error.code(), "tampered");
    assert!(error.to_string().contains(&format!("{}@1", ids[0].short())), "{error}");
}

#[tokio::test]
async fn a_bundle_that_changes_during_the_import_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    small(dir.path()).await;
    let records = dir.path().join("a/records.jsonl");
    let lines = std::fs::read_to_string(&records).unwrap();
    let count = lines.lines().count();
    // The records are read twice, as in a bundle that is larger than the cache.
    let twice = rath_audit::bundle::Import { max_cached_bytes: 0, ..Default::default() };
    let without_body = |line: &str| format!("{}}}", line.split_once(",\"salt\"").unwrap().0);
    let last = lines.lines().last().unwrap();
    let changes = [
        (
            lines.lines().take(count - 1).map(|line| format!("{line}\n")).collect::<String>(),
            "the bundle changed during",
        ),
        (lines.replace(last, &without_body(last)), "its body was added or removed"),
        (lines.replace(last, &last.replace("\"c\"", "\"d\"")), "the bundle changed during the import"),
    ];
    for (changed, why) in changes {
        assert_ne!(changed, lines);
        let into = InMemory::new();
        // All records are checked when the last one is counted.
        let mut change = |done: u64| {
            if done == count as u64 {
                std::fs::write(&records, &changed).unwrap();
            }
        };
        let refused = twice.read(&into, &Actor::person("bob"), &dir.path().join("a"), &mut change).await.unwrap_err();
        assert_eq!(refused.code(), "broken-bundle");
        assert!(
            matches!(refused, rath_audit::bundle::BundleError::Changed(_)) && refused.to_string().contains(why),
            "{refused}"
        );
        std::fs::write(&records, &lines).unwrap();
        twice.read(&into, &Actor::person("bob"), &dir.path().join("a"), &mut |_| {}).await.unwrap();
        assert_eq!(super::records_in(&into).await as usize, count);
    }
}
