//! Interrupted imports: how they are reported, and how they continue.

use std::sync::Arc;

use rath::prelude::*;
use rath_audit::bundle::{BundleError, Export, PartialImport, PartialSession};
use rath_audit::import::{ImportOutcome, Importer, jsonl};
use rath_testkit::{CrashPoint, CrashingStore};

use super::{embedded, export, import, is_valid, records_in};

/// A session that is longer than one commit of an import.
async fn long(store: &Arc<dyn Store>) -> SessionId {
    let mut session = store.create(Actor::person("ada"));
    let text = "x".repeat(8000);
    for _ in 0..5000 {
        session.note(text.as_str()).unwrap();
    }
    session.publish().await.unwrap();
    session.id()
}

#[tokio::test]
async fn an_interrupted_import_is_reported_and_continues() {
    let dir = tempfile::tempdir().unwrap();
    let store = InMemory::new();
    let id = long(&store).await;
    let path = dir.path().join("long");
    export(&Export::of(id, None), &store, &path).await;
    let into = embedded(dir.path(), "into");
    // The import dies after the operator session, the record of its start, and the first part of the session.
    let dying: Arc<dyn Store> = CrashingStore::new(into.clone(), 3, CrashPoint::Before);
    let error = import(&dying, &path).await.unwrap_err();
    let BundleError::Interrupted { taken, of: 5001, .. } = error else { panic!("{error:?}") };
    assert!(0 < taken && taken < 5001, "{error}");
    assert!(error.to_string().starts_with(&format!("imported {taken} of 5001 records, then: ")), "{error}");
    drop(dying);
    let part = PartialSession { session: id, records: taken, of: 5001 };
    let cut = PartialImport::of(&into).await.unwrap();
    assert_eq!(
        cut.iter().map(|cut| (cut.bundle.as_deref(), &cut.sessions[..])).collect::<Vec<_>>(),
        [(Some("long"), &[part][..])]
    );
    assert_eq!(import(&into, &path).await.unwrap().records, 5001 - taken);
    assert_eq!(PartialImport::of(&into).await.unwrap(), []);
    assert_eq!(import(&into, &path).await.unwrap().records, 0);
    drop(into);
    is_valid(dir.path(), "into");
}

#[tokio::test]
async fn a_session_without_records_is_not_a_partial_import() {
    let dir = tempfile::tempdir().unwrap();
    let store = InMemory::new();
    let path = dir.path().join("long");
    export(&Export::of(long(&store).await, None), &store, &path).await;
    let into = embedded(dir.path(), "into");
    let dying: Arc<dyn Store> = CrashingStore::new(into.clone(), 2, CrashPoint::Before);
    assert!(matches!(import(&dying, &path).await.unwrap_err(), BundleError::Interrupted { taken: 0, .. }));
    assert_eq!(PartialImport::of(&into).await.unwrap(), []);
    let whole = CrashingStore::new(embedded(dir.path(), "whole"), u64::MAX, CrashPoint::Before);
    let store_of_whole: Arc<dyn Store> = whole.clone();
    import(&store_of_whole, &path).await.unwrap();
    // Everything was imported, but not reported: the import creates no operator session, and dies before it records the
    // end.
    let dying: Arc<dyn Store> = CrashingStore::new(into.clone(), whole.commits() - 3, CrashPoint::After);
    import(&dying, &path).await.unwrap_err();
    assert_eq!(records_in(&into).await, records_in(&store).await);
    assert_eq!(PartialImport::of(&into).await.unwrap(), []);
}

#[tokio::test]
async fn a_file_continues_a_session_that_a_bundle_brought_in_part() {
    let dir = tempfile::tempdir().unwrap();
    let text: String = (0..10).map(|n| format!("{{\"role\":\"user\",\"content\":\"m{n}\"}}\n")).collect();
    let import_file = async |store: &Arc<dyn Store>| {
        let mut importer = Importer::new(store, Actor::person("ada"), false).await.unwrap();
        importer.import("c.jsonl", text.as_bytes(), jsonl::read(text.as_bytes()).unwrap()).await
    };
    let store = InMemory::new();
    let session = import_file(&store).await.unwrap().session;
    assert_eq!(import_file(&store).await.unwrap().outcome, ImportOutcome::Known);
    let path = dir.path().join("half");
    export(&Export::of(session, Some(5)), &store, &path).await;
    let into = embedded(dir.path(), "into");
    import(&into, &path).await.unwrap();
    let taken = import_file(&into).await.unwrap();
    assert_eq!((taken.session, taken.outcome), (session, ImportOutcome::Extended { records: 6 }));
    assert_eq!(import_file(&into).await.unwrap().outcome, ImportOutcome::Known);
    let said = View::of(&into, session, None).await.unwrap().context().await.unwrap();
    assert_eq!(said.len(), 10);
    // A session that was continued after a partial import cannot be extended from its file.
    let other = embedded(dir.path(), "other");
    import(&other, &path).await.unwrap();
    let mut open = other.open(session, Actor::person("eve")).await.unwrap();
    open.user("something else").unwrap();
    open.publish().await.unwrap();
    drop(open);
    let why = import_file(&other).await.unwrap_err().to_string();
    assert!(why.contains("the session was continued after the import:"), "{why}");
    drop((into, other));
    is_valid(dir.path(), "into");
}
