//! Full-text search: what is found, what is not, and damage to the index.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pollster::block_on;
use proptest::prelude::*;
use rath_core::body::{Asked, Assistant, Block, CallOutcome, Output, QuestionKind, ToolFinished};
use rath_core::store::Scan;
use rath_core::{Actor, Blob, Kind, Point, Session, Store, Time};
use rath_store::{ActorFilter, Embedded, Pattern, SearchOrder, SearchQuery, SearchResults};
use tempfile::TempDir;

use crate::support::{child, child_dir, sample_sessions, verify};

/// A store, also opened as its own type.
struct Library {
    store: std::sync::Arc<dyn Store>,
    embedded: Embedded,
    path: PathBuf,
    _dir: TempDir,
}

impl Library {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("store");
        let store = Embedded::create(&path).unwrap();
        Self { store, embedded: Embedded::open_as(&path, "test").unwrap(), path, _dir: dir }
    }

    fn session(&self, texts: &[&str]) -> Session {
        let mut session = Session::create(&self.store, Actor::person("ada"));
        for text in texts {
            session.user(*text).unwrap();
        }
        block_on(session.publish()).unwrap();
        session
    }

    fn ask(&self, question: &SearchQuery) -> SearchResults {
        self.embedded.search(question).unwrap()
    }

    fn points(&self, pattern: &str) -> Vec<Point> {
        points(&self.ask(&question(pattern)))
    }

    /// The seqs of the hits, for a store with one session.
    fn seqs(&self, pattern: &str) -> Vec<u64> {
        self.points(pattern).iter().map(|point| point.seq).collect()
    }
}

fn question(pattern: &str) -> SearchQuery {
    SearchQuery::new(pattern.parse().unwrap())
}

fn points(found: &SearchResults) -> Vec<Point> {
    found.hits.iter().map(|hit| hit.record.point()).collect()
}

/// The matched parts of the texts.
fn marked(found: &SearchResults) -> Vec<String> {
    let passages = found.hits.iter().flat_map(|hit| &hit.passages);
    passages
        .flat_map(|matched| matched.ranges.iter().map(|place| matched.passage.text[place.clone()].to_owned()))
        .collect()
}

#[test]
fn words_phrases_prefixes_and_exclusions() {
    let library = Library::new();
    library.session(&[
        "The pool is too small since v42: raise it to 50.",
        "Roll back to v41 now: error rate 0.1 % again.",
        "Raise the error, rate it.",
        "Die Straße ist zu. L'été à Genève.",
    ]);
    assert_eq!(library.seqs("RAISE"), [3, 1]);
    assert_eq!(library.seqs("raise pool"), [1]);
    assert_eq!(library.seqs("\"error rate\""), [3, 2]);
    assert_eq!(library.seqs("\"error rate 0.1\""), [2]);
    assert_eq!(library.seqs("rate -\"error rate 0\""), [3]);
    assert_eq!(library.seqs("v4*"), [2, 1]);
    assert_eq!(library.seqs("v4"), Vec::<u64>::new());
    assert_eq!(library.seqs("pool OR roll OR nothing"), [2, 1]);
    assert_eq!(library.seqs("raise pool OR rate it"), [3, 1]);
    assert_eq!(library.seqs("strasse ete geneve"), [4]);
    assert_eq!(library.seqs("STRASSE"), library.seqs("straße"));
    assert_eq!(marked(&library.ask(&question("\"it to 50\" pool"))), ["pool", "it to 50"]);
    let mut oldest = question("raise");
    oldest.order = SearchOrder::Oldest;
    assert_eq!(points(&library.ask(&oldest)).iter().map(|point| point.seq).collect::<Vec<_>>(), [1, 3]);
    oldest.limit = Some(1);
    let found = library.ask(&oldest);
    assert!(found.more && found.hits.len() == 1 && found.unindexed.is_none());
}

