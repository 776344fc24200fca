//! The state of sessions with erased bodies: the store is valid whatever was erased, and forged states are reported.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pollster::block_on;
use rath_core::body::{
    Asked, Assistant, Block, Effect, Grant, Granted, Labelled, ModelResponded, Placed, QuestionKind, RestoreReason,
    Restored, SandboxOpened, Scope,
};
use rath_core::files::Changes;
use rath_core::store::{Post, PostContent};
use rath_core::verify::FindingKind;
use rath_core::{Actor, Kind, Point, Reference, SandboxName, Session, SessionId, State, Store, Usage, View};
use rath_store::Embedded;
use rath_testkit::copy_dir;
use rath_workspace::{Options, Workspace};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::support::{fresh, model_conversation, noise, run_with_inbox, sample_sessions, session_with_files, verify};

fn copy_of(store: &Path, into: &TempDir) -> PathBuf {
    let copy = tempfile::tempdir_in(into.path()).unwrap().keep();
    copy_dir(store, &copy);
    copy
}

fn records_of(store: &Arc<dyn Store>, session: SessionId) -> Vec<Reference> {
    let view = block_on(View::of(store, session, None)).unwrap();
    block_on(view.own_records_unchecked()).unwrap().iter().map(rath_core::Record::reference).collect()
}

/// Continues a session and forks of it, before and after the erased records.
fn continue_session(store: &Arc<dyn Store>, id: SessionId, length: u64) {
    let mut session = block_on(store.open(id, Actor::person("bob"))).unwrap();
    if !session.state().closed {
        session.user("Go on.").unwrap();
        session.label("later", "yes").unwrap();
        block_on(session.publish()).unwrap();
    }
    for seq in [length / 3, length / 2, length - 1] {
        let mut fork = block_on(session.fork_at(Point { session: id, seq }, "again")).unwrap();
        for n in 0..260 {
            fork.note(format!("note {n}")).unwrap();
        }
        block_on(fork.publish()).unwrap();
    }
}

fn assert_valid(path: &Path, what: &str) {
    let report = verify(path);
    assert!(report.is_valid(), "{what}: {:?}", report.findings);
    let store = Embedded::open_as(path, "test").unwrap();
    let rows = block_on(Embedded::open(path).unwrap().sessions(rath_core::store::Query::default())).unwrap();
    for row in rows {
        let report = store.verify(Some(row.id), &mut |_, _| {}).unwrap();
        assert!(report.is_valid(), "{what}, {} alone: {:?}", row.id.short(), report.findings);
    }
}

#[test]
fn a_store_is_valid_whatever_was_erased() {
    let (store, dir) = fresh();
    let ids = sample_sessions(&store);
    let files = session_with_files(&store, dir.path());
    let mut fork = block_on(store.open(files, Actor::person("ada"))).unwrap().fork("try");
    fork.note("with the same files").unwrap();
    block_on(fork.publish()).unwrap();
    let sessions = [ids[1], ids[2], files, fork.id(), run_with_inbox(&store), model_conversation(&store)];
    drop((fork, store));
    let original = dir.path().join("store");
    let mut all = Vec::new();
    let store = Embedded::open(&original).unwrap();
    for session in sessions {
        let records = records_of(&store, session);
        // Each record alone, in its own copy of the store.
        for record in &records {
            let path = copy_of(&original, &dir);
            let store = Embedded::open(&path).unwrap();
            block_on(store.erase(vec![*record])).unwrap();
            assert_valid(&path, &format!("without {}", record.point()));
            continue_session(&store, session, records.len() as u64);
            drop(store);
            assert_valid(&path, &format!("without {}, and longer", record.point()));
            std::fs::remove_dir_all(path).unwrap();
        }
        all.push(records);
    }
    // All records of one store, the later ones of each session first.
    let store = Embedded::open(&original).unwrap();
    let longest = all.iter().map(Vec::len).max().unwrap();
    for turn in 0..longest {
        let plan: Vec<_> = all.iter_mut().filter_map(|records| records.pop()).collect();
        block_on(store.erase(plan)).unwrap();
        if turn % 3 == 0 {
            assert_valid(&original, &format!("after {turn}"));
        }
    }
    assert_valid(&original, "at the end");
}

