//! A bundle that comes in only in part: what is said of it, and how the rest comes.

use std::sync::Arc;

use rath::prelude::*;
use rath_audit::bundle::{Beginning, CutShort, Error, Export};
use rath_audit::import::{Fate, Intake, jsonl};
use rath_testkit::{Moment, Mortal};

use super::{embedded, export, import, is_sound, records_in};

/// More than a commit of an import holds.
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
async fn it_is_said_how_much_came_and_the_rest_comes_the_next_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = Memory::new();
    let id = long(&store).await;
    let path = dir.path().join("long");
    export(&Export::of(id, None), &store, &path).await;
    let into = embedded(dir.path(), "into");
    // The operator session, the note there that it comes, and the first part of it.
    let dying: Arc<dyn Store> = Mortal::new(into.clone(), 3, Moment::Before);
    let error = import(&dying, &path).await.unwrap_err();
    let Error::CutShort { taken, of: 5001, .. } = error else { panic!("{error:?}") };
    assert!(0 < taken && taken < 5001, "{error}");
    assert!(error.to_string().starts_with(&format!("{taken} of 5001 records were taken in, then: ")), "{error}");
    drop(dying);
    let part = Beginning { session: id, records: taken, of: 5001 };
    let cut = CutShort::of(&into).await.unwrap();
    assert_eq!(
        cut.iter().map(|cut| (cut.bundle.as_deref(), &cut.sessions[..])).collect::<Vec<_>>(),
        [(Some("long"), &[part][..])]
    );
    assert_eq!(import(&into, &path).await.unwrap().records, 5001 - taken);
    assert_eq!(CutShort::of(&into).await.unwrap(), []);
    assert_eq!(import(&into, &path).await.unwrap().records, 0);
    drop(into);
    is_sound(dir.path(), "into");
}

#[tokio::test]
async fn what_did_not_begin_to_come_is_no_part() {
    let dir = tempfile::tempdir().unwrap();
    let store = Memory::new();
    let path = dir.path().join("long");
    export(&Export::of(long(&store).await, None), &store, &path).await;
    let into = embedded(dir.path(), "into");
    let dying: Arc<dyn Store> = Mortal::new(into.clone(), 2, Moment::Before);
    assert!(matches!(import(&dying, &path).await.unwrap_err(), Error::CutShort { taken: 0, .. }));
    assert_eq!(CutShort::of(&into).await.unwrap(), []);
    let whole = Mortal::new(embedded(dir.path(), "whole"), u64::MAX, Moment::Before);
    let store_of_whole: Arc<dyn Store> = whole.clone();
    import(&store_of_whole, &path).await.unwrap();
    // All of it came, and nobody was told: this one begins no operator session, and dies before it notes that all came.
    let dying: Arc<dyn Store> = Mortal::new(into.clone(), whole.commits() - 3, Moment::After);
    import(&dying, &path).await.unwrap_err();
    assert_eq!(records_in(&into).await, records_in(&store).await);
    assert_eq!(CutShort::of(&into).await.unwrap(), []);
}

#[tokio::test]
async fn a_file_of_which_a_bundle_brought_a_part_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let text: String = (0..10).map(|n| format!("{{\"role\":\"user\",\"content\":\"m{n}\"}}\n")).collect();
    let take = async |store: &Arc<dyn Store>| {
        let mut intake = Intake::new(store, Actor::person("ada"), false).await.unwrap();
        intake.take("c.jsonl", text.as_bytes(), jsonl::read(text.as_bytes()).unwrap()).await
    };
    let store = Memory::new();
    let session = take(&store).await.unwrap().session;
    assert_eq!(take(&store).await.unwrap().fate, Fate::Known);
    let path = dir.path().join("half");
    export(&Export::of(session, Some(5)), &store, &path).await;
    let into = embedded(dir.path(), "into");
    import(&into, &path).await.unwrap();
    let taken = take(&into).await.unwrap();
    assert_eq!((taken.session, taken.fate), (session, Fate::GoneOn { records: 6 }));
    assert_eq!(take(&into).await.unwrap().fate, Fate::Known);
    let said = View::of(&into, session, None).await.unwrap().context().await.unwrap();
    assert_eq!(said.len(), 10);
    // Whoever went on from the part by other words has the file's rest nowhere: that is said.
    let other = embedded(dir.path(), "other");
    import(&other, &path).await.unwrap();
    let mut open = other.open(session, Actor::person("eve")).await.unwrap();
    open.user("something else").unwrap();
    open.publish().await.unwrap();
    drop(open);
    let why = take(&other).await.unwrap_err().to_string();
    assert!(why.contains("it went on by itself at"), "{why}");
    drop((into, other));
    is_sound(dir.path(), "into");
}
