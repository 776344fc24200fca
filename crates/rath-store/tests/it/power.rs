//! Simulated power cuts: everything acknowledged must be stored, whatever part of the unsynced writes reached the disk.
//!
//! A failure prints how to build the same disk image again: `RATH_POWER_TRACE` is the recorded trace, which is kept,
//! and `RATH_POWER_SEED` the seed. If `RATH_POWER_KEEP` is a directory, the images are kept there.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use pollster::block_on;
use rath_core::store::{Batch, Lookup, Post, PostContent, Result, SessionFilter};
use rath_core::{Actor, Blob, How, Point, Reference, Session, SessionId, Store, Time};
use rath_store::Embedded;
use rath_testkit::faults::{self, Faults};
use rath_testkit::power::{Cut, SeededRng, Trace};

use crate::support::child_dir;

/// The file in which a worker records what was acknowledged.
struct AckLog(File);

impl AckLog {
    fn new(root: &Path) -> Self {
        Self(OpenOptions::new().append(true).create(true).open(Trace::acknowledged(root)).unwrap())
    }

    /// Writes a line with one write, so that an incomplete line counts as not acknowledged.
    fn say(&self, line: std::fmt::Arguments<'_>) {
        (&self.0).write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn head(&self, session: &Session) {
        let head = session.head();
        self.say(format_args!("record {} {} {}", head.session, head.seq, head.id));
    }
}

/// Repeats `work` until it succeeds. A failed attempt acknowledged nothing.
fn retry<T>(mut work: impl FnMut() -> rath_core::Result<T>) -> T {
    for _ in 0..200 {
        match work() {
            Ok(done) => return done,
            Err(error) => eprintln!("worker: {error}"),
        }
    }
    panic!("200 attempts failed");
}

fn noise(chance: &mut SeededRng, length: u64) -> Blob {
    let bytes: Vec<u8> = (0..length).map(|_| chance.next_number() as u8).collect();
    Blob::new(bytes, "application/octet-stream")
}

/// Child process: appends, forks, merges, posts, erases and collects, and records what was acknowledged.
/// `RATH_TEST_TURNS` is the number of turns. Calls that match `RATH_TEST_STUMBLE` fail now and then.
#[test]
fn worker() {
    let Some(root) = child_dir() else { return };
    let turns: u64 = std::env::var("RATH_TEST_TURNS").unwrap().parse().unwrap();
    let said = AckLog::new(&root);
    let path = root.join("deep/store");
    match Embedded::create(&path) {
        Ok(_) => said.say(format_args!("store")),
        Err(error) => assert!(Embedded::exists(&path), "{error}"),
    }
    let mut sessions: Vec<SessionId> = Vec::new();
    for phase in 0..3 {
        let store = Embedded::open(&path).unwrap();
        if phase == 0 {
            for _ in 0..3 {
                let mut session = Session::create(&store, Actor::program("worker"));
                retry(|| block_on(session.publish()));
                said.head(&session);
                sessions.push(session.id());
            }
        }
        std::thread::scope(|scope| {
            for (worker, id) in sessions.iter().enumerate() {
                let (store, said) = (&store, &said);
                scope.spawn(move || work(store, *id, said, turns, phase * 100 + worker as u64));
            }
        });
        drop(store);
        // Collect garbage while no worker writes.
        let store = Embedded::open_as(&path, "collector").unwrap();
        if let Err(error) = store.collect(false, &mut |_| {}) {
            eprintln!("collector: {error}");
        }
    }
}

fn work(store: &Arc<dyn Store>, id: SessionId, said: &AckLog, turns: u64, seed: u64) {
    let mut chance = SeededRng::new(seed ^ u64::from(std::process::id()) << 20);
    let mut session = retry(|| block_on(store.open(id, Actor::program("worker"))));
    let mut notes: Vec<Reference> = Vec::new();
    let stumble = std::env::var("RATH_TEST_STUMBLE").ok();
    for turn in 0..turns {
        let mut blobs = Vec::new();
        if let Some(what) = stumble.as_ref().filter(|_| chance.percent(20)) {
            // The WAL has an unsynced commit, and the sync of the next commit fails.
            let unnamed = noise(&mut chance, 5_000);
            retry(|| Ok(block_on(store.blob_put(vec![unnamed.clone()]))?));
            faults::change(&child_dir().unwrap(), &format!("{what} times 1"));
        }
        session.note(format!("worker {seed}, turn {turn}")).unwrap();
        notes.push(session.head());
        if chance.percent(40) {
            let length = 200 + chance.below(30_000);
            let blob = noise(&mut chance, length);
            blobs.push(blob.reference.digest);
            session.user_with("Look.", [("a.bin", blob)]).unwrap();
        }
        retry(|| block_on(session.publish()));
        said.head(&session);
        for digest in blobs {
            said.say(format_args!("blob {digest}"));
        }
        if chance.percent(15) {
            let mut branch = session.fork("try");
            branch.assistant("on a branch").unwrap();
            retry(|| block_on(branch.publish()));
            said.head(&branch);
            session = match block_on(session.merge([branch], How::Append)) {
                Ok(merged) => merged,
                // The merge may have been committed or not, so open the session again.
                Err(error) => {
                    drop(error);
                    retry(|| block_on(store.open(id, Actor::program("worker"))))
                }
            };
            retry(|| block_on(session.publish()));
            said.head(&session);
        }
        if chance.percent(25) {
            post(store, id, said, &mut chance);
        }
        if chance.percent(15) {
            let gone = notes.swap_remove(chance.below(notes.len() as u64) as usize);
            said.say(format_args!("erasing {} {}", gone.session, gone.seq));
            retry(|| Ok(block_on(store.erase(vec![gone]))?));
            said.say(format_args!("erased {} {}", gone.session, gone.seq));
        }
        if stumble.is_none() && chance.percent(10) {
            let unnamed = noise(&mut chance, 5_000);
            retry(|| Ok(block_on(store.blob_put(vec![unnamed.clone()]))?));
        }
    }
}

/// Posts a message, and sometimes consumes it.
fn post(store: &Arc<dyn Store>, session: SessionId, said: &AckLog, chance: &mut SeededRng) {
    let post = Post {
        id: format!("post-{:016x}", chance.next_number()),
        session,
        actor: Actor::person("ada"),
        time: Time(1_700_000_000_000_000),
        what: PostContent::Message { text: "hurry".into() },
    };
    retry(|| Ok(block_on(store.post(post.clone()))?));
    said.say(format_args!("post {session} {}", post.id));
    if chance.percent(50) {
        said.say(format_args!("taking {}", post.id));
        retry(|| Ok(block_on(store.commit(Batch { consumed_posts: vec![post.id.clone()], ..Batch::default() }))?));
        said.say(format_args!("taken {session} {}", post.id));
    }
}

/// Child process: a reader uses an older snapshot of the WAL during a checkpoint, so that SQLite does not sync the
/// checkpoint, and the sync of the next checkpoint fails. Then a sync by another connection of the same process fails.
#[test]
fn unlucky_worker() {
    let Some(root) = child_dir() else { return };
    let said = AckLog::new(&root);
    let path = root.join("deep/store");
    let store: Arc<Embedded> = {
        drop(Embedded::create(&path).unwrap());
        Arc::new(Embedded::open_as(&path, "worker").unwrap())
    };
    let shared: Arc<dyn Store> = store.clone();
    let mut session = Session::create(&shared, Actor::program("worker"));
    let mut chance = SeededRng::new(1);
    let say = |session: &mut Session, turns: u64| {
        for turn in 0..turns {
            session.note(format!("{turn} {}", "word ".repeat(300))).unwrap();
            retry(|| block_on(session.publish()));
            said.head(session);
        }
    };
    let by_hand = || rusqlite::Connection::open(path.join("rath.db")).unwrap();
    let checkpoint = |db: &rusqlite::Connection| {
        db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)))
    };
    for round in 0..4 {
        say(&mut session, 10);
        let reader = by_hand();
        reader.execute_batch("BEGIN; SELECT count(*) FROM sessions").unwrap();
        say(&mut session, 5);
        let (all, moved) = checkpoint(&by_hand()).unwrap();
        assert!(0 < moved && moved < all, "{moved} of {all}");
        reader.execute_batch("COMMIT").unwrap();
        say(&mut session, 5);
        faults::change(&root, "sync rath.db 5 times 1");
        assert_eq!(store.checkpoint().unwrap_err().code(), "disk-failed");
        say(&mut session, 1);
        store.checkpoint().unwrap();
        say(&mut session, round + 1);

        let unnamed = noise(&mut chance, 5_000);
        retry(|| Ok(block_on(shared.blob_put(vec![unnamed.clone()]))?));
        // The syncs of an erasure: the rewrite of the WAL when it connects, the commit, and the checkpoint.
        for after in 0..3 {
            faults::change(&root, &format!("sync rath.db-wal 5 after {after} times 1"));
            assert_eq!(block_on(shared.erase(vec![session.head()])).unwrap_err().code(), "disk-failed");
            say(&mut session, 3);
        }
    }
}

