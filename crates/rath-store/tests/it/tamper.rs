//! Tampering with a store, and the findings of `verify`.

use std::fs;
use std::path::{Path, PathBuf};

use pollster::block_on;
use rath_core::FOLD;
use rath_core::verify::FindingKind;
use rath_core::{RecordId, SessionId, View};
use rath_store::Embedded;
use rath_testkit::copy_dir;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::support::{fresh, noise, sample_sessions, verify};

/// A store with the sample sessions, and copies of it to tamper with.
struct Lab {
    dir: TempDir,
    ids: Vec<SessionId>,
}

impl Lab {
    fn new() -> Self {
        let (store, dir) = fresh();
        let ids = sample_sessions(&store);
        // The index of ids is verified too, so it must be filled.
        block_on(store.get(rath_core::store::Lookup::Prefix("0000".into()))).unwrap();
        drop(store);
        let lab = Self { dir, ids };
        Embedded::open_as(lab.original(), "test").unwrap().checkpoint().unwrap();
        assert!(verify(&lab.original()).is_valid());
        lab
    }

    fn original(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn copy(&self) -> PathBuf {
        let copy = tempfile::tempdir_in(self.dir.path()).unwrap().keep();
        copy_dir(&self.original(), &copy);
        copy
    }

    /// Changes a copy with SQL and returns the kind, session and seq of the first finding.
    fn tamper(&self, statements: &str) -> (FindingKind, Option<SessionId>, Option<u64>) {
        let copy = self.copy();
        Connection::open(copy.join("rath.db"))
            .unwrap()
            .execute_batch(statements)
            .unwrap_or_else(|e| panic!("{statements}: {e}"));
        first(&copy)
    }

    fn no(&self, session: usize) -> i64 {
        let db = Connection::open(self.original().join("rath.db")).unwrap();
        db.query_row("SELECT no FROM sessions WHERE id = ?1", [self.ids[session].0.as_bytes()], |row| row.get(0))
            .unwrap()
    }
}

fn first(path: &Path) -> (FindingKind, Option<SessionId>, Option<u64>) {
    let report = verify(path);
    let finding = report.findings.first().unwrap_or_else(|| panic!("there is no finding"));
    (finding.what, finding.session, finding.seq)
}

/// Replaces bytes in the database file.
fn replace(lab: &Lab, from: &[u8], to: &[u8]) -> (FindingKind, Option<SessionId>, Option<u64>) {
    assert_eq!(from.len(), to.len());
    let copy = lab.copy();
    let mut bytes = fs::read(copy.join("rath.db")).unwrap();
    let hits: Vec<usize> = (0..bytes.len() - from.len()).filter(|at| &bytes[*at..*at + from.len()] == from).collect();
    assert_eq!(hits.len(), 1, "{:?}", String::from_utf8_lossy(from));
    bytes[hits[0]..hits[0] + to.len()].copy_from_slice(to);
    fs::write(copy.join("rath.db"), bytes).unwrap();
    first(&copy)
}

#[test]
fn an_altered_body_is_reported() {
    let lab = Lab::new();
    assert_eq!(
        replace(&lab, b"Nothing, probably.", b"Nothing, Probably."),
        (FindingKind::AlteredBody, Some(lab.ids[2]), Some(1))
    );
}

#[test]
fn altered_headers_are_reported() {
    let lab = Lab::new();
    let store = Embedded::open(lab.original()).unwrap();
    for (session, seq) in [(0, 3), (0, 200), (1, 2), (3, 1), (2, 2)] {
        let session = lab.ids[session];
        let view = block_on(View::of(&store, session, Some(seq))).unwrap();
        let header = view.record().header_bytes().to_vec();
        let text = String::from_utf8(header.clone()).unwrap();
        let at = text.find("\"time\":").unwrap() + "\"time\":".len() + 15;
        let mut altered = header.clone();
        // A later time, so that the header is still well formed and in order.
        altered[at] = if altered[at] == b'9' { b'8' } else { altered[at] + 1 };
        let (what, whose, which) = replace(&lab, &header, &altered);
        assert!([FindingKind::AlteredRecord, FindingKind::Malformed].contains(&what), "{what:?}");
        assert_eq!((whose, which), (Some(session), Some(seq)));
    }
}

#[test]
fn dropped_reordered_foreign_and_duplicate_records_are_reported() {
    let lab = Lab::new();
    let (root, reader) = (lab.no(0), lab.no(1));
    let place = |no: i64, nth: usize| {
        let db = Connection::open(lab.original().join("rath.db")).unwrap();
        let query = format!(
            "SELECT cursor, first_seq FROM segments WHERE session = {no} ORDER BY first_seq LIMIT 1 OFFSET {nth}"
        );
        db.query_row(&query, [], |row| Ok((row.get::<_, i64>(0).unwrap(), row.get::<_, i64>(1).unwrap() as u64)))
            .unwrap()
    };
    let (cursor, seq) = place(root, 2);
    assert_eq!(
        lab.tamper(&format!("DELETE FROM segments WHERE cursor = {cursor}")),
        (FindingKind::Dropped, Some(lab.ids[0]), Some(seq))
    );

    let (last, seq) = place(reader, 1);
    assert_eq!(
        lab.tamper(&format!("DELETE FROM segments WHERE cursor = {last}")),
        (FindingKind::Dropped, Some(lab.ids[1]), Some(seq))
    );

    let ((a, seq_a), (b, _)) = (place(root, 3), place(root, 4));
    let swap = format!(
        "CREATE TEMP TABLE t AS SELECT data FROM segments WHERE cursor = {a};
         UPDATE segments SET data = (SELECT data FROM segments WHERE cursor = {b}) WHERE cursor = {a};
         UPDATE segments SET data = (SELECT data FROM t) WHERE cursor = {b};"
    );
    assert_eq!(lab.tamper(&swap), (FindingKind::Reordered, Some(lab.ids[0]), Some(seq_a)));

    let (theirs, _) = place(reader, 0);
    let foreign = format!(
        "UPDATE segments SET data = (SELECT data FROM segments WHERE cursor = {theirs}), count = (SELECT count FROM segments WHERE cursor = {theirs}) WHERE cursor = {a}"
    );
    assert_eq!(lab.tamper(&foreign), (FindingKind::Foreign, Some(lab.ids[0]), Some(seq_a)));

    let double = format!(
        "DROP INDEX segments_place; CREATE INDEX segments_place ON segments (session, first_seq);
         INSERT INTO segments (session, first_seq, count, generation, kinds, data)
            SELECT session, first_seq, count, generation, kinds, data FROM segments WHERE cursor = {a}"
    );
    assert_eq!(lab.tamper(&double), (FindingKind::Duplicate, Some(lab.ids[0]), Some(seq_a)));

    let stray = "INSERT INTO segments (session, first_seq, count, generation, kinds, data)
        SELECT 999, first_seq, count, generation, kinds, data FROM segments LIMIT 1";
    assert_eq!(lab.tamper(stray).0, FindingKind::Index);
}

#[test]
fn a_missing_parent_is_reported() {
    let lab = Lab::new();
    let reader = lab.no(1);
    let gone = format!(
        "DELETE FROM segments WHERE session = {reader}; DELETE FROM snapshots WHERE session = {reader}; DELETE FROM sessions WHERE no = {reader}"
    );
    let copy = lab.copy();
    Connection::open(copy.join("rath.db")).unwrap().execute_batch(&gone).unwrap();
    let report = verify(&copy);
    let broken = report.findings.iter().find(|finding| finding.what == FindingKind::BrokenParent).unwrap();
    assert_eq!(broken.session, Some(lab.ids[0]));
    // Verifying only the child reports it too.
    let alone = Embedded::open_as(&copy, "test").unwrap().verify(Some(lab.ids[0]), &mut |_, _| {}).unwrap();
    assert!(alone.findings.iter().any(|finding| finding.what == FindingKind::BrokenParent));
}

#[test]
fn missing_and_altered_blobs_are_reported() {
    let lab = Lab::new();
    let (what, whose, which) = lab.tamper("DELETE FROM blobs");
    assert_eq!((what, whose, which), (FindingKind::BlobMissing, Some(lab.ids[1]), Some(3)));
    let copy = lab.copy();
    let pack = fs::read_dir(copy.join("packs")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&pack).unwrap();
    let end = bytes.len() - 5;
    bytes[end] ^= 1;
    bytes[80] ^= 1;
    fs::write(&pack, &bytes).unwrap();
    assert_eq!(first(&copy).0, FindingKind::BlobAltered);
    fs::write(&pack, &bytes[..40]).unwrap();
    assert_eq!(first(&copy).0, FindingKind::BlobAltered);
    fs::remove_file(&pack).unwrap();
    assert_eq!(first(&copy).0, FindingKind::BlobMissing);
}

#[test]
fn every_index_column_that_contradicts_its_record_is_reported() {
    let lab = Lab::new();
    let (root, reader, guesser) = (lab.no(0), lab.no(1), lab.no(2));
    let zeros = "zeroblob(32)";
    for (column, value) in [
        ("head", zeros),
        ("seq", "seq - 1"),
        ("seq", "seq + 1"),
        ("time", "time + 1"),
        ("generation", "generation + 1"),
        ("birth", "0"),
        ("born", "born + 1"),
        ("born_generation", "born_generation + 1"),
        ("origin_session", "id"),
        ("origin_seq", "origin_seq + 1"),
        ("origin_id", zeros),
        ("origin_session", "NULL"),
        ("closed", "0"),
        ("title", "'forged'"),
        ("labels", "'{\"a\":\"b\"}'"),
    ] {
        let (what, whose, _) = lab.tamper(&format!("UPDATE sessions SET {column} = {value} WHERE no = {reader}"));
        assert!(
            [FindingKind::Index, FindingKind::AlteredRecord, FindingKind::Dropped].contains(&what),
            "{column}: {what:?}"
        );
        assert_eq!(whose, Some(lab.ids[1]), "{column}");
    }
    for (column, value) in [
        ("count", "count + 1"),
        ("generation", "generation + 7"),
        ("kinds", "kinds | 4"),
        ("first_seq", "first_seq + 1000"),
    ] {
        let change = format!(
            "UPDATE segments SET {column} = {value} WHERE session = {guesser} AND first_seq = (SELECT max(first_seq) FROM segments WHERE session = {guesser})"
        );
        assert_eq!(lab.tamper(&change).1, Some(lab.ids[2]), "{column}");
    }
    for change in [
        "UPDATE ids SET prefix = prefix + 1 WHERE prefix = (SELECT max(prefix) FROM ids)",
        "DELETE FROM ids WHERE prefix = (SELECT min(prefix) FROM ids)",
    ] {
        assert_eq!(lab.tamper(change).0, FindingKind::Index, "{change}");
    }
    let snapshot = format!(
        r#"UPDATE snapshots SET state = CAST('{{"fold":{FOLD},"title":"forged"}}' AS BLOB) WHERE session = {root} AND seq = 256"#
    );
    assert_eq!(lab.tamper(&snapshot), (FindingKind::Index, Some(lab.ids[0]), Some(256)));
}

#[test]
fn an_index_of_runs_that_contradicts_the_records_is_reported() {
    let lab = Lab::new();
    let store = Embedded::open(lab.original()).unwrap();
    let session = crate::support::run_with_inbox(&store);
    drop(store);
    Embedded::open_as(lab.original(), "test").unwrap().checkpoint().unwrap();
    assert!(verify(&lab.original()).is_valid());
    let other = hex(lab.ids[0]);
    for (change, whose, which) in [
        ("DELETE FROM runs".into(), session, Some(0)),
        ("UPDATE runs SET key = 'forged'".into(), session, Some(0)),
        (format!("INSERT INTO runs VALUES ('forged', {other})"), lab.ids[0], Some(0)),
        (format!("INSERT INTO runs VALUES ('forged', {})", hex(session)), session, Some(0)),
        ("INSERT INTO runs VALUES ('forged', zeroblob(16))".into(), SessionId(Default::default()), None),
    ] {
        assert_eq!(lab.tamper(&change), (FindingKind::Index, Some(whose), which), "{change}");
    }
    // Verifying only the session reports it too.
    let copy = lab.copy();
    Connection::open(copy.join("rath.db")).unwrap().execute_batch("DELETE FROM runs").unwrap();
    let alone = Embedded::open_as(&copy, "test").unwrap().verify(Some(session), &mut |_, _| {}).unwrap();
    assert_eq!(alone.findings.len(), 1);
    assert!(alone.findings[0].why.contains("nightly"), "{}", alone.findings[0].why);
    // An erased first record cannot be compared with the index.
    let copy = lab.copy();
    let store = Embedded::open(&copy).unwrap();
    let first = block_on(View::of(&store, session, Some(0))).unwrap().record().reference();
    block_on(store.erase(vec![first])).unwrap();
    drop(store);
    assert!(verify(&copy).is_valid());
}

fn hex(session: SessionId) -> String {
    format!("x'{}'", session.to_string().replace('-', ""))
}

#[test]
fn an_erased_body_is_not_a_finding() {
    let lab = Lab::new();
    let copy = lab.copy();
    let store = Embedded::open(&copy).unwrap();
    let record = block_on(View::of(&store, lab.ids[2], Some(1))).unwrap().record().reference();
    block_on(store.erase(vec![record])).unwrap();
    drop(store);
    let report = verify(&copy);
    assert!(report.is_valid(), "{:?}", report.findings);
    assert_eq!(report.erased, 1);
    // The text is no longer in the database file.
    Embedded::open_as(&copy, "test").unwrap().checkpoint().unwrap();
    let bytes = fs::read(copy.join("rath.db")).unwrap();
    assert!(!bytes.windows(18).any(|window| window == b"Nothing, probably."));
}

pub(crate) fn all_ids(path: &Path) -> Option<Vec<RecordId>> {
    let store = Embedded::open(path).ok()?;
    let (mut ids, mut scan) = (Vec::new(), rath_core::store::Scan::all());
    loop {
        let page = block_on(store.scan(scan)).ok()?;
        ids.extend(page.records.iter().map(rath_core::Record::id));
        if !page.more {
            return Some(ids);
        }
        scan = rath_core::store::Scan::store(page.cursor);
    }
}

#[test]
fn flipped_bytes_of_the_database_are_reported_or_harmless() {
    let lab = Lab::new();
    let original = all_ids(&lab.original()).unwrap();
    let clean = fs::read(lab.original().join("rath.db")).unwrap();
    let copy = lab.copy();
    let mut found = 0;
    let rounds = 400;
    for round in 0..rounds {
        let at = (round * 7919 + 13) % clean.len();
        let mut bytes = clean.clone();
        bytes[at] ^= 1 << (round % 8);
        fs::write(copy.join("rath.db"), &bytes).unwrap();
        for leftover in ["rath.db-wal", "rath.db-shm"] {
            let _ = fs::remove_file(copy.join(leftover));
        }
        let is_valid = match Embedded::open_as(&copy, "test") {
            Err(_) => false,
            Ok(store) => store.verify(None, &mut |_, _| {}).is_ok_and(|report| report.is_valid()),
        };
        found += usize::from(!is_valid);
        // A flip in unused space is harmless. All records must still read the same.
        if is_valid {
            assert_eq!(all_ids(&copy).as_ref(), Some(&original), "byte {at}");
        }
    }
    assert!(found > rounds / 2, "only {found} of {rounds} flips were found");
}

/// Changes the stored bytes of the segment with the record at `seq`.
fn edit_segment(copy: &Path, session: SessionId, seq: u64, edit: impl FnOnce(&mut Vec<u8>)) {
    let db = Connection::open(copy.join("rath.db")).unwrap();
    let place = "FROM segments g JOIN sessions s ON s.no = g.session WHERE s.id = ?1 AND first_seq <= ?2 AND first_seq + count > ?2";
    let values = (session.0.as_bytes(), seq as i64);
    let (cursor, mut data): (i64, Vec<u8>) = db
        .query_row(&format!("SELECT g.cursor, g.data {place}"), values, |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    edit(&mut data);
    db.execute("UPDATE segments SET data = ?2 WHERE cursor = ?1", (cursor, data)).unwrap();
}

#[test]
fn a_wrong_kind_code_is_reported() {
    let lab = Lab::new();
    for code in [200, 62, 41] {
        let copy = lab.copy();
        edit_segment(&copy, lab.ids[2], 0, |data| data[0] = code);
        assert_eq!(first(&copy), (FindingKind::Index, Some(lab.ids[2]), Some(0)), "code {code}");
    }
    let copy = lab.copy();
    edit_segment(&copy, lab.ids[2], 0, |data| data[0] = 200);
    let store = Embedded::open(&copy).unwrap();
    assert_eq!(block_on(View::of(&store, lab.ids[2], Some(0))).err().unwrap().code(), "tampered");
}

#[test]
fn forged_snapshots_are_reported_at_any_seq() {
    let lab = Lab::new();
    let guesser = lab.no(2);
    let forged = format!(r#"CAST('{{"fold":{FOLD},"closed":true,"labels":{{"approved":"yes"}}}}' AS BLOB)"#);
    for change in [
        format!("UPDATE snapshots SET seq = -1, state = {forged} WHERE session = {guesser}"),
        format!("INSERT INTO snapshots VALUES ({guesser}, 999, {forged})"),
        format!("INSERT INTO snapshots VALUES ({guesser}, 0, {forged})"),
        format!("UPDATE snapshots SET state = x'7b' WHERE session = {guesser}"),
        format!("UPDATE snapshots SET state = 'text' WHERE session = {guesser}"),
    ] {
        let (what, whose, _) = lab.tamper(&change);
        assert_eq!((what, whose), (FindingKind::Index, Some(lab.ids[2])), "{change}");
    }
    // A snapshot with a negative seq is never used.
    let copy = lab.copy();
    let change = format!("UPDATE snapshots SET seq = -1, state = {forged} WHERE session = {guesser}");
    Connection::open(copy.join("rath.db")).unwrap().execute_batch(&change).unwrap();
    let store = Embedded::open(&copy).unwrap();
    assert!(block_on(View::of(&store, lab.ids[2], None)).unwrap().state().labels.is_empty());
}

#[test]
fn a_pack_entry_with_a_huge_length_is_reported() {
    let lab = Lab::new();
    for claim in [1u64 << 62, 1 << 46, u64::MAX] {
        let copy = lab.copy();
        let pack = fs::read_dir(copy.join("packs")).unwrap().next().unwrap().unwrap().path();
        let mut bytes = fs::read(&pack).unwrap();
        bytes[37..45].copy_from_slice(&claim.to_le_bytes());
        fs::write(&pack, bytes).unwrap();
        assert_eq!(first(&copy).0, FindingKind::BlobAltered);
    }
}

#[test]
fn reading_over_a_dropped_segment_is_an_error() {
    let (store, dir) = fresh();
    let mut session = rath_core::Session::create(&store, rath_core::Actor::program("test"));
    let large = format!("{{\"x\":\"{}\"}}", "y".repeat(rath_core::BODY_LIMIT - 10));
    for _ in 0..4 {
        session.append_json("blurb", &large).unwrap();
        block_on(session.publish()).unwrap();
    }
    let id = session.id();
    drop((session, store));
    let path = dir.path().join("store");
    Connection::open(path.join("rath.db"))
        .unwrap()
        .execute_batch("DELETE FROM segments WHERE first_seq = 2; DELETE FROM snapshots")
        .unwrap();
    let store = Embedded::open(&path).unwrap();
    let read = block_on(async { View::of(&store, id, Some(4)).await?.own_records().await });
    assert!(read.is_err() || read.unwrap().len() < 5);
    assert_eq!(first(&path), (FindingKind::Dropped, Some(id), Some(2)));
}

#[test]
fn cyclic_fork_points_are_an_error() {
    let lab = Lab::new();
    let copy = lab.copy();
    let (a, b) = (lab.no(1), lab.no(2));
    let circle = format!(
        "DELETE FROM snapshots;
         UPDATE sessions SET origin_session = (SELECT id FROM sessions WHERE no = {b}), origin_seq = 0 WHERE no = {a};
         UPDATE sessions SET origin_session = (SELECT id FROM sessions WHERE no = {a}), origin_seq = 0 WHERE no = {b};"
    );
    Connection::open(copy.join("rath.db")).unwrap().execute_batch(&circle).unwrap();
    assert!(!verify(&copy).is_valid());
    let store = Embedded::open(&copy).unwrap();
    assert_eq!(block_on(View::of(&store, lab.ids[1], None)).err().unwrap().code(), "tampered");
}

#[test]
fn a_damaged_sqlite_index_is_reported() {
    let lab = Lab::new();
    let db = fs::read(lab.original().join("rath.db")).unwrap();
    let page = |name: &str| {
        let db = Connection::open(lab.original().join("rath.db")).unwrap();
        db.query_row("SELECT rootpage FROM sqlite_schema WHERE name = ?1", [name], |row| row.get::<_, i64>(0)).unwrap()
    };
    for index in ["segments_place", "sqlite_autoindex_sessions_1", "segments_lineage"] {
        // The last bytes of an index page belong to its first entry.
        let copy = lab.copy();
        let mut bytes = db.clone();
        bytes[page(index) as usize * 4096 - 3] ^= 1;
        fs::write(copy.join("rath.db"), bytes).unwrap();
        assert!(!verify(&copy).is_valid(), "{index}");
    }
}

#[test]
fn concurrent_writes_do_not_affect_verification() {
    let (store, dir) = fresh();
    sample_sessions(&store);
    let path = dir.path().join("store");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = rath_core::Session::create(&store, rath_core::Actor::program("busy"));
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                session.note("concurrent").unwrap();
                block_on(session.publish()).unwrap();
                block_on(session.fork("and").publish()).unwrap();
                // Without the pause, the store would grow faster than it is verified.
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        for _ in 0..30 {
            let report = verify(&path);
            assert!(report.is_valid(), "{:?}", report.findings);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_blob_whose_pack_was_lost_can_be_stored_again() {
    let (store, dir) = fresh();
    let text = noise(20_000, 4);
    let mut session = rath_core::Session::create(&store, rath_core::Actor::program("test"));
    session.user(text.clone()).unwrap();
    block_on(session.publish()).unwrap();
    drop((session, store));
    let path = dir.path().join("store");
    fs::remove_dir_all(path.join("packs")).unwrap();
    assert_eq!(first(&path).0, FindingKind::BlobMissing);
    let store = Embedded::open(&path).unwrap();
    let mut session = rath_core::Session::create(&store, rath_core::Actor::program("test"));
    session.user(text).unwrap();
    block_on(session.publish()).unwrap();
    drop((session, store));
    assert!(verify(&path).is_valid());
}

#[test]
fn the_parent_of_an_erased_fork_is_found() {
    let (store, dir) = fresh();
    let ids = sample_sessions(&store);
    let forked = block_on(View::of(&store, ids[2], Some(0))).unwrap().record().reference();
    block_on(store.erase(vec![forked])).unwrap();
    drop(store);
    let report = verify(&dir.path().join("store"));
    assert!(report.is_valid(), "{:?}", report.findings);
    assert_eq!(report.erased, 1);
}
