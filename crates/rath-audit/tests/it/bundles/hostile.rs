//! Forged and malicious bundles.

use std::io::Write as _;
use std::path::Path;

use rath::Digest;
use rath::prelude::*;
use rath::store::SessionFilter;
use rath_audit::bundle::{Export, read_zip};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::{export, family, files, import};

/// A zip of these files.
fn zipped<'a>(files: impl IntoIterator<Item = (String, &'a [u8])>) -> Vec<u8> {
    let mut zip = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in files {
        zip.start_file(name, SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

async fn bundle(dir: &Path) -> (SessionId, std::path::PathBuf) {
    let family = family(InMemory::new()).await;
    export(&Export::of(family.main, None), &family.store, &dir.join("a")).await;
    (family.main, dir.join("a"))
}

fn says(zip: &[u8]) -> String {
    read_zip(zip).expect_err("it is refused").to_string()
}

#[tokio::test]
async fn paths_that_lead_out_of_the_bundle_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let (_, path) = bundle(dir.path()).await;
    let files = files(&path);
    let named = |extra: &str| {
        let all = files.iter().map(|(name, bytes)| (name.to_str().unwrap().to_owned(), &bytes[..]));
        zipped(all.chain([(extra.to_owned(), &b"x"[..])]))
    };
    for name in ["../evil", "/etc/passwd", "blobs/../../evil", "blobs/short", "blobs\\x", "more.txt", "blobs/a/b"] {
        let why = says(&named(name));
        assert!(why.contains("not part of a bundle"), "{name}: {why}");
    }
    let digest = "0".repeat(64);
    assert!(says(&named(&format!("blobs/{digest}"))).contains("no record refers to it"));
    // Two files with one name: the zip library would not write this.
    let mut twice = named("records.jsonX");
    let at: Vec<_> = (0..twice.len() - 13).filter(|at| &twice[*at..at + 13] == b"records.jsonX").collect();
    at.into_iter().for_each(|at| twice[at + 12] = b'l');
    assert!(says(&twice).contains("twice"), "{}", says(&twice));
    let mut links = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    links.add_symlink("records.jsonl", "/etc/passwd", SimpleFileOptions::default()).unwrap();
    assert!(says(&links.finish().unwrap().into_inner()).contains("not a regular file"));
    std::fs::remove_file(path.join("README.md")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", path.join("README.md")).unwrap();
    assert!(import(&InMemory::new(), &path).await.unwrap_err().to_string().contains("README.md: not a regular file"));
}

#[tokio::test]
async fn decompression_bombs_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let (_, path) = bundle(dir.path()).await;
    let mut all = files(&path);
    // One line of 65 MB.
    all.insert("records.jsonl".into(), vec![b' '; 65 << 20]);
    let bomb = zipped(all.iter().map(|(name, bytes)| (name.to_str().unwrap().to_owned(), &bytes[..])));
    assert!(bomb.len() < 1 << 20);
    assert!(says(&bomb).contains("the line is longer than 67108864 bytes"));
    // Only line breaks, and endless brackets.
    for hostile in
        [vec![b'\n'; 4 << 20], [vec![b'{'], vec![b'['; 1 << 20]].concat(), b"null\n".to_vec(), b"{}\n".to_vec()]
    {
        all.insert("records.jsonl".into(), hostile);
        let zip = zipped(all.iter().map(|(name, bytes)| (name.to_str().unwrap().to_owned(), &bytes[..])));
        assert!(says(&zip).starts_with("line 1 of records.jsonl"), "{}", says(&zip));
    }
    assert!(says(b"").contains("not a complete zip"));
    assert!(says(b"PK\x05\x06 and so on").contains("not a complete zip"));
}

/// Writes a file and recomputes SHA256SUMS, as a forger would.
fn forge(path: &Path, name: &str, bytes: &[u8]) {
    std::fs::write(path.join(name), bytes).unwrap();
    let mut sums = String::new();
    for (name, bytes) in
        files(path).iter().filter(|(name, _)| !matches!(name.to_str(), Some("SHA256SUMS" | "records.jsonl")))
    {
        sums.push_str(&format!("{}  {}\n", Digest::of(bytes), name.display()));
    }
    std::fs::write(path.join("SHA256SUMS"), sums).unwrap();
}

#[tokio::test]
async fn forged_files_with_valid_checksums_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let (main, path) = bundle(dir.path()).await;
    let graph = std::fs::read_to_string(path.join("graph.json")).unwrap();
    let into = InMemory::new();
    let records = std::fs::read_to_string(path.join("records.jsonl")).unwrap();
    let head = graph.rsplit("\"head\": \"").next().unwrap()[..64].to_owned();
    let changes = [
        (graph.replace(&head, &"f".repeat(64)), "its header does not hash to the id"),
        (graph.replace("\"records\": ", "\"records\": 1"), "it does not match the records"),
        (graph.replace("\"graph\": false", "\"graph\": maybe"), "graph.json"),
        (graph.replace("\"bundle\": 3", "\"bundle\": 4"), "the bundle has format 4"),
        (graph.replacen("\"blobs\": ", "\"more\": 1,\n  \"blobs\": ", 1), "unknown field"),
    ];
    for (forged, why) in changes {
        assert_ne!(forged, graph);
        forge(&path, "graph.json", forged.as_bytes());
        let refused = import(&into, &path).await.unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    forge(&path, "graph.json", graph.as_bytes());
    // The newest records removed, with the head unchanged.
    let cut: Vec<_> = records.lines().take(records.lines().count() - 1).collect();
    forge(&path, "records.jsonl", (cut.join("\n") + "\n").as_bytes());
    let refused = import(&into, &path).await.unwrap_err().to_string();
    assert!(refused.contains(&format!("record {}", main.short())) && refused.contains("is missing"), "{refused}");
    forge(&path, "records.jsonl", records.as_bytes());
    let blob = files(&path).into_keys().find(|name| name.starts_with("blobs")).unwrap();
    let content = std::fs::read(path.join(&blob)).unwrap();
    std::fs::remove_file(path.join(&blob)).unwrap();
    forge(&path, "README.md", b"hello");
    assert!(import(&into, &path).await.unwrap_err().to_string().contains("it is not in the bundle"));
    forge(&path, blob.to_str().unwrap(), &vec![b'x'; content.len()]);
    let refused = import(&into, &path).await.unwrap_err().to_string();
    assert!(refused.contains("its content does not match its digest"), "{refused}");
    assert!(into.sessions(SessionFilter::All.into()).await.unwrap().is_empty());
    forge(&path, blob.to_str().unwrap(), &content);
    import(&into, &path).await.unwrap();
}

#[tokio::test]
async fn other_files_and_directories_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let store = InMemory::new();
    for (name, why) in [("nothing", "No such file"), (".", "missing: the bundle is incomplete")] {
        let refused = import(&store, &dir.path().join(name)).await.unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
        assert_eq!(refused.code(), "broken-bundle");
    }
}
