//! Full, failing and read-only disks, and clocks that go back: the error must be clear, and nothing acknowledged may be
//! lost.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use pollster::block_on;
use rath_core::store::{Lookup, SessionFilter};
use rath_core::{Actor, Blob, ErrorKind, Reference, Session, Store, View};
use rath_store::Embedded;
use rath_testkit::faults::{self, Faults};
use rath_testkit::power::SeededRng;

use crate::support::{child_dir, verify};

const ENOSPC: i32 = 28;
const EIO: i32 = 5;

fn noise(chance: &mut SeededRng, length: u64) -> Blob {
    let bytes: Vec<u8> = (0..length).map(|_| chance.next_number() as u8).collect();
    Blob::new(bytes, "application/octet-stream")
}

/// The error code, without wrapping errors.
fn code(error: &rath_core::Error) -> &str {
    match error.kind() {
        ErrorKind::Store(error) => error.code(),
        _ => error.code(),
    }
}

/// Runs a test of this binary as a child process whose file operations below `root` fail according to `rules`.
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

/// Writes to a store. Returns the acknowledged records and the errors.
fn write_with_faults(store: &Arc<dyn Store>, chance: &mut SeededRng) -> (Vec<Reference>, Vec<rath_core::Error>) {
    let (mut acknowledged, mut failures) = (Vec::new(), Vec::new());
    let mut session = Session::create(store, Actor::program("victim"));
    for turn in 0..6 {
        // Every second blob is inline.
        let length = if turn % 2 == 0 { 9_000 } else { 1_000 } + chance.below(7_000);
        session.user_with(format!("turn {turn}"), [("a.bin", noise(chance, length))]).unwrap();
        // The first attempt may fail. The second one must not store the records twice.
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

/// Child process: makes each kind of call fail once, after 0 to 9 successful calls.
#[test]
fn victim() {
    let Some(root) = child_dir() else { return };
    let mut chance = SeededRng::new(7);
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
        let mut failed = 0;
        for after in 0..10 {
            let path = root.join(format!("store-{call}-{name}-{errno}-{after}"));
            let store = Embedded::create(&path).unwrap();
            faults::change(&root, &format!("{call} {name} {errno} after {after} times 1"));
            let (acknowledged, failures) = write_with_faults(&store, &mut chance);
            faults::change(&root, "");
            drop(store);
            failed += failures.len();
            let expected = if errno == ENOSPC { "disk-full" } else { "disk-failed" };
            for error in &failures {
                assert_eq!(code(error), expected, "{call} {name} {after}: {error}");
            }
            // At most one failure; the second attempt succeeds.
            assert!(failures.len() <= 1 && acknowledged.len() == 6, "{call} {name} {after}: {failures:?}");
            assert_stored(&path, &acknowledged);
        }
        // The database file is synced only by checkpoints, and no commit waits for them.
        assert!(failed > 0 || name == "rath.db", "{call} {name} {errno} never failed");
    }
    creation(&root);
    reading(&root, &mut chance);
}

/// Checks that the store is valid and has every acknowledged record once.
fn assert_stored(path: &Path, acknowledged: &[Reference]) {
    let report = verify(path);
    assert!(report.is_valid(), "{}: {:?}", path.display(), report.findings);
    let store = Embedded::open(path).unwrap();
    for reference in acknowledged {
        let found = block_on(store.get(Lookup::At(reference.point()))).unwrap();
        assert_eq!(found[0].id(), reference.id);
    }
    if let Some(last) = acknowledged.last() {
        assert_eq!(block_on(View::of(&store, last.session, None)).unwrap().record().seq(), last.seq);
    }
}

/// A store that cannot be created completely does not exist, and can be created later.
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
                    assert!(!Embedded::exists(&path), "{call} {name} {after}: an incomplete store");
                    assert!(
                        fs::read_dir(&path).into_iter().flatten().next().is_none(),
                        "{call} {name} {after}: leftover files"
                    );
                    drop(Embedded::create(&path).unwrap());
                }
            }
            assert!(verify(&path).is_valid());
        }
    }
}

/// A failing read is an error, and does not look like missing data.
fn reading(root: &Path, chance: &mut SeededRng) {
    let path = root.join("unread");
    let store = Embedded::create(&path).unwrap();
    let (acknowledged, _) = write_with_faults(&store, chance);
    drop(store);
    // SQLite reports a page that cannot be read as damaged.
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
                answer.expect_err("the read succeeded").code()
            }
        };
        assert_eq!(said, expected, "{name}");
        faults::change(root, "");
        assert_stored(&path, &acknowledged);
    }
}

#[test]
fn a_failing_call_is_an_error_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    passes(&failing("faults::victim", dir.path(), ""));
}