/// The parameters of a recorded run.
struct Work {
    worker: &'static str,
    processes: usize,
    turns: u64,
    rules: String,
    stumble: Option<&'static str>,
}

impl Default for Work {
    fn default() -> Self {
        Self { worker: "power::worker", processes: 1, turns: 30, rules: String::new(), stumble: None }
    }
}

/// Runs workers and returns the path of the recorded trace.
fn traced(dir: &Path, work: &Work) -> PathBuf {
    let (root, trace) = (dir.join("root"), dir.join("trace"));
    fs::create_dir(&root).unwrap();
    let faults = Faults::new(&work.rules).traced(&trace);
    let said = OpenOptions::new().append(true).create(true).open(dir.join("said")).unwrap();
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", work.worker, "--nocapture", "--test-threads=1"]);
        command.env("RATH_TEST_CHILD", root.canonicalize().unwrap()).env("RATH_TEST_TURNS", work.turns.to_string());
        command.envs(work.stumble.map(|what| ("RATH_TEST_STUMBLE", what)));
        command.stdout(Stdio::null()).stderr(said.try_clone().unwrap());
        faults.load(&mut command, &root).spawn().unwrap()
    };
    let workers: Vec<_> = (0..work.processes).map(|_| start()).collect();
    for mut worker in workers {
        let ended = worker.wait().unwrap();
        assert!(ended.success(), "{}: {}", work.rules, fs::read_to_string(dir.join("said")).unwrap());
    }
    trace
}

