//! Exporting and importing bundles: round trips, and rejecting changed ones.

mod diverging;
mod formats;
mod from_another_store;
mod hostile;
mod interrupted;
mod redacted;
mod tampered;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rath::body::Outcome;
use rath::prelude::*;
use rath::record::BlobRef;
use rath::session::OPERATOR;
use rath::store::{Batch, Chunk, Scan, SessionFilter};
use rath::{Blob, Digest, Kind, Reference};
use rath_audit::bundle::{BundleGraph, Export, Import, ImportReport, SessionImportOutcome};

/// A store with a family of sessions: forks, a merge, long content, a step, an erased record.
pub(super) struct Family {
    pub(super) store: Arc<dyn Store>,
    pub(super) main: SessionId,
    pub(super) branch: SessionId,
    pub(super) aside: SessionId,
}

pub(super) async fn family(store: Arc<dyn Store>) -> Family {
    let mut main = store.create(Actor::person("ada"));
    main.set_title("doors").unwrap();
    main.user("Which colour for Mr Secret's door?\u{2028}A \"warm\" one.").unwrap();
    main.enter("think").unwrap();
    let long = "red ".repeat(5000);
    main.assistant(long.as_str()).unwrap();
    main.leave(Outcome::Done).unwrap();
    main.user_with("Look.", [("door.png", Blob::new(*b"picture of a door", "image/png"))]).unwrap();
    main.publish().await.unwrap();
    let mut aside = main.fork("another thought");
    aside.assistant("Green.").unwrap();
    aside.publish().await.unwrap();
    let mut branch = main.fork("cold colours");
    branch.assistant("Blue.").unwrap();
    let (branch_id, aside_id) = (branch.id(), aside.id());
    let mut main = main.merge([branch], How::Append).await.unwrap();
    let told = main.note("nobody needs to know").unwrap();
    main.assistant("Red, then.").unwrap();
    main.publish().await.unwrap();
    let id = main.id();
    drop((main, aside));
    let mut seq = 0;
    for record in store.scan(Scan::session(id, 0, u64::MAX)).await.unwrap().records {
        if record.id() == told {
            seq = record.seq();
        }
    }
    store.erase(vec![Reference { session: id, seq, id: told }]).await.unwrap();
    Family { store, main: id, branch: branch_id, aside: aside_id }
}

pub(super) async fn export(export: &Export, store: &Arc<dyn Store>, path: &Path) -> BundleGraph {
    export.write(store, path, &mut |_| {}).await.unwrap().graph
}

pub(super) async fn import(
    store: &Arc<dyn Store>,
    path: &Path,
) -> Result<ImportReport, rath_audit::bundle::BundleError> {
    Import::default().read(store, &Actor::person("bob"), path, &mut |_| {}).await
}

/// Every file below a directory.
pub(super) fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => {
                    found.insert(path.strip_prefix(root).unwrap().into(), std::fs::read(&path).unwrap());
                }
            }
        }
    }
    found
}

/// The number of records in a store, without its operator session.
pub(super) async fn records_in(store: &Arc<dyn Store>) -> u64 {
    let rows = store.sessions(SessionFilter::All.into()).await.unwrap();
    let own = store.sessions(SessionFilter::Run(OPERATOR.into()).into()).await.unwrap();
    rows.iter().filter(|row| !own.iter().any(|own| own.id == row.id)).map(|row| row.seq + 1).sum()
}

pub(super) fn embedded(dir: &Path, name: &str) -> Arc<dyn Store> {
    Embedded::create(dir.join(name)).unwrap()
}

pub(super) fn is_valid(dir: &Path, name: &str) {
    let report = Embedded::open_as(dir.join(name), "test").unwrap().verify(None, &mut |_, _| {}).unwrap();
    assert!(report.is_valid(), "{:?}", report.findings);
}