#[test]
fn scripts_without_spaces_are_found_by_any_part() {
    let library = Library::new();
    library.session(&[
        "東京都庁は新宿区にあります。",
        "私は京都に住んでいます",
        "ภาษาไทยไม่มีช่องว่าง",
        "한국어를 배웁니다",
        "ﾃﾞｰﾀﾍﾞｰｽ is ＤＢ",
    ]);
    assert_eq!(library.seqs("東京"), [1]);
    assert_eq!(library.seqs("京都"), [2, 1]);
    assert_eq!(library.seqs("都庁は新宿"), [1]);
    assert_eq!(library.seqs("庁"), [1]);
    assert_eq!(library.seqs("都"), [2, 1]);
    assert_eq!(library.seqs("す"), [2, 1]);
    assert_eq!(library.seqs("京新"), Vec::<u64>::new());
    assert_eq!(library.seqs("ไทย"), [3]);
    assert_eq!(library.seqs("한국"), [4]);
    assert_eq!(library.seqs("국어를"), [4]);
    assert_eq!(library.seqs("データベース db"), [5]);
    assert_eq!(marked(&library.ask(&question("庁"))), ["庁"]);
    assert_eq!(marked(&library.ask(&question("都庁は新宿"))), ["都庁は新宿"]);
}

#[test]
fn readable_text_is_found_and_identifiers_are_not() {
    let library = Library::new();
    let mut session = Session::create(&library.store, Actor::agent("fixer"));
    session.set_title("Zebra crossing").unwrap();
    session.system("Be laconic.").unwrap();
    let long = format!("{}\nneedle at the end", "hay ".repeat(20_000));
    session.user(long).unwrap();
    let blocks = vec![
        Block::Reasoning { text: "Presumably caching.".into() },
        Block::ToolUse {
            id: "toolu_abc".into(),
            name: "edit".into(),
            arguments: r#"{"path":"src/pool.rs","new":"first\nsecond \u00e9clair"}"#.into(),
        },
    ];
    session.append(Assistant::new(blocks)).unwrap();
    let picture = Blob::new(b"\x89PNG not words".to_vec(), "image/png");
    let bytes = Blob::new(b"caf\xe9 brewed".to_vec(), "application/octet-stream");
    let binary = Blob::new(b"elf\0sections".to_vec(), "application/octet-stream");
    block_on(library.store.blob_put(vec![picture.clone(), bytes.clone(), binary.clone()])).unwrap();
    let mut finished = ToolFinished::new("toolu_abc", CallOutcome::Done);
    let output = |stream: &str, text: Option<&str>, blob: Option<&Blob>| Output {
        text: text.map(str::to_owned),
        blob: blob.map(|blob| blob.reference.clone()),
        ..Output::new(stream)
    };
    finished.output = vec![
        output("stdout", Some("compiled quickly"), None),
        output("stderr", None, Some(&bytes)),
        output("core", None, Some(&binary)),
        output("shot", None, Some(&picture)),
    ];
    session.append(finished).unwrap();
    session.note("remember the milk").unwrap();
    session.append(Asked::new(QuestionKind::Question, None, "Shall I proceed?")).unwrap();
    session.append_json("company.custom", r#"{"id": "kept", "digest": "as it is"}"#).unwrap();
    block_on(session.publish()).unwrap();
    for (pattern, seq) in [
        ("zebra", 1),
        ("laconic", 2),
        ("needle", 3),
        ("presumably", 4),
        ("pool.rs", 4),
        ("second", 4),
        ("eclair", 4),
        ("quickly", 5),
        ("brewed", 5),
        ("milk", 6),
        ("proceed", 7),
        ("kept", 8),
    ] {
        assert_eq!(library.seqs(pattern), [seq], "{pattern}");
    }
    for nothing in ["toolu", "nsecond", "png", "sections", "stdout", "question", "tool_use"] {
        assert_eq!(library.seqs(nothing), Vec::<u64>::new(), "{nothing}");
    }
    let found = library.ask(&question("quickly OR brewed"));
    let fields: Vec<_> = found.hits[0].passages.iter().map(|matched| matched.passage.field.as_str()).collect();
    assert_eq!(fields, ["stdout", "stderr"]);
}

#[test]
fn only_the_beginning_of_long_texts_is_indexed() {
    let library = Library::new();
    let filler = "word ".repeat(300_000);
    library.session(&[&format!("early {filler} late")]);
    assert_eq!(library.seqs("early"), [1]);
    assert_eq!(library.seqs("late"), Vec::<u64>::new());
    assert!(library.ask(&question("early")).hits[0].passages[0].passage.cut);
    let search = library.embedded.health().unwrap().search;
    assert_eq!((search.cut, search.behind, search.damage.len()), (1, 0, 0));
}

#[test]
fn filters_limit_the_hits() {
    let library = Library::new();
    let mut session = library.session(&["apple one"]);
    let between = session.head();
    std::thread::sleep(Duration::from_millis(2));
    let middle = Time::now();
    std::thread::sleep(Duration::from_millis(2));
    session.act_as(Actor::agent("Planner"));
    session.assistant("apple two").unwrap();
    block_on(session.publish()).unwrap();
    let mut fork = session.fork("another way");
    fork.act_as(Actor::agent("coder"));
    fork.assistant("apple three").unwrap();
    fork.label("fruit", "red").unwrap();
    block_on(fork.publish()).unwrap();
    session.assistant("apple four").unwrap();
    block_on(session.publish()).unwrap();
    let at = |session: &Session, seq| Point { session: session.id(), seq };
    let (one, two, three, four) = (at(&session, 1), at(&session, 2), at(&fork, 1), at(&session, 3));
    let with = |change: &dyn Fn(&mut SearchQuery)| {
        let mut question = question("apple");
        change(&mut question);
        points(&library.ask(&question))
    };
    assert_eq!(with(&|_| {}), [four, three, two, one]);
    assert_eq!(with(&|question| question.kinds = vec![Kind::User]), [one]);
    assert_eq!(with(&|question| question.kinds = vec![Kind::User, Kind::Assistant]).len(), 4);
    assert_eq!(with(&|question| question.actor = Some(ActorFilter::from("planner"))), [four, two]);
    assert_eq!(with(&|question| question.actor = Some(ActorFilter::from("agent:"))), [four, three, two]);
    assert_eq!(with(&|question| question.actor = Some(ActorFilter::from("person:planner"))), []);
    assert_eq!(with(&|question| question.labels = vec![("fruit".into(), None)]), [three]);
    assert_eq!(with(&|question| question.labels = vec![("fruit".into(), Some("green".into()))]), []);
    assert_eq!(with(&|question| question.since = Some(middle)), [four, three, two]);
    assert_eq!(with(&|question| question.until = Some(middle)), [one]);
    assert_eq!(with(&|question| question.within = Some(vec![(fork.id(), u64::MAX)])), [three]);
    let lineage = block_on(async {
        rath_core::View::of(&library.store, fork.id(), None).await.unwrap().lineage().await.unwrap()
    });
    let branch: Vec<_> = lineage.iter().map(|line| (line.session, line.to)).collect();
    assert_eq!(with(&|question| question.within = Some(branch.clone())), [three, two, one]);
    assert_eq!(with(&|question| question.within = Some(vec![(session.id(), between.seq)])), [one]);
    assert_eq!(with(&|question| question.within = Some(vec![])), []);
    // More sessions than fit into the index lookup.
    let mut many: Vec<_> = (0..100).map(|n| (library.session(&[&format!("pear {n}")]).id(), u64::MAX)).collect();
    many.push((fork.id(), u64::MAX));
    assert_eq!(with(&|question| question.within = Some(many.clone())), [three]);
}

#[test]
fn erased_records_are_not_shown_and_removed_words_leave_no_bytes() {
    let library = Library::new();
    let session = library.session(&["Xylophonist Quixwood called.", "Nobody called.", "Quixwood called again."]);
    let other = library.session(&["a word of Quixwood's neighbour"]);
    assert_eq!(library.points("quixwood").len(), 3);
    // Erased while the index was away, as by an older version. The index finds the record, but it is not shown.
    let (index, aside) = (library.path.join("search.db"), library.path.join("aside"));
    std::fs::rename(&index, &aside).unwrap();
    let last = block_on(library.store.scan(Scan::session(session.id(), 3, 3))).unwrap().records.remove(0);
    block_on(library.store.erase(vec![last.reference()])).unwrap();
    std::fs::rename(&aside, &index).unwrap();
    assert_eq!(library.points("quixwood"), [other.head().point(), Point { session: session.id(), seq: 1 }]);
    // Removed while the record can be read: only its words are removed.
    let about = library.ask(&SearchQuery::about("Xylophonist, QUIXWOOD").unwrap());
    let all = points(&about);
    assert_eq!(all, [Point { session: session.id(), seq: 1 }]);
    assert!(has_bytes_of(&library.path, "xylophonist"));
    library.embedded.forget(&all).unwrap();
    assert!(!has_bytes_of(&library.path, "xylophonist"));
    assert_eq!(library.points("quixwood"), [other.head().point()]);
    assert_eq!(library.points("called").len(), 1);
    // An update of the index before the record is erased does not add it again.
    library.session(&["fresh"]);
    assert_eq!(library.points("fresh").len(), 1);
    assert!(!has_bytes_of(&library.path, "xylophonist"));
    // If a record cannot be read any more, the whole index is emptied and rebuilt.
    library.embedded.forget(&[Point { session: session.id(), seq: 3 }]).unwrap();
    assert!(!has_bytes_of(&library.path, "nobody"));
    assert_eq!(library.points("nobody").len(), 1);
    assert_eq!(library.points("xylophonist"), []);
    library.embedded.reindex(&mut |_| {}).unwrap();
    assert_eq!(library.points("xylophonist").len(), 1);
    assert!(verify(&library.path).is_valid());
}

#[test]
fn records_can_be_removed_before_the_first_search() {
    let library = Library::new();
    let session = library.session(&["Quixwood called."]);
    library.embedded.forget(&[session.head().point()]).unwrap();
    assert_eq!(library.points("quixwood"), []);
    assert_eq!(library.embedded.health().unwrap().search.behind, 0);
}

#[test]
fn one_record_of_many_is_removed() {
    let library = Library::new();
    let texts: Vec<String> =
        (0..3000).map(|n| format!("person{n} lives in street{} of town{}", n * 7, n % 50)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    library.session(&texts[..1500]);
    library.points("town1");
    let session = library.session(&texts[1500..]);
    assert_eq!(library.points("town1").len(), 60);
    for seq in [1, 700, 1500] {
        let name = format!("person{}", 1499 + seq);
        let point = Point { session: session.id(), seq };
        assert_eq!(library.points(&name), [point]);
        library.embedded.forget(&[point]).unwrap();
        assert!(!has_bytes_of(&library.path, &name), "{name}");
        assert_eq!(library.points(&name), []);
    }
    assert_eq!(library.points("town1").len(), 60);
    assert_eq!(library.points("person2*").len(), 1109);
}

/// Whether the files of the index contain a word without its first three letters.
fn has_bytes_of(path: &Path, word: &str) -> bool {
    let tail = &word.as_bytes()[word.len().min(3)..];
    ["search.db", "search.db-wal"].iter().any(|name| {
        let bytes = fs::read(path.join(name)).unwrap_or_default();
        bytes.windows(tail.len()).any(|window| window == tail)
    })
}

/// The index has no checksums, so a damaged entry that is well formed gives wrong hits. The health report must show it.
#[test]
fn an_index_with_wrong_entries_is_reported() {
    let library = Library::new();
    let words = ["apple", "plum", "pear", "quince", "cherry", "medlar"];
    for n in 0..150usize {
        let said = format!("{} and {} make {n}", words[n % 6], words[n % 5]);
        library.session(&[&said, &format!("no {}", words[n % 4])]);
    }
    let baseline: Vec<_> = words.iter().map(|word| library.points(word)).collect();
    let index = library.path.join("search.db");
    rusqlite::Connection::open(&index).unwrap().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let health = || library.embedded.health().unwrap().search;
    assert!(health().compared && health().damage.is_empty(), "{:?}", health());
    let clean = fs::read(&index).unwrap();
    let mut chance = rath_testkit::power::SeededRng::new(6);
    let mut wrong = 0;
    for round in 0..120 {
        let at = 4096 + chance.below(clean.len() as u64 - 4096) as usize;
        let mut bytes = clean.clone();
        bytes[at] ^= 1 << chance.below(8);
        for log in ["search.db-wal", "search.db-shm"] {
            let _ = fs::remove_file(library.path.join(log));
        }
        fs::write(&index, bytes).unwrap();
        let damage = health().damage;
        let answers: Vec<_> = words
            .iter()
            .map(|word| library.embedded.search(&question(word)).map(|found| points(&found)).unwrap_or_default())
            .collect();
        if answers != baseline {
            wrong += 1;
            assert!(!damage.is_empty(), "round {round}: byte {at} gives wrong hits, but no damage is reported");
        }
    }
    assert!(wrong > 0, "no damage changed a result");
    library.embedded.reindex(&mut |_| {}).unwrap();
    assert!(health().damage.is_empty());
}

#[test]
fn a_damaged_missing_or_foreign_index_is_rebuilt() {
    let library = Library::new();
    library.session(&["apple pie", "plum cake"]);
    let index = library.path.join("search.db");
    assert_eq!(library.seqs("apple"), [1]);
    let empty = |name: &str| fs::remove_file(library.path.join(name)).unwrap_or_default();
    // Missing.
    empty("search.db");
    assert_eq!(library.seqs("apple"), [1]);
    // Not a database.
    fs::write(&index, "this is not a database, whatever its name says".repeat(200)).unwrap();
    ["search.db-wal", "search.db-shm"].into_iter().for_each(empty);
    assert!(!library.embedded.health().unwrap().search.damage.is_empty());
    assert_eq!(library.seqs("apple"), [1]);
    // A foreign database, and one of another version.
    for change in ["CREATE TABLE mine (a); PRAGMA application_id = 7", "PRAGMA user_version = 99"] {
        let db = rusqlite::Connection::open(&index).unwrap();
        db.execute_batch(change).unwrap();
        drop(db);
        assert_eq!(library.seqs("apple"), [1], "{change}");
    }
    // A missing table, and overwritten pages.
    let db = rusqlite::Connection::open(&index).unwrap();
    db.execute_batch("DROP TABLE marks").unwrap();
    drop(db);
    assert_eq!(library.seqs("apple"), [1]);
    let whole = fs::read(&index).unwrap();
    for at in (0..whole.len()).step_by(1024) {
        let mut damaged = whole.clone();
        let end = (at + 700).min(damaged.len());
        damaged[at..end].fill(0xa5);
        fs::write(&index, damaged).unwrap();
        ["search.db-wal", "search.db-shm"].into_iter().for_each(empty);
        let found = library.seqs("apple");
        assert!(found == [1] || found.is_empty(), "a wrong answer with byte {at} overwritten: {found:?}");
        library.embedded.reindex(&mut |_| {}).unwrap();
        assert_eq!(library.seqs("apple"), [1]);
    }
    // Truncated.
    fs::write(&index, &whole[..whole.len() / 2]).unwrap();
    ["search.db-wal", "search.db-shm"].into_iter().for_each(empty);
    library.seqs("apple");
    assert!(verify(&library.path).is_valid());
}

#[test]
fn the_index_is_rebuilt_after_the_store_was_restored_from_a_copy() {
    let library = Library::new();
    let mut session = library.session(&["before"]);
    library.embedded.checkpoint().unwrap();
    let backup = fs::read(library.path.join("rath.db")).unwrap();
    session.user("beginning").unwrap();
    session.user("in the first life").unwrap();
    let gone = session.head().point();
    block_on(session.publish()).unwrap();
    assert_eq!(library.points("life").len(), 1);
    // The list of removed records has row numbers, which other records get after the restore.
    library.embedded.forget(&[gone]).unwrap();
    let Library { store, embedded, path, _dir } = library;
    drop((session, store, embedded));
    fs::write(path.join("rath.db"), backup).unwrap();
    for log in ["rath.db-wal", "rath.db-shm"] {
        let _ = fs::remove_file(path.join(log));
    }
    let store = Embedded::open(&path).unwrap();
    let embedded = Embedded::open_as(&path, "test").unwrap();
    let library = Library { store, embedded, path, _dir };
    library.session(&["in the second"]);
    assert_eq!(library.points("first").len(), 0);
    assert_eq!(library.points("second").len(), 1);
    assert_eq!(library.points("before").len(), 1);
}

#[test]
fn without_a_writable_index_the_records_are_searched() {
    let library = Library::new();
    library.session(&["apple one"]);
    library.points("apple");
    library.session(&["apple two"]);
    // A directory has the name of the lock file, which not even root can open for writing.
    fs::remove_file(library.path.join("search.lock")).unwrap();
    fs::create_dir(library.path.join("search.lock")).unwrap();
    let found = library.ask(&question("apple"));
    assert_eq!(found.hits.len(), 2);
    assert!(found.unindexed.is_some());
    let mut oldest = question("apple");
    oldest.order = SearchOrder::Oldest;
    let (newest, oldest) = (points(&found), points(&library.ask(&oldest)));
    assert_eq!(newest.iter().rev().copied().collect::<Vec<_>>(), oldest);
    // Without an index.
    for name in ["search.db", "search.db-wal", "search.db-shm"] {
        let _ = fs::remove_file(library.path.join(name));
    }
    assert_eq!(points(&library.ask(&question("apple"))), newest);
    assert!(library.embedded.forget(&newest).is_err());
}

#[test]
fn the_sample_sessions_can_be_searched() {
    let library = Library::new();
    sample_sessions(&library.store);
    assert_eq!(library.points("\"four thousand lines\"").len(), 2);
    assert_eq!(library.points("\"later note\"").len(), 300);
    assert_eq!(library.points("\"as it is\" -kept").len(), 1);
    assert_eq!(library.points("looked").len(), 1);
    let search = library.embedded.health().unwrap().search;
    assert!(search.bytes.unwrap() > 0 && search.behind == 0 && search.damage.is_empty(), "{search:?}");
}

/// Child process: updates the index and prints the number of hits, again and again, until it is killed.
#[test]
fn indexer() {
    let Some(dir) = child_dir() else { return };
    let store = Embedded::open_as(dir, "indexer").unwrap();
    loop {
        let found = store.index(&mut |_| {}).and_then(|_| store.search(&question("common")));
        let found = found.unwrap_or_else(|error| {
            let _ = writeln!(std::io::stdout(), "\n{error}");
            panic!("{error}")
        });
        writeln!(std::io::stdout(), "\nfound {}", found.hits.len()).unwrap();
    }
}

#[test]
fn concurrent_and_killed_indexers_lose_nothing() {
    let library = Library::new();
    let mut expected = 0;
    for life in 0..12 {
        for n in 0..40 {
            library.session(&[&format!("common word{life}x{n} {}", "filler ".repeat(200))]);
            expected += 1;
        }
        let mut indexers: Vec<_> = (0..3).map(|_| child("search::indexer", &library.path)).collect();
        if life % 3 == 0 {
            // Wait until one of them has finished.
            let mut output = Vec::new();
            let lines = BufReader::new(indexers[0].stdout.take().unwrap()).lines().map_while(Result::ok);
            let mut lines_read = lines.inspect(|line| output.push(line.clone()));
            let found = lines_read.find_map(|line| line.strip_prefix("found ")?.parse::<u64>().ok());
            assert_eq!(found, Some(expected), "{}", output.join("\n"));
        } else {
            std::thread::sleep(Duration::from_millis(10 + 17 * (life % 5)));
        }
        for indexer in &mut indexers {
            indexer.kill().unwrap();
            indexer.wait().unwrap();
        }
        assert_eq!(library.points("common").len() as u64, expected, "life {life}");
    }
    let each: BTreeSet<_> = (0..12).map(|life| library.points(&format!("word{life}x7")).len()).collect();
    assert_eq!(each, BTreeSet::from([1]));
    assert!(library.embedded.health().unwrap().search.damage.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(rath_testkit::scaled(40)))]

    #[test]
    fn every_word_of_a_body_is_found(texts in proptest::collection::vec("(\\PC{0,12}[ \n.]?){0,8}", 1..6), common in "[a-c]{1,2}") {
        use unicode_segmentation::UnicodeSegmentation as _;
        let library = Library::new();
        let texts: Vec<String> = texts.iter().map(|text| format!("{text} {common}")).collect();
        let session = library.session(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let all: Vec<Point> = (1..=texts.len() as u64).map(|seq| Point { session: session.id(), seq }).collect();
        let found = |pattern: Pattern| points(&library.embedded.search(&SearchQuery::new(pattern)).unwrap());
        prop_assert_eq!(found(Pattern::phrase(&common).unwrap()).len(), all.len());
        for (text, point) in texts.iter().zip(&all) {
            for word in text.unicode_words() {
                // Characters that count as letters but are removed by folding are not words.
                let Ok(pattern) = Pattern::phrase(word) else { continue };
                prop_assert!(found(pattern).contains(point), "{:?} in {:?}", word, text);
            }
            if let Ok(whole) = Pattern::phrase(text) {
                prop_assert!(found(whole).contains(point), "{:?}", text);
            }
        }
    }

    #[test]
    fn no_pattern_makes_a_search_fail(pattern in "\\PC{0,30}|([a-b\"*() -]|OR |NOT |NEAR){0,12}") {
        let library = Library::new();
        library.session(&["a b", "b a"]);
        if let Ok(pattern) = pattern.parse::<Pattern>() {
            library.embedded.search(&SearchQuery::new(pattern)).unwrap();
        }
    }
}