/// Checks a disk image.
fn check(image: &Path, cut: &Cut) -> Result<(), String> {
    let path = image.join("deep/store");
    let said = |line: &str| cut.acknowledged.iter().any(|said| said == line);
    if !Embedded::exists(&path) {
        if let Some(line) = cut.acknowledged.first() {
            return Err(format!("there is no store, but this was acknowledged: {line}"));
        }
        return Embedded::create(&path).map(drop).map_err(|error| format!("a store cannot be created: {error}"));
    }
    let store = Embedded::open_as(&path, "test").map_err(|error| format!("the store cannot be opened: {error}"))?;
    let report =
        store.verify(None, &mut |_, _| {}).map_err(|error| format!("the store cannot be verified: {error}"))?;
    if !report.is_valid() {
        return Err(format!("the store is not valid: {:?}", report.findings));
    }
    for line in &cut.acknowledged {
        check_line(&store, line, &said).map_err(|why| format!("{line}: {why}"))?;
    }
    let store: Arc<dyn Store> = Arc::new(store);
    write_after_cut(&store).map_err(|error| format!("the store cannot be written: {error}"))
}

fn check_line(store: &Embedded, line: &str, said: &dyn Fn(&str) -> bool) -> Result<(), String> {
    let words: Vec<&str> = line.split(' ').collect();
    let record = |session: &str, seq: &str| {
        let point = Point { session: session.parse().unwrap(), seq: seq.parse().unwrap() };
        let found = block_on(store.get(Lookup::At(point))).map_err(|error| error.to_string())?;
        found.into_iter().next().ok_or_else(|| "the record is missing".to_owned())
    };
    let waits = |session: &str, id: &str| {
        let posts = block_on(store.posts(session.parse().unwrap())).map_err(|error| error.to_string())?;
        Ok::<bool, String>(posts.iter().any(|post| post.id == id))
    };
    let is_stored = match words[..] {
        ["record", session, seq, id] => record(session, seq)?.id().to_string() == id,
        ["blob", digest] => {
            let found = block_on(rath_core::store::Blobs::blob_get(store, digest.parse().unwrap()));
            found.map_err(|error| error.to_string())?.is_some()
        }
        ["post", session, id] => said(&format!("taking {id}")) || waits(session, id)?,
        ["taken", session, id] => !waits(session, id)?,
        ["erased", session, seq] => record(session, seq)?.body_bytes().is_none(),
        ["store"] | ["taking", _] | ["erasing", _, _] => true,
        _ => panic!("unknown line {line:?}"),
    };
    if is_stored { Ok(()) } else { Err("not stored".into()) }
}

