//! The conformance suite for stores. Each function checks one guarantee on an empty store.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pollster::block_on;
use rath_core::body::{Answered, Asked, Labelled, Note, QuestionKind, Verdict};
use rath_core::store::{
    Batch, BatchPart, Chunk, Cursor, ErasedSet, Error, Lookup, Post, PostContent, Projection, Query, Result, Scan,
    SessionFilter, Storage, Store, WatchTopic, Watcher,
};
use rath_core::{
    Actor, Blob, Digest, How, InMemory, Kind, Point, Record, RecordId, SNAPSHOT_EVERY, Session, SessionId, Time, View,
};

type TheStore = Arc<dyn Store>;

fn session(store: &TheStore) -> Session {
    Session::create(store, Actor::program("conformance"))
}

fn published(store: &TheStore, notes: usize) -> Session {
    let mut session = session(store);
    for n in 0..notes {
        session.note(format!("note {n}")).unwrap();
    }
    block_on(session.publish()).unwrap();
    session
}

/// All stored records of a session.
fn stored(store: &TheStore, id: SessionId) -> Vec<Record> {
    block_on(async { View::of(store, id, None).await?.own_records().await }).unwrap()
}

/// The records of a session as a batch of one part.
fn batch(records: Vec<Record>, fence: u64) -> Batch {
    let session = records[0].session();
    Batch { parts: vec![BatchPart { session, fence, keep_lease: true, records, snapshot: None }], ..Batch::default() }
}

/// Records created in other stores: a session with `notes` notes, and a version of it that differs after the first
/// record.
fn twins(notes: usize) -> (Vec<Record>, Vec<Record>) {
    let elsewhere = InMemory::new();
    let line = published(&elsewhere, notes);
    let mine = stored(&elsewhere, line.id());
    drop(line);
    let other = InMemory::new();
    block_on(other.commit(batch(vec![mine[0].clone()], 1))).unwrap();
    other.release(mine[0].session(), 1);
    let mut twin = block_on(other.open(mine[0].session(), Actor::program("twin"))).unwrap();
    for n in 0..notes {
        twin.note(format!("other note {n}")).unwrap();
    }
    block_on(twin.publish()).unwrap();
    let theirs = stored(&other, twin.id());
    (mine, theirs)
}

/// Header, salt and body are returned byte for byte.
pub fn published_records_are_returned_unchanged(store: &TheStore) {
    let mut session = session(store);
    session.user("Grüße, 世界 \u{2028} \u{0} \"\\").unwrap();
    session.assistant("x".repeat(5000)).unwrap();
    assert_eq!(session.unpublished_count(), 3);
    let before = block_on(async { session.view().await?.own_records().await }).unwrap();
    block_on(session.publish()).unwrap();
    assert_eq!(session.unpublished_count(), 0);
    let after = stored(store, session.id());
    assert_eq!(before.len(), after.len());
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before.header_bytes(), after.header_bytes());
        assert_eq!(before.salted_body(), after.salted_body());
        assert_eq!(before.id(), after.id());
        assert_eq!(before.generation(), after.generation());
    }
}

/// Operations on an unknown session return `NotFound` or nothing.
pub fn unknown_sessions_are_errors(store: &TheStore) {
    let stranger = session(&InMemory::new()).id();
    assert!(matches!(block_on(store.lease(stranger)), Err(Error::NotFound(_))));
    assert_eq!(block_on(View::of(store, stranger, None)).err().unwrap().code(), "not-found");
    assert!(block_on(store.get(Lookup::At(Point { session: stranger, seq: 0 }))).unwrap().is_empty());
    assert!(block_on(store.blob_get(Digest::of(b"nothing"))).unwrap().is_none());
    store.release(stranger, 7);
}

/// A batch with an unknown outcome may be sent again.
pub fn commits_are_idempotent(store: &TheStore) {
    let (mine, _) = twins(4);
    block_on(store.commit(batch(mine[..3].to_vec(), 1))).unwrap();
    block_on(store.commit(batch(mine[..3].to_vec(), 1))).unwrap();
    block_on(store.commit(batch(mine.clone(), 1))).unwrap();
    block_on(store.commit(batch(mine[1..2].to_vec(), 1))).unwrap();
    assert_eq!(stored(store, mine[0].session()).len(), mine.len());
}

/// A session cannot have two different histories.
pub fn a_moved_head_is_a_conflict(store: &TheStore) {
    let (mine, theirs) = twins(3);
    block_on(store.commit(batch(mine.clone(), 1))).unwrap();
    for part in [theirs.clone(), theirs[1..].to_vec(), theirs[2..].to_vec(), theirs[..2].to_vec()] {
        assert!(matches!(block_on(store.commit(batch(part, 1))), Err(Error::Conflict { .. })));
    }
    let gap = batch(vec![twins(9).0[7].clone()], 1);
    assert!(block_on(store.commit(gap)).is_err());
    assert_eq!(stored(store, mine[0].session()).last().unwrap().id(), mine.last().unwrap().id());
}

/// If one part of a batch is refused, nothing of the batch is stored.
pub fn a_batch_is_committed_whole_or_not_at_all(store: &TheStore) {
    let (mine, theirs) = twins(3);
    block_on(store.commit(batch(mine, 1))).unwrap();
    let fresh = twins(2).0;
    let mut both = batch(fresh.clone(), 1);
    both.parts.extend(batch(theirs, 1).parts);
    assert!(matches!(block_on(store.commit(both)), Err(Error::Conflict { .. })));
    assert!(block_on(store.sessions(SessionFilter::Id(fresh[0].session()).into())).unwrap().is_empty());
}

