//! Disks that are full, fail or take nothing, and clocks that go back: an error says so, and nothing acknowledged is lost.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use pollster::block_on;
use rath_core::store::{Lookup, Which};
use rath_core::{Actor, Blob, ErrorKind, Reference, Session, Store, View};
use rath_store::Embedded;
use rath_testkit::faults::{self, Faults};
use rath_testkit::power::Chance;

use crate::support::{child_dir, verify};

const ENOSPC: i32 = 28;
const EIO: i32 = 5;

fn noise(chance: &mut Chance, length: u64) -> Blob {
    let bytes: Vec<u8> = (0..length).map(|_| chance.next_number() as u8).collect();
    Blob::new(bytes, "application/octet-stream")
}

/// The code of a failure, whatever wraps it.
fn code(error: &rath_core::Error) -> &str {
    match error.kind() {
        ErrorKind::Store(error) => error.code(),
        _ => error.code(),
    }
}

/// A test of this binary as a child; below `root` its files fail.
fn failing(test: &str, root: &Path, rules: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env("RATH_TEST_CHILD", root.canonicalize().unwrap());
    Faults::new(rules).load(&mut command, root).output().unwrap()
}

fn passes(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Works on a store and meets failures: what was acknowledged, and what was said.
fn toil(store: &Arc<dyn Store>, chance: &mut Chance) -> (Vec<Reference>, Vec<rath_core::Error>) {
    let (mut acknowledged, mut failures) = (Vec::new(), Vec::new());
    let mut session = Session::create(store, Actor::program("victim"));
    for turn in 0..6 {
        // Every other one rides in the database.
        let length = if turn % 2 == 0 { 9_000 } else { 1_000 } + chance.below(7_000);
        session.user_with(format!("turn {turn}"), [("a.bin", noise(chance, length))]).unwrap();
        // The first try may fail; what is tried again may not be there twice.
        for _ in 0..2 {
            match block_on(session.publish()) {
                Ok(()) => {
                    acknowledged.push(session.head());
                    break;
                }
                Err(error) => failures.push(error),
            }
        }
    }
    (acknowledged, failures)
}

/// Lets each kind of call fail once, at every place in turn.
#[test]
fn victim() {
    let Some(root) = child_dir() else { return };
    let mut chance = Chance::new(7);
    for (call, name, errno) in [
        ("write", "rath.db-wal", ENOSPC),
        ("write", "rath.db-wal", EIO),
        ("write", "rath.db", ENOSPC),
        ("write", ".pack", ENOSPC),
        ("write", ".pack", EIO),
        ("sync", "rath.db-wal", EIO),
        ("sync", "rath.db", EIO),
        ("sync", ".pack", EIO),
        ("sync", "packs", EIO),
        ("entry", ".pack", ENOSPC),
        ("entry", ".lock", ENOSPC),
        ("write", ".new", ENOSPC),
    ] {
        let mut met = 0;
        for after in 0..10 {
            let path = root.join(format!("store-{call}-{name}-{errno}-{after}"));
            let store = Embedded::create(&path).unwrap();
            faults::change(&root, &format!("{call} {name} {errno} after {after} times 1"));
            let (acknowledged, failures) = toil(&store, &mut chance);
            faults::change(&root, "");
            drop(store);
            met += failures.len();
            let expected = if errno == ENOSPC { "disk-full" } else { "disk-failed" };
            for error in &failures {
                assert_eq!(code(error), expected, "{call} {name} {after}: {error}");
            }
            // One failure, and the second try gets through.
            assert!(failures.len() <= 1 && acknowledged.len() == 6, "{call} {name} {after}: {failures:?}");
            holds(&path, &acknowledged);
        }
        // A sync of the database is the log's business: nobody waits for it.
        assert!(met > 0 || name == "rath.db", "{call} {name} {errno} never failed");
    }
    creation(&root);
    reading(&root, &mut chance);
}

/// Everything acknowledged is there, once, and the store is sound.
fn holds(path: &Path, acknowledged: &[Reference]) {
    let report = verify(path);
    assert!(report.is_sound(), "{}: {:?}", path.display(), report.findings);
    let store = Embedded::open(path).unwrap();
    for reference in acknowledged {
        let found = block_on(store.get(Lookup::At(reference.point()))).unwrap();
        assert_eq!(found[0].id(), reference.id);
    }
    if let Some(last) = acknowledged.last() {
        assert_eq!(block_on(View::of(&store, last.session, None)).unwrap().record().seq(), last.seq);
    }
}

/// A store that cannot be made whole is not there, and can be made later.
fn creation(root: &Path) {
    for (call, name) in [("write", ".new"), ("write", ".new-wal"), ("entry", "rath.db"), ("sync", ".new")] {
        for after in 0..6 {
            let path = root.join(format!("new-{call}-{name}-{after}"));
            faults::change(root, &format!("{call} {name} {ENOSPC} after {after} times 1"));
            let made = Embedded::create(&path);
            faults::change(root, "");
            match made {
                Ok(store) => drop(store),
                Err(_) => {
                    assert!(!Embedded::exists(&path), "{call} {name} {after}: a half store");
                    assert!(
                        fs::read_dir(&path).into_iter().flatten().next().is_none(),
                        "{call} {name} {after}: litter"
                    );
                    drop(Embedded::create(&path).unwrap());
                }
            }
            assert!(verify(&path).is_sound());
        }
    }
}

/// A disk that does not read says so; nothing is taken for missing.
fn reading(root: &Path, chance: &mut Chance) {
    let path = root.join("unread");
    let store = Embedded::create(&path).unwrap();
    let (acknowledged, _) = toil(&store, chance);
    drop(store);
    // SQLite takes a page that cannot be read for a damaged one.
    for (name, expected) in [("rath.db", "store-damaged"), (".pack", "disk-failed")] {
        faults::change(root, &format!("read {name} {EIO} after 1"));
        let said = match Embedded::open(&path) {
            Err(error) => error.code(),
            Ok(store) => {
                let answer = block_on(async {
                    let record = store.get(Lookup::At(acknowledged[0].point())).await?.remove(0);
                    for digest in rath_core::blob_references(record.body_bytes().unwrap_or_default()) {
                        store.blob_get(digest.digest).await?;
                        store.blob_get(digest.digest).await?;
                    }
                    Ok::<_, rath_core::store::Error>(())
                });
                answer.expect_err("it could be read").code()
            }
        };
        assert_eq!(said, expected, "{name}");
        faults::change(root, "");
        holds(&path, &acknowledged);
    }
}

#[test]
fn a_call_that_fails_is_told_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    passes(&failing("faults::victim", dir.path(), ""));
}

