//! Bundles: out of one store and into another, exact, and refused when a byte is another one.

mod cut_short;
mod diverging;
mod elsewhere;
mod formats;
mod hostile;
mod redacted;
mod tampered;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rath::body::Outcome;
use rath::prelude::*;
use rath::store::{Batch, Piece, Scan, Which};
use rath::{Blob, BlobRef, Digest, Kind, OPERATOR, Reference};
use rath_audit::bundle::{Export, Fate, Graph, Import, Imported};

/// A store with a family of sessions: forks, a merge, long contents, a step, an erased record.
pub(super) struct Family {
    pub(super) store: Arc<dyn Store>,
    pub(super) main: SessionId,
    pub(super) branch: SessionId,
    pub(super) aside: SessionId,
}

pub(super) async fn family(store: Arc<dyn Store>) -> Family {
    let mut main = store.create(Actor::person("ada"));
    main.set_title("doors").unwrap();
    main.user("Which colour for Mr Secret's door?\u{2028}A \"warm\" one.").unwrap();
    main.enter("think").unwrap();
    let long = "red ".repeat(5000);
    main.assistant(long.as_str()).unwrap();
    main.leave(Outcome::Done).unwrap();
    main.user_with("Look.", [("door.png", Blob::new(*b"picture of a door", "image/png"))]).unwrap();
    main.publish().await.unwrap();
    let mut aside = main.fork("another thought");
    aside.assistant("Green.").unwrap();
    aside.publish().await.unwrap();
    let mut branch = main.fork("cold colours");
    branch.assistant("Blue.").unwrap();
    let (branch_id, aside_id) = (branch.id(), aside.id());
    let mut main = main.merge([branch], How::Append).await.unwrap();
    let told = main.note("nobody needs to know").unwrap();
    main.assistant("Red, then.").unwrap();
    main.publish().await.unwrap();
    let id = main.id();
    drop((main, aside));
    let mut seq = 0;
    for record in store.scan(Scan::session(id, 0, u64::MAX)).await.unwrap().records {
        if record.id() == told {
            seq = record.seq();
        }
    }
    store.erase(vec![Reference { session: id, seq, id: told }]).await.unwrap();
    Family { store, main: id, branch: branch_id, aside: aside_id }
}

pub(super) async fn export(export: &Export, store: &Arc<dyn Store>, path: &Path) -> Graph {
    export.write(store, path, &mut |_| {}).await.unwrap().graph
}

pub(super) async fn import(store: &Arc<dyn Store>, path: &Path) -> Result<Imported, rath_audit::bundle::Error> {
    Import::default().read(store, &Actor::person("bob"), path, &mut |_| {}).await
}

/// Every file below a directory.
pub(super) fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => {
                    found.insert(path.strip_prefix(root).unwrap().into(), std::fs::read(&path).unwrap());
                }
            }
        }
    }
    found
}

/// How many records a store has, without its own session.
pub(super) async fn records_in(store: &Arc<dyn Store>) -> u64 {
    let rows = store.sessions(Which::All.into()).await.unwrap();
    let own = store.sessions(Which::Run(OPERATOR.into()).into()).await.unwrap();
    rows.iter().filter(|row| !own.iter().any(|own| own.id == row.id)).map(|row| row.seq + 1).sum()
}

pub(super) fn embedded(dir: &Path, name: &str) -> Arc<dyn Store> {
    Embedded::create(dir.join(name)).unwrap()
}

