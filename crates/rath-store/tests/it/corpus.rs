//! Stores that earlier versions wrote must stay readable.
//!
//! Each directory of `corpus/` has a store that a released version wrote, and `expected.json` with its expected
//! contents. `RATH_ADD_TO_CORPUS=NAME cargo test -p rath-store corpus` adds one. Existing ones are never changed.

use std::fs;
use std::path::{Path, PathBuf};

use pollster::block_on;
use rath_core::View;
use rath_core::body::Created;
use rath_core::files::TreeStore;
use rath_core::store::{Query, SessionFilter};
use rath_store::Embedded;
use serde_json::{Value, json};

use crate::support::{
    kinds_of_format_6, long_session, model_conversation, run_with_inbox, sample_sessions, session_with_files, verify,
};

pub(crate) fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus")
}

/// Everything that can be read from a store, as JSON.
pub(crate) fn describe(path: &Path) -> Value {
    let store = Embedded::open(path).unwrap();
    let mut rows = block_on(store.sessions(Query::default())).unwrap();
    rows.sort_by_key(|row| row.id);
    let mut sessions = Vec::new();
    for row in rows {
        let view = block_on(View::of(&store, row.id, None)).unwrap();
        let own = block_on(view.own_records()).unwrap();
        let records: Vec<Value> = own
            .iter()
            .map(|record| {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                json!({
                    "id": record.id(), "generation": record.generation(),
                    "header": text(record.header_bytes()), "body": record.body_bytes().map(text),
                })
            })
            .collect();
        let context: Vec<String> = block_on(view.context()).unwrap().iter().map(ToString::to_string).collect();
        let mut session = json!({
            "id": row.id, "title": row.title, "labels": row.labels, "closed": row.closed, "usage": view.usage(),
            "origin": row.origin, "context": context, "text": block_on(view.text()).unwrap(), "records": records,
        });
        if let Some(version) = &view.state().workspace {
            let files = block_on(TreeStore::new(&*store).list(version)).unwrap();
            session["files"] = json!({
                "version": version, "placement": view.state().placement, "conflicts": view.state().conflicts,
                "list": files.iter().map(|(path, node)| json!([path, node])).collect::<Vec<_>>(),
            });
        }
        if let Some(key) = own[0].body::<Created>().ok().and_then(|created| created.run) {
            let found = block_on(store.sessions(SessionFilter::Run(key.clone()).into())).unwrap();
            assert_eq!(found.iter().map(|row| row.id).collect::<Vec<_>>(), [row.id]);
            session["run"] = json!(key);
        }
        let inbox = block_on(store.posts(row.id)).unwrap();
        if !inbox.is_empty() {
            session["inbox"] = json!(inbox);
        }
        sessions.push(session);
    }
    json!(sessions)
}

#[test]
fn every_stored_session_stays_readable() {
    let mut stores = 0;
    for entry in fs::read_dir(corpus()).unwrap() {
        let dir = entry.unwrap().path();
        if !dir.join("expected.json").exists() {
            continue;
        }
        // Reading creates files next to the database, so the test uses a copy.
        let copy = tempfile::tempdir().unwrap();
        rath_testkit::copy_dir(&dir.join("store"), copy.path());
        let report = verify(copy.path());
        assert!(report.is_valid(), "{}: {:?}", dir.display(), report.findings);
        let expected: Value = serde_json::from_slice(&fs::read(dir.join("expected.json")).unwrap()).unwrap();
        assert_eq!(describe(copy.path()), expected, "{}", dir.display());
        stores += 1;
    }
    assert!(stores > 0, "the corpus is empty");
}

#[test]
fn add_to_the_corpus() {
    let Ok(name) = std::env::var("RATH_ADD_TO_CORPUS") else { return };
    let dir = corpus().join(name);
    assert!(!dir.exists(), "{} already exists", dir.display());
    let store = Embedded::create(dir.join("store")).unwrap();
    let ids = sample_sessions(&store);
    let erased = block_on(View::of(&store, ids[0], Some(20))).unwrap().record().reference();
    block_on(store.erase(vec![erased])).unwrap();
    session_with_files(&store, tempfile::tempdir().unwrap().path());
    run_with_inbox(&store);
    model_conversation(&store);
    long_session(&store);
    kinds_of_format_6(&store);
    drop(store);
    Embedded::open_as(dir.join("store"), "corpus").unwrap().checkpoint().unwrap();
    fs::write(dir.join("expected.json"), serde_json::to_vec_pretty(&describe(&dir.join("store"))).unwrap()).unwrap();
    for leftover in ["rath.db-wal", "rath.db-shm", "holders", "watch", "erasing", "written-by.json"] {
        let _ = fs::remove_file(dir.join("store").join(leftover));
        let _ = fs::remove_dir_all(dir.join("store").join(leftover));
    }
}

#[test]
fn the_first_write_to_an_older_store_adds_runs_and_posts() {
    for format in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        rath_testkit::copy_dir(&corpus().join(format!("format-{format}/store")), dir.path());
        let health = || Embedded::open_as(dir.path(), "test").unwrap().health().unwrap();
        let store = Embedded::open(dir.path()).unwrap();
        let all = block_on(store.sessions(Query::default())).unwrap();
        // Reading finds no posts and no runs, and changes nothing.
        assert!(block_on(store.posts(all[0].id)).unwrap().is_empty());
        assert!(block_on(store.sessions(SessionFilter::Run("nightly".into()).into())).unwrap().is_empty());
        assert_eq!(health().format, format);
        let id = run_with_inbox(&store);
        // The same connection finds them after the upgrade.
        assert_eq!(block_on(store.posts(id)).unwrap().len(), 1);
        assert_eq!(block_on(store.sessions(SessionFilter::Run("nightly".into()).into())).unwrap()[0].id, id);
        drop(store);
        assert_eq!(health().format, rath_store::FORMAT);
        let report = verify(dir.path());
        assert!(report.is_valid(), "{:?}", report.findings);
        assert_eq!(report.sessions, all.len() as u64 + 1);
        // Another process finds them too.
        let store = Embedded::open(dir.path()).unwrap();
        assert_eq!(block_on(store.posts(id)).unwrap()[0].id, "answer");
    }
}
