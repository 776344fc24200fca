//! Several processes on one store.

use std::io::{BufRead as _, BufReader, Write as _};

use pollster::block_on;
use rath_core::store::{Query, Which};
use rath_core::{Actor, Session};
use rath_store::Embedded;

use crate::support::{child, child_dir, verify};

/// Holds a session and says so, until it is killed.
#[test]
fn holder() {
    let Some(dir) = child_dir() else { return };
    let store = Embedded::open(dir).unwrap();
    let mut session = Session::create(&store, Actor::program("holder"));
    block_on(session.publish()).unwrap();
    writeln!(std::io::stdout(), "\nholding {}", session.id()).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
fn a_session_held_elsewhere_says_by_whom_and_is_free_when_that_process_dies() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = Embedded::create(&path).unwrap();
    let mut holder = child("processes::holder", &path);
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let id = lines.find_map(|line| Some(line.unwrap().strip_prefix("holding ")?.parse().unwrap())).unwrap();

    let error = block_on(store.open(id, Actor::program("second"))).unwrap_err();
    assert_eq!(error.code(), "session-held");
    assert!(error.to_string().contains(&format!("process {}", holder.id())), "{error}");
    // Reading and forking need no lease.
    let view = block_on(rath_core::View::of(&store, id, None)).unwrap();
    let mut fork = view.fork(Actor::program("second"), "meanwhile").unwrap();
    block_on(fork.publish()).unwrap();
    let row = &block_on(store.sessions(Which::Id(id).into())).unwrap()[0];
    assert_eq!(row.holder.as_ref().unwrap().process, holder.id());

    holder.kill().unwrap();
    holder.wait().unwrap();
    let mut session = block_on(store.open(id, Actor::program("second"))).unwrap();
    session.note("mine now").unwrap();
    block_on(session.publish()).unwrap();
    assert!(verify(&path).is_sound());
}

/// Writes a hundred records into a session of its own.
#[test]
fn scribe() {
    let Some(dir) = child_dir() else { return };
    let store = Embedded::open(dir).unwrap();
    let mut session = Session::create(&store, Actor::program("scribe"));
    for n in 0..100 {
        session.note(format!("line {n}")).unwrap();
        block_on(session.publish()).unwrap();
    }
}

#[test]
fn four_processes_write_at_once_while_one_reads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = Embedded::create(&path).unwrap();
    let mut scribes: Vec<_> = (0..4).map(|_| child("processes::scribe", &path)).collect();
    while scribes.iter_mut().any(|scribe| scribe.try_wait().unwrap().is_none()) {
        for row in block_on(store.sessions(Query::default())).unwrap() {
            let own = block_on(async { rath_core::View::of(&store, row.id, None).await?.own().await }).unwrap();
            assert!(own.len() as u64 > row.seq);
        }
    }
    assert!(scribes.iter_mut().all(|scribe| scribe.wait().unwrap().success()));
    let rows = block_on(store.sessions(Query::default())).unwrap();
    assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>(), vec![100; 4]);
    assert!(rows.iter().all(|row| row.holder.is_none()));
    assert!(verify(&path).is_sound());
}