#[tokio::test]
async fn exporting_importing_and_exporting_again_gives_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (round, from) in [InMemory::new(), embedded(dir.path(), "from")].into_iter().enumerate() {
        let Family { store, main, aside, .. } = family(from).await;
        for graph in [false, true] {
            let what = Export { graph, ..Export::of(main, None) };
            let name = format!("{round}-{graph}");
            let said = export(&what, &store, &at(&format!("{name}-a"))).await;
            assert_eq!(said.sessions.iter().any(|head| head.session == aside), graph, "exactly the family");
            assert_eq!(said.merges.len(), 1);
            export(&what, &store, &at(&format!("{name}-a.zip"))).await;
            for zip in ["", ".zip"] {
                for into in [InMemory::new(), embedded(dir.path(), &format!("{name}{zip}-into"))] {
                    let imported = import(&into, &at(&format!("{name}-a{zip}"))).await.unwrap();
                    assert!(imported.sessions.values().all(|outcome| *outcome == SessionImportOutcome::New));
                    assert_eq!(imported.records, said.records);
                    assert_eq!(records_in(&into).await, said.records);
                    let again = tempfile::tempdir().unwrap();
                    export(&what, &into, &again.path().join("b")).await;
                    assert_eq!(files(&at(&format!("{name}-a"))), files(&again.path().join("b")));
                    export(&what, &into, &again.path().join("b.zip")).await;
                    let zipped = std::fs::read(at(&format!("{name}-a.zip"))).unwrap();
                    assert_eq!(zipped, std::fs::read(again.path().join("b.zip")).unwrap());
                    let view = View::of(&into, main, None).await.unwrap();
                    assert_eq!(view.text().await.unwrap().as_deref(), Some("Red, then."));
                }
                is_valid(dir.path(), &format!("{name}{zip}-into"));
            }
        }
    }
}

#[tokio::test]
async fn known_records_are_skipped_and_new_ones_are_added() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let Family { store, main, branch, .. } = family(InMemory::new()).await;
    export(&Export::of(main, Some(3)), &store, &at("early")).await;
    export(&Export::of(main, None), &store, &at("late.zip")).await;
    let into = embedded(dir.path(), "into");
    let early = import(&into, &at("early")).await.unwrap();
    assert_eq!((early.sessions.len(), early.sessions[&main].clone(), early.records), (1, SessionImportOutcome::New, 4));
    let later = import(&into, &at("late.zip")).await.unwrap();
    assert_eq!(later.sessions[&main], SessionImportOutcome::Forwarded { from: 4 });
    assert_eq!(later.sessions[&branch], SessionImportOutcome::New);
    let rows = || async {
        let rows = into.sessions(SessionFilter::All.into()).await.unwrap();
        rows.into_iter().map(|row| (row.id, row.head)).collect::<Vec<_>>()
    };
    let before = rows().await;
    for path in ["late.zip", "early"] {
        let again = import(&into, &at(path)).await.unwrap();
        assert!(again.records == 0 && again.sessions.values().all(|outcome| *outcome == SessionImportOutcome::Known));
    }
    assert_eq!(before, rows().await);
    drop(into);
    is_valid(dir.path(), "into");
}

#[tokio::test]
async fn a_locked_session_is_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let Family { store, main, .. } = family(InMemory::new()).await;
    export(&Export::of(main, Some(3)), &store, &at("early")).await;
    export(&Export::of(main, None), &store, &at("late")).await;
    let into = InMemory::new();
    import(&into, &at("early")).await.unwrap();
    let held = into.open(main, Actor::person("eve")).await.unwrap();
    assert!(import(&into, &at("late")).await.unwrap_err().to_string().contains("is locked by"));
    assert_eq!(records_in(&into).await, 4);
    drop(held);
    assert_eq!(import(&into, &at("late")).await.unwrap().sessions[&main], SessionImportOutcome::Forwarded { from: 4 });
    into.open(main, Actor::person("eve")).await.unwrap().user("And the windows?").unwrap();
}

#[tokio::test]
async fn large_blobs_are_imported_in_chunks() {
    let dir = tempfile::tempdir().unwrap();
    let store = embedded(dir.path(), "from");
    let (mut pieces, mut whole) = (Vec::new(), Vec::new());
    for n in 0..6u8 {
        let piece = Blob::new(vec![n; 1 << 20], "application/octet-stream");
        whole.extend_from_slice(&piece.bytes);
        pieces.push(Chunk { digest: piece.reference.digest, bytes: piece.reference.bytes });
        store.blob_put(vec![piece]).await.unwrap();
    }
    let reference = BlobRef { digest: Digest::of(&whole), bytes: 6 << 20, media_type: "video/mp4".into() };
    store.blob_join(reference.clone(), pieces).await.unwrap();
    let mut session = store.create(Actor::person("ada"));
    let attached = vec![rath::body::Attachment { content: reference.clone(), name: Some("film".into()) }];
    session.append(rath::body::User { text: "Look.".into(), post: None, attached }).unwrap();
    session.publish().await.unwrap();
    for name in ["a", "a.zip"] {
        let said = export(&Export::of(session.id(), None), &store, &dir.path().join(name)).await;
        assert_eq!((said.blobs, said.blob_bytes), (1, 6 << 20));
        let into = InMemory::new();
        import(&into, &dir.path().join(name)).await.unwrap();
        assert_eq!(into.blob_get(reference.digest).await.unwrap().unwrap()[..], whole[..]);
        assert_eq!(into.blob_chunks(reference.digest).await.unwrap().unwrap().len(), 6);
    }
}