/// A process that lost its lease cannot commit.
pub fn a_stale_fencing_token_is_refused(store: &TheStore) {
    let (mine, theirs) = twins(3);
    block_on(store.commit(batch(mine[..2].to_vec(), 1))).unwrap();
    let id = mine[0].session();
    store.release(id, 1);
    // There is no new lease yet, so the old token is still valid.
    block_on(store.commit(batch(mine[..3].to_vec(), 1))).unwrap();
    let fence = block_on(store.lease(id)).unwrap();
    assert!(fence > 1);
    assert!(matches!(block_on(store.commit(batch(mine.clone(), 1))), Err(Error::LeaseLost { .. })));
    block_on(store.commit(batch(mine, fence))).unwrap();
    // The error is `LeaseLost` also if the new holder has committed other records.
    assert!(matches!(block_on(store.commit(batch(theirs.clone(), 1))), Err(Error::LeaseLost { .. })));
    assert!(matches!(block_on(store.commit(batch(theirs, fence))), Err(Error::Conflict { .. })));
}

/// A second process gets an error that names the holder. Dropping a session releases it.
pub fn only_one_process_can_lease_a_session(store: &TheStore) {
    let first = published(store, 1);
    let id = first.id();
    let error = block_on(store.open(id, Actor::program("second"))).unwrap_err();
    assert_eq!(error.code(), "session-held");
    assert!(error.to_string().contains("process"), "{error}");
    drop(first);
    let mut second = block_on(store.open(id, Actor::program("second"))).unwrap();
    second.note("mine now").unwrap();
    block_on(second.publish()).unwrap();
    assert_eq!(stored(store, id).len(), 3);
}

/// A closed session can be forked, not appended to.
pub fn closed_sessions_can_be_forked_but_not_appended_to(store: &TheStore) {
    let session = published(store, 1);
    let id = session.id();
    block_on(session.close("enough")).unwrap();
    assert!(block_on(store.sessions(SessionFilter::Id(id).into())).unwrap()[0].closed);
    let mut again = block_on(store.open(id, Actor::program("again"))).unwrap();
    assert_eq!(again.note("more").unwrap_err().code(), "session-closed");
    let mut fork = again.fork("go on");
    fork.note("more").unwrap();
    block_on(fork.publish()).unwrap();
}

fn seqs(records: &[Record]) -> Vec<u64> {
    records.iter().map(Record::seq).collect()
}

/// Pages follow each other without gaps or repetitions, in both directions.
pub fn scans_page_in_both_directions(store: &TheStore) {
    let mut session = published(store, 3);
    for n in 0..40 {
        session.note(format!("later {n}")).unwrap();
        if n % 7 == 0 {
            block_on(session.publish()).unwrap();
        }
    }
    block_on(session.publish()).unwrap();
    let id = session.id();
    for limit in [1, 2, 5, 1000] {
        for (from, to) in [(0, 43), (5, 20), (43, 43), (0, 0)] {
            let (mut found, mut at) = (Vec::new(), from);
            loop {
                let page = block_on(store.scan(Scan::session(id, at, to).limit(limit))).unwrap();
                found.extend(seqs(&page.records));
                if !page.more {
                    break;
                }
                at = page.position;
            }
            assert_eq!(found, (from..=to).collect::<Vec<_>>(), "limit {limit}");
            let (mut found, mut at) = (Vec::new(), to);
            loop {
                let page = block_on(store.scan(Scan::session(id, from, at).limit(limit).backwards())).unwrap();
                found.extend(seqs(&page.records));
                if !page.more {
                    break;
                }
                at = page.position;
            }
            assert_eq!(found, (from..=to).rev().collect::<Vec<_>>(), "limit {limit}, backwards");
        }
    }
}

/// A scan with kinds returns only records of these kinds.
pub fn scans_filter_by_kind(store: &TheStore) {
    let mut session = session(store);
    for n in 0..30 {
        match n % 10 {
            3 => session.user("wanted").unwrap(),
            7 => session.append_json("my.kind", "{}").unwrap(),
            _ => session.note("not wanted").unwrap(),
        };
        if n % 4 == 0 {
            block_on(session.publish()).unwrap();
        }
    }
    block_on(session.publish()).unwrap();
    let id = session.id();
    let kinds = |kinds: &[Kind]| seqs(&block_on(store.scan(Scan::session(id, 0, 100).kinds(kinds))).unwrap().records);
    assert_eq!(kinds(&[Kind::User]), vec![4, 14, 24]);
    assert_eq!(kinds(&[Kind::named("my.kind")]), vec![8, 18, 28]);
    assert_eq!(kinds(&[Kind::named("other.kind")]), Vec::<u64>::new());
    assert_eq!(kinds(&[Kind::Created, Kind::User]), vec![0, 4, 14, 24]);
    let newest = block_on(store.scan(Scan::session(id, 0, 100).kinds(&[Kind::User]).backwards().limit(1))).unwrap();
    assert_eq!(seqs(&newest.records), vec![24]);
}

/// Scans that continue at a cursor return every record once, in commit order.
pub fn the_store_is_scanned_in_commit_order(store: &TheStore) {
    let mut a = published(store, 1);
    let mut b = published(store, 2);
    let (mut cursor, mut seen) = (Cursor::start(), Vec::new());
    let mut read = |seen: &mut Vec<RecordId>, limit| loop {
        let page = block_on(store.scan(Scan::store(cursor.clone()).limit(limit))).unwrap();
        seen.extend(page.records.iter().map(Record::id));
        cursor = page.cursor;
        if !page.more {
            break;
        }
    };
    read(&mut seen, 1);
    b.note("first").unwrap();
    block_on(b.publish()).unwrap();
    a.note("second").unwrap();
    block_on(a.publish()).unwrap();
    read(&mut seen, 1000);
    let mut expected: Vec<RecordId> = stored(store, a.id())[..2].iter().map(Record::id).collect();
    expected.extend(stored(store, b.id()).iter().map(Record::id));
    expected.push(a.head().id);
    assert_eq!(seen, expected);
}

