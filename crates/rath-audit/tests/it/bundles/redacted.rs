//! Redacted exports: what is omitted is listed, and stays known.

use std::process::Command;
use std::sync::Arc;

use rath::files::{Node, NodeKind, TREE, Tree, TreeEntry};
use rath::prelude::*;
use rath::store::{Scan, SessionFilter};
use rath::{Blob, Digest, Kind, Point};
use rath_audit::admin::{ErasureRequest, StoreAdmin};
use rath_audit::bundle::{Export, Omissions, OmittedRecord, Redaction, SessionImportOutcome};

use super::{Family, embedded, export, family, files, import};

fn everything(redaction: Redaction, main: SessionId) -> Export {
    Export { redaction, graph: true, ..Export::of(main, None) }
}

#[tokio::test]
async fn omitted_bodies_are_listed_and_the_chain_is_valid() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let Family { store, main, .. } = family(InMemory::new()).await;
    let redaction = Redaction {
        kinds: vec![Kind::Assistant],
        records: [Point { session: main, seq: 1 }].into(),
        texts: vec!["mr secret".into()],
        reason: Some("for the auditors".into()),
        ..Redaction::default()
    };
    let what = everything(redaction, main);
    let graph = export(&what, &store, &at("a")).await;
    let rules: Vec<_> = graph.omitted_records.iter().map(|left| (left.kind.as_str(), left.rule.as_str())).collect();
    assert_eq!(rules.iter().filter(|rule| **rule == ("assistant", "kind")).count(), 4);
    assert!(rules.contains(&("labelled", "record")) && rules.contains(&("user", "text")), "{rules:?}");
    assert_eq!(graph.without_body, graph.omitted_records.len() as u64);
    assert_eq!(
        graph.omitted_records.iter().filter(|left| left.is_erased()).count(),
        1,
        "one body was erased before the export"
    );
    for (name, bytes) in files(&at("a")) {
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        assert!(!text.contains("mr secret") && !text.contains("red, then"), "{}", name.display());
    }
    let into = embedded(dir.path(), "into");
    let imported = import(&into, &at("a")).await.unwrap();
    assert_eq!(imported.graph.reason.as_deref(), Some("for the auditors"));
    let omissions = Omissions::of(&into).await.unwrap();
    assert_eq!(omissions.records.len(), graph.omitted_records.len());
    // Earlier omissions are listed again without a new rule.
    export(&Export { graph: true, ..Export::of(main, None) }, &into, &at("b")).await;
    assert_eq!(files(&at("a")), files(&at("b")));
    drop(into);
    super::is_valid(dir.path(), "into");
    let verified = Command::new("python3").args(["-B", "verify.py", "."]).current_dir(at("a")).output();
    if let Ok(verified) = verified {
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    }
}

#[tokio::test]
async fn blobs_can_be_omitted() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let Family { store, main, .. } = family(InMemory::new()).await;
    let whole = export(&everything(Redaction::default(), main), &store, &at("whole")).await;
    let none = Redaction { no_blobs: true, ..Redaction::default() };
    let graph = export(&everything(none, main), &store, &at("none")).await;
    assert_eq!((graph.blobs, graph.omitted_blobs.len() as u64), (0, whole.blobs));
    let text = Redaction { texts: vec!["RED RED".into()], ..Redaction::default() };
    let graph = export(&everything(text, main), &store, &at("text")).await;
    let rules: Vec<_> = graph.omitted_blobs.iter().map(|left| left.rule.as_str()).collect();
    assert_eq!((rules, graph.blobs), (vec!["text"], whole.blobs - 1));
    assert!(graph.omitted_records.iter().all(OmittedRecord::is_erased), "the body only refers to the blob");
    for name in ["none", "text"] {
        let into = InMemory::new();
        import(&into, &at(name)).await.unwrap();
        export(&everything(Redaction::default(), main), &into, &at(&format!("{name}-again"))).await;
        assert_eq!(files(&at(name)), files(&at(&format!("{name}-again"))));
        let known = Omissions::of(&into).await.unwrap();
        assert!(!known.blobs.is_empty());
    }
}

