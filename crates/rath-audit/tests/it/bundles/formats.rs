//! Bundles of earlier formats, and the canonical form of the current one.

use std::path::{Path, PathBuf};

use std::process::Command;

use rath::prelude::*;
use rath_audit::bundle::{BundleGraph, Export};

use super::{embedded, export, files, import, is_valid, records_in};

/// The path of a bundle that an earlier version wrote.
fn of_format(format: u64) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/bundles/format-{format}.zip"))
}

async fn import_and_export_in_the_current_format(format: u64) {
    let dir = tempfile::tempdir().unwrap();
    let store = embedded(dir.path(), "store");
    let imported = import(&store, &of_format(format)).await.unwrap();
    assert_eq!((imported.graph.bundle, imported.records), (format, 319));
    assert_eq!(records_in(&store).await, 319);
    is_valid(dir.path(), "store");

    let again = Export { graph: true, ..Export::of(imported.graph.of[0], None) };
    let said = export(&again, &store, &dir.path().join("new")).await;
    assert!(said.order.is_some() && imported.graph.order.is_none());
    assert_eq!(said, BundleGraph { bundle: 3, order: said.order, ..imported.graph });
    let records = std::fs::read_to_string(dir.path().join("new/records.jsonl")).unwrap();
    assert!(records.lines().all(|line| line.starts_with("{\"header\":{\"actor\":")), "verbatim");
    let other = InMemory::new();
    assert_eq!(import(&other, &dir.path().join("new")).await.unwrap().records, 319);
}

#[tokio::test]
async fn a_bundle_of_format_1_is_read() {
    import_and_export_in_the_current_format(1).await;
}

#[tokio::test]
async fn a_bundle_of_format_2_is_read() {
    import_and_export_in_the_current_format(2).await;
}

/// Unpacks a bundle that an earlier version wrote.
fn unpacked(format: u64, into: &Path) -> PathBuf {
    let at = into.join(format!("format-{format}"));
    let mut zip = zip::ZipArchive::new(std::fs::File::open(of_format(format)).unwrap()).unwrap();
    zip.extract(&at).unwrap();
    at
}

#[tokio::test]
async fn the_digest_of_records_jsonl_is_required_only_by_early_formats() {
    let dir = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/verify.py");
    let python =
        |bundle: &Path| Some(Command::new("python3").args(["-B", script]).arg(bundle).output().ok()?.status.code());
    let refused = async |bundle: &Path, why: &str| {
        let refused = import(&InMemory::new(), bundle).await.expect_err(why);
        assert!(refused.to_string().contains("SHA256SUMS"), "{why}: {refused}");
        assert!(python(bundle).is_none_or(|code| code == Some(3)), "{why}");
    };
    for format in [1, 2] {
        let bundle = unpacked(format, dir.path());
        assert!(python(&bundle).is_none_or(|code| code == Some(0)));
        let sums = std::fs::read_to_string(bundle.join("SHA256SUMS")).unwrap();
        let line = sums.lines().find(|line| line.ends_with("records.jsonl")).unwrap();
        std::fs::write(bundle.join("SHA256SUMS"), sums.replace(&format!("{line}\n"), "")).unwrap();
        refused(&bundle, "it is missing").await;
        let other = format!("{}  records.jsonl", rath::Digest::of(b""));
        std::fs::write(bundle.join("SHA256SUMS"), sums.replace(line, &other)).unwrap();
        refused(&bundle, "it is a different one").await;
    }
    let store = InMemory::new();
    let mut session = store.create(Actor::person("ada"));
    session.user("Hello.").unwrap();
    session.publish().await.unwrap();
    let bundle = dir.path().join("format-3");
    export(&Export::of(session.id(), None), &store, &bundle).await;
    let sums = files(&bundle).remove(Path::new("SHA256SUMS")).unwrap();
    let sums = String::from_utf8(sums).unwrap();
    assert!(!sums.contains("records.jsonl"), "{sums}");
    let sum = rath::Digest::of(&std::fs::read(bundle.join("records.jsonl")).unwrap());
    let before = sums.find("  verify.py").unwrap() - 64;
    std::fs::write(bundle.join("SHA256SUMS"), format!("{}{sum}  records.jsonl\n{}", &sums[..before], &sums[before..]))
        .unwrap();
    refused(&bundle, "this format does not list it").await;
}

