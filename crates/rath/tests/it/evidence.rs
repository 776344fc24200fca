//! Records of sandboxes: the isolation level, refused system calls, and exceeded limits.

use pollster::block_on;
use rath::body::{CallOutcome, SandboxOpened, ToolFinished, ToolStarted};
use rath::sandbox::{Command, Limits};
use rath::workspaces::{Confinement, ExecReport, PlacementSpec};
use rath::{Kind, Session, summary};

use crate::support::{Shop, isolates, layers, local, put, records};

fn session(shop: &Shop) -> Session {
    let mut session = shop.create();
    block_on(shop.workspaces.assign(&mut session, PlacementSpec::empty("local"))).unwrap();
    session
}

fn limited(limits: Limits) -> Shop {
    let mut shop = Shop::new();
    shop.workspaces = shop.second().with_confinement(Confinement { limits, ..Confinement::default() });
    shop
}

fn last(shop: &Shop, session: &Session) -> (ToolFinished, String) {
    let record = records(shop, session, Kind::ToolFinished).pop().unwrap();
    (record.body().unwrap(), summary::of(&record))
}

fn run(shop: &Shop, session: &mut Session, line: &str) -> ExecReport {
    block_on(shop.workspaces.exec(session, Command::shell(line), |_| {})).unwrap()
}

#[test]
fn sandbox_opened_records_the_isolation_level() {
    if !isolates() {
        return;
    }
    let shop = Shop::new();
    let mut session = session(&shop);
    let done = run(&shop, &mut session, "true");
    assert!(done.isolated);
    let record = records(&shop, &session, Kind::SandboxOpened).pop().unwrap();
    let opened: SandboxOpened = record.body().unwrap();
    let diagnosis = local().diagnose();
    assert_eq!(opened.isolation, diagnosis.level.map(|tier| tier.to_string()));
    assert!(opened.isolated);
    for lack in &diagnosis.not_enforced {
        assert!(opened.not_enforced.contains(lack), "{lack} is not in {:?}", opened.not_enforced);
    }
    assert!(summary::of(&record).contains(&opened.isolation.unwrap()), "{}", summary::of(&record));
    let started: ToolStarted = records(&shop, &session, Kind::ToolStarted)[0].body().unwrap();
    assert_eq!((started.isolated, started.effect), (Some(true), rath::body::Effect::Workspace));
}

#[test]
fn refused_system_calls_are_recorded() {
    if !isolates() {
        return;
    }
    let shop = Shop::new();
    let mut session = session(&shop);
    let done = run(&shop, &mut session, "unshare -U true; unshare -U true");
    assert!(!done.finished.refused.is_empty());
    let (call, line) = last(&shop, &session);
    assert!(call.refused.iter().any(|refused| refused.what.contains("unshare") && refused.times >= 2), "{call:?}");
    assert!(line.contains("refused") && line.contains("unshare"), "{line}");
    run(&shop, &mut session, "true");
    assert!(last(&shop, &session).0.refused.is_empty());
}

#[test]
fn the_limit_that_stopped_a_call_is_recorded() {
    if !isolates() {
        return;
    }
    let limits = Limits { disk: Some(8 << 20), memory: Some(64 << 20), ..Limits::default() };
    let shop = limited(limits);
    let mut session = session(&shop);
    let done = run(&shop, &mut session, "head -c 2000000 /dev/zero > small");
    assert!(done.finished.ended.success() && done.finished.limit_exceeded.is_none());
    let fill = "i=0; while :; do head -c 4000000 /dev/urandom > big$i; i=$((i+1)); done";
    let memory = "head -c 400000000 /dev/zero | tail";
    for (limit, line) in [("memory", memory), ("disk", fill)] {
        let done = run(&shop, &mut session, line);
        assert!(!done.finished.ended.success(), "{limit}");
        let (call, summary) = last(&shop, &session);
        assert_eq!(call.outcome, CallOutcome::Failed, "{limit}");
        assert!(call.limit_exceeded.as_ref().is_some_and(|beyond| beyond.starts_with(limit)), "{limit}: {call:?}");
        assert!(summary.contains("limit") && summary.contains(limit), "{summary}");
    }
    shop.verify();
}

#[test]
fn the_store_is_hidden_even_in_a_readable_directory() {
    if !layers() {
        return;
    }
    // The directory around the store is readable, and the store is not.
    let mut shop = Shop::new();
    let beside = shop.directory("beside");
    put(&beside, "read-me", Some("hello\n"));
    let around = shop.dir.path().canonicalize().unwrap();
    let confinement = Confinement { readable: vec![around.clone()], ..Confinement::default() };
    shop.workspaces = shop.second().with_confinement(confinement);
    let mut session = session(&shop);
    let around = around.display();
    let done = run(&shop, &mut session, &format!("cat {around}/beside/read-me; ls -A {around}/store {around}/home"));
    let seen = String::from_utf8(done.finished.stdout.bytes).unwrap();
    assert!(seen.starts_with("hello\n"), "{seen} {:?}", done.finished.stderr);
    assert!(!seen.contains("rath.db") && !seen.contains("layers"), "{seen}");
}