/// A scan can continue at the cursor of any record, also after a conversion of the cursor to text, and after other
/// commits and erasures.
pub fn a_scan_can_continue_after_each_record(store: &TheStore) {
    let (a, mut b) = (published(store, 5), published(store, 2));
    let scan = |after: &Cursor, kinds: &[Kind]| block_on(store.scan(Scan::store(after.clone()).kinds(kinds))).unwrap();
    let all = scan(&Cursor::start(), &[]);
    assert_eq!((all.records.len(), all.cursors.len(), all.more), (9, 9, false));
    let ids = |records: &[Record]| records.iter().map(Record::id).collect::<Vec<_>>();
    block_on(store.erase(vec![all.records[3].reference()])).unwrap();
    b.note("later").unwrap();
    block_on(b.publish()).unwrap();
    for (at, cursor) in all.cursors.iter().enumerate() {
        let cursor: Cursor = cursor.to_string().parse().unwrap();
        let rest = scan(&cursor, &[]);
        let mut expected = ids(&all.records[at + 1..]);
        expected.push(b.head().id);
        assert_eq!(ids(&rest.records), expected, "from record {at} on");
        let notes = scan(&cursor, &[Kind::Note]);
        assert_eq!(notes.records.len(), rest.records.iter().filter(|record| *record.kind() == Kind::Note).count());
        assert_eq!(notes.cursors.last(), rest.cursors.last());
    }
    let end = scan(&all.cursor, &[]);
    assert_eq!(ids(&end.records), [b.head().id]);
    assert!(scan(&end.cursor, &[]).records.is_empty() && scan(&end.cursors[0], &[]).records.is_empty());
    drop((a, b));
}

/// The cursor of a page moves past records of other kinds, so they are not read again.
pub fn a_scan_does_not_read_filtered_records_again(store: &TheStore) {
    let mut session = session(store);
    for _ in 0..50 {
        session.note("not wanted").unwrap();
        block_on(session.publish()).unwrap();
    }
    let wanted = [Kind::User];
    let read = |after: Cursor| {
        let (mut after, mut found, mut pages) = (after, 0, 0);
        loop {
            let page = block_on(store.scan(Scan::store(after.clone()).kinds(&wanted).limit(10))).unwrap();
            (found, pages) = (found + page.records.len(), pages + 1);
            assert!(!page.more || page.cursor != after, "the scan makes no progress");
            after = page.cursor;
            if !page.more {
                return (after, found, pages);
            }
        }
    };
    let (end, found, _) = read(Cursor::start());
    assert_eq!(found, 0);
    assert_eq!(end, block_on(store.scan(Scan::store(end.clone()))).unwrap().cursor, "the scan is at the end");
    session.user("wanted").unwrap();
    session.note("not wanted").unwrap();
    block_on(session.publish()).unwrap();
    let (end, found, pages) = read(end);
    assert_eq!((found, pages), (1, 1), "only new records were read");
    assert_eq!(read(end).1, 0);
}

/// Watchers of commits and posts are woken by these changes only. Commits can be read as a stream from a cursor.
pub fn changes_wake_watchers(store: &TheStore) {
    let mut session = published(store, 1);
    let id = session.id();
    let (commits, posts) = (store.watch(WatchTopic::Commits), store.watch(WatchTopic::Posts));
    let is_woken = |watcher: &Watcher| poll_once(pin!(watcher.changed()));
    assert!(!is_woken(&commits) && !is_woken(&posts));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(posts.changed()));
        block_on(store.post(post(id, "wakes"))).unwrap();
        waiting.join().unwrap();
    });
    assert!(!is_woken(&commits), "a post is not a commit");
    let early = commits.clone();
    session.note("more").unwrap();
    block_on(session.publish()).unwrap();
    block_on(commits.changed());
    block_on(early.changed());
    commits.mark();
    assert!(!is_woken(&posts), "a commit is not a post");

    let mut stream = store.commits(Cursor::start()).kinds(&[Kind::Note]);
    let first = block_on(stream.next()).unwrap();
    assert_eq!(seqs(&first.records), [1, 2]);
    let mut after = store.commits(first.cursors[0].clone());
    assert_eq!(seqs(&block_on(after.next()).unwrap().records), [2]);
    std::thread::scope(|scope| {
        let next = scope.spawn(|| block_on(stream.next()).unwrap());
        session.user("not a note").unwrap();
        block_on(session.publish()).unwrap();
        session.note("a note").unwrap();
        block_on(session.publish()).unwrap();
        assert_eq!(seqs(&next.join().unwrap().records), [4]);
    });
}

/// A projection that stores the bodies of user messages.
struct UserMessages {
    version: u32,
    applied: AtomicU64,
}

impl UserMessages {
    fn new(version: u32) -> Arc<Self> {
        Arc::new(Self { version, applied: AtomicU64::new(0) })
    }

    fn key(point: Point) -> Vec<u8> {
        [&point.session.0.as_bytes()[..], &point.seq.to_be_bytes()].concat()
    }

    /// The stored bodies, and the number of records folded so far.
    fn of(self: &Arc<Self>, store: &TheStore) -> (Vec<String>, u64) {
        let said = block_on(store.projected(self.clone(), |storage| storage.all(&[]))).unwrap();
        let said = said.into_iter().map(|(_, said)| String::from_utf8(said).unwrap()).collect();
        (said, self.applied.load(Ordering::Acquire))
    }
}

