//! Deep and wide histories: all walks over them are iterative and linear.

use pollster::block_on;
use rath_core::{Actor, How, InMemory, Session};

fn root() -> Session {
    Session::create(&InMemory::new(), Actor::program("test"))
}

#[test]
fn a_hundred_thousand_generations() {
    let mut session = root();
    session.user("the question").unwrap();
    for generation in 0..100_000 {
        let child = session.fork("deeper");
        // Publish from time to time, as a long-lived session does.
        if generation % 1000 == 0 {
            block_on(session.publish()).unwrap();
        }
        session = child;
    }
    session.assistant("the answer").unwrap();
    block_on(session.publish()).unwrap();
    assert_eq!(block_on(session.context()).unwrap().len(), 2);
    assert_eq!(block_on(session.lineage()).unwrap().len(), 100_001);
    let history = block_on(async { session.history().await.unwrap().all().await }).unwrap();
    assert_eq!(history.len(), 100_003);
    let root = block_on(async { session.view().await?.back(100_002).await }).unwrap();
    assert_eq!(root.unwrap().seq, 0);
}

#[test]
fn a_hundred_thousand_generations_never_published_are_dropped_without_recursion() {
    let mut session = root();
    for _ in 0..100_000 {
        session = session.fork("deeper");
    }
    drop(session);
}

#[test]
fn ten_thousand_diamonds() {
    let mut session = root();
    session.user("start").unwrap();
    for _ in 0..10_000 {
        let (mut a, mut b) = (session.fork("a"), session.fork("b"));
        a.assistant("left").unwrap();
        b.assistant("right").unwrap();
        session = block_on(session.merge([a, b], How::Append)).unwrap();
    }
    // The first message, and two markers and two answers per diamond: nothing twice, nothing missing.
    assert_eq!(block_on(session.context()).unwrap().len(), 1 + 4 * 10_000);
    // created, user, and per diamond: merged, 2 × (forked, assistant). No head descends from `closed`.
    let history = block_on(async { session.history().await.unwrap().all().await }).unwrap();
    assert_eq!(history.len(), 2 + 5 * 10_000);
}

#[test]
fn a_merge_of_a_thousand_is_several_records_in_one_commit() {
    let mut session = root();
    session.user("start").unwrap();
    let branches: Vec<Session> = (0..1000)
        .map(|n| {
            let mut branch = session.fork(format!("branch {n}"));
            branch.assistant(format!("answer {n}")).unwrap();
            branch
        })
        .collect();
    let session = block_on(session.merge(branches, How::Append)).unwrap();
    let context = block_on(session.context()).unwrap();
    assert_eq!(context.len(), 1 + 2 * 1000);
    let answers: Vec<String> =
        context.iter().map(|message| message.body.to_string()).filter(|text| text.starts_with("answer")).collect();
    assert_eq!(answers, (0..1000).map(|n| format!("answer {n}")).collect::<Vec<_>>());
    let merged = session.head().seq - 1;
    assert_eq!(merged, 1000u64.div_ceil(63));
    for record in block_on(async { session.history().await.unwrap().all().await }).unwrap() {
        assert!(record.header().unwrap().parents.len() <= 64);
    }
}

#[test]
fn a_criss_cross_shares_no_record_twice() {
    let mut a = root();
    a.user("start").unwrap();
    let mut b = a.fork("b");
    for round in 0..50 {
        a.assistant(format!("a {round}")).unwrap();
        b.assistant(format!("b {round}")).unwrap();
        let (a2, b2) = (a.fork("to b"), b.fork("to a"));
        a = block_on(a.merge([b2], How::Append)).unwrap();
        b = block_on(b.merge([a2], How::Append)).unwrap();
    }
    for session in [&a, &b] {
        let context = block_on(session.context()).unwrap();
        let mut said: Vec<String> = context.iter().map(|message| message.body.to_string()).collect();
        said.retain(|text| text.starts_with("a ") || text.starts_with("b "));
        let mut once = said.clone();
        once.sort();
        once.dedup();
        assert_eq!((said.len(), once.len()), (100, 100));
    }
}