#[tokio::test]
async fn a_long_imported_session_has_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let store = InMemory::new();
    let mut session = store.create(Actor::person("ada"));
    for n in 0..5000 {
        session.user(format!("message {n}")).unwrap();
    }
    session.label("colour", "red").unwrap();
    session.publish().await.unwrap();
    let mut fork = session.fork("on");
    for n in 0..300 {
        fork.user(format!("message {n}")).unwrap();
    }
    fork.publish().await.unwrap();
    let (id, fork_id) = (session.id(), fork.id());
    export(&Export::of(fork_id, None), &store, &dir.path().join("a")).await;
    let into = embedded(dir.path(), "into");
    import(&into, &dir.path().join("a")).await.unwrap();
    for (session, seq) in [(id, 5001), (fork_id, 300)] {
        let page = into.scan(Scan::session(session, 0, seq).from_snapshot().limit(0)).await.unwrap();
        assert_eq!(page.snapshot.map(|(at, _)| at), Some(seq));
    }
    assert_eq!(into.open(id, Actor::person("eve")).await.unwrap().state().labels["colour"], "red");
    drop(into);
    is_valid(dir.path(), "into");
}

/// While a batch is written the next ones fill, with sessions that were not in the last one.
#[tokio::test]
async fn long_sessions_with_forks_and_merges_are_imported() {
    let dir = tempfile::tempdir().unwrap();
    let store = InMemory::new();
    let speak = |session: &mut Session, who: &str| {
        for n in 0..400 {
            session.note(format!("{who} {n} {}", "x".repeat(6000))).unwrap();
        }
        session.label(who, "spoke").unwrap();
    };
    let mut main = store.create(Actor::person("ada"));
    speak(&mut main, "first");
    let mut branch = main.fork("aside");
    speak(&mut branch, "branch");
    speak(&mut main, "second");
    let mut main = main.merge([branch], How::Append).await.unwrap();
    speak(&mut main, "last");
    main.publish().await.unwrap();
    let id = main.id();
    let what = Export { graph: true, ..Export::of(id, None) };
    let said = export(&what, &store, &dir.path().join("a")).await;
    let into = embedded(dir.path(), "into");
    assert_eq!(import(&into, &dir.path().join("a")).await.unwrap().records, said.records);
    assert_eq!(export(&what, &into, &dir.path().join("b")).await, said);
    assert_eq!(files(&dir.path().join("a")), files(&dir.path().join("b")));
    for head in &said.sessions {
        let [here, there] = [&store, &into].map(|store| View::of(store, head.session, None));
        assert_eq!(here.await.unwrap().state(), there.await.unwrap().state());
    }
    drop(into);
    is_valid(dir.path(), "into");
}

