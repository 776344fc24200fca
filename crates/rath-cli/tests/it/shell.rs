//! `rath sh`: a person at a terminal.

use std::time::Duration;

use rustix::termios::tcsetwinsize;

use crate::local::isolates;
use crate::person::{Person, size};
use crate::workspace::Bench;

#[test]
fn what_a_person_does_by_hand_is_one_call() {
    if !isolates() {
        return;
    }
    let bench = Bench::new();
    bench.put("work/a", "one\n");
    let session = bench.isolated();
    let mut person = Person::begins(&bench, &["sh", &session]);
    person.waits_for(&format!("[{session}]"));
    assert!(!person.is_left_in_order(), "keys are not handed on");
    person.types("echo hi > f; cat a\r");
    person.waits_for("one");
    // A window that changes its size changes it inside.
    tcsetwinsize(&person.terminal, size(50, 132)).unwrap();
    let mut asked = 0;
    while !person.sees().contains("50 132") {
        person.types("stty size\r");
        std::thread::sleep(Duration::from_millis(250));
        asked += 1;
        assert!(asked < 200, "{:?}", person.sees());
    }
    // An interrupt is for what runs inside.
    person.types("echo begun-$((40+1)); sleep 600\r");
    person.waits_for("begun-41");
    // What is typed while a shell minds an interrupt may be dropped by the terminal.
    let mut asked = 0;
    while !person.sees().contains("still-42") {
        person.types("\x03");
        std::thread::sleep(Duration::from_millis(100));
        person.types("echo still-$((40+2))\r");
        std::thread::sleep(Duration::from_millis(250));
        asked += 1;
        assert!(asked < 200, "{:?}", person.sees());
    }
    assert!(person.child.try_wait().unwrap().is_none());
    person.types("exit\r");
    person.waits_for("shell ended");
    assert!(person.child.wait().unwrap().success(), "{:?}", person.sees());
    assert!(person.is_left_in_order());
    let call = bench.last(&session, "tool_finished").unwrap();
    assert_eq!((&call["outcome"], &call["isolated"]), (&"done".into(), &true.into()));
    assert_eq!(call["changed"]["paths"][0]["path"], "f");
    assert_eq!(call["changed"]["paths"].as_array().unwrap().len(), 1);
    assert!(call["output"][0].to_string().contains("still-42"), "{call}");
    assert_eq!(bench.ok(&["cat", &format!("{session}:f")]), "hi");
    bench.ok(&["undo", &session]);
    bench.sound();
}

#[test]
fn a_shell_can_be_another_program_and_fail() {
    if !isolates() {
        return;
    }
    let bench = Bench::new();
    let session = bench.isolated();
    let mut person = Person::begins(&bench, &["sh", &session, "--", "sh", "-c", "test -t 0 && echo yes > tty; exit 7"]);
    person.waits_for("shell ended");
    assert_eq!(person.child.wait().unwrap().code(), Some(1));
    assert!(person.is_left_in_order());
    assert_eq!(bench.ok(&["cat", &format!("{session}:tty")]), "yes");
    // One that cannot be started leaves the terminal in order, too.
    for arguments in [&["sh", &session, "--", "no-such-program"][..], &["sh", &session, "--on", "host"]] {
        let mut person = Person::begins(&bench, arguments);
        person.waits_for("error");
        assert_eq!(person.child.wait().unwrap().code(), Some(1), "{:?}", person.sees());
        assert!(person.is_left_in_order());
    }
    bench.sound();
}