#[tokio::test]
async fn records_to_omit_must_be_in_the_export() {
    let dir = tempfile::tempdir().unwrap();
    let Family { store, main, aside, .. } = family(InMemory::new()).await;
    for (session, seq) in [(aside, 1), (main, 9)] {
        let redaction = Redaction { records: [Point { session, seq }].into(), ..Redaction::default() };
        let export = Export { redaction, ..Export::of(main, Some(6)) };
        let refused = export.write(&store, &dir.path().join("a"), &mut |_| {}).await.unwrap_err();
        assert_eq!(refused.code(), "not-found");
        assert!(refused.to_string().contains("not in this export"), "{refused}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn a_name_is_omitted_in_every_unicode_form() {
    let dir = tempfile::tempdir().unwrap();
    let store = InMemory::new();
    let mut session = store.create(Actor::person("ada"));
    session.user("asked by Zoe\u{308}").unwrap();
    session.user("Zo\u{ad}\u{eb} again").unwrap();
    session.user("Zoe is somebody else").unwrap();
    session.publish().await.unwrap();
    let redaction = Redaction { texts: vec!["Zo\u{eb}".into()], ..Redaction::default() };
    let graph = export(&everything(redaction, session.id()), &store, &dir.path().join("a")).await;
    let left: Vec<_> = graph.omitted_records.iter().map(|left| left.record.seq).collect();
    assert_eq!(left, [1, 2]);
}

#[tokio::test]
async fn a_body_erased_in_the_store_stays_erased() {
    let dir = tempfile::tempdir().unwrap();
    let Family { store, main, .. } = family(InMemory::new()).await;
    export(&Export::of(main, None), &store, &dir.path().join("a")).await;
    let record = store.scan(Scan::session(main, 2, 2)).await.unwrap().records.remove(0);
    store.erase(vec![record.reference()]).await.unwrap();
    let imported = import(&store, &dir.path().join("a")).await.unwrap();
    assert_eq!(imported.records, 0);
    let record = store.scan(Scan::session(main, 2, 2)).await.unwrap().records.remove(0);
    assert!(record.body_bytes().is_none());
    assert!(store.sessions(SessionFilter::Run(rath::session::OPERATOR.into()).into()).await.unwrap().is_empty());
}

/// A session with a version of files, one of them in a subdirectory.
async fn with_files(store: &Arc<dyn Store>) -> (SessionId, Vec<Digest>) {
    let file = Blob::new(*b"fn main() {}", "text/plain");
    let holding = |name: &str, kind: NodeKind, mode: u32, blob: &Blob| {
        let node = Node { kind, mode, sha256: blob.reference.digest, size: blob.reference.bytes };
        Blob::new(Tree { entries: vec![TreeEntry { name: name.into(), node }] }.encode(), TREE)
    };
    let inner = holding("main.rs", NodeKind::File, 0o644, &file);
    let root = holding("src", NodeKind::Directory, 0o755, &inner);
    let digests = [&file, &inner, &root].map(|blob| blob.reference.digest).to_vec();
    let mut session = store.create(Actor::person("ada"));
    let attached = vec![rath::body::Attachment { content: root.reference.clone(), name: None }];
    store.blob_put(vec![file, inner, root]).await.unwrap();
    session.append(rath::body::User { text: "Look.".into(), post: None, attached }).unwrap();
    session.publish().await.unwrap();
    (session.id(), digests)
}

#[tokio::test]
async fn a_later_bundle_fills_in_omitted_blobs() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let store = InMemory::new();
    let (session, digests) = with_files(&store).await;
    export(&Export::of(session, None), &store, &at("full")).await;
    for (name, redaction) in [
        ("blobs", Redaction { no_blobs: true, ..Redaction::default() }),
        ("files", Redaction { no_files: true, ..Redaction::default() }),
        ("text", Redaction { texts: vec!["FN main".into()], ..Redaction::default() }),
    ] {
        export(&Export { redaction, ..Export::of(session, None) }, &store, &at(name)).await;
        let into = embedded(dir.path(), &format!("{name}-into"));
        import(&into, &at(name)).await.unwrap();
        let lacks = if name == "text" { 1 } else { 3 };
        let full = import(&into, &at("full")).await.unwrap();
        assert_eq!((full.records, full.filled_in, full.without_body.len()), (0, lacks, 0), "{name}");
        assert_eq!(full.sessions[&session], SessionImportOutcome::Known);
        for digest in &digests {
            assert!(into.blob_get(*digest).await.unwrap().is_some(), "{name}");
        }
        assert_eq!(import(&into, &at("full")).await.unwrap().filled_in, 0, "{name}");
        export(&Export::of(session, None), &into, &at(&format!("{name}-again"))).await;
        assert_eq!(files(&at("full")), files(&at(&format!("{name}-again"))));
        drop(into);
        super::is_valid(dir.path(), &format!("{name}-into"));
    }
}

#[tokio::test]
async fn omitted_and_erased_bodies_are_reported_separately() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let Family { store, main, .. } = family(InMemory::new()).await;
    let redaction = Redaction { kinds: vec![Kind::User], ..Redaction::default() };
    let early = export(&Export { redaction, ..Export::of(main, Some(5)) }, &store, &at("early")).await;
    let full = export(&Export::of(main, None), &store, &at("full")).await;
    let into = embedded(dir.path(), "into");
    import(&into, &at("early")).await.unwrap();
    drop(into);
    let admin = StoreAdmin::new(Embedded::open_as(at("into"), "test").unwrap(), Actor::person("bob"));
    let said = admin.store().scan(Scan::session(main, 4, 4)).await.unwrap().records;
    assert_eq!(*said[0].kind(), Kind::Assistant);
    let blob = rath::record::blob_references(said[0].body_bytes().unwrap()).remove(0).digest;
    let mut plan =
        admin.plan(ErasureRequest { records: said, ..ErasureRequest::default() }, &mut |_| {}).await.unwrap();
    admin.erase(&mut plan, "ticket 12", &mut |_| {}).await.unwrap().unwrap();
    for (round, records) in [full.records - early.records, 0].into_iter().enumerate() {
        let imported = import(admin.store(), &at("full")).await.unwrap();
        let without: Vec<_> = imported.without_body.iter().map(|record| record.seq).collect();
        assert_eq!((imported.records, imported.filled_in, imported.erased), (records, 0, 1), "round {round}");
        assert_eq!(without, [2], "the omitted body, not the erased one");
    }
    assert!(admin.store().blob_get(blob).await.unwrap().is_none(), "an erased blob does not come back");
}

