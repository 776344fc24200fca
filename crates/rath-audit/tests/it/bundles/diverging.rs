//! Imports of diverged sessions.

use rath::body::{Forked, ImportSource};
use rath::prelude::*;
use rath::store::Scan;
use rath_audit::bundle::{BundleError, Export, Import, SessionImportOutcome};

use super::{Family, embedded, export, family, files, import, records_in};

async fn diverged_stores(dir: &std::path::Path) -> (Family, std::sync::Arc<dyn Store>) {
    let family = family(InMemory::new()).await;
    export(&Export::of(family.main, None), &family.store, &dir.join("shared")).await;
    let other = embedded(dir, "other");
    import(&other, &dir.join("shared")).await.unwrap();
    let mut here = family.store.open(family.main, Actor::person("ada")).await.unwrap();
    here.user("Paint it.").unwrap();
    here.publish().await.unwrap();
    let mut there = other.open(family.main, Actor::person("bob")).await.unwrap();
    there.user("Leave it.").unwrap();
    there.assistant("As you like.").unwrap();
    let mut fork = there.fork("or not");
    fork.user("Really?").unwrap();
    fork.publish().await.unwrap();
    there.publish().await.unwrap();
    (family, other)
}

#[tokio::test]
async fn a_diverged_session_is_rejected_and_the_first_difference_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (Family { store, main, .. }, other) = diverged_stores(dir.path()).await;
    let diverged = store.sessions(rath::store::SessionFilter::Id(main).into()).await.unwrap()[0].seq;
    export(&Export { graph: true, ..Export::of(main, None) }, &other, &dir.path().join("there")).await;
    let before = records_in(&store).await;
    match import(&store, &dir.path().join("there")).await.unwrap_err() {
        BundleError::Diverged { here, there } => {
            assert_eq!((here.seq, there.seq, here.session), (diverged, diverged, main))
        }
        other => panic!("{other}"),
    }
    assert_eq!(records_in(&store).await, before);
}

#[tokio::test]
async fn with_as_fork_both_versions_are_kept() {
    check_as_fork(Import::default().max_cached_bytes).await;
}

#[tokio::test]
async fn with_as_fork_both_versions_are_kept_if_the_bundle_is_read_twice() {
    check_as_fork(0).await;
}

async fn check_as_fork(max_cached_bytes: usize) {
    let dir = tempfile::tempdir().unwrap();
    let (Family { store, main, .. }, other) = diverged_stores(dir.path()).await;
    let bundle = dir.path().join("there");
    let there = export(&Export { graph: true, ..Export::of(main, None) }, &other, &bundle).await;
    let take = || async {
        Import { as_fork: true, max_cached_bytes }
            .read(&store, &Actor::person("ada"), &bundle, &mut |_| {})
            .await
            .unwrap()
    };
    let imported = take().await;
    let SessionImportOutcome::Forked { into, at } = imported.sessions[&main] else { panic!("{:?}", imported.sessions) };
    assert!(
        imported.sessions.values().any(|outcome| *outcome == SessionImportOutcome::Kept),
        "a fork that depends on the diverged records"
    );
    let view = View::of(&store, into, None).await.unwrap();
    assert_eq!(view.text().await.unwrap().as_deref(), Some("As you like."));
    let words: Vec<String> = view.own_records().await.unwrap().iter().map(rath::summary::of).collect();
    assert_eq!(words[1..], ["user: Leave it.", "assistant: As you like."]);
    let own = view.own_records().await.unwrap();
    let copied = own[0].body::<Forked>().unwrap().imported_tail.unwrap();
    assert_eq!((copied.head.session, copied.from), (main, at + 1));
    assert_eq!(there.sessions.iter().find(|head| head.session == main).unwrap().head, copied.head.id);
    // The exact records are kept, and each repeated record names its line.
    let kept = store.blob_get(copied.records.digest).await.unwrap().unwrap();
    let kept = String::from_utf8_lossy(&kept).into_owned();
    let exact = String::from_utf8(files(&bundle)[std::path::Path::new("records.jsonl")].clone()).unwrap();
    let of = |line: &str, field: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()[field].clone();
    let is_exact =
        |line: &str| ["header", "body"].iter().all(|field| exact.contains(of(line, field).as_str().unwrap()));
    assert!(kept.lines().count() >= 4 && kept.lines().all(is_exact));
    let source = ImportSource::of(&own[1]).unwrap().unwrap();
    assert_eq!(source.blob, copied.records.digest);
    assert!(kept.lines().nth(source.line as usize - 1).unwrap().contains("Leave it."));
    let mine = store.scan(Scan::session(main, at + 1, at + 1)).await.unwrap().records.remove(0);
    assert_eq!(rath::summary::of(&mine), "user: Paint it.");
    let before = records_in(&store).await;
    let again = take().await;
    assert_eq!(again.sessions[&main], SessionImportOutcome::Forked { into, at });
    assert_eq!((again.records, records_in(&store).await), (0, before), "importing twice adds nothing");
}