/// Continues an old session, if there is one, and stores a new blob.
fn write_after_cut(store: &Arc<dyn Store>) -> rath_core::Result<()> {
    let rows = block_on(store.sessions(SessionFilter::All.into()))?;
    let mut session = match rows.iter().find(|row| !row.closed) {
        Some(row) => block_on(store.open(row.id, Actor::program("successor")))?,
        None => Session::create(store, Actor::program("successor")),
    };
    session.user_with("And now?", [("b.bin", Blob::new(vec![7; 3000], "application/octet-stream"))])?;
    block_on(session.publish())
}

fn images() -> u64 {
    u64::from(rath_testkit::scaled(100))
}

fn first_seed() -> u64 {
    let said = std::env::var("RATH_POWER_SEED").ok().and_then(|seed| seed.parse().ok());
    said.unwrap_or_else(|| rath_core::random_number() >> 16)
}

/// Checks images of one trace. Returns the number of acknowledgements, and the seed and the error of the first bad
/// image.
fn check_images(trace: &Trace, images: u64) -> (u64, Option<(u64, String)>) {
    let first = first_seed();
    let mut acknowledged = 0;
    for seed in first..first + images {
        let scratch = tempfile::tempdir().unwrap();
        let kept = std::env::var_os("RATH_POWER_KEEP").map(|dir| Path::new(&dir).join(seed.to_string()));
        let image = kept.unwrap_or_else(|| scratch.path().to_owned());
        let cut = trace.image(seed, &image);
        acknowledged += cut.acknowledged.len() as u64;
        if let Err(why) = check(&image, &cut) {
            return (acknowledged, Some((seed, format!("after {} of {} events: {why}", cut.after, trace.len()))));
        }
    }
    (acknowledged, None)
}

/// Checks images and panics if one is bad; the trace is kept.
fn assert_survives(path: &Path, images: u64) {
    let path = std::env::var_os("RATH_POWER_TRACE").map_or_else(|| path.to_owned(), PathBuf::from);
    let trace = Trace::read(&path);
    let (acknowledged, bad) = check_images(&trace, images);
    if let Some((seed, why)) = bad {
        let kept = std::env::temp_dir().join(format!("rath-power-{seed}.trace"));
        if !kept.exists() {
            fs::copy(&path, &kept).unwrap();
        }
        panic!("{why}\nagain: RATH_POWER_TRACE={} RATH_POWER_SEED={seed} RATH_SCALE=0.01", kept.display());
    }
    assert!(acknowledged > images, "only {acknowledged} acknowledgements in {images} images");
    eprintln!("{images} images of {} events, {acknowledged} acknowledgements, none lost", trace.len());
}

#[test]
fn a_power_cut_loses_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let trace = traced(dir.path(), &Work::default());
    assert_survives(&trace, images());
}

#[test]
fn a_power_cut_loses_nothing_of_four_processes() {
    let dir = tempfile::tempdir().unwrap();
    let trace = traced(dir.path(), &Work { processes: 4, turns: 8, ..Work::default() });
    assert_survives(&trace, images() / 4);
}

#[test]
fn a_power_cut_after_a_failed_write_or_sync_loses_nothing() {
    for what in ["sync rath.db-wal 5", "sync rath.db 5", "sync .pack 5", "write rath.db-wal 28", "write .pack 28"] {
        let dir = tempfile::tempdir().unwrap();
        let trace = traced(dir.path(), &Work { turns: 16, stumble: Some(what), ..Work::default() });
        let said = fs::read_to_string(dir.path().join("said")).unwrap();
        assert!(said.contains("worker: ") || what.contains("rath.db "), "{what}: never failed");
        assert_survives(&trace, images() / 4);
    }
}

#[test]
fn a_failed_sync_is_repaired_by_all_connections() {
    let dir = tempfile::tempdir().unwrap();
    let trace = traced(dir.path(), &Work { worker: "power::unlucky_worker", ..Work::default() });
    assert_survives(&trace, images());
}

#[test]
fn a_missing_sync_is_detected() {
    for lie in ["rath.db-wal", "rath.db", ".pack", "packs", "store", "deep"] {
        let dir = tempfile::tempdir().unwrap();
        let trace = traced(dir.path(), &Work { turns: 12, rules: format!("sync {lie} lie"), ..Work::default() });
        let (_, found) = check_images(&Trace::read(&trace), 400);
        let (seed, why) = found.unwrap_or_else(|| panic!("400 images without syncs of {lie:?} are all complete"));
        eprintln!("without syncs of {lie:?}: image {seed}, {}", why.chars().take(160).collect::<String>());
    }
}