#[tokio::test]
async fn a_source_file_with_omitted_content_is_omitted_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = InMemory::new();
    let file = b"{\"role\":\"user\",\"content\":\"Mr Secret\"}\n{\"role\":\"assistant\",\"content\":\"Hello.\"}\n";
    let mut importer = rath_audit::import::Importer::new(&store, Actor::person("ada"), false).await.unwrap();
    let taken = importer.import("talk.jsonl", file, rath_audit::import::jsonl::read(file).unwrap()).await.unwrap();
    for (name, redaction) in [
        ("kind", Redaction { kinds: vec![Kind::User], ..Redaction::default() }),
        ("text", Redaction { texts: vec!["mr  secret".into()], ..Redaction::default() }),
    ] {
        let graph = export(&everything(redaction, taken.session), &store, &dir.path().join(name)).await;
        assert_eq!((graph.omitted_records.len(), graph.omitted_blobs.len(), graph.blobs), (1, 1, 0));
        for (file, bytes) in files(&dir.path().join(name)) {
            assert!(!String::from_utf8_lossy(&bytes).contains("Mr Secret"), "{name}: {}", file.display());
        }
        import(&InMemory::new(), &dir.path().join(name)).await.unwrap();
    }
    let graph = export(&everything(Redaction::default(), taken.session), &store, &dir.path().join("whole")).await;
    assert_eq!(graph.blobs, 1);
}

#[tokio::test]
async fn a_missing_body_that_is_not_listed_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let Family { store, main, .. } = family(InMemory::new()).await;
    let at = dir.path().join("a");
    export(&Export::of(main, None), &store, &at).await;
    // A forger who removes a body, and corrects the counts and checksums.
    let text = std::fs::read_to_string(at.join("records.jsonl")).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let whole = lines.iter().rposition(|line| line.contains(",\"salt\":")).unwrap();
    let (header, _) = lines[whole].split_once(",\"salt\":").unwrap();
    lines[whole] = format!("{header}}}");
    let records = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let graph = std::fs::read_to_string(at.join("graph.json")).unwrap();
    let (from, to) = ("\"without_body\": 1", "\"without_body\": 2");
    assert!(graph.contains(from));
    let graph = graph.replace(from, to);
    let sums = std::fs::read_to_string(at.join("SHA256SUMS")).unwrap();
    let old = sums.lines().find(|line| line.ends_with("graph.json")).unwrap();
    let sums = sums.replace(old, &format!("{}  graph.json", rath::Digest::of(graph.as_bytes())));
    for (name, text) in [("records.jsonl", &records), ("graph.json", &graph), ("SHA256SUMS", &sums)] {
        std::fs::write(at.join(name), text).unwrap();
    }
    let refused = import(&InMemory::new(), &at).await.unwrap_err();
    assert!(refused.to_string().contains("graph.json does not list it as omitted"), "{refused}");
    if let Ok(verified) = Command::new("python3").args(["-B", "verify.py", "."]).current_dir(&at).output() {
        let said = String::from_utf8_lossy(&verified.stdout).into_owned();
        assert!(!verified.status.success() && said.contains("does not say why"), "{said}");
    }
}

#[tokio::test]
async fn copied_content_is_omitted_with_its_kind() {
    let dir = tempfile::tempdir().unwrap();
    let store = InMemory::new();
    let mut session = store.create(Actor::person("ada"));
    session.user("My name is Zebulon.").unwrap();
    session.assistant("Hello.").unwrap();
    session.publish().await.unwrap();
    let mut alone = session.detach("for others").await.unwrap();
    alone.assistant("How can I help?").unwrap();
    alone.publish().await.unwrap();
    let path = dir.path().join("a");
    let redaction = Redaction { kinds: vec![Kind::User], ..Redaction::default() };
    let graph = export(&Export { redaction, ..Export::of(alone.id(), None) }, &store, &path).await;
    assert_eq!(graph.omitted_blobs.len(), 1);
    for (name, bytes) in files(&path) {
        assert!(!String::from_utf8_lossy(&bytes).contains("Zebulon"), "{}", name.display());
    }
    import(&embedded(dir.path(), "into"), &path).await.unwrap();
}