/// Writes before and after the clock went back by a day, and a year ahead.
#[test]
fn wanderer() {
    let Some(root) = child_dir() else { return };
    let path = root.join("store");
    let store = Embedded::create(&path).unwrap();
    let mut session = Session::create(&store, Actor::program("wanderer"));
    let mut last = session.head();
    let mut times = Vec::new();
    for shift in [0i64, -86_400, 86_400 * 365, -86_400 * 365, 0] {
        faults::change(&root, &format!("clock {shift}"));
        session.note(format!("the clock is off by {shift} s")).unwrap();
        let mut branch = session.fork("meanwhile");
        branch.note("on a branch").unwrap();
        block_on(session.publish()).unwrap();
        session = block_on(session.merge([branch], rath_core::How::Append)).unwrap();
        block_on(session.publish()).unwrap();
        let mut other = Session::create(&store, Actor::program("wanderer"));
        other.note("of its own").unwrap();
        block_on(other.publish()).unwrap();
        last = session.head();
        times.push(block_on(View::of(&store, session.id(), None)).unwrap().record().time().unwrap());
        // Somebody who comes later finds the living, and only those.
        let rows = block_on(store.sessions(Which::Id(session.id()).into())).unwrap();
        assert_eq!(rows[0].holder.as_ref().unwrap().process, std::process::id());
    }
    assert!(times.is_sorted() && times[2] == times[3], "{times:?}");
    let id = session.id();
    drop((session, store));
    holds(&path, &[last]);
    let store = Embedded::open(&path).unwrap();
    let mut session = block_on(store.open(id, Actor::program("wanderer"))).unwrap();
    session.note("back home").unwrap();
    block_on(session.publish()).unwrap();
    assert_eq!(block_on(store.sessions(Which::All.into())).unwrap().len(), 1 + 5 + 5);
}

#[test]
fn a_clock_that_goes_back_puts_nothing_out_of_order() {
    let dir = tempfile::tempdir().unwrap();
    passes(&failing("faults::wanderer", dir.path(), ""));
}

/// Runs a test of this binary where `mount` has mounted something; `None`, said aloud, where that is not allowed.
fn mounted(mount: &str, test: &str, dir: &Path) -> Option<Output> {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
    let line = format!("({mount}) || exit 77; exec \"$1\" --exact {test} --nocapture --test-threads=1");
    command.arg(line).arg(dir).arg(std::env::current_exe().unwrap()).env("RATH_TEST_CHILD", dir);
    match command.output() {
        Ok(output) if output.status.code() != Some(77) && !is_refused(&output) => Some(output),
        other => {
            rath_testkit::Requirement::Mounts.skip(format_args!("nothing can be mounted: {other:?}"));
            None
        }
    }
}