pub(super) fn is_sound(dir: &Path, name: &str) {
    let report = Embedded::open_here(dir.join(name), "test").unwrap().verify(None, &mut |_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
}

#[tokio::test]
async fn out_in_and_out_again_is_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (round, from) in [Memory::new(), embedded(dir.path(), "from")].into_iter().enumerate() {
        let Family { store, main, aside, .. } = family(from).await;
        for graph in [false, true] {
            let what = Export { graph, ..Export::of(main, None) };
            let name = format!("{round}-{graph}");
            let said = export(&what, &store, &at(&format!("{name}-a"))).await;
            assert_eq!(said.sessions.iter().any(|head| head.session == aside), graph, "the family, and nobody else");
            assert_eq!(said.merges.len(), 1);
            export(&what, &store, &at(&format!("{name}-a.zip"))).await;
            for zip in ["", ".zip"] {
                for into in [Memory::new(), embedded(dir.path(), &format!("{name}{zip}-into"))] {
                    let imported = import(&into, &at(&format!("{name}-a{zip}"))).await.unwrap();
                    assert!(imported.sessions.values().all(|fate| *fate == Fate::New));
                    assert_eq!(imported.records, said.records);
                    assert_eq!(records_in(&into).await, said.records);
                    let again = tempfile::tempdir().unwrap();
                    export(&what, &into, &again.path().join("b")).await;
                    assert_eq!(files(&at(&format!("{name}-a"))), files(&again.path().join("b")));
                    export(&what, &into, &again.path().join("b.zip")).await;
                    let zipped = std::fs::read(at(&format!("{name}-a.zip"))).unwrap();
                    assert_eq!(zipped, std::fs::read(again.path().join("b.zip")).unwrap());
                    let view = View::of(&into, main, None).await.unwrap();
                    assert_eq!(view.text().await.unwrap().as_deref(), Some("Red, then."));
                }
                is_sound(dir.path(), &format!("{name}{zip}-into"));
            }
        }
    }
}

#[tokio::test]
async fn what_the_store_has_is_passed_over_and_what_is_new_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let Family { store, main, branch, .. } = family(Memory::new()).await;
    export(&Export::of(main, Some(3)), &store, &at("early")).await;
    export(&Export::of(main, None), &store, &at("late.zip")).await;
    let into = embedded(dir.path(), "into");
    let early = import(&into, &at("early")).await.unwrap();
    assert_eq!((early.sessions.len(), early.sessions[&main].clone(), early.records), (1, Fate::New, 4));
    let late = import(&into, &at("late.zip")).await.unwrap();
    assert_eq!(late.sessions[&main], Fate::Forwarded { from: 4 });
    assert_eq!(late.sessions[&branch], Fate::New);
    let rows = || async {
        let rows = into.sessions(Which::All.into()).await.unwrap();
        rows.into_iter().map(|row| (row.id, row.head)).collect::<Vec<_>>()
    };
    let before = rows().await;
    for path in ["late.zip", "early"] {
        let again = import(&into, &at(path)).await.unwrap();
        assert!(again.records == 0 && again.sessions.values().all(|fate| *fate == Fate::Known));
    }
    assert_eq!(before, rows().await);
    drop(into);
    is_sound(dir.path(), "into");
}

#[tokio::test]
async fn a_session_that_somebody_holds_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let Family { store, main, .. } = family(Memory::new()).await;
    export(&Export::of(main, Some(3)), &store, &at("early")).await;
    export(&Export::of(main, None), &store, &at("late")).await;
    let into = Memory::new();
    import(&into, &at("early")).await.unwrap();
    let held = into.open(main, Actor::person("eve")).await.unwrap();
    assert!(import(&into, &at("late")).await.unwrap_err().to_string().contains("is held by"));
    assert_eq!(records_in(&into).await, 4);
    drop(held);
    assert_eq!(import(&into, &at("late")).await.unwrap().sessions[&main], Fate::Forwarded { from: 4 });
    into.open(main, Actor::person("eve")).await.unwrap().user("And the windows?").unwrap();
}

#[tokio::test]
async fn large_contents_go_through_by_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let store = embedded(dir.path(), "from");
    let (mut pieces, mut whole) = (Vec::new(), Vec::new());
    for n in 0..6u8 {
        let piece = Blob::new(vec![n; 1 << 20], "application/octet-stream");
        whole.extend_from_slice(&piece.bytes);
        pieces.push(Piece { digest: piece.reference.digest, bytes: piece.reference.bytes });
        store.blob_put(vec![piece]).await.unwrap();
    }
    let reference = BlobRef { digest: Digest::of(&whole), bytes: 6 << 20, media_type: "video/mp4".into() };
    store.blob_join(reference.clone(), pieces).await.unwrap();
    let mut session = store.create(Actor::person("ada"));
    let attached = vec![rath::body::Attached { content: reference.clone(), name: Some("film".into()) }];
    session.append(rath::body::User { text: "Look.".into(), post: None, attached }).unwrap();
    session.publish().await.unwrap();
    for name in ["a", "a.zip"] {
        let said = export(&Export::of(session.id(), None), &store, &dir.path().join(name)).await;
        assert_eq!((said.blobs, said.blob_bytes), (1, 6 << 20));
        let into = Memory::new();
        import(&into, &dir.path().join(name)).await.unwrap();
        assert_eq!(into.blob_get(reference.digest).await.unwrap().unwrap()[..], whole[..]);
        assert_eq!(into.blob_pieces(reference.digest).await.unwrap().unwrap().len(), 6);
    }
}