#[test]
fn forks_and_their_parent_can_be_erased_together() {
    let (store, dir) = fresh();
    let mut session = Session::create(&store, Actor::person("ada"));
    session.enter("plan").unwrap();
    session.user("Think.").unwrap();
    let forks: Vec<SessionId> = (0..12)
        .map(|n| {
            let mut fork = session.fork("try");
            fork.note(format!("note {n}")).unwrap();
            block_on(fork.publish()).unwrap();
            fork.id()
        })
        .collect();
    block_on(session.publish()).unwrap();
    let all: Vec<SessionId> = forks.iter().copied().chain([session.id()]).collect();
    let first_two = |id: &SessionId| records_of(&store, *id).into_iter().take(2).collect::<Vec<_>>();
    let plan: Vec<Reference> =
        all.iter().flat_map(first_two).filter(|record| record.seq == 0 || record.session == session.id()).collect();
    block_on(store.erase(plan)).unwrap();
    assert_valid(&dir.path().join("store"), "without the beginnings");
    let fork = block_on(store.open(forks[0], Actor::person("bob"))).unwrap();
    assert_eq!(fork.state().steps.len(), 1, "{:?}", fork.state().steps);
}

/// A session with a placement, a permission, a title, a label and other records between them.
fn placed_session(store: &Arc<dyn Store>, why: &str) -> Session {
    let mut session = Session::create(store, Actor::person("ada"));
    session.set_title("Quarterly").unwrap();
    session.label("keep", "").unwrap();
    let placed = Placed {
        backend: "local".into(),
        isolated: true,
        origin: Some("/home/ada/shop".into()),
        in_place: false,
        workspace: None,
        base: None,
        setup: None,
        why: Some(why.into()),
    };
    session.append(placed).unwrap();
    let asked = session.user("May I?").map(|_| session.head().id).unwrap();
    let scope = Scope::Command { words: vec!["git".into(), "push".into()] };
    session.append(Granted { asked, allows: Grant { tool: "shell".into(), effect: Effect::Pure, scope } }).unwrap();
    session.user(noise(100, 5)).unwrap();
    session.assistant("Done.").unwrap();
    session
}

const FORGED: &[&str] = &[
    r#"UPDATE snapshots SET state = CAST(replace(CAST(state AS TEXT), '"backend":"local"', '"backend":"host"') AS BLOB)"#,
    r#"UPDATE snapshots SET state = CAST(replace(CAST(state AS TEXT), '"isolated":true', '"isolated":false') AS BLOB)"#,
    r#"UPDATE snapshots SET state = CAST(replace(CAST(state AS TEXT), '"push"', '"pull"') AS BLOB)"#,
    r#"UPDATE snapshots SET state = CAST(replace(CAST(state AS TEXT), '"title":"', '"title":"not ') AS BLOB)"#,
    r"UPDATE sessions SET title = 'forged'",
    r#"UPDATE sessions SET labels = '{"scratch":""}'"#,
    r"INSERT INTO runs SELECT 'forged ' || no, id FROM sessions",
    r"UPDATE sessions SET origin_seq = 1 WHERE origin_session IS NOT NULL",
    r"UPDATE sessions SET origin_session = NULL, origin_seq = NULL, origin_id = NULL WHERE origin_session IS NOT NULL",
];

#[test]
fn a_forged_state_is_reported_whatever_was_erased() {
    let (store, dir) = fresh();
    let mut session = placed_session(&store, "to work");
    block_on(session.publish()).unwrap();
    let mut fork = session.fork("try");
    fork.user("And then?").unwrap();
    block_on(fork.publish()).unwrap();
    let records: Vec<_> = [session.id(), fork.id()].into_iter().flat_map(|id| records_of(&store, id)).collect();
    drop((session, fork, store));
    let original = dir.path().join("store");
    for erased in records {
        let path = copy_of(&original, &dir);
        block_on(Embedded::open(&path).unwrap().erase(vec![erased])).unwrap();
        Embedded::open_as(&path, "test").unwrap().checkpoint().unwrap();
        assert_valid(&path, "before it is forged");
        for forge in FORGED {
            let forged = copy_of(&path, &dir);
            let db = Connection::open(forged.join("rath.db")).unwrap();
            let states = |db: &Connection| -> Vec<Vec<u8>> {
                let mut query = db.prepare("SELECT state FROM snapshots ORDER BY session, seq").unwrap();
                query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
            };
            let before = states(&db);
            db.execute(forge, []).unwrap();
            // The forged part was erased.
            if forge.contains("replace") && states(&db) == before {
                continue;
            }
            drop(db);
            let report = verify(&forged);
            let found = report.findings.first().unwrap_or_else(|| panic!("{forge} without {}", erased.point()));
            assert_eq!(found.what, FindingKind::Index, "{forge} without {}: {found}", erased.point());
        }
    }
}

