//! Projections and their databases.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pollster::block_on;
use rath_core::store::{ErasedSet, Projection, Result, Storage};
use rath_core::{Actor, Kind, Record, Session, Store};
use rath_store::{Embedded, ErasePlan};
use rath_testkit::traces::find;

use crate::support::{fresh, verify};

const SECRET: &str = "zanzibar-quokka-7731";

/// A projection with the bodies of all user messages, by record id.
#[derive(Default)]
struct Words(AtomicU64);

impl Projection for Words {
    fn name(&self) -> &str {
        "words"
    }

    fn version(&self) -> u32 {
        1
    }

    fn kinds(&self) -> &[Kind] {
        &[Kind::User]
    }

    fn apply(&self, records: &[Record], storage: &mut dyn Storage) -> Result<()> {
        self.0.fetch_add(records.len() as u64, Ordering::AcqRel);
        records.iter().try_for_each(|record| storage.put(&record.id().0.0, record.body_bytes().unwrap_or_default()))
    }

    fn forget(&self, erased: &ErasedSet, storage: &mut dyn Storage) -> Result<()> {
        erased.records.iter().try_for_each(|record| storage.delete(&record.id.0.0))
    }
}

fn ask(store: &(dyn Store + 'static), words: &Arc<Words>) -> usize {
    block_on(store.projected(words.clone(), |storage| Ok(storage.all(&[])?.len()))).unwrap()
}

#[test]
fn an_erasure_removes_data_from_projections_of_other_programs() {
    let (store, dir) = fresh();
    let path = dir.path().join("store");
    let mut session = Session::create(&store, Actor::person("ada"));
    session.user(format!("I am {SECRET}")).unwrap();
    let told = session.head();
    for n in 0..50 {
        session.user(format!("word {n}")).unwrap();
    }
    block_on(session.publish()).unwrap();
    let words = Arc::new(Words::default());
    assert_eq!(ask(&*store, &words), 51);
    assert!(find(dir.path(), SECRET).iter().any(|file| file.starts_with(path.join("projections"))));

    // A program that knows the projection removes only the erased records.
    let other = Embedded::open_as(&path, "knows it").unwrap();
    let known = Arc::new(Words::default());
    assert_eq!(ask(&other, &known), 51);
    other
        .destroy(&other.lock_for_erase().unwrap(), &ErasePlan { records: vec![told], ..ErasePlan::new() }, &mut |_| {})
        .unwrap();
    assert_eq!(find(dir.path(), SECRET), Vec::<std::path::PathBuf>::new());
    assert_eq!((ask(&other, &known), known.0.load(Ordering::Acquire)), (50, 0), "the projection was rebuilt");

    // A program that does not know it removes the database, which is rebuilt.
    session.user(format!("I still am {SECRET}")).unwrap();
    let told = session.head();
    block_on(session.publish()).unwrap();
    assert_eq!(ask(&*store, &words), 51);
    let stranger = Embedded::open_as(&path, "does not know it").unwrap();
    let plan = ErasePlan { records: vec![told], ..ErasePlan::new() };
    stranger.destroy(&stranger.lock_for_erase().unwrap(), &plan, &mut |_| {}).unwrap();
    assert!(!path.join("projections/words.db").exists());
    assert_eq!(find(dir.path(), SECRET), Vec::<std::path::PathBuf>::new());
    // The two erased records have empty bodies.
    assert_eq!(ask(&*store, &words), 52);
    assert_eq!(find(dir.path(), SECRET), Vec::<std::path::PathBuf>::new());
    assert!(verify(&path).is_valid());
}

#[test]
fn a_projection_with_a_damaged_or_read_only_database_still_answers() {
    let (store, dir) = fresh();
    let path = dir.path().join("store/projections");
    let mut session = Session::create(&store, Actor::person("ada"));
    for n in 0..20 {
        session.user(format!("word {n}")).unwrap();
    }
    block_on(session.publish()).unwrap();
    let words = Arc::new(Words::default());
    assert_eq!(ask(&*store, &words), 20);
    for damage in [&b"not a database at all, and longer than a header of one would be: for certain"[..], &[0; 5000]] {
        fs::write(path.join("words.db"), damage).unwrap();
        let _ = fs::remove_file(path.join("words.db-wal"));
        assert_eq!(ask(&*store, &words), 20);
    }
    // A file has the name of the directory.
    fs::remove_dir_all(&path).unwrap();
    fs::write(&path, "in the way").unwrap();
    assert_eq!(ask(&*store, &words), 20);
}
