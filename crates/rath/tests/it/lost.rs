//! Sandboxes that are killed from outside: the loss is recorded once, and the session continues.

use std::process::Command as Process;

use pollster::block_on;
use rath::body::{CallOutcome, SandboxOpened, ToolFinished};
use rath::sandbox::{Command, CommandEvent, ExitStatus};
use rath::workspaces::PlacementSpec;
use rath::{Kind, Session};

use crate::support::{Shop, count, disk, isolates, put, records, tree};

fn kill(process: u32) {
    assert!(Process::new("kill").args(["-9", &process.to_string()]).status().unwrap().success());
}

fn placed(shop: &Shop, place: fn(&'static str, std::path::PathBuf) -> PlacementSpec) -> Session {
    let origin = shop.directory("origin");
    put(&origin, "a", Some("0\n"));
    let mut session = shop.create();
    block_on(shop.workspaces.assign(&mut session, place("local", origin))).unwrap();
    session
}

fn last_call(shop: &Shop, session: &Session) -> ToolFinished {
    records(shop, session, Kind::ToolFinished).pop().unwrap().body().unwrap()
}

fn generation(shop: &Shop, session: &Session) -> u64 {
    let opened: SandboxOpened = records(shop, session, Kind::SandboxOpened).pop().unwrap().body().unwrap();
    opened.sandbox.generation
}

#[test]
fn a_supervisor_that_is_killed_between_commands_is_replaced() {
    if !isolates() {
        return;
    }
    let shop = Shop::new();
    let mut session = placed(&shop, PlacementSpec::copy_of);
    shop.sh(&mut session, "echo 1 > a; echo private > /tmp/mine");
    for round in 1..=3 {
        let supervisor = shop.supervisor(&session).unwrap();
        kill(supervisor);
        while std::fs::read_to_string(format!("/proc/{supervisor}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let done = shop.sh(&mut session, "cat a; test ! -e /tmp/mine && echo private > /tmp/mine");
        assert!(done.finished.ended.success() && done.outside.is_empty());
        assert_eq!(done.finished.stdout.bytes, b"1\n");
        assert_eq!(count(&shop, &session, Kind::SandboxLost), round);
        assert_eq!(generation(&shop, &session), round as u64 + 1);
        assert_eq!(last_call(&shop, &session).outcome, CallOutcome::Done);
    }
    shop.verify();
}

#[test]
fn a_command_ends_with_its_killed_supervisor() {
    if !isolates() {
        return;
    }
    for in_place in [false, true] {
        let shop = Shop::new();
        let place = if in_place {
            |on, origin| PlacementSpec::in_place(on, origin)
        } else {
            |on, origin| PlacementSpec::copy_of(on, origin)
        };
        let mut session = placed(&shop, place);
        shop.sh(&mut session, "true");
        for round in 1..=4 {
            let sandbox = session.state().placement.as_ref().unwrap().sandbox.clone().unwrap();
            let line = format!(
                "echo {round} > early; echo go; (setsid sh -c 'while :; do echo x >> more; done' &) ; sleep 600"
            );
            shop.sh(&mut session, "true");
            let supervisor = supervisor(&shop, &session, in_place);
            let mut killed = false;
            let die = |event: &CommandEvent| {
                if let CommandEvent::Output { .. } = event
                    && !std::mem::replace(&mut killed, true)
                {
                    kill(supervisor);
                }
            };
            let ended = block_on(shop.workspaces.exec(&mut session, Command::shell(line), die));
            let call = last_call(&shop, &session);
            match ended {
                Err(error) => {
                    assert_eq!(error.code(), "sandbox-lost", "{error}");
                    assert!(error.to_string().contains(&sandbox.id), "{error}");
                    assert_eq!(call.outcome, CallOutcome::Lost);
                    assert_eq!(count(&shop, &session, Kind::SandboxLost), round);
                }
                // The command's init had time to report the exit status.
                Ok(done) => assert!(matches!(done.finished.ended, ExitStatus::Signalled { signal: 9, .. })),
            }
            assert!(call.changed.paths.iter().any(|change| change.path.to_string() == "early"), "{call:?}");
            assert!(session.pending().is_empty());
            // No process of it is left, and the next command finds its files.
            let done = shop.sh(&mut session, "cat early; sleep 0.05");
            assert!(done.outside.is_empty() && done.changed.is_empty(), "{:?} {:?}", done.outside, done.changed);
            assert_eq!(done.finished.stdout.bytes, format!("{round}\n").into_bytes());
            assert_eq!(count(&shop, &session, Kind::SandboxLost), round);
            assert_eq!(generation(&shop, &session), round as u64 + 1);
            block_on(shop.workspaces.undo(&mut session, false)).unwrap();
            assert_eq!(shop.now(&session), tree(&[("a", "0\n")]));
        }
        if in_place {
            assert_eq!(disk(&shop.directory("origin")), tree(&[("a", "0\n")]));
        }
        shop.verify();
    }
}

fn supervisor(shop: &Shop, session: &Session, in_place: bool) -> u32 {
    match in_place {
        false => shop.supervisor(session).unwrap(),
        true => {
            let homes = std::fs::read_dir(shop.workspaces.home()).unwrap().map(|entry| entry.unwrap().path());
            let mut states = homes.map(|home| home.join(format!("sandbox-{}", session.id())));
            states.find_map(|state| rath::sandbox::supervisor_pid(&state)).unwrap()
        }
    }
}

#[test]
fn a_new_process_reopens_the_same_sandbox() {
    if !isolates() {
        return;
    }
    let mut shop = Shop::new();
    let mut session = placed(&shop, PlacementSpec::copy_of);
    shop.sh(&mut session, "echo private > /tmp/mine; echo home > ~/at-home");
    let id = session.id();
    for _ in 0..3 {
        drop(session);
        shop.reopen();
        session = shop.open(id);
        assert!(shop.supervisor(&session).is_none());
        let done = shop.sh(&mut session, "cat /tmp/mine ~/at-home");
        assert_eq!(done.finished.stdout.bytes, b"private\nhome\n");
    }
    assert_eq!(count(&shop, &session, Kind::SandboxOpened), 1);
    assert_eq!(count(&shop, &session, Kind::SandboxLost), 0);
}

#[test]
fn a_lost_sandbox_does_not_keep_a_session_from_moving() {
    if !isolates() {
        return;
    }
    let shop = Shop::new();
    let mut session = placed(&shop, PlacementSpec::copy_of);
    shop.sh(&mut session, "true");
    let supervisor = shop.supervisor(&session).unwrap();
    let line = Command::shell("echo 1 > a; echo go; sleep 600");
    let _ = block_on(shop.workspaces.exec(&mut session, line, |_| kill(supervisor)));
    block_on(shop.workspaces.assign(&mut session, PlacementSpec::copy_of("host", shop.directory("origin")))).unwrap();
    assert_eq!(shop.sh(&mut session, "cat a").finished.stdout.bytes, b"1\n");
    shop.verify();
}
