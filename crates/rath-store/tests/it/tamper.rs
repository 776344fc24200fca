//! Every way we can think of to change a store behind its back, and what `verify` says to it.

use std::fs;
use std::path::{Path, PathBuf};

use pollster::block_on;
use rath_core::FOLD;
use rath_core::verify::What;
use rath_core::{RecordId, SessionId, View};
use rath_store::Embedded;
use rath_testkit::copy_dir;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::support::{fresh, furnished, noise, verify};

/// A furnished store and copies of it to spoil.
struct Lab {
    dir: TempDir,
    ids: Vec<SessionId>,
}

impl Lab {
    fn new() -> Self {
        let (store, dir) = fresh();
        let ids = furnished(&store);
        // The index of ids belongs to what is verified.
        block_on(store.get(rath_core::store::Lookup::Prefix("0000".into()))).unwrap();
        drop(store);
        let lab = Self { dir, ids };
        Embedded::open_here(lab.original(), "test").unwrap().checkpoint().unwrap();
        assert!(verify(&lab.original()).is_sound());
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

    /// Spoils a copy by SQL and returns the first finding: what, whose, which.
    fn spoil(&self, statements: &str) -> (What, Option<SessionId>, Option<u64>) {
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

fn first(path: &Path) -> (What, Option<SessionId>, Option<u64>) {
    let report = verify(path);
    let finding = report.findings.first().unwrap_or_else(|| panic!("nothing was found"));
    (finding.what, finding.session, finding.seq)
}

/// Replaces text inside segment blobs, byte for byte.
fn replace(lab: &Lab, from: &[u8], to: &[u8]) -> (What, Option<SessionId>, Option<u64>) {
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
fn a_flipped_byte_in_a_body_is_named() {
    let lab = Lab::new();
    assert_eq!(
        replace(&lab, b"Nothing, probably.", b"Nothing, Probably."),
        (What::AlteredBody, Some(lab.ids[2]), Some(1))
    );
}

#[test]
fn an_altered_header_is_named_in_the_middle_and_at_the_head() {
    let lab = Lab::new();
    let store = Embedded::open(lab.original()).unwrap();
    for (session, seq) in [(0, 3), (0, 200), (1, 2), (3, 1), (2, 2)] {
        let session = lab.ids[session];
        let view = block_on(View::of(&store, session, Some(seq))).unwrap();
        let header = view.record().header_bytes().to_vec();
        let text = String::from_utf8(header.clone()).unwrap();
        let at = text.find("\"time\":").unwrap() + "\"time\":".len() + 15;
        let mut altered = header.clone();
        // A later microsecond: still well formed, still in order.
        altered[at] = if altered[at] == b'9' { b'8' } else { altered[at] + 1 };
        let (what, whose, which) = replace(&lab, &header, &altered);
        assert!([What::AlteredRecord, What::Malformed].contains(&what), "{what:?}");
        assert_eq!((whose, which), (Some(session), Some(seq)));
    }
}

#[test]
fn dropped_reordered_foreign_and_doubled_records_are_named() {
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
        lab.spoil(&format!("DELETE FROM segments WHERE cursor = {cursor}")),
        (What::Dropped, Some(lab.ids[0]), Some(seq))
    );

    let (last, seq) = place(reader, 1);
    assert_eq!(
        lab.spoil(&format!("DELETE FROM segments WHERE cursor = {last}")),
        (What::Dropped, Some(lab.ids[1]), Some(seq))
    );

    let ((a, seq_a), (b, _)) = (place(root, 3), place(root, 4));
    let swap = format!(
        "CREATE TEMP TABLE t AS SELECT data FROM segments WHERE cursor = {a};
         UPDATE segments SET data = (SELECT data FROM segments WHERE cursor = {b}) WHERE cursor = {a};
         UPDATE segments SET data = (SELECT data FROM t) WHERE cursor = {b};"
    );
    assert_eq!(lab.spoil(&swap), (What::Reordered, Some(lab.ids[0]), Some(seq_a)));

    let (theirs, _) = place(reader, 0);
    let foreign = format!(
        "UPDATE segments SET data = (SELECT data FROM segments WHERE cursor = {theirs}), count = (SELECT count FROM segments WHERE cursor = {theirs}) WHERE cursor = {a}"
    );
    assert_eq!(lab.spoil(&foreign), (What::Foreign, Some(lab.ids[0]), Some(seq_a)));

    let double = format!(
        "DROP INDEX segments_place; CREATE INDEX segments_place ON segments (session, first_seq);
         INSERT INTO segments (session, first_seq, count, generation, kinds, data)
            SELECT session, first_seq, count, generation, kinds, data FROM segments WHERE cursor = {a}"
    );
    assert_eq!(lab.spoil(&double), (What::Duplicate, Some(lab.ids[0]), Some(seq_a)));

    let stray = "INSERT INTO segments (session, first_seq, count, generation, kinds, data)
        SELECT 999, first_seq, count, generation, kinds, data FROM segments LIMIT 1";
    assert_eq!(lab.spoil(stray).0, What::Index);
}

#[test]
fn a_parent_that_is_gone_is_missed() {
    let lab = Lab::new();
    let reader = lab.no(1);
    let gone = format!(
        "DELETE FROM segments WHERE session = {reader}; DELETE FROM snapshots WHERE session = {reader}; DELETE FROM sessions WHERE no = {reader}"
    );
    let copy = lab.copy();
    Connection::open(copy.join("rath.db")).unwrap().execute_batch(&gone).unwrap();
    let report = verify(&copy);
    let broken = report.findings.iter().find(|finding| finding.what == What::BrokenParent).unwrap();
    assert_eq!(broken.session, Some(lab.ids[0]));
    // The session alone stands on it too.
    let alone = Embedded::open_here(&copy, "test").unwrap().verify(Some(lab.ids[0]), &mut |_, _| {}).unwrap();
    assert!(alone.findings.iter().any(|finding| finding.what == What::BrokenParent));
}

#[test]
fn blobs_are_missed_and_their_alteration_found() {
    let lab = Lab::new();
    let (what, whose, which) = lab.spoil("DELETE FROM blobs");
    assert_eq!((what, whose, which), (What::BlobMissing, Some(lab.ids[1]), Some(3)));
    let copy = lab.copy();
    let pack = fs::read_dir(copy.join("packs")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&pack).unwrap();
    let end = bytes.len() - 5;
    bytes[end] ^= 1;
    bytes[80] ^= 1;
    fs::write(&pack, &bytes).unwrap();
    assert_eq!(first(&copy).0, What::BlobAltered);
    fs::write(&pack, &bytes[..40]).unwrap();
    assert_eq!(first(&copy).0, What::BlobAltered);
    fs::remove_file(&pack).unwrap();
    assert_eq!(first(&copy).0, What::BlobMissing);
}

#[test]
fn every_index_column_that_contradicts_its_record_is_found() {
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
        let (what, whose, _) = lab.spoil(&format!("UPDATE sessions SET {column} = {value} WHERE no = {reader}"));
        assert!([What::Index, What::AlteredRecord, What::Dropped].contains(&what), "{column}: {what:?}");
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
        assert_eq!(lab.spoil(&change).1, Some(lab.ids[2]), "{column}");
    }
    for change in [
        "UPDATE ids SET prefix = prefix + 1 WHERE prefix = (SELECT max(prefix) FROM ids)",
        "DELETE FROM ids WHERE prefix = (SELECT min(prefix) FROM ids)",
    ] {
        assert_eq!(lab.spoil(change).0, What::Index, "{change}");
    }
    let snapshot = format!(
        r#"UPDATE snapshots SET state = CAST('{{"fold":{FOLD},"title":"forged"}}' AS BLOB) WHERE session = {root} AND seq = 256"#
    );
    assert_eq!(lab.spoil(&snapshot), (What::Index, Some(lab.ids[0]), Some(256)));
}

#[test]
fn an_index_of_runs_that_contradicts_the_records_is_found() {
    let lab = Lab::new();
    let store = Embedded::open(lab.original()).unwrap();
    let session = crate::support::begun(&store);
    drop(store);
    Embedded::open_here(lab.original(), "test").unwrap().checkpoint().unwrap();
    assert!(verify(&lab.original()).is_sound());
    let other = hex(lab.ids[0]);
    for (change, whose, which) in [
        ("DELETE FROM runs".into(), session, Some(0)),
        ("UPDATE runs SET key = 'forged'".into(), session, Some(0)),
        (format!("INSERT INTO runs VALUES ('forged', {other})"), lab.ids[0], Some(0)),
        (format!("INSERT INTO runs VALUES ('forged', {})", hex(session)), session, Some(0)),
        ("INSERT INTO runs VALUES ('forged', zeroblob(16))".into(), SessionId(Default::default()), None),
    ] {
        assert_eq!(lab.spoil(&change), (What::Index, Some(whose), which), "{change}");
    }
    // Alone, a session is told too.
    let copy = lab.copy();
    Connection::open(copy.join("rath.db")).unwrap().execute_batch("DELETE FROM runs").unwrap();
    let alone = Embedded::open_here(&copy, "test").unwrap().verify(Some(session), &mut |_, _| {}).unwrap();
    assert_eq!(alone.findings.len(), 1);
    assert!(alone.findings[0].why.contains("nightly"), "{}", alone.findings[0].why);
    // What was erased can be compared with nothing.
    let copy = lab.copy();
    let store = Embedded::open(&copy).unwrap();
    let first = block_on(View::of(&store, session, Some(0))).unwrap().record().reference();
    block_on(store.erase(vec![first])).unwrap();
    drop(store);
    assert!(verify(&copy).is_sound());
}

fn hex(session: SessionId) -> String {
    format!("x'{}'", session.to_string().replace('-', ""))
}

#[test]
fn an_erased_body_is_no_alteration() {
    let lab = Lab::new();
    let copy = lab.copy();
    let store = Embedded::open(&copy).unwrap();
    let record = block_on(View::of(&store, lab.ids[2], Some(1))).unwrap().record().reference();
    block_on(store.erase(vec![record])).unwrap();
    drop(store);
    let report = verify(&copy);
    assert!(report.is_sound(), "{:?}", report.findings);
    assert_eq!(report.erased, 1);
    // Its words are not in the file any more.
    Embedded::open_here(&copy, "test").unwrap().checkpoint().unwrap();
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
fn any_byte_of_the_database_may_be_flipped() {
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
        let sound = match Embedded::open_here(&copy, "test") {
            Err(_) => false,
            Ok(store) => store.verify(None, &mut |_, _| {}).is_ok_and(|report| report.is_sound()),
        };
        found += usize::from(!sound);
        // A flip in unused space harms nothing; then everything must still read the same.
        if sound {
            assert_eq!(all_ids(&copy).as_ref(), Some(&original), "byte {at}");
        }
    }
    assert!(found > rounds / 2, "only {found} of {rounds} flips were found");
}

/// Changes the stored bytes of the segment that holds a place.
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
fn a_kind_code_that_hides_a_record_is_found() {
    let lab = Lab::new();
    for code in [200, 62, 41] {
        let copy = lab.copy();
        edit_segment(&copy, lab.ids[2], 0, |data| data[0] = code);
        assert_eq!(first(&copy), (What::Index, Some(lab.ids[2]), Some(0)), "code {code}");
    }
    let copy = lab.copy();
    edit_segment(&copy, lab.ids[2], 0, |data| data[0] = 200);
    let store = Embedded::open(&copy).unwrap();
    assert_eq!(block_on(View::of(&store, lab.ids[2], Some(0))).err().unwrap().code(), "tampered");
}

#[test]
fn forged_snapshots_are_found_wherever_they_stand() {
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
        let (what, whose, _) = lab.spoil(&change);
        assert_eq!((what, whose), (What::Index, Some(lab.ids[2])), "{change}");
    }
    // One before all records is never used.
    let copy = lab.copy();
    let change = format!("UPDATE snapshots SET seq = -1, state = {forged} WHERE session = {guesser}");
    Connection::open(copy.join("rath.db")).unwrap().execute_batch(&change).unwrap();
    let store = Embedded::open(&copy).unwrap();
    assert!(block_on(View::of(&store, lab.ids[2], None)).unwrap().state().labels.is_empty());
}

#[test]
fn a_pack_that_claims_too_much_is_damaged_not_deadly() {
    let lab = Lab::new();
    for claim in [1u64 << 62, 1 << 46, u64::MAX] {
        let copy = lab.copy();
        let pack = fs::read_dir(copy.join("packs")).unwrap().next().unwrap().unwrap().path();
        let mut bytes = fs::read(&pack).unwrap();
        bytes[37..45].copy_from_slice(&claim.to_le_bytes());
        fs::write(&pack, bytes).unwrap();
        assert_eq!(first(&copy).0, What::BlobAltered);
    }
}

#[test]
fn a_dropped_segment_ends_a_read_with_an_error() {
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
    let read = block_on(async { View::of(&store, id, Some(4)).await?.own().await });
    assert!(read.is_err() || read.unwrap().len() < 5);
    assert_eq!(first(&path), (What::Dropped, Some(id), Some(2)));
}

#[test]
fn fork_points_that_go_round_in_a_circle_end() {
    let lab = Lab::new();
    let copy = lab.copy();
    let (a, b) = (lab.no(1), lab.no(2));
    let circle = format!(
        "DELETE FROM snapshots;
         UPDATE sessions SET origin_session = (SELECT id FROM sessions WHERE no = {b}), origin_seq = 0 WHERE no = {a};
         UPDATE sessions SET origin_session = (SELECT id FROM sessions WHERE no = {a}), origin_seq = 0 WHERE no = {b};"
    );
    Connection::open(copy.join("rath.db")).unwrap().execute_batch(&circle).unwrap();
    assert!(!verify(&copy).is_sound());
    let store = Embedded::open(&copy).unwrap();
    assert_eq!(block_on(View::of(&store, lab.ids[1], None)).err().unwrap().code(), "tampered");
}

#[test]
fn an_index_that_lies_is_found() {
    let lab = Lab::new();
    let db = fs::read(lab.original().join("rath.db")).unwrap();
    let page = |name: &str| {
        let db = Connection::open(lab.original().join("rath.db")).unwrap();
        db.query_row("SELECT rootpage FROM sqlite_schema WHERE name = ?1", [name], |row| row.get::<_, i64>(0)).unwrap()
    };
    for index in ["segments_place", "sqlite_autoindex_sessions_1", "segments_lineage"] {
        // The last bytes of an index page are the content of its first entry.
        let copy = lab.copy();
        let mut bytes = db.clone();
        bytes[page(index) as usize * 4096 - 3] ^= 1;
        fs::write(copy.join("rath.db"), bytes).unwrap();
        assert!(!verify(&copy).is_sound(), "{index}");
    }
}

#[test]
fn a_store_is_verified_as_of_one_moment() {
    let (store, dir) = fresh();
    furnished(&store);
    let path = dir.path().join("store");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = rath_core::Session::create(&store, rath_core::Actor::program("busy"));
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                session.note("meanwhile").unwrap();
                block_on(session.publish()).unwrap();
                block_on(session.fork("and").publish()).unwrap();
                // Else it writes faster than it is verified, and each time there is more to be verified.
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        for _ in 0..30 {
            let report = verify(&path);
            assert!(report.is_sound(), "{:?}", report.findings);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_blob_whose_pack_was_lost_is_written_again() {
    let (store, dir) = fresh();
    let text = noise(20_000, 4);
    let mut session = rath_core::Session::create(&store, rath_core::Actor::program("test"));
    session.user(text.clone()).unwrap();
    block_on(session.publish()).unwrap();
    drop((session, store));
    let path = dir.path().join("store");
    fs::remove_dir_all(path.join("packs")).unwrap();
    assert_eq!(first(&path).0, What::BlobMissing);
    let store = Embedded::open(&path).unwrap();
    let mut session = rath_core::Session::create(&store, rath_core::Actor::program("test"));
    session.user(text).unwrap();
    block_on(session.publish()).unwrap();
    drop((session, store));
    assert!(verify(&path).is_sound());
}

#[test]
fn an_erased_fork_still_finds_its_parent() {
    let (store, dir) = fresh();
    let ids = furnished(&store);
    let forked = block_on(View::of(&store, ids[2], Some(0))).unwrap().record().reference();
    block_on(store.erase(vec![forked])).unwrap();
    drop(store);
    let report = verify(&dir.path().join("store"));
    assert!(report.is_sound(), "{:?}", report.findings);
    assert_eq!(report.erased, 1);
}
