//! The operator session.

use std::sync::Arc;

use rath::body::Note;
use rath::prelude::*;
use rath::session::OPERATOR;
use rath::store::{Scan, SessionFilter};
use rath_audit::operator;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_users_share_one_operator_session() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    Embedded::create(&path).unwrap();
    let work = (0..8).map(|n| {
        // Each thread opens its own store, as a process would.
        let store = Embedded::open(&path).unwrap();
        tokio::spawn(async move {
            let mut session = operator(&store, Actor::person(format!("person {n}"))).await.unwrap();
            session.note(format!("note {n}")).unwrap();
            session.publish().await.unwrap();
            session.id()
        })
    });
    let mut ids = Vec::new();
    for work in work.collect::<Vec<_>>() {
        ids.push(work.await.unwrap());
    }
    assert!(ids.iter().all(|id| *id == ids[0]));

    let store: Arc<dyn Store> = Embedded::open(&path).unwrap();
    let row = &store.sessions(SessionFilter::Run(OPERATOR.into()).into()).await.unwrap()[0];
    assert_eq!((row.id, row.seq), (ids[0], 9));
    let page = store.scan(Scan::session(row.id, 2, 9)).await.unwrap();
    let mut notes: Vec<_> = page.records.iter().map(|record| record.body::<Note>().unwrap().text.to_string()).collect();
    notes.sort();
    assert_eq!(notes.len(), 8);
    let embedded = Embedded::open_as(&path, "test").unwrap();
    let report = embedded.verify(None, &mut |_, _| {}).unwrap();
    assert!(report.is_valid(), "{:?}", report.findings);
}

#[tokio::test]
async fn a_run_cannot_use_the_operator_key() {
    let store = InMemory::new();
    let result = store.begin_run(OPERATOR, Actor::person("ada"), async |_: &mut Session| Ok(())).await;
    assert!(result.unwrap_err().to_string().contains("reserved for the operator session"));
    assert!(store.sessions(SessionFilter::Run(OPERATOR.into()).into()).await.unwrap().is_empty());
}