/// A bundle of one session whose bodies are replaced by this one, with all hashes recomputed. Also returns the parts of
/// its lines.
async fn with_body(dir: &Path, body: &[u8]) -> (PathBuf, Vec<[Vec<u8>; 3]>) {
    let store = InMemory::new();
    let mut session = store.create(Actor::person("ada"));
    session.user("Hello.").unwrap();
    session.publish().await.unwrap();
    let bundle = dir.join(format!("bundle-{}", rath::Digest::of(body)));
    export(&Export::of(session.id(), None), &store, &bundle).await;
    let read = |name: &str| std::fs::read_to_string(bundle.join(name)).unwrap();
    let (lines, graph, sums) = (read("records.jsonl"), read("graph.json"), read("SHA256SUMS"));
    let parts = |line: &str| {
        let (header, behind) = line.strip_prefix("{\"header\":").unwrap().split_once(",\"salt\":\"").unwrap();
        let (salt, body) = behind.strip_suffix('}').unwrap().split_once("\",\"body\":").unwrap();
        [header, salt, body].map(str::to_owned)
    };
    let mut records: Vec<[String; 3]> = lines.lines().map(parts).collect();
    let id = |records: &[[String; 3]], at: usize| rath::Digest::of(records[at][0].as_bytes());
    let order = |records: &[[String; 3]]| {
        rath::Digest::of(&(0..records.len()).flat_map(|at| id(records, at).0).collect::<Vec<u8>>()).to_string()
    };
    let last = records.len() - 1;
    let (old_id, old_order) = (id(&records, last).to_string(), order(&records));
    let salt: Vec<u8> =
        (0..16).map(|at| u8::from_str_radix(&records[last][1][2 * at..2 * at + 2], 16).unwrap()).collect();
    let digest = |body: &[u8]| rath::Digest::of(&[&salt, body].concat()).to_string();
    records[last][0] = records[last][0].replace(&digest(records[last][2].as_bytes()), &digest(body));
    let graph = graph.replace(&old_id, &id(&records, last).to_string()).replace(&old_order, &order(&records));
    let old = sums.lines().find(|line| line.ends_with("graph.json")).unwrap();
    let sums = sums.replace(old, &format!("{}  graph.json", rath::Digest::of(graph.as_bytes())));
    std::fs::write(bundle.join("graph.json"), graph).unwrap();
    std::fs::write(bundle.join("SHA256SUMS"), sums).unwrap();
    let mut records: Vec<_> = records.into_iter().map(|record| record.map(String::into_bytes)).collect();
    records[last][2] = body.to_owned();
    (bundle, records)
}

fn verbatim([header, salt, body]: &[Vec<u8>; 3]) -> Vec<u8> {
    [&b"{\"header\":"[..], header, b",\"salt\":\"", salt, b"\",\"body\":", body, b"}"].concat()
}

fn in_strings([header, salt, body]: &[Vec<u8>; 3]) -> String {
    let [header, salt, body] = [header, salt, body].map(|text| std::str::from_utf8(text).unwrap());
    let [header, body] = [header, body].map(|text| serde_json::to_string(text).unwrap());
    format!("{{\"header\":{header},\"salt\":\"{salt}\",\"body\":{body}}}")
}

