//! Bundles of earlier formats stay readable.

use std::path::{Path, PathBuf};

use std::process::Command;

use rath::bundle::{Export, Graph};
use rath::prelude::*;

use super::{embedded, export, files, import, is_sound, records_in};

/// A bundle that an earlier version wrote.
fn of_format(format: u64) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/bundles/format-{format}.zip"))
}

async fn is_taken_in_and_goes_out_as_one_of_today(format: u64) {
    let dir = tempfile::tempdir().unwrap();
    let store = embedded(dir.path(), "store");
    let imported = import(&store, &of_format(format)).await.unwrap();
    assert_eq!((imported.graph.bundle, imported.records), (format, 319));
    assert_eq!(records_in(&store).await, 319);
    is_sound(dir.path(), "store");

    let again = Export { graph: true, ..Export::of(imported.graph.of[0], None) };
    let said = export(&again, &store, &dir.path().join("new")).await;
    assert_eq!(said, Graph { bundle: 3, ..imported.graph });
    let records = std::fs::read_to_string(dir.path().join("new/records.jsonl")).unwrap();
    assert!(records.lines().all(|line| line.starts_with("{\"header\":{\"actor\":")), "as they are");
    let other = Memory::new();
    assert_eq!(import(&other, &dir.path().join("new")).await.unwrap().records, 319);
}

#[tokio::test]
async fn a_bundle_of_format_1_is_read() {
    is_taken_in_and_goes_out_as_one_of_today(1).await;
}

#[tokio::test]
async fn a_bundle_of_format_2_is_read() {
    is_taken_in_and_goes_out_as_one_of_today(2).await;
}

/// Unpacks a bundle that an earlier version wrote.
fn unpacked(format: u64, into: &Path) -> PathBuf {
    let at = into.join(format!("format-{format}"));
    let mut zip = zip::ZipArchive::new(std::fs::File::open(of_format(format)).unwrap()).unwrap();
    zip.extract(&at).unwrap();
    at
}

#[tokio::test]
async fn the_sum_of_the_records_is_asked_for_where_there_is_one_and_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/verify.py");
    let python =
        |bundle: &Path| Some(Command::new("python3").args(["-B", script]).arg(bundle).output().ok()?.status.code());
    let refused = async |bundle: &Path, why: &str| {
        let refused = import(&Memory::new(), bundle).await.expect_err(why);
        assert!(refused.to_string().contains("SHA256SUMS"), "{why}: {refused}");
        assert!(python(bundle).is_none_or(|code| code == Some(3)), "{why}");
    };
    for format in [1, 2] {
        let bundle = unpacked(format, dir.path());
        assert!(python(&bundle).is_none_or(|code| code == Some(0)));
        let sums = std::fs::read_to_string(bundle.join("SHA256SUMS")).unwrap();
        let line = sums.lines().find(|line| line.ends_with("records.jsonl")).unwrap();
        std::fs::write(bundle.join("SHA256SUMS"), sums.replace(&format!("{line}\n"), "")).unwrap();
        refused(&bundle, "it is left out").await;
        let other = format!("{}  records.jsonl", rath::Digest::of(b""));
        std::fs::write(bundle.join("SHA256SUMS"), sums.replace(line, &other)).unwrap();
        refused(&bundle, "it is another").await;
    }
    let store = Memory::new();
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
    refused(&bundle, "nobody writes it").await;
}

#[tokio::test]
async fn a_line_in_strings_is_refused_unless_it_is_the_one_way_to_write_it() {
    let dir = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/verify.py");
    let store = Memory::new();
    let mut session = store.create(Actor::person("ada"));
    session.user("Hello.").unwrap();
    session.publish().await.unwrap();
    let bundle = dir.path().join("bundle");
    export(&Export::of(session.id(), None), &store, &bundle).await;
    let lines = std::fs::read_to_string(bundle.join("records.jsonl")).unwrap();
    let (first, rest) = lines.split_once('\n').unwrap();
    let (header, behind) = first.strip_prefix("{\"header\":").unwrap().split_once(",\"salt\":\"").unwrap();
    let (salt, body) = behind.strip_suffix('}').unwrap().split_once("\",\"body\":").unwrap();
    let (header, body) = (serde_json::to_string(header).unwrap(), serde_json::to_string(body).unwrap());
    for line in [
        format!("{{\"header\":{header},\"salt\":\"{salt}\",\"body\":{body}}}"),
        format!("{{\"header\": {header},\"salt\":\"{salt}\",\"body\":{body}}}"),
        format!("{{\"salt\":\"{salt}\",\"header\":{header},\"body\":{body}}}"),
        first.replacen("\"salt\":\"", "\"salt\": \"", 1),
    ] {
        std::fs::write(bundle.join("records.jsonl"), format!("{line}\n{rest}")).unwrap();
        let refused = import(&Memory::new(), &bundle).await.expect_err(&line);
        assert_eq!(refused.code(), "broken-bundle", "{refused}");
        if let Ok(verified) = Command::new("python3").args(["-B", script]).arg(&bundle).output() {
            assert_eq!(verified.status.code(), Some(3), "{line}: {}", String::from_utf8_lossy(&verified.stdout));
        }
    }
    std::fs::write(bundle.join("records.jsonl"), &lines).unwrap();
    import(&Memory::new(), &bundle).await.unwrap();
}