#[tokio::test]
async fn a_removed_session_is_not_imported_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = embedded(dir.path(), "here");
    let mut session = store.create(Actor::person("ada"));
    session.user("secret words").unwrap();
    session.publish().await.unwrap();
    let id = session.id();
    drop(session);
    export(&Export::of(id, None), &store, &dir.path().join("kept")).await;
    drop(store);
    let admin = rath_audit::admin::StoreAdmin::new(
        Embedded::open_as(dir.path().join("here"), "test").unwrap(),
        Actor::person("olga"),
    );
    let at_once = rath_audit::admin::RetentionPolicy { keep: Some("0h".parse().unwrap()), ..Default::default() };
    let mut collection = admin.due(&at_once, &mut |_| {}).await.unwrap();
    admin.collect(&mut collection, "ticket 12", &mut |_| {}).await.unwrap().unwrap();
    let error = import(admin.store(), &dir.path().join("kept")).await.unwrap_err();
    assert!(
        matches!(&error, BundleError::Removed { session, why, .. } if *session == id && why == "ticket 12"),
        "{error}"
    );
    assert!(admin.store().sessions(rath::store::SessionFilter::Id(id).into()).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_erased_blob_does_not_come_back_with_new_records() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let there = embedded(dir.path(), "there");
    let mut session = there.create(Actor::person("ada"));
    session.user("s".repeat(9000)).unwrap();
    let told = session.head();
    session.publish().await.unwrap();
    let id = session.id();
    export(&Export::of(id, None), &there, &at("early")).await;
    session.assistant("t".repeat(9000)).unwrap();
    session.publish().await.unwrap();
    export(&Export::of(id, None), &there, &at("late")).await;
    let here = embedded(dir.path(), "here");
    import(&here, &at("early")).await.unwrap();
    let named = async |seq: u64| {
        let record = there.get(rath::store::Lookup::At(rath::Point { session: id, seq })).await.unwrap().remove(0);
        rath::record::blob_references(record.body_bytes().unwrap())[0].digest
    };
    let (old, new) = (named(told.seq).await, named(told.seq + 1).await);
    here.erase(vec![told]).await.unwrap();
    assert!(here.blob_get(old).await.unwrap().is_none());
    let imported = import(&here, &at("late")).await.unwrap();
    assert_eq!(imported.sessions[&id], SessionImportOutcome::Forwarded { from: told.seq + 1 });
    assert!(here.blob_get(old).await.unwrap().is_none());
    assert!(here.blob_get(new).await.unwrap().is_some());
}

#[tokio::test]
async fn only_blobs_that_a_bundle_omitted_are_excused() {
    let dir = tempfile::tempdir().unwrap();
    let there = embedded(dir.path(), "there");
    let mut session = there.create(Actor::person("ada"));
    session.user("s".repeat(9000)).unwrap();
    session.publish().await.unwrap();
    let redaction = rath_audit::bundle::Redaction { no_blobs: true, ..Default::default() };
    export(&Export { redaction, ..Export::of(session.id(), None) }, &there, &dir.path().join("bare")).await;
    let here = embedded(dir.path(), "here");
    import(&here, &dir.path().join("bare")).await.unwrap();
    let open = || Embedded::open_as(dir.path().join("here"), "test").unwrap();
    let admin = rath_audit::admin::StoreAdmin::new(open(), Actor::person("olga"));
    let mut report = open().verify(None, &mut |_, _| {}).unwrap();
    let lost = report.findings.clone();
    assert_eq!((lost.len(), lost[0].session), (1, Some(session.id())));
    assert_eq!(admin.explain(&mut report).await, 1);
    assert!(report.is_valid(), "{:?}", report.findings);
    // The same content, recorded in this store and then lost: that is a loss.
    let mut mine = here.create(Actor::person("bob"));
    mine.user("s".repeat(9000)).unwrap();
    mine.publish().await.unwrap();
    let mut report = open().verify(None, &mut |_, _| {}).unwrap();
    assert!(report.is_valid(), "{:?}", report.findings);
    report.findings.clone_from(&lost);
    assert_eq!(admin.explain(&mut report).await, 0);
    assert_eq!(report.findings, lost);
}

#[tokio::test]
async fn an_erased_fork_of_diverged_records_does_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let (family, other) = diverged_stores(dir.path()).await;
    let bundle = dir.path().join("theirs");
    export(&Export::of(family.main, None), &other, &bundle).await;
    let here = embedded(dir.path(), "here");
    import(&here, &dir.path().join("shared")).await.unwrap();
    let mut main = here.open(family.main, Actor::person("ada")).await.unwrap();
    main.user("Paint it.").unwrap();
    main.publish().await.unwrap();
    drop(main);
    let as_fork = async || {
        Import { as_fork: true, ..Import::default() }.read(&here, &Actor::person("bob"), &bundle, &mut |_| {}).await
    };
    let taken = as_fork().await.unwrap();
    let SessionImportOutcome::Forked { into, at } = taken.sessions[&family.main] else { panic!("{taken:?}") };
    let own = View::of(&here, into, None).await.unwrap().own_records().await.unwrap();
    let said = own.iter().find(|record| rath::summary::of(record) == "user: Leave it.").unwrap().clone();
    let admin = rath_audit::admin::StoreAdmin::new(
        Embedded::open_as(dir.path().join("here"), "test").unwrap(),
        Actor::person("olga"),
    );
    while here.sessions(rath::store::SessionFilter::All.into()).await.unwrap().iter().any(|row| row.holder.is_some()) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let request =
        rath_audit::admin::ErasureRequest { records: vec![said.clone()], derived: true, ..Default::default() };
    let mut plan = admin.plan(request, &mut |_| {}).await.unwrap();
    let mut named: Vec<_> = plan.targets.iter().map(|target| target.record.point()).collect();
    named.sort();
    // The text, and the first record of the fork, which refers to the blob; nothing else.
    assert_eq!(named, [rath::Point { session: into, seq: 0 }, said.point()]);
    admin.erase(&mut plan, "ticket 12", &mut |_| {}).await.unwrap().unwrap();
    assert_eq!(rath_testkit::traces::find(&dir.path().join("here"), "Leave it."), Vec::<std::path::PathBuf>::new());
    let again = as_fork().await.unwrap_err();
    assert!(matches!(&again, BundleError::CannotFork { point, .. } if point.seq == at + 1), "{again}");
    assert_eq!(rath_testkit::traces::find(&dir.path().join("here"), "Leave it."), Vec::<std::path::PathBuf>::new());
}