#[tokio::test]
async fn a_long_line_is_opened_from_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let store = Memory::new();
    let mut session = store.create(Actor::person("ada"));
    for n in 0..5000 {
        session.user(format!("message {n}")).unwrap();
    }
    session.label("colour", "red").unwrap();
    session.publish().await.unwrap();
    let mut fork = session.fork("on");
    for n in 0..300 {
        fork.user(format!("message {n}")).unwrap();
    }
    fork.publish().await.unwrap();
    let (id, fork_id) = (session.id(), fork.id());
    export(&Export::of(fork_id, None), &store, &dir.path().join("a")).await;
    let into = embedded(dir.path(), "into");
    import(&into, &dir.path().join("a")).await.unwrap();
    for (session, seq) in [(id, 5001), (fork_id, 300)] {
        let page = into.scan(Scan::session(session, 0, seq).from_snapshot().limit(0)).await.unwrap();
        assert_eq!(page.snapshot.map(|(at, _)| at), Some(seq));
    }
    assert_eq!(into.open(id, Actor::person("eve")).await.unwrap().state().labels["colour"], "red");
    drop(into);
    is_sound(dir.path(), "into");
}

/// A batch is written while the next ones fill, and lines go on that were not in the last one.
#[tokio::test]
async fn long_lines_that_part_and_meet_come_in_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let store = Memory::new();
    let speak = |session: &mut Session, who: &str| {
        for n in 0..400 {
            session.note(format!("{who} {n} {}", "x".repeat(6000))).unwrap();
        }
        session.label(who, "spoke").unwrap();
    };
    let mut main = store.create(Actor::person("ada"));
    speak(&mut main, "first");
    let mut branch = main.fork("aside");
    speak(&mut branch, "branch");
    speak(&mut main, "meanwhile");
    let mut main = main.merge([branch], How::Append).await.unwrap();
    speak(&mut main, "last");
    main.publish().await.unwrap();
    let id = main.id();
    let what = Export { graph: true, ..Export::of(id, None) };
    let said = export(&what, &store, &dir.path().join("a")).await;
    let into = embedded(dir.path(), "into");
    assert_eq!(import(&into, &dir.path().join("a")).await.unwrap().records, said.records);
    assert_eq!(export(&what, &into, &dir.path().join("b")).await, said);
    assert_eq!(files(&dir.path().join("a")), files(&dir.path().join("b")));
    for head in &said.sessions {
        let [here, there] = [&store, &into].map(|store| View::of(store, head.session, None));
        assert_eq!(here.await.unwrap().state(), there.await.unwrap().state());
    }
    drop(into);
    is_sound(dir.path(), "into");
}

