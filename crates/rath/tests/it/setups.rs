//! Setup commands: run once for a version, and shared by all sessions that start with it.

use std::fs;

use pollster::block_on;
use rath::body::{CallOutcome, ToolFinished, ToolStarted};
use rath::sandbox::Command;
use rath::workspaces::PlacementSpec;
use rath::{Kind, Session};

use crate::support::{Shop, count, isolates, layers, put, records, tree};

/// A setup command that logs its run and creates an ignored file.
const LINE: &str = "echo ran >> deps/log; echo $PWD >> deps/where";

fn origin(shop: &Shop) -> std::path::PathBuf {
    let origin = shop.directory("origin");
    put(&origin, ".gitignore", Some("deps/\n"));
    put(&origin, "a", Some("0\n"));
    origin
}

fn placed(shop: &Shop, backend: &str, line: &str) -> Session {
    let mut session = shop.create();
    let place = PlacementSpec::copy_of(backend, origin(shop)).with_setup(line);
    block_on(shop.workspaces.assign(&mut session, place)).unwrap();
    session
}

fn says(shop: &Shop, session: &mut Session, line: &str) -> String {
    String::from_utf8(shop.sh(session, line).finished.stdout.bytes).unwrap()
}

/// The setup calls: whether the setup had been run before, and the outcome.
fn setups(shop: &Shop, session: &Session) -> Vec<(bool, CallOutcome)> {
    let started =
        records(shop, session, Kind::ToolStarted).into_iter().map(|record| record.body::<ToolStarted>().unwrap());
    let finished: Vec<ToolFinished> =
        records(shop, session, Kind::ToolFinished).iter().map(|record| record.body().unwrap()).collect();
    let setups = started.filter(|call| call.tool == "setup");
    setups
        .map(|call| {
            let ended = finished.iter().find(|ended| ended.call == call.call).unwrap();
            (call.arguments.unwrap().to_string().contains("\"ran_before\":true"), ended.outcome)
        })
        .collect()
}

#[test]
fn a_setup_runs_once_for_a_version() {
    if !layers() {
        return;
    }
    let mut shop = Shop::new();
    let line = format!("mkdir deps; {LINE}");
    let mut one = placed(&shop, "local", &line);
    assert_eq!(says(&shop, &mut one, "cat deps/log"), "ran\n");
    // It ran at the mount path, and changed no versioned file.
    assert_eq!(says(&shop, &mut one, "test \"$(cat deps/where)\" = \"$PWD\" && echo same"), "same\n");
    assert_eq!(shop.now(&one), tree(&[(".gitignore", "deps/\n"), ("a", "0\n")]));
    assert_eq!(setups(&shop, &one), [(false, CallOutcome::Done)]);
    // The second session starts from what it left; what it does there is its own.
    shop.sh(&mut one, "echo mine >> deps/log; echo 1 > a");
    let mut two = placed(&shop, "local", &line);
    assert_eq!(says(&shop, &mut two, "cat deps/log a"), "ran\n0\n");
    assert_eq!(setups(&shop, &two), [(true, CallOutcome::Done)]);
    // A fork starts from the session's own layers. Where it cannot have them it starts from what the setup left.
    let earlier = one.head().point();
    shop.sh(&mut one, "true");
    let mut plain = block_on(one.fork_at(earlier, "from the version")).unwrap();
    assert_eq!(says(&shop, &mut plain, "cat deps/log a"), "ran\n1\n");
    assert_eq!(setups(&shop, &plain), [(true, CallOutcome::Done)]);
    let mut shares = one.fork("with all");
    assert_eq!(says(&shop, &mut shares, "cat deps/log a"), "ran\nmine\n1\n");
    assert_eq!(setups(&shop, &shares), []);
    // A new process finds the result too. Other files or another command are another setup.
    let ids = (one.id(), shares.id());
    drop((one, shares));
    shop.reopen();
    let (mut one, mut shares) = (shop.open(ids.0), shop.open(ids.1));
    assert_eq!(says(&shop, &mut one, "cat deps/log"), "ran\nmine\n");
    assert_eq!(says(&shop, &mut shares, "cat deps/log"), "ran\nmine\n");
    let mut other = placed(&shop, "local", &format!("{line}; echo other >> deps/log"));
    assert_eq!(says(&shop, &mut other, "cat deps/log"), "ran\nother\n");
    let elsewhere = shop.directory("elsewhere");
    put(&elsewhere, ".gitignore", Some("deps/\n"));
    put(&elsewhere, "a", Some("changed\n"));
    let mut changed = shop.create();
    block_on(shop.workspaces.assign(&mut changed, PlacementSpec::copy_of("local", elsewhere).with_setup(&line)))
        .unwrap();
    assert_eq!(says(&shop, &mut changed, "cat deps/log a"), "ran\nchanged\n");
    assert_eq!(setups(&shop, &changed), [(false, CallOutcome::Done)]);
    shop.verify();
}

