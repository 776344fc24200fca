//! Several processes that use one store.

use std::io::{BufRead as _, BufReader, Write as _};

use pollster::block_on;
use rath_core::store::{Query, SessionFilter};
use rath_core::{Actor, Session};
use rath_store::Embedded;

use crate::support::{child, child_dir, verify};

/// Child process: leases a session and prints its id, until it is killed.
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
fn a_lease_names_its_process_and_ends_when_that_process_dies() {
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
    let mut fork = view.fork(Actor::program("second"), "concurrent").unwrap();
    block_on(fork.publish()).unwrap();
    let row = &block_on(store.sessions(SessionFilter::Id(id).into())).unwrap()[0];
    assert_eq!(row.holder.as_ref().unwrap().process, holder.id());

    holder.kill().unwrap();
    holder.wait().unwrap();
    let mut session = block_on(store.open(id, Actor::program("second"))).unwrap();
    session.note("mine now").unwrap();
    block_on(session.publish()).unwrap();
    assert!(verify(&path).is_valid());
}

/// Child process: leases a session, waits for the file `go`, then writes to the session and prints the errors.
#[test]
fn sleeper() {
    let Some(dir) = child_dir() else { return };
    let store = Embedded::open(&dir).unwrap();
    let mut session = Session::create(&store, Actor::program("sleeper"));
    block_on(session.publish()).unwrap();
    writeln!(std::io::stdout(), "\nholding {}", session.id()).unwrap();
    while !dir.join("go").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    session.note("as if nothing had happened").unwrap();
    let error = block_on(session.publish()).unwrap_err();
    let fork = block_on(session.fork("mine").publish());
    writeln!(std::io::stdout(), "\n{}: {error} / {}", error.code(), fork.unwrap_err().code()).unwrap();
    // Other sessions of the process can still be written.
    let mut other = Session::create(&store, Actor::program("sleeper"));
    other.note("on").unwrap();
    block_on(other.publish()).unwrap();
}

#[test]
fn a_process_cannot_write_after_its_lease_was_revoked() {
    use rustix::process::{Pid, Signal, kill_process};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    drop(Embedded::create(&path).unwrap());
    let mut sleeper = child("processes::sleeper", &path);
    let mut lines = BufReader::new(sleeper.stdout.take().unwrap()).lines();
    let id = lines.find_map(|line| Some(line.unwrap().strip_prefix("holding ")?.parse().unwrap())).unwrap();
    let signal = |signal| kill_process(Pid::from_child(&sleeper), signal).unwrap();
    signal(Signal::STOP);
    // The signal is delivered asynchronously.
    while !Embedded::is_stopped(sleeper.id()) {
        std::thread::yield_now();
    }

    // A stopped process keeps its lock file locked, so it counts as alive until its lease is revoked.
    let here = Embedded::open_as(&path, "test").unwrap();
    let store: std::sync::Arc<dyn rath_core::Store> = Embedded::open(&path).unwrap();
    assert_eq!(block_on(store.open(id, Actor::program("second"))).unwrap_err().code(), "session-held");
    assert_eq!(block_on(here.revoke_lease(id)).unwrap().unwrap().process, sleeper.id());
    assert_eq!(block_on(here.revoke_lease(id)).unwrap(), None);
    let mut session = block_on(store.open(id, Actor::program("second"))).unwrap();
    session.note("mine now").unwrap();
    block_on(session.publish()).unwrap();

    std::fs::write(path.join("go"), "").unwrap();
    signal(Signal::CONT);
    let said = lines.find_map(|line| line.ok().filter(|line| line.starts_with("lease-lost"))).unwrap();
    assert!(said.contains("another one took it over") && said.ends_with("/ lease-lost"), "{said}");
    assert!(sleeper.wait().unwrap().success());
    assert!(!Embedded::is_stopped(sleeper.id()));
    session.note("and still").unwrap();
    block_on(session.publish()).unwrap();
    let own = block_on(async { rath_core::View::of(&store, id, None).await?.own_records().await }).unwrap();
    assert_eq!(own.len(), 3);
    assert!(own.iter().all(|record| !String::from_utf8_lossy(record.body_bytes().unwrap()).contains("nothing had")));
    assert!(verify(&path).is_valid());
}

/// Child process: writes 100 records to its own session.
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
fn four_processes_write_concurrently_while_one_reads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = Embedded::create(&path).unwrap();
    let mut scribes: Vec<_> = (0..4).map(|_| child("processes::scribe", &path)).collect();
    while scribes.iter_mut().any(|scribe| scribe.try_wait().unwrap().is_none()) {
        for row in block_on(store.sessions(Query::default())).unwrap() {
            let own = block_on(async { rath_core::View::of(&store, row.id, None).await?.own_records().await }).unwrap();
            assert!(own.len() as u64 > row.seq);
        }
    }
    assert!(scribes.iter_mut().all(|scribe| scribe.wait().unwrap().success()));
    let rows = block_on(store.sessions(Query::default())).unwrap();
    assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>(), vec![100; 4]);
    assert!(rows.iter().all(|row| row.holder.is_none()));
    assert!(verify(&path).is_valid());
}