impl Projection for UserMessages {
    fn name(&self) -> &str {
        "said"
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn kinds(&self) -> &[Kind] {
        &[Kind::User]
    }

    fn apply(&self, records: &[Record], storage: &mut dyn Storage) -> Result<()> {
        self.applied.fetch_add(records.len() as u64, Ordering::AcqRel);
        for record in records {
            assert_eq!(*record.kind(), Kind::User);
            if let Some(body) = record.body_bytes() {
                storage.put(&UserMessages::key(record.point()), body)?;
            }
        }
        Ok(())
    }

    fn forget(&self, erased: &ErasedSet, storage: &mut dyn Storage) -> Result<()> {
        erased.records.iter().try_for_each(|record| storage.delete(&UserMessages::key(record.point())))
    }
}

/// When a projection is read, every record was folded exactly once. A new version is rebuilt. Erased records are
/// removed.
pub fn projections_are_up_to_date_when_read(store: &TheStore) {
    let mut session = session(store);
    session.user("one").unwrap();
    session.note("not folded").unwrap();
    session.user("two").unwrap();
    let two = session.head();
    block_on(session.publish()).unwrap();
    let first = UserMessages::new(1);
    assert_eq!(first.of(store), (vec![r#"{"text":"one"}"#.into(), r#"{"text":"two"}"#.into()], 2));
    assert_eq!(first.of(store).1, 2, "no record is folded twice");
    session.user("three").unwrap();
    block_on(session.publish()).unwrap();
    assert_eq!((first.of(store).0.len(), first.of(store).1), (3, 3));
    block_on(store.erase(vec![two])).unwrap();
    assert_eq!(first.of(store), (vec![r#"{"text":"one"}"#.into(), r#"{"text":"three"}"#.into()], 3));
    let second = UserMessages::new(2);
    assert_eq!(second.of(store), (first.of(store).0, 3), "all records are folded again, except the erased one");
    let invalid: Arc<dyn Projection> = Arc::new(InvalidName);
    assert!(block_on(store.projected(invalid, |_| Ok(()))).is_err(), "a path is not a valid name");
}

/// A projection whose name is a path.
struct InvalidName;

impl Projection for InvalidName {
    fn name(&self) -> &str {
        "../odd"
    }

    fn version(&self) -> u32 {
        1
    }

    fn apply(&self, _: &[Record], _: &mut dyn Storage) -> Result<()> {
        Ok(())
    }

    fn forget(&self, _: &ErasedSet, _: &mut dyn Storage) -> Result<()> {
        Ok(())
    }
}

/// Sessions are listed by labels, and by open questions and posts, in pages.
pub fn lists_are_filtered_and_paged(store: &TheStore) {
    let mut sessions: Vec<Session> = (0..5).map(|_| published(store, 1)).collect();
    for (n, session) in sessions.iter_mut().enumerate() {
        session.label("team", if n % 2 == 0 { "blue" } else { "red" }).unwrap();
        block_on(session.publish()).unwrap();
    }
    let ids: Vec<SessionId> = sessions.iter().map(Session::id).collect();
    let list = |query: Query| {
        let mut found: Vec<SessionId> =
            block_on(store.sessions(query)).unwrap().into_iter().map(|row| row.id).collect();
        found.sort_by_key(|id| ids.iter().position(|known| known == id));
        found
    };
    assert_eq!(list(Query::all().label("team")), ids);
    let blue = Query { labels: vec![("team".into(), Some("blue".into()))], ..Query::all() };
    assert_eq!(list(blue.clone()), [ids[0], ids[2], ids[4]]);
    assert_eq!(list(blue.clone().limit(2)).len(), 2);
    assert!(list(Query::all().label("other")).is_empty());
    // The pages together contain all sessions.
    let (mut paged, mut query) = (Vec::new(), Query::all().limit(2));
    loop {
        let rows = block_on(store.sessions(query.clone())).unwrap();
        let Some(last) = rows.last() else { break };
        query = query.after(last);
        paged.extend(rows.into_iter().map(|row| row.id));
    }
    let all: Vec<SessionId> = block_on(store.sessions(Query::all())).unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(paged, all);

    assert!(list(Query::all().waiting()).is_empty());
    let question = Asked::new(QuestionKind::Question, None, "Which one?");
    let shown_digest = question.shown_digest;
    let asked = sessions[1].append(question).unwrap();
    let other = Asked::new(QuestionKind::Question, None, "And this?");
    let other_digest = other.shown_digest;
    let other = sessions[2].append(other).unwrap();
    block_on(sessions[1].publish()).unwrap();
    block_on(sessions[2].publish()).unwrap();
    let mut fork = sessions[1].fork("asks nothing itself");
    block_on(fork.publish()).unwrap();
    block_on(store.post(post(ids[3], "waits"))).unwrap();
    assert_eq!(list(Query::all().waiting()), [ids[1], ids[2], ids[3]]);
    assert_eq!(list(Query { waiting: true, ..blue }), [ids[2]]);
    sessions[1].append(Answered { asked, shown_digest, verdict: Verdict::Yes, why: None }).unwrap();
    block_on(sessions[1].publish()).unwrap();
    assert_eq!(list(Query::all().waiting()), [ids[2], ids[3]]);
    // An answer with the digest of another text does not close the question.
    let wrong = Answered { asked: other, shown_digest, verdict: Verdict::Yes, why: None };
    sessions[2].append(wrong.clone()).unwrap();
    block_on(sessions[2].publish()).unwrap();
    assert_eq!(list(Query::all().waiting()), [ids[2], ids[3]]);
    sessions[2].append(Answered { shown_digest: other_digest, ..wrong }).unwrap();
    block_on(sessions[2].publish()).unwrap();
    block_on(sessions[3].consume_posts()).unwrap();
    block_on(sessions[3].publish()).unwrap();
    assert!(list(Query::all().waiting()).is_empty());
}

/// Polls a future once and returns whether it is ready.
fn poll_once(future: std::pin::Pin<&mut impl Future>) -> bool {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    future.poll(&mut context).is_ready()
}

/// A session is opened from its youngest snapshot, with the same state as from the start.
pub fn snapshots_shorten_scans(store: &TheStore) {
    let mut session = session(store);
    for n in 0..SNAPSHOT_EVERY + 10 {
        session.label(format!("l{}", n % 5), n.to_string()).unwrap();
        if n == 3 {
            block_on(session.publish()).unwrap();
        }
    }
    block_on(session.publish()).unwrap();
    let id = session.id();
    let page = block_on(store.scan(Scan::session(id, 0, 400).from_snapshot())).unwrap();
    assert_eq!(page.snapshot.as_ref().unwrap().0, SNAPSHOT_EVERY);
    assert_eq!(page.records.first().unwrap().seq(), SNAPSHOT_EVERY + 1);
    let early = block_on(store.scan(Scan::session(id, 0, 100).from_snapshot())).unwrap();
    assert_eq!(early.snapshot.as_ref().unwrap().0, 4);
    let labels = session.state().labels.clone();
    drop(session);
    let again = block_on(store.open(id, Actor::program("again"))).unwrap();
    assert_eq!(again.state().labels, labels);
}

/// A scan in pages returns every record once, including records that were committed or erased between the pages.
pub fn a_scan_sees_changes_between_its_pages(store: &TheStore) {
    const PAGE: usize = 200;
    let mut session = published(store, 5 * PAGE - 1);
    let id = session.id();
    let (mut next, mut pages) = (0, 0);
    loop {
        let page = block_on(store.scan(Scan::session(id, next, u64::MAX - 1).limit(PAGE))).unwrap();
        let Some(last) = page.records.last() else { break };
        let seqs: Vec<_> = page.records.iter().map(rath_core::Record::seq).collect();
        assert_eq!(seqs, (next..=last.seq()).collect::<Vec<_>>());
        if pages == 3 {
            assert!(page.records[0].salted_body().is_none(), "the body was erased before this page was asked for");
        }
        pages += 1;
        next = last.seq() + 1;
        match pages {
            3 => {
                let there = block_on(store.scan(Scan::session(id, next, next))).unwrap();
                block_on(store.erase(vec![there.records[0].reference()])).unwrap();
            }
            5 | 6 => {
                for n in 0..PAGE {
                    session.note(format!("more {n}")).unwrap();
                }
                block_on(session.publish()).unwrap();
            }
            _ => {}
        }
    }
    assert_eq!(next, 7 * PAGE as u64);
}

/// Sessions are found by id, prefix and parent, with title and labels, most recently changed first.
pub fn sessions_are_listed(store: &TheStore) {
    let mut parent = published(store, 1);
    parent.set_title("the title").unwrap();
    parent
        .append(Labelled {
            set: [("team".into(), "blue".into()), ("gone".into(), "x".into())].into(),
            ..Labelled::default()
        })
        .unwrap();
    parent.unlabel("gone").unwrap();
    block_on(parent.publish()).unwrap();
    let mut child = parent.fork("try");
    block_on(child.publish()).unwrap();
    let list = |which: SessionFilter| block_on(store.sessions(which.into())).unwrap();
    let all = list(SessionFilter::All);
    assert_eq!(all.iter().map(|row| row.id).collect::<Vec<_>>(), vec![child.id(), parent.id()]);
    let row = &all[1];
    assert_eq!(row.title.as_deref(), Some("the title"));
    assert_eq!(row.labels, [("team".to_owned(), "blue".to_owned())].into());
    assert_eq!((row.head, row.seq), (parent.head().id, parent.head().seq));
    assert!(row.holder.is_some() && !row.closed && row.first_kind == Kind::Created);
    assert_eq!(all[0].origin, Some(parent.head()));
    assert_eq!(list(SessionFilter::ChildrenOf(parent.id())).len(), 1);
    assert_eq!(list(SessionFilter::Id(child.id())).len(), 1);
    assert_eq!(list(SessionFilter::Prefix(child.id().tail())).len(), 1);
    assert_eq!(list(SessionFilter::Prefix(child.id().to_string()[..30].into())).len(), 1);
    assert_eq!(list(SessionFilter::Prefix("%".into())).len(), 0);
    assert_eq!(block_on(store.sessions(Query::all().limit(1))).unwrap().len(), 1);
}

/// A record is found by its complete id and by a prefix.
pub fn records_are_found_by_id(store: &TheStore) {
    let mut session = published(store, 20);
    let get = |lookup| block_on(store.get(lookup)).unwrap();
    for record in stored(store, session.id()) {
        let text = record.id().to_string();
        assert_eq!(get(Lookup::Id(record.id()))[0].point(), record.point());
        for length in [15, 16, 17, 40] {
            assert_eq!(get(Lookup::Prefix(text[..length].into()))[0].id(), record.id());
        }
    }
    session.note("later").unwrap();
    block_on(session.publish()).unwrap();
    assert_eq!(get(Lookup::Id(session.head().id)).len(), 1);
    assert!(get(Lookup::Id(RecordId(Digest::of(b"?")))).is_empty());
    assert!(get(Lookup::Prefix("'; --".into())).is_empty());
}

/// Long content is moved to a blob, which is durable with the commit of its record.
pub fn blobs_are_durable_with_their_record(store: &TheStore) {
    let text: String = (0..20_000).map(|n| char::from(b'a' + (n % 23) as u8)).collect();
    let mut session = session(store);
    session.user(text.clone()).unwrap();
    session.user(text.clone()).unwrap();
    block_on(session.publish()).unwrap();
    let record = &stored(store, session.id())[1];
    assert!(record.body_bytes().unwrap().len() < 300);
    let blob = rath_core::blob_references(record.body_bytes().unwrap()).remove(0);
    assert_eq!(&*block_on(store.blob_get(blob.digest)).unwrap().unwrap(), text.as_bytes());
    let other = Blob::new(vec![0u8; 100], "application/octet-stream");
    assert!(!block_on(store.blob_has(other.reference.digest)).unwrap());
    block_on(store.blob_put(vec![other.clone()])).unwrap();
    assert!(block_on(store.blob_has(other.reference.digest)).unwrap());
    assert_eq!(block_on(store.blob_get(other.reference.digest)).unwrap().unwrap(), other.bytes);
}

/// Queued blobs can be read at once, and are written with the next commit of any session, or with the next blobs.
pub fn queued_blobs_are_written_with_the_next_commit(store: &TheStore) {
    let blob = |n: usize| Blob::new(format!("content {n}").repeat(n % 300 + 1).into_bytes(), "text/plain");
    let is_whole = |blob: &Blob| {
        block_on(store.blob_has(blob.reference.digest)).unwrap()
            && block_on(store.blob_get(blob.reference.digest)).unwrap().as_ref() == Some(&blob.bytes)
    };
    let queue = |blobs: Vec<Blob>| block_on(store.blob_put_soon(blobs)).unwrap();
    queue(vec![blob(1), blob(2), blob(1)]);
    queue(vec![blob(2), blob(3)]);
    assert!((1..4).all(|n| is_whole(&blob(n))));
    published(store, 2);
    assert!((1..4).all(|n| is_whole(&blob(n))));
    queue(vec![blob(4)]);
    block_on(store.blob_put(Vec::new())).unwrap();
    assert!(is_whole(&blob(4)));
    // A large amount of queued blobs is written early.
    for n in 5..400 {
        queue(vec![blob(n)]);
    }
    assert!((5..400).all(|n| is_whole(&blob(n))));
    queue(vec![blob(500)]);
    let parts = [blob(399), blob(500)];
    let whole = Blob::new([&*parts[0].bytes, &*parts[1].bytes].concat(), "text/plain").reference;
    let chunks = parts.map(|Blob { reference, .. }| Chunk { digest: reference.digest, bytes: reference.bytes });
    block_on(store.blob_join(whole.clone(), chunks.into())).unwrap();
    assert_eq!(block_on(store.blob_get(whole.digest)).unwrap().unwrap().len() as u64, whole.bytes);
}

/// Writing many blobs, including duplicates, stores each of them.
pub fn many_blobs_are_written_at_once(store: &TheStore) {
    let blob = |n: u32| Blob::new(format!("content {n}").repeat(n as usize % 50 + 1).into_bytes(), "text/plain");
    let mut many: Vec<Blob> = (0..300).map(blob).collect();
    many.push(blob(7));
    block_on(store.blob_put(many.clone())).unwrap();
    block_on(store.blob_put(vec![blob(7), blob(1000)])).unwrap();
    block_on(store.blob_put(Vec::new())).unwrap();
    for blob in many.iter().chain(&[blob(1000)]) {
        assert_eq!(block_on(store.blob_get(blob.reference.digest)).unwrap().unwrap(), blob.bytes);
        assert!(block_on(store.blob_chunks(blob.reference.digest)).unwrap().is_none());
    }
}

/// A blob can be joined from chunks, read as a whole, and split into its chunks again. A missing chunk is an error.
pub fn blobs_are_joined_from_chunks(store: &TheStore) {
    let blobs: Vec<Blob> =
        [&b"one"[..], b"", b"two", b"one"].map(|text| Blob::new(text, "application/octet-stream")).into();
    let whole = Blob::new(&b"onetwoone"[..], "application/octet-stream").reference;
    let chunks: Vec<Chunk> =
        blobs.iter().map(|blob| Chunk { digest: blob.reference.digest, bytes: blob.reference.bytes }).collect();
    let missing = block_on(store.blob_join(whole.clone(), chunks.clone())).unwrap_err();
    assert_eq!(missing.code(), "not-found");
    assert!(block_on(store.blob_get(whole.digest)).unwrap().is_none());
    assert!(!block_on(store.blob_has(whole.digest)).unwrap());
    block_on(store.blob_put(blobs)).unwrap();
    for _ in 0..2 {
        block_on(store.blob_join(whole.clone(), chunks.clone())).unwrap();
    }
    assert!(block_on(store.blob_has(whole.digest)).unwrap());
    assert_eq!(&*block_on(store.blob_get(whole.digest)).unwrap().unwrap(), b"onetwoone");
    assert_eq!(block_on(store.blob_chunks(whole.digest)).unwrap().unwrap(), chunks);
}

/// An erasure removes salt and body. The id and all other records stay.
pub fn erasing_bodies_keeps_the_chain_valid(store: &TheStore) {
    let session = published(store, 5);
    let before = stored(store, session.id());
    block_on(store.erase(vec![before[2].reference(), before[4].reference()])).unwrap();
    let after = stored(store, session.id());
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before.id(), after.id());
        let erased = [2, 4].contains(&before.seq());
        assert_eq!(after.salted_body().is_none(), erased);
        assert_eq!(after.body::<Note>().is_err(), erased || before.seq() == 0);
    }
    let wrong = rath_core::Reference { id: before[1].id(), ..before[3].reference() };
    assert!(block_on(store.erase(vec![wrong])).is_err());
    assert!(stored(store, session.id())[3].salted_body().is_some());
}

/// An erasure removes the titles and labels of erased records, and blobs that only they refer to.
pub fn erasing_bodies_removes_what_was_derived_from_them(store: &TheStore) {
    let mut session = session(store);
    session.set_title("first").unwrap();
    session.set_title("second").unwrap();
    let titled = session.head();
    session.label("who", "somebody").unwrap();
    let labelled = session.head();
    let (shared, alone) = ("shared ".repeat(3000), "alone ".repeat(3000));
    session.note(shared.clone()).unwrap();
    session.user(shared.clone()).unwrap();
    let sharing = session.head();
    session.user(alone.clone()).unwrap();
    let naming = session.head();
    block_on(session.publish()).unwrap();
    block_on(store.erase(vec![titled, labelled, sharing, naming])).unwrap();
    let row = block_on(store.sessions(SessionFilter::Id(session.id()).into())).unwrap().remove(0);
    assert_eq!((row.title.as_deref(), row.labels.len()), (Some("first"), 0));
    let state = block_on(View::of(store, session.id(), None)).unwrap().state().clone();
    assert_eq!((state.title.as_deref(), state.labels.len()), (Some("first"), 0));
    let stored_blob =
        |text: String| block_on(store.blob_get(Blob::new(text.into_bytes(), "").reference.digest)).unwrap();
    assert_eq!((stored_blob(shared).is_some(), stored_blob(alone).is_some()), (true, false));
}

/// Publishing a fork also publishes the records that it is based on, even if the parent was dropped.
pub fn publishing_a_fork_publishes_the_records_it_is_based_on(store: &TheStore) {
    let mut parent = session(store);
    parent.user("asked").unwrap();
    let mut child = parent.fork("one");
    let mut grandchild = child.fork("two");
    parent.note("after the fork").unwrap();
    let (parent_id, child_id) = (parent.id(), child.id());
    grandchild.assistant("answered").unwrap();
    block_on(grandchild.publish()).unwrap();
    assert_eq!(stored(store, parent_id).len(), 2);
    assert_eq!(stored(store, child_id).len(), 1);
    block_on(parent.publish()).unwrap();
    assert_eq!(stored(store, parent_id).len(), 3);
    child.note("goes on").unwrap();
    block_on(child.publish()).unwrap();
    drop(parent);
    drop(child);
    let again = block_on(store.open(child_id, Actor::program("again"))).unwrap();
    assert_eq!(block_on(again.context()).unwrap().len(), 1);
    let id = grandchild.id();
    drop(grandchild);
    let again = block_on(store.open(id, Actor::program("again"))).unwrap();
    assert_eq!(block_on(again.context()).unwrap().len(), 2);
}

/// A merge commits the merged session and the closed branches together.
pub fn a_merge_is_one_commit(store: &TheStore) {
    let parent = published(store, 1);
    let (a, b) = (parent.fork("a"), parent.fork("b"));
    let (a_id, b_id) = (a.id(), b.id());
    let merged = block_on(parent.merge([a, b], How::Append)).unwrap();
    assert_eq!(merged.unpublished_count(), 0);
    for id in [a_id, b_id] {
        let row = &block_on(store.sessions(SessionFilter::Id(id).into())).unwrap()[0];
        assert!(row.closed);
        let closed: rath_core::body::Closed = stored(store, id).last().unwrap().body().unwrap();
        assert_eq!(closed.merged_into, Some(merged.head()));
    }
}

/// Writers of different sessions do not affect each other.
pub fn many_sessions_can_be_written_in_parallel(store: &TheStore) {
    let ids: Vec<SessionId> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|n| {
                scope.spawn(move || {
                    let mut session = session(store);
                    for step in 0..25 {
                        session.note(format!("writer {n}, step {step}")).unwrap();
                        block_on(session.publish()).unwrap();
                    }
                    session.id()
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    for id in ids {
        let records = stored(store, id);
        assert_eq!(records.len(), 26);
        assert!(records.windows(2).all(|pair| pair[1].first_parent() == Some(pair[0].id())));
    }
}

/// A record of an unknown kind is returned byte for byte.
pub fn records_of_unknown_kinds_are_returned_unchanged(store: &TheStore) {
    let body = r#"{ "z" : 1.50, "a":[ {"é":"\u00e9"} ] }"#;
    let mut session = session(store);
    session.append_json("company.custom", body).unwrap();
    block_on(session.publish()).unwrap();
    let record = &stored(store, session.id())[1];
    assert_eq!(record.body_bytes().unwrap(), body.as_bytes());
    assert_eq!(record.kind().as_str(), "company.custom");
}

fn post(session: SessionId, id: &str) -> Post {
    let (what, time) = (PostContent::Message { text: format!("the words of {id}: \"ü\"") }, Time(1_000_001));
    Post { id: id.into(), session, actor: Actor::person("ada"), time, what }
}

fn waiting(store: &TheStore, session: SessionId) -> Vec<String> {
    block_on(store.posts(session)).unwrap().into_iter().map(|post| post.id).collect()
}

/// Posts are listed per session, oldest first and unchanged. A repeated id is ignored.
pub fn posts_are_listed_in_order(store: &TheStore) {
    let (mine, other) = (published(store, 1), published(store, 1));
    assert!(waiting(store, mine.id()).is_empty());
    for id in ["second", "first", "third"] {
        block_on(store.post(post(mine.id(), id))).unwrap();
    }
    let asked = mine.head().id;
    let what = PostContent::Answer {
        asked,
        shown_digest: Digest::of(b"shown"),
        verdict: rath_core::body::Verdict::Yes,
        why: Some("it is safe".into()),
    };
    let answer = Post { what, ..post(other.id(), "answer") };
    block_on(store.post(answer.clone())).unwrap();
    // A post with the same id and other content is ignored.
    let again = Post { what: PostContent::Cancel { why: "no".into() }, ..post(mine.id(), "first") };
    block_on(store.post(again)).unwrap();
    assert_eq!(waiting(store, mine.id()), ["second", "first", "third"]);
    assert_eq!(block_on(store.posts(mine.id())).unwrap()[1], post(mine.id(), "first"));
    assert_eq!(block_on(store.posts(other.id())).unwrap(), [answer]);
    let stranger = session(&InMemory::new()).id();
    assert!(matches!(block_on(store.post(post(stranger, "lost"))), Err(Error::NotFound(_))));
    assert!(waiting(store, stranger).is_empty());
}

/// When a fork publishes records of its parent, the posts in these records are consumed.
pub fn publishing_a_fork_consumes_posts_of_its_parent(store: &TheStore) {
    let mut parent = published(store, 1);
    let id = parent.id();
    block_on(store.post(post(id, "early"))).unwrap();
    block_on(parent.consume_posts()).unwrap();
    let mut fork = parent.fork("with the words");
    block_on(store.post(post(id, "late"))).unwrap();
    block_on(parent.consume_posts()).unwrap();
    block_on(fork.publish()).unwrap();
    // The parent is dropped without having published anything itself.
    drop((parent, fork));
    assert_eq!(waiting(store, id), ["late"]);
    let mut again = block_on(store.open(id, Actor::program("next"))).unwrap();
    block_on(again.consume_posts()).unwrap();
    block_on(again.publish()).unwrap();
    let said = stored(store, id).iter().filter(|record| *record.kind() == Kind::User).count();
    assert_eq!((said, waiting(store, id).len()), (2, 0));
}

/// A batch with records that do not follow each other, or with two parts for one session, is refused.
pub fn an_inconsistent_batch_is_refused(store: &TheStore) {
    let (mine, theirs) = twins(4);
    let id = mine[0].session();
    let gap = vec![mine[0].clone(), mine[2].clone()];
    let mixed = vec![mine[0].clone(), mine[1].clone(), theirs[2].clone()];
    for records in [gap, mixed] {
        assert!(block_on(store.commit(batch(records, 1))).is_err());
        assert!(block_on(store.sessions(SessionFilter::Id(id).into())).unwrap().is_empty());
    }
    block_on(store.commit(batch(mine[..1].to_vec(), 1))).unwrap();
    let mut twice = batch(mine[1..2].to_vec(), 1);
    twice.parts.extend(batch(theirs[1..2].to_vec(), 1).parts);
    assert!(block_on(store.commit(twice)).is_err());
    assert_eq!(stored(store, id).len(), 1);
    block_on(store.commit(batch(mine.clone(), 1))).unwrap();
    assert_eq!(stored(store, id).len(), mine.len());
}

/// A post is consumed only by a successful commit. Its id is not accepted again after that.
pub fn consumed_posts_are_not_accepted_again(store: &TheStore) {
    let (mine, theirs) = twins(3);
    let id = mine[0].session();
    block_on(store.commit(batch(mine[..2].to_vec(), 1))).unwrap();
    for name in ["a", "b", "c"] {
        block_on(store.post(post(id, name))).unwrap();
    }
    let taking =
        |records: &[Record]| Batch { consumed_posts: vec!["a".into(), "c".into()], ..batch(records.to_vec(), 1) };
    assert!(matches!(block_on(store.commit(taking(&theirs[1..]))), Err(Error::Conflict { .. })));
    assert_eq!(waiting(store, id), ["a", "b", "c"]);
    for _ in 0..2 {
        block_on(store.commit(taking(&mine))).unwrap();
        assert_eq!(waiting(store, id), ["b"]);
        assert_eq!(stored(store, id).len(), mine.len());
    }
    for name in ["a", "b", "c", "d"] {
        block_on(store.post(post(id, name))).unwrap();
    }
    assert_eq!(waiting(store, id), ["b", "d"]);
}

/// The records of a session that was created for a run in another store.
fn records_of_run(key: &str) -> Vec<Record> {
    let elsewhere = InMemory::new();
    let begun =
        block_on(elsewhere.begin_run(key, Actor::program("elsewhere"), async |session| session.user("go").map(drop)));
    stored(&elsewhere, begun.unwrap().id())
}

/// The session of a run is found by the exact key.
pub fn a_run_is_found_by_its_key(store: &TheStore) {
    let other = published(store, 1);
    let find = |key: &str| -> Vec<SessionId> {
        let rows = block_on(store.sessions(SessionFilter::Run(key.into()).into())).unwrap();
        rows.into_iter().map(|row| row.id).collect()
    };
    assert!(find("nightly").is_empty());
    let nightly = records_of_run("nightly");
    let quoted = records_of_run("night'ly %");
    for run in [&nightly, &quoted] {
        block_on(store.commit(batch(run.clone(), 1))).unwrap();
    }
    assert_eq!(find("nightly"), [nightly[0].session()]);
    assert_eq!(find("night'ly %"), [quoted[0].session()]);
    assert!(find("night").is_empty() && find("%").is_empty() && find("").is_empty());
    assert_eq!(block_on(store.sessions(Query::default())).unwrap().len(), 3);
    drop(other);
}

/// A second session for the same run is refused with its whole batch. The first one may be sent again.
pub fn a_run_has_one_session(store: &TheStore) {
    let (first, second, bystander) = (records_of_run("once"), records_of_run("once"), twins(1).0);
    let line = published(store, 1);
    block_on(store.post(post(line.id(), "waits"))).unwrap();
    for records in [&first[..1], &first[..1], &first] {
        block_on(store.commit(batch(records.to_vec(), 1))).unwrap();
    }
    let mut both = Batch { consumed_posts: vec!["waits".into()], ..batch(bystander.clone(), 1) };
    both.parts.extend(batch(second.clone(), 1).parts);
    for late in [both, batch(second.clone(), 1), batch(second[..1].to_vec(), 1)] {
        match block_on(store.commit(late)) {
            Err(Error::RunTaken { key, session }) => {
                assert_eq!((key.as_str(), session), ("once", first[0].session()));
            }
            other => panic!("{other:?}"),
        }
    }
    for gone in [&second, &bystander] {
        assert!(block_on(store.sessions(SessionFilter::Id(gone[0].session()).into())).unwrap().is_empty());
    }
    assert_eq!(waiting(store, line.id()), ["waits"]);
    assert_eq!(stored(store, first[0].session()).len(), first.len());
    let found = block_on(store.sessions(SessionFilter::Run("once".into()).into())).unwrap();
    assert_eq!(found.iter().map(|row| row.id).collect::<Vec<_>>(), [first[0].session()]);
    // The store still works.
    block_on(store.commit(batch(bystander, 1))).unwrap();
}

/// When many processes try to start a run at once, exactly one succeeds, and other commits are not affected.
pub fn only_one_of_many_processes_can_start_a_run(store: &TheStore) {
    let begun = std::thread::scope(|scope| {
        let tries: Vec<_> = (0..8)
            .map(|n| {
                scope.spawn(move || {
                    published(store, 1);
                    let records = records_of_run(if n == 0 { "alone" } else { "together" });
                    block_on(store.commit(batch(records, 1))).is_ok()
                })
            })
            .collect();
        tries.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(begun[0]);
    assert_eq!(begun[1..].iter().filter(|begun| **begun).count(), 1);
    assert_eq!(block_on(store.sessions(Query::default())).unwrap().len(), 10);
}