/// Another session may have the same placement and permission.
#[test]
fn an_erasure_keeps_the_placements_of_other_sessions() {
    let (store, dir) = fresh();
    let mut one = placed_session(&store, "to work");
    let mut other = placed_session(&store, "to work too");
    for session in [&mut one, &mut other] {
        block_on(session.publish()).unwrap();
    }
    let (one, other) = (one.id(), other.id());
    // The placement and the permission of one session, and other records of the other one.
    let plan = vec![
        records_of(&store, one)[3],
        records_of(&store, one)[5],
        records_of(&store, other)[4],
        records_of(&store, other)[6],
    ];
    block_on(store.erase(plan)).unwrap();
    let state = |id| block_on(View::of(&store, id, None)).unwrap().state().clone();
    assert_eq!((state(one).placement, state(one).granted.len()), (None, 0));
    assert!(state(other).placement.is_some_and(|place| place.backend == "local"));
    assert_eq!(state(other).granted.len(), 1);
    assert_valid(&dir.path().join("store"), "then");
}

#[test]
fn labels_are_verified_after_one_was_erased() {
    let (store, dir) = fresh();
    let mut session = Session::create(&store, Actor::person("ada"));
    session.append(Labelled { set: [("a".into(), "1".into())].into(), ..Labelled::default() }).unwrap();
    let plan = session.head();
    session.label("b", "2").unwrap();
    block_on(session.publish()).unwrap();
    drop(session);
    block_on(store.erase(vec![plan])).unwrap();
    drop(store);
    let path = dir.path().join("store");
    assert_valid(&path, "erased");
    let db = Connection::open(path.join("rath.db")).unwrap();
    db.execute(r#"UPDATE sessions SET labels = '{"a":"1","b":"2"}'"#, []).unwrap();
    drop(db);
    assert_eq!(verify(&path).findings.len(), 1);
}

fn state_of(store: &Arc<dyn Store>, session: SessionId, seq: Option<u64>) -> State {
    block_on(View::of(store, session, seq)).unwrap().state().clone()
}

fn fetch() -> Grant {
    let scope = Scope::Command { words: vec!["git".into(), "fetch".into()] };
    Grant { tool: "shell".into(), effect: Effect::Pure, scope }
}

/// A waiting session: a placement, a permission, an open step, a call, and a question that can be answered with
/// "always".
fn waiting(store: &Arc<dyn Store>) -> (Session, Asked) {
    let mut session = placed_session(store, "to work");
    session.enter("plan").unwrap();
    let block = Block::ToolUse { id: "c1".into(), name: "deploy".into(), arguments: "{}".into() };
    session.append(Assistant::new(vec![block])).unwrap();
    let asked = Asked::new(QuestionKind::Approval, Some("c1".into()), "May I fetch?");
    let asked = Asked { always: Some(Box::new(fetch())), ..asked };
    session.append(asked.clone()).unwrap();
    session.note("waits").unwrap();
    session.set_title("Waiting").unwrap();
    (session, asked)
}

/// Changes to every snapshot, as SQL expressions.
const FORGED_NAMES: &[&str] = &[
    r#"replace(state, '"name":"plan"', '"name":"forged"')"#,
    r#"replace(state, '"name":"plan"', '"name":"(erased)"')"#,
    r#"replace(state, '"tool":"deploy"', '"tool":"other"')"#,
    r#"replace(state, '"tool":"deploy"', '"tool":"(erased)"')"#,
    r#"replace(state, '["git","fetch"]', '["sh"]')"#,
    r#"replace(state, '"(erased)"', '"forged"')"#,
    r"json_remove(state, '$.asks[0].always')",
    r"json_remove(state, '$.asks')",
    r"json_remove(state, '$.calls')",
    r"json_remove(state, '$.steps')",
    r"json_remove(state, '$.placement')",
    r"json_remove(state, '$.granted')",
];

/// Whether the forged state is a possible result of erasing a record of this kind.
fn is_plausible(kind: &Kind, forged: &str) -> bool {
    match kind {
        Kind::StepEntered => forged.contains("$.steps"),
        Kind::Assistant => forged.contains("$.calls"),
        Kind::Asked => forged.contains("$.asks") || forged.contains("$.calls"),
        _ => false,
    }
}

#[test]
fn names_and_offered_permissions_are_verified_whatever_was_erased() {
    let (store, dir) = fresh();
    let (mut session, _) = waiting(&store);
    block_on(session.publish()).unwrap();
    let mut fork = session.fork("try");
    fork.note("on a fork").unwrap();
    block_on(fork.publish()).unwrap();
    let records: Vec<_> = [session.id(), fork.id()].into_iter().flat_map(|id| records_of(&store, id)).collect();
    drop((session, fork, store));
    let original = dir.path().join("store");
    let mut forgeries = std::collections::BTreeSet::new();
    for erased in records {
        let path = copy_of(&original, &dir);
        let store = Embedded::open(&path).unwrap();
        let kind = block_on(store.get(rath_core::store::Lookup::At(erased.point()))).unwrap()[0].kind().clone();
        block_on(store.erase(vec![erased])).unwrap();
        drop(store);
        Embedded::open_as(&path, "test").unwrap().checkpoint().unwrap();
        assert_valid(&path, "before it is forged");
        for forge in FORGED_NAMES.iter().filter(|forge| !is_plausible(&kind, forge)) {
            let forged = copy_of(&path, &dir);
            let db = Connection::open(forged.join("rath.db")).unwrap();
            let made = forge.replace("state,", "CAST(state AS TEXT),");
            let change =
                format!("UPDATE snapshots SET state = CAST({made} AS BLOB) WHERE CAST(state AS TEXT) != {made}");
            let changed = db.execute(&change, []).unwrap();
            drop(db);
            if changed > 0 {
                forgeries.insert(forge);
                let report = verify(&forged);
                assert!(!report.is_valid(), "{forge} without {} ({kind})", erased.point());
                let alone = Embedded::open_as(&forged, "test").unwrap();
                let alone = alone.verify(Some(erased.session), &mut |_, _| {}).unwrap();
                assert!(!alone.is_valid(), "{forge} without {} ({kind}), alone", erased.point());
            }
            std::fs::remove_dir_all(forged).unwrap();
        }
        std::fs::remove_dir_all(path).unwrap();
    }
    assert_eq!(forgeries.len(), FORGED_NAMES.len(), "{forgeries:?}");
}

/// The answer "always" grants what the question showed, even if the snapshot was forged.
#[test]
fn always_grants_what_the_question_showed() {
    let (store, dir) = fresh();
    let (mut session, asked) = waiting(&store);
    block_on(session.publish()).unwrap();
    let (id, title) = (session.id(), session.head());
    let question = session.state().asks[0].record;
    drop(session);
    block_on(store.erase(vec![title])).unwrap();
    drop(store);
    let path = dir.path().join("store");
    let db = Connection::open(path.join("rath.db")).unwrap();
    let forge =
        r#"UPDATE snapshots SET state = CAST(replace(CAST(state AS TEXT), '["git","fetch"]', '["sh"]') AS BLOB)"#;
    db.execute(forge, []).unwrap();
    drop(db);
    let store = Embedded::open(&path).unwrap();
    let mut session = block_on(store.open(id, Actor::person("ada"))).unwrap();
    assert_ne!(session.state().asks[0].always.as_deref(), Some(&fetch()));
    block_on(session.consume_posts()).unwrap();
    let always = PostContent::Always { asked: question, shown_digest: asked.shown_digest, why: None };
    session.consume_post(&Post::new(id, Actor::person("bob"), always)).unwrap();
    block_on(session.publish()).unwrap();
    let granted = block_on(session.record_at(session.head().seq)).unwrap();
    assert_eq!(granted.body::<Granted>().unwrap().allows, fetch());
    assert!(session.state().granted.contains(&fetch()) && session.state().granted.len() == 2);
}

/// A session that lost all bodies has no files. Its parent still has them.
#[test]
fn a_fork_with_files_may_lose_all_its_bodies() {
    let (store, dir) = fresh();
    let parent = session_with_files(&store, dir.path());
    let session = block_on(store.open(parent, Actor::person("ada"))).unwrap();
    for at_once in [true, false] {
        let mut fork = session.fork("try");
        fork.note("on a fork").unwrap();
        fork.note("and on").unwrap();
        block_on(fork.publish()).unwrap();
        let id = fork.id();
        drop(fork);
        let records = records_of(&store, id);
        match at_once {
            true => block_on(store.erase(records)).unwrap(),
            false => records.into_iter().for_each(|record| block_on(store.erase(vec![record])).unwrap()),
        }
        assert_valid(&dir.path().join("store"), "without the fork");
        assert_eq!(state_of(&store, id, None).workspace, None);
        // If no snapshot was kept, the fork has the files of its parent.
        assert_eq!(state_of(&store, id, Some(0)).workspace.is_some(), at_once);
        assert!(state_of(&store, parent, None).workspace.is_some());
    }
}

/// A placement and a permission remain while one of two equal records remains.
#[test]
fn what_two_records_contribute_remains_when_one_is_erased() {
    let (store, dir) = fresh();
    let mut session = placed_session(&store, "to work");
    let sandbox = SandboxName { id: "sandbox".into(), generation: 1 };
    let opened = SandboxOpened {
        sandbox: sandbox.clone(),
        backend: "local".into(),
        isolated: true,
        isolation: None,
        directory: "/tmp/a".into(),
        not_enforced: vec![],
        covered: vec![],
    };
    session.append(opened).unwrap();
    // Like `rath apply`.
    let again = block_on(session.record_at(3)).unwrap().body::<Placed>().unwrap();
    session.append(Placed { why: Some("applied".into()), ..again }).unwrap();
    let granted = block_on(session.record_at(5)).unwrap().body::<Granted>().unwrap();
    session.append(granted).unwrap();
    for n in 0..260 {
        session.note(format!("note {n}")).unwrap();
    }
    let last = session.head();
    session.user("Go on.").unwrap();
    let mut fork = session.fork("try");
    fork.note("on a fork").unwrap();
    block_on(fork.publish()).unwrap();
    block_on(session.publish()).unwrap();
    let (id, fork) = (session.id(), { fork }.id());
    drop(session);
    let records = records_of(&store, id);
    block_on(store.erase(vec![records[3], records[5], last])).unwrap();
    assert_valid(&dir.path().join("store"), "without the first of two");
    for session in [id, fork] {
        let state = state_of(&store, session, None);
        assert!(state.placement.is_some_and(|place| place.backend == "local"), "{}", session.short());
        assert_eq!(state.granted.len(), 1, "{}", session.short());
    }
    assert_eq!(state_of(&store, id, None).placement.unwrap().sandbox, Some(sandbox));
    assert_eq!(state_of(&store, id, Some(6)).placement, None);
    block_on(store.erase(vec![records[9], records[10]])).unwrap();
    assert_valid(&dir.path().join("store"), "without both");
    for session in [id, fork] {
        let state = state_of(&store, session, None);
        assert_eq!((state.placement, state.granted.len()), (None, 0), "{}", session.short());
    }
}

/// Within a range of erased records, each record and each fork keeps its version of the files.
#[test]
fn versions_within_an_erased_range_are_kept() {
    let (store, dir) = fresh();
    let (root, scratch) = (dir.path().join("files"), dir.path().join("state"));
    std::fs::create_dir_all(&root).unwrap();
    let save = |text: &str| {
        std::fs::write(root.join("f"), text).unwrap();
        Workspace::open(store.clone(), &root, &scratch, &Options::default()).unwrap().0.save().unwrap().version
    };
    let mut session = Session::create(&store, Actor::person("ada"));
    let mut versions = Vec::new();
    for n in 1..4 {
        let (from, workspace) = (save("before"), save(&format!("v{n}")));
        let (outside, changed) = (Changes::default(), Changes::default());
        let restored = Restored {
            why: RestoreReason::Asked,
            from,
            workspace,
            point: None,
            outside,
            changed,
            kept: vec![],
            conflicts: vec![],
        };
        session.append(restored).unwrap();
        versions.push(session.state().workspace.clone());
        session.note("looked").unwrap();
        versions.push(session.state().workspace.clone());
    }
    let usage = Usage { requests: 1, input_tokens: 20, ..Usage::default() };
    session.append(ModelResponded { usage, ..ModelResponded::default() }).unwrap();
    block_on(session.publish()).unwrap();
    let mut fork = block_on(session.fork_at(Point { session: session.id(), seq: 4 }, "try")).unwrap();
    fork.note("on a fork").unwrap();
    block_on(fork.publish()).unwrap();
    let mut later = session.fork("later");
    later.note("on another").unwrap();
    block_on(later.publish()).unwrap();
    session.note("the end").unwrap();
    block_on(session.publish()).unwrap();
    let (id, fork, later) = (session.id(), { fork }.id(), { later }.id());
    drop(session);
    let records = records_of(&store, id);
    block_on(store.erase(records[1..].to_vec())).unwrap();
    assert_valid(&dir.path().join("store"), "without the middle");
    for (seq, version) in (1..).zip(&versions) {
        assert_eq!(state_of(&store, id, Some(seq)).workspace, *version, "at {seq}");
    }
    assert_eq!(state_of(&store, fork, None).workspace, versions[3]);
    assert_eq!(state_of(&store, later, None).usage, usage);
}