#[test]
fn a_setup_that_fails_is_an_error_and_leaves_nothing() {
    for backend in crate::support::backends() {
        let shop = Shop::new();
        let allowed = shop.directory("allowed");
        let line = "mkdir -p deps; echo half >> deps/log; echo no such package >&2; exit 3";
        let mut session = placed(&shop, backend, line);
        for round in 1..=2 {
            let error = block_on(shop.workspaces.exec(&mut session, Command::shell("true"), |_| {})).unwrap_err();
            assert_eq!(error.code(), "setup-failed", "{backend}: {error}");
            let said = error.to_string();
            assert!(said.contains("no such package") && said.contains("exit 3"), "{said}");
            assert_eq!(setups(&shop, &session), vec![(false, CallOutcome::Failed); round], "{backend}");
        }
        assert!(session.pending().is_empty());
        let homes = fs::read_dir(shop.workspaces.home()).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = homes.filter(|name| name.to_string_lossy().starts_with("setup-")).collect();
        assert!(left.is_empty(), "{left:?}");
        // With another command the session works.
        let place = PlacementSpec::copy_of(*backend, origin(&shop)).with_setup("mkdir -p deps; echo better > deps/log");
        block_on(shop.workspaces.assign(&mut session, place)).unwrap();
        assert_eq!(says(&shop, &mut session, "cat deps/log"), "better\n");
        drop(allowed);
        shop.verify();
    }
}

#[test]
fn an_interrupted_setup_starts_again() {
    for backend in crate::support::backends() {
        let shop = Shop::new();
        // The first run blocks until it is stopped.
        let line = "mkdir -p deps; echo ran >> deps/log; test -e deps/again || test -e go || sleep 600";
        let mut session = placed(&shop, backend, line);
        let command = Command::shell("true");
        let mut asked = 0;
        let stop = std::future::poll_fn(|context| {
            asked += 1;
            // Polled several times, so that the setup has started.
            if asked > 3 || *backend == "local" && asked > 1 {
                return std::task::Poll::Ready(());
            }
            context.waker().wake_by_ref();
            std::task::Poll::Pending
        });
        let error = block_on(shop.workspaces.exec_until(&mut session, command, |_| {}, stop)).unwrap_err();
        assert_eq!(error.code(), "setup-failed", "{backend}: {error}");
        // The same setup on the same files, without leftovers of the first run.
        let place = PlacementSpec::copy_of(*backend, origin(&shop)).with_setup("mkdir -p deps; echo ran >> deps/log");
        block_on(shop.workspaces.assign(&mut session, place)).unwrap();
        let said = says(&shop, &mut session, "cat deps/log");
        assert!(said == "ran\n" || *backend == "host", "{backend}: {said}");
        assert!(session.pending().is_empty());
        shop.verify();
    }
}

#[test]
fn leftovers_of_a_killed_setup_are_not_used() {
    if !layers() {
        return;
    }
    let shop = Shop::new();
    let line = "mkdir -p deps; echo ran >> deps/log";
    let mut one = placed(&shop, "local", line);
    shop.sh(&mut one, "true");
    let homes = fs::read_dir(shop.workspaces.home()).unwrap().map(|entry| entry.unwrap().path());
    let setup =
        homes.into_iter().find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("setup-")).unwrap();
    // The state that a process leaves when it dies during the setup: layers without the file `ready`.
    fs::remove_file(setup.join("ready")).unwrap();
    put(&setup.join("upper"), "deps/log", Some("half\n"));
    let mut two = placed(&shop, "local", line);
    assert_eq!(says(&shop, &mut two, "cat deps/log"), "ran\n");
    assert_eq!(setups(&shop, &two), [(false, CallOutcome::Done)]);
    shop.verify();
}