/// Whether import accepts the bundle with these lines. The Python verifier must agree.
async fn is_accepted(bundle: &Path, lines: &[Vec<u8>]) -> bool {
    let text: Vec<u8> = lines.iter().flat_map(|line| [line, &b"\n"[..]].concat()).collect();
    std::fs::write(bundle.join("records.jsonl"), text).unwrap();
    let imported = import(&InMemory::new(), bundle).await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/verify.py");
    if let Ok(verified) = Command::new("python3").args(["-B", script]).arg(bundle).output() {
        let code = if imported.is_ok() { 0 } else { 3 };
        let said = String::from_utf8_lossy(&verified.stdout).into_owned();
        assert_eq!(verified.status.code(), Some(code), "{imported:?}\n{said}\n{lines:?}");
    }
    imported.is_ok()
}

#[tokio::test]
async fn every_record_has_exactly_one_valid_line() {
    let dir = tempfile::tempdir().unwrap();
    for (body, fits) in [
        (r#"{"text":"Hello."}"#, true),
        (r#"{ "text" : "Hello." }"#, true),
        ("{\t\"text\":\"Hello.\"}", false),
        ("{\"text\":\"Hello.\"\r}", false),
        ("{\"text\":\"Hello.\"} ", false),
        ("{\n\"text\":\"Hello.\"}", false),
    ] {
        let (bundle, records) = with_body(dir.path(), body.as_bytes()).await;
        let (last, before) = records.split_last().unwrap();
        let with = |last: String| before.iter().map(verbatim).chain([last.into_bytes()]).collect::<Vec<_>>();
        let (plain, strings) = (String::from_utf8(verbatim(last)).unwrap(), in_strings(last));
        assert_eq!(is_accepted(&bundle, &with(plain.clone())).await, fits, "{body:?} verbatim");
        assert_eq!(is_accepted(&bundle, &with(strings.clone())).await, !fits, "{body:?} in strings");
        let spaced = strings.replacen("{\"header\":", "{\"header\": ", 1);
        let salt = std::str::from_utf8(&last[1]).unwrap();
        let turned = format!("{{\"salt\":\"{salt}\",{}", &strings[1..].replace(&format!("\"salt\":\"{salt}\","), ""));
        for other in [spaced, turned, plain.replacen("\"salt\":\"", "\"salt\": \"", 1), format!("{plain} ")] {
            assert!(!is_accepted(&bundle, &with(other.clone())).await, "{other:?}");
        }
    }
}

#[tokio::test]
async fn a_body_must_be_utf_8() {
    let dir = tempfile::tempdir().unwrap();
    for (body, is_text) in
        [(&b"{\"text\":\"\xc3\xa9\"}"[..], true), (b"{\"text\":\"\xff\"}", false), (b"{\"\xe9\":1}", false)]
    {
        let (bundle, records) = with_body(dir.path(), body).await;
        let lines: Vec<_> = records.iter().map(verbatim).collect();
        assert_eq!(is_accepted(&bundle, &lines).await, is_text, "{}", String::from_utf8_lossy(body));
    }
}

#[tokio::test]
async fn the_order_of_the_records_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let store = InMemory::new();
    let mut session = store.create(Actor::person("ada"));
    session.user("Hello.").unwrap();
    let mut fork = session.fork("try");
    fork.user("Yes?").unwrap();
    fork.publish().await.unwrap();
    session.user("Anybody?").unwrap();
    session.publish().await.unwrap();
    let bundle = dir.path().join("bundle");
    export(&Export { graph: true, ..Export::of(session.id(), None) }, &store, &bundle).await;
    let lines = std::fs::read_to_string(bundle.join("records.jsonl")).unwrap();
    let mut lines: Vec<Vec<u8>> = lines.lines().map(|line| line.as_bytes().to_vec()).collect();
    assert!(is_accepted(&bundle, &lines).await);
    // Records of different sessions can be swapped without breaking a link.
    let at = lines.iter().position(|line| String::from_utf8_lossy(line).contains("Anybody?")).unwrap();
    let moved = lines.remove(at);
    let to = if at == lines.len() { lines.len() - 2 } else { lines.len() };
    lines.insert(to, moved);
    assert!(!is_accepted(&bundle, &lines).await);
    assert!(!is_accepted(&bundle, &[]).await);
}