/// Headers of a later version, with unknown fields.
#[tokio::test]
async fn unknown_fields_survive_a_round_trip() {
    let dir = tempfile::tempdir().unwrap();
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/../rath-core/tests/vectors/unknown.jsonl");
    let text = std::fs::read_to_string(vectors).unwrap();
    let mut records: BTreeMap<SessionId, Vec<rath::Record>> = BTreeMap::new();
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let [header, body, salt] = ["header", "body", "salt"].map(|part| line[part].as_str().unwrap().to_owned());
        let read = rath::record::Header::parse(header.as_bytes()).unwrap();
        let (split, end) = (header.len() as u32, (header.len() + body.len()) as u32);
        let salt = std::array::from_fn(|at| u8::from_str_radix(&salt[2 * at..2 * at + 2], 16).unwrap());
        let parts = rath::record::RecordParts {
            point: rath::Point { session: read.session, seq: read.seq },
            generation: read.seq,
            kind: None,
            bytes: format!("{header}{body}").into_bytes().into(),
            header: 0..split,
            body: Some((salt, split..end)),
        };
        records.entry(read.session).or_default().push(rath::Record::from_parts(parts).unwrap());
    }
    let store = InMemory::new();
    let part = |(session, records): (&SessionId, &Vec<rath::Record>)| rath::store::BatchPart {
        session: *session,
        fence: rath::store::FIRST_FENCING_TOKEN,
        keep_lease: false,
        records: records.clone(),
        snapshot: None,
    };
    store.commit(Batch { parts: records.iter().map(part).collect(), consumed_posts: Vec::new() }).await.unwrap();
    let what = Export { of: records.keys().map(|session| (*session, None)).collect(), ..Export::default() };
    let said = export(&what, &store, &dir.path().join("a")).await;
    assert_eq!(said.records, text.lines().count() as u64);
    for max_cached_bytes in [0, Import::default().max_cached_bytes] {
        let into = embedded(dir.path(), &format!("into-{max_cached_bytes}"));
        let import = Import { max_cached_bytes, ..Import::default() };
        let actor = Actor::person("bob");
        import.read(&into, &actor, &dir.path().join("a"), &mut |_| {}).await.unwrap();
        export(&what, &into, &dir.path().join(format!("b-{max_cached_bytes}"))).await;
        assert_eq!(files(&dir.path().join("a")), files(&dir.path().join(format!("b-{max_cached_bytes}"))));
    }
}

#[tokio::test]
async fn a_run_key_and_the_operator_session_are_unique() {
    let dir = tempfile::tempdir().unwrap();
    let (store, into) = (InMemory::new(), InMemory::new());
    let mut sessions = Vec::new();
    for store in [&store, &into] {
        let mut session =
            store.begin_run("nightly", Actor::person("ada"), async |_: &mut Session| Ok(())).await.unwrap();
        session.publish().await.unwrap();
        sessions.push(session.id());
    }
    export(&Export::of(sessions[0], None), &store, &dir.path().join("a")).await;
    let refused = import(&into, &dir.path().join("a")).await.unwrap_err();
    assert_eq!(refused.code(), "run-taken");
    assert!(refused.to_string().starts_with("run \"nightly\" is session"), "{refused}");
    let operator = rath_audit::operator(&store, Actor::person("ada")).await.unwrap().id();
    export(&Export::of(operator, None), &store, &dir.path().join("b")).await;
    let refused = import(&InMemory::new(), &dir.path().join("b")).await.unwrap_err();
    assert!(refused.to_string().contains("operator session of another store"), "{refused}");
    assert!(import(&store, &dir.path().join("b")).await.is_ok(), "the store already has its own");
}

#[tokio::test]
async fn an_erased_fork_keeps_its_fork_point() {
    let dir = tempfile::tempdir().unwrap();
    let Family { store, aside, .. } = family(embedded(dir.path(), "from")).await;
    let first = store.scan(Scan::session(aside, 0, 0)).await.unwrap().records.remove(0);
    assert_eq!(*first.kind(), Kind::Forked);
    store.erase(vec![first.reference()]).await.unwrap();
    export(&Export::of(aside, None), &store, &dir.path().join("a")).await;
    for into in [InMemory::new(), embedded(dir.path(), "into")] {
        import(&into, &dir.path().join("a")).await.unwrap();
        let row = into.sessions(SessionFilter::Id(aside).into()).await.unwrap().remove(0);
        let was = store.sessions(SessionFilter::Id(aside).into()).await.unwrap().remove(0);
        assert_eq!(row.origin, was.origin);
        assert!(row.origin.is_some());
    }
    is_valid(dir.path(), "into");
}

#[tokio::test]
async fn existing_files_are_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let Family { store, main, .. } = family(InMemory::new()).await;
    for name in ["a", "a.zip"] {
        export(&Export::of(main, None), &store, &dir.path().join(name)).await;
        let again = Export::of(main, None).write(&store, &dir.path().join(name), &mut |_| {}).await.unwrap_err();
        assert_eq!(again.code(), "bundle-exists");
    }
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    export(&Export::of(main, None), &store, &dir.path().join("empty")).await;
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}