#[test]
fn a_second_process_waits_for_a_running_setup() {
    if !layers() {
        return;
    }
    let shop = Shop::new();
    let line = "mkdir deps; echo ran > deps/log; echo $$ > deps/pid; sleep 1";
    let second = shop.second();
    let mut one = placed(&shop, "local", line);
    let mut two = placed(&shop, "local", line);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| says(&shop, &mut one, "cat deps/log"));
        let setup = || {
            let homes = fs::read_dir(shop.workspaces.home()).into_iter().flatten().map(|entry| entry.unwrap().path());
            homes.into_iter().find(|path| path.join("upper/deps/pid").exists())
        };
        while setup().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let done = block_on(second.exec(&mut two, Command::shell("cat deps/log"), |_| {})).unwrap();
        assert_eq!(done.finished.stdout.bytes, b"ran\n");
        assert_eq!(first.join().unwrap(), "ran\n");
    });
    assert_eq!(
        (setups(&shop, &one), setups(&shop, &two)),
        (vec![(false, CallOutcome::Done)], vec![(true, CallOutcome::Done)])
    );
    shop.verify();
}

#[test]
fn a_setup_cannot_change_versioned_files() {
    for backend in crate::support::backends() {
        let shop = Shop::new();
        let line = "echo spoiled > a; echo new > b; mkdir -p deps; echo ran > deps/log";
        let mut session = placed(&shop, backend, line);
        let begins = session.state().workspace.clone().unwrap();
        let done = shop.sh(&mut session, "cat a deps/log; test ! -e b");
        assert!(done.finished.ended.success());
        assert!(done.outside.is_empty() && done.changed.is_empty(), "{backend}: {:?} {:?}", done.outside, done.changed);
        assert_eq!(done.finished.stdout.bytes, b"0\nran\n", "{backend}");
        assert!(done.before.same_files(&begins));
        assert_eq!(block_on(shop.workspaces.undo(&mut session, false)).unwrap_err().code(), "nothing-to-undo");
        shop.verify();
    }
}

#[test]
fn a_setup_runs_once_in_a_plain_directory() {
    let mut shop = Shop::new();
    let mut session = placed(&shop, "host", &format!("mkdir -p deps; {LINE}"));
    assert_eq!(says(&shop, &mut session, "cat deps/log"), "ran\n");
    let id = session.id();
    drop(session);
    shop.reopen();
    let mut session = shop.open(id);
    assert_eq!(says(&shop, &mut session, "cat deps/log"), "ran\n");
    assert_eq!(setups(&shop, &session), [(false, CallOutcome::Done)]);
    // A fork has a separate directory.
    let mut fork = session.fork("try");
    assert_eq!(says(&shop, &mut fork, "cat deps/log"), "ran\n");
    assert_eq!(count(&shop, &fork, Kind::ToolFinished), 2);
}

#[test]
fn a_setup_that_is_added_later_runs_in_the_existing_copy() {
    if !isolates() {
        return;
    }
    let shop = Shop::new();
    let mut session = shop.create();
    block_on(shop.workspaces.assign(&mut session, PlacementSpec::copy_of("local", origin(&shop)))).unwrap();
    shop.sh(&mut session, "mkdir deps; echo mine > deps/log; echo 1 > a");
    let place = PlacementSpec::copy_of("local", origin(&shop)).with_setup("mkdir -p deps; echo ran >> deps/log");
    block_on(shop.workspaces.assign(&mut session, place)).unwrap();
    assert_eq!(says(&shop, &mut session, "cat deps/log a"), "mine\nran\n1\n");
    assert_eq!(says(&shop, &mut session, "cat deps/log a"), "mine\nran\n1\n");
}