/// Headers of a later version, with fields that nobody here knows.
#[tokio::test]
async fn what_is_not_understood_goes_through_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/../rath-core/tests/vectors/unknown.jsonl");
    let text = std::fs::read_to_string(vectors).unwrap();
    let mut records: BTreeMap<SessionId, Vec<rath::Record>> = BTreeMap::new();
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let [header, body, salt] = ["header", "body", "salt"].map(|part| line[part].as_str().unwrap().to_owned());
        let read = rath::Header::parse(header.as_bytes()).unwrap();
        let (split, end) = (header.len() as u32, (header.len() + body.len()) as u32);
        let salt = std::array::from_fn(|at| u8::from_str_radix(&salt[2 * at..2 * at + 2], 16).unwrap());
        let parts = rath::Parts {
            point: rath::Point { session: read.session, seq: read.seq },
            generation: read.seq,
            kind: None,
            bytes: format!("{header}{body}").into_bytes().into(),
            header: 0..split,
            body: Some((salt, split..end)),
        };
        records.entry(read.session).or_default().push(rath::Record::from_parts(parts).unwrap());
    }
    let store = Memory::new();
    let part = |(session, records): (&SessionId, &Vec<rath::Record>)| rath::store::Part {
        session: *session,
        fence: rath::store::FIRST_FENCE,
        hold: false,
        records: records.clone(),
        snapshot: None,
    };
    store.commit(Batch { parts: records.iter().map(part).collect(), taken: Vec::new() }).await.unwrap();
    let what = Export { of: records.keys().map(|session| (*session, None)).collect(), ..Export::default() };
    let said = export(&what, &store, &dir.path().join("a")).await;
    assert_eq!(said.records, text.lines().count() as u64);
    for at_hand in [0, Import::default().at_hand] {
        let into = embedded(dir.path(), &format!("into-{at_hand}"));
        let import = Import { at_hand, ..Import::default() };
        let actor = Actor::person("bob");
        import.read(&into, &actor, &dir.path().join("a"), &mut |_| {}).await.unwrap();
        export(&what, &into, &dir.path().join(format!("b-{at_hand}"))).await;
        assert_eq!(files(&dir.path().join("a")), files(&dir.path().join(format!("b-{at_hand}"))));
    }
}

#[tokio::test]
async fn a_run_has_one_session_and_a_store_one_operator() {
    let dir = tempfile::tempdir().unwrap();
    let (store, into) = (Memory::new(), Memory::new());
    let mut sessions = Vec::new();
    for store in [&store, &into] {
        let mut session =
            store.begin_run("nightly", Actor::person("ada"), async |_: &mut Session| Ok(())).await.unwrap();
        session.publish().await.unwrap();
        sessions.push(session.id());
    }
    export(&Export::of(sessions[0], None), &store, &dir.path().join("a")).await;
    let refused = import(&into, &dir.path().join("a")).await.unwrap_err();
    assert_eq!(refused.code(), "run-taken");
    assert!(refused.to_string().starts_with("run \"nightly\" is session"), "{refused}");
    let operator = rath_audit::operator(&store, Actor::person("ada")).await.unwrap().id();
    export(&Export::of(operator, None), &store, &dir.path().join("b")).await;
    let refused = import(&Memory::new(), &dir.path().join("b")).await.unwrap_err();
    assert!(refused.to_string().contains("operator session of another store"), "{refused}");
    assert!(import(&store, &dir.path().join("b")).await.is_ok(), "its own it has already");
}

#[tokio::test]
async fn an_erased_fork_still_knows_where_it_comes_from() {
    let dir = tempfile::tempdir().unwrap();
    let Family { store, aside, .. } = family(embedded(dir.path(), "from")).await;
    let first = store.scan(Scan::session(aside, 0, 0)).await.unwrap().records.remove(0);
    assert_eq!(*first.kind(), Kind::Forked);
    store.erase(vec![first.reference()]).await.unwrap();
    export(&Export::of(aside, None), &store, &dir.path().join("a")).await;
    for into in [Memory::new(), embedded(dir.path(), "into")] {
        import(&into, &dir.path().join("a")).await.unwrap();
        let row = into.sessions(Which::Id(aside).into()).await.unwrap().remove(0);
        let was = store.sessions(Which::Id(aside).into()).await.unwrap().remove(0);
        assert_eq!(row.origin, was.origin);
        assert!(row.origin.is_some());
    }
    is_sound(dir.path(), "into");
}

#[tokio::test]
async fn nothing_is_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let Family { store, main, .. } = family(Memory::new()).await;
    for name in ["a", "a.zip"] {
        export(&Export::of(main, None), &store, &dir.path().join(name)).await;
        let again = Export::of(main, None).write(&store, &dir.path().join(name), &mut |_| {}).await.unwrap_err();
        assert_eq!(again.code(), "bundle-exists");
    }
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    export(&Export::of(main, None), &store, &dir.path().join("empty")).await;
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}