/// Child process: writes while the clock is shifted back and forward.
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
        let mut branch = session.fork("branch");
        branch.note("on a branch").unwrap();
        block_on(session.publish()).unwrap();
        session = block_on(session.merge([branch], rath_core::How::Append)).unwrap();
        block_on(session.publish()).unwrap();
        let mut other = Session::create(&store, Actor::program("wanderer"));
        other.note("of its own").unwrap();
        block_on(other.publish()).unwrap();
        last = session.head();
        times.push(block_on(View::of(&store, session.id(), None)).unwrap().record().time().unwrap());
        // The holder is still recognized as alive.
        let rows = block_on(store.sessions(SessionFilter::Id(session.id()).into())).unwrap();
        assert_eq!(rows[0].holder.as_ref().unwrap().process, std::process::id());
    }
    assert!(times.is_sorted() && times[2] == times[3], "{times:?}");
    let id = session.id();
    drop((session, store));
    assert_stored(&path, &[last]);
    let store = Embedded::open(&path).unwrap();
    let mut session = block_on(store.open(id, Actor::program("wanderer"))).unwrap();
    session.note("back home").unwrap();
    block_on(session.publish()).unwrap();
    assert_eq!(block_on(store.sessions(SessionFilter::All.into())).unwrap().len(), 1 + 5 + 5);
}

#[test]
fn a_clock_that_goes_back_does_not_reorder_records() {
    let dir = tempfile::tempdir().unwrap();
    passes(&failing("faults::wanderer", dir.path(), ""));
}

/// Runs a test of this binary in a mount namespace after the command `mount`. Returns `None` and reports a skipped test
/// if mounting is not permitted.
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

/// Child process: fills a small disk, and continues when there is space again.
#[test]
fn filler() {
    let Some(dir) = child_dir() else { return };
    let path = dir.join("store");
    let ballast = dir.join("ballast");
    fs::write(&ballast, vec![1; 500_000]).unwrap();
    let store = Embedded::create(&path).unwrap();
    let mut chance = SeededRng::new(3);
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
    // A full store can be read, and further writes fail.
    assert_stored(&path, &acknowledged);
    assert_eq!(code(&block_on(session.publish()).unwrap_err()), "disk-full");
    let (id, before) = (session.id(), acknowledged.len());
    fs::remove_file(ballast).unwrap();
    block_on(session.publish()).unwrap();
    acknowledged.push(session.head());
    drop((session, store));
    assert_stored(&path, &acknowledged);
    let store = Embedded::open(&path).unwrap();
    let mut session = block_on(store.open(id, Actor::program("filler"))).unwrap();
    session.note("room again").unwrap();
    block_on(session.publish()).unwrap();
    let _ = writeln!(std::io::stdout(), "\nfull after {before}: {error}");
}

#[test]
fn a_full_disk_is_an_error_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let Some(output) = mounted("mount -t tmpfs -o size=3m tmpfs \"$0\"", "faults::filler", dir.path()) else { return };
    let said = passes(&output);
    assert!(said.contains("full after"), "{said}");
}

/// Child process: reads a store in a read-only directory.
#[test]
fn reader() {
    let Some(dir) = child_dir() else { return };
    let path = dir.join("store");
    let store = Embedded::open(&path).unwrap();
    let row = block_on(store.sessions(SessionFilter::All.into())).unwrap().remove(0);
    assert_eq!(block_on(View::of(&store, row.id, None)).unwrap().record().seq(), row.seq);
    assert!(verify(&path).is_valid());
    let error = block_on(store.open(row.id, Actor::program("reader"))).unwrap_err();
    assert_eq!(code(&error), "read-only-store", "{error}");
    // A store with a WAL cannot be opened, and the error names the log.
    let error = Embedded::open(dir.join("killed")).unwrap_err();
    assert_eq!(error.code(), "read-only-store", "{error}");
    assert!(error.to_string().contains("log"), "{error}");
    let error = Embedded::create(dir.join("new")).unwrap_err();
    assert_eq!(error.code(), "read-only-store", "{error}");
}

#[test]
fn a_store_in_a_read_only_directory_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::create(dir.path().join("store")).unwrap();
    let mut session = Session::create(&store, Actor::program("writer"));
    session.note("before").unwrap();
    block_on(session.publish()).unwrap();
    // Like a store whose process was killed.
    rath_testkit::copy_dir(&dir.path().join("store"), &dir.path().join("killed"));
    fs::remove_file(dir.path().join("killed/rath.db-shm")).unwrap();
    drop((session, store));
    let mount = "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\"";
    let Some(output) = mounted(mount, "faults::reader", dir.path()) else { return };
    passes(&output);
}

/// Child process: releases a lease while the disk is full, and leases the session again.
#[test]
fn releaser() {
    let Some(root) = child_dir() else { return };
    let store = Embedded::create(root.join("store")).unwrap();
    let mut session = Session::create(&store, Actor::program("victim"));
    session.note("first").unwrap();
    block_on(session.publish()).unwrap();
    let id = session.id();
    faults::change(&root, &format!("write rath.db-wal {ENOSPC} times 1"));
    drop(session);
    let opened = (0..5).any(|_| block_on(store.open(id, Actor::program("victim"))).is_ok());
    assert!(opened, "the lease was not released");
}

#[test]
fn a_failed_release_is_repeated_later() {
    let root = tempfile::tempdir().unwrap();
    passes(&failing("faults::releaser", root.path(), ""));
}