fn is_refused(output: &Output) -> bool {
    String::from_utf8_lossy(&output.stderr).contains("unshare:")
}

/// Fills a small disk, and goes on when there is room again.
#[test]
fn filler() {
    let Some(dir) = child_dir() else { return };
    let path = dir.join("store");
    let ballast = dir.join("ballast");
    fs::write(&ballast, vec![1; 500_000]).unwrap();
    let store = Embedded::create(&path).unwrap();
    let mut chance = Chance::new(3);
    let mut acknowledged = Vec::new();
    let mut session = Session::create(&store, Actor::program("filler"));
    let error = loop {
        session.user_with("more", [("a.bin", noise(&mut chance, 20_000))]).unwrap();
        match block_on(session.publish()) {
            Ok(()) => acknowledged.push(session.head()),
            Err(error) => break error,
        }
        assert!(acknowledged.len() < 1000, "the disk does not fill");
    };
    assert_eq!(code(&error), "disk-full", "{error}");
    // Full it is read, and refuses again.
    holds(&path, &acknowledged);
    assert_eq!(code(&block_on(session.publish()).unwrap_err()), "disk-full");
    let (id, before) = (session.id(), acknowledged.len());
    fs::remove_file(ballast).unwrap();
    block_on(session.publish()).unwrap();
    acknowledged.push(session.head());
    drop((session, store));
    holds(&path, &acknowledged);
    let store = Embedded::open(&path).unwrap();
    let mut session = block_on(store.open(id, Actor::program("filler"))).unwrap();
    session.note("room again").unwrap();
    block_on(session.publish()).unwrap();
    let _ = writeln!(std::io::stdout(), "\nfull after {before}: {error}");
}

#[test]
fn a_full_disk_is_told_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let Some(output) = mounted("mount -t tmpfs -o size=3m tmpfs \"$0\"", "faults::filler", dir.path()) else { return };
    let said = passes(&output);
    assert!(said.contains("full after"), "{said}");
}

/// Reads a store where nothing may be written.
#[test]
fn reader() {
    let Some(dir) = child_dir() else { return };
    let path = dir.join("store");
    let store = Embedded::open(&path).unwrap();
    let row = block_on(store.sessions(Which::All.into())).unwrap().remove(0);
    assert_eq!(block_on(View::of(&store, row.id, None)).unwrap().record().seq(), row.seq);
    assert!(verify(&path).is_sound());
    let error = block_on(store.open(row.id, Actor::program("reader"))).unwrap_err();
    assert_eq!(code(&error), "read-only-store", "{error}");
    // One whose log is still to be moved says why it is not opened.
    let error = Embedded::open(dir.join("killed")).unwrap_err();
    assert_eq!(error.code(), "read-only-store", "{error}");
    assert!(error.to_string().contains("log"), "{error}");
    let error = Embedded::create(dir.join("new")).unwrap_err();
    assert_eq!(error.code(), "read-only-store", "{error}");
}

#[test]
fn a_directory_that_takes_nothing_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::create(dir.path().join("store")).unwrap();
    let mut session = Session::create(&store, Actor::program("writer"));
    session.note("before").unwrap();
    block_on(session.publish()).unwrap();
    // As a process leaves it that is killed.
    rath_testkit::copy_dir(&dir.path().join("store"), &dir.path().join("killed"));
    fs::remove_file(dir.path().join("killed/rath.db-shm")).unwrap();
    drop((session, store));
    let mount = "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\"";
    let Some(output) = mounted(mount, "faults::reader", dir.path()) else { return };
    passes(&output);
}

/// Gives a session back while the disk takes nothing, and wants it again.
#[test]
fn comer_back() {
    let Some(root) = child_dir() else { return };
    let store = Embedded::create(root.join("store")).unwrap();
    let mut session = Session::create(&store, Actor::program("victim"));
    session.note("first").unwrap();
    block_on(session.publish()).unwrap();
    let id = session.id();
    faults::change(&root, &format!("write rath.db-wal {ENOSPC} times 1"));
    drop(session);
    let opened = (0..5).any(|_| block_on(store.open(id, Actor::program("victim"))).is_ok());
    assert!(opened, "it keeps what it gave back");
}

#[test]
fn what_could_not_be_given_back_is_given_back_later() {
    let root = tempfile::tempdir().unwrap();
    passes(&failing("faults::comer_back", root.path(), ""));
}
