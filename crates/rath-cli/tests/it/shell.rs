//! `rath sh` on a terminal.

use std::time::Duration;

use rustix::termios::tcsetwinsize;

use crate::local::isolates;
use crate::person::{Person, size};
use crate::workspace::TestProject;

#[test]
fn a_shell_session_is_recorded_as_one_call() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    project.put("work/a", "one\n");
    let session = project.isolated();
    let mut person = Person::begins(&project, &["sh", &session]);
    person.waits_for(&format!("[{session}]"));
    assert!(!person.is_left_in_order(), "keys are not handed on");
    person.types("echo hi > f; cat a\r");
    person.waits_for("one");
    // A change of the window size reaches the command.
    tcsetwinsize(&person.terminal, size(50, 132)).unwrap();
    let mut asked = 0;
    while !person.sees().contains("50 132") {
        person.types("stty size\r");
        std::thread::sleep(Duration::from_millis(250));
        asked += 1;
        assert!(asked < 200, "{:?}", person.sees());
    }
    // An interrupt goes to the command.
    person.types("echo begun-$((40+1)); sleep 600\r");
    person.waits_for("begun-41");
    // The terminal may drop input while the shell handles an interrupt.
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
    let call = project.last(&session, "tool_finished").unwrap();
    assert_eq!((&call["outcome"], &call["isolated"]), (&"done".into(), &true.into()));
    assert_eq!(call["changed"]["paths"][0]["path"], "f");
    assert_eq!(call["changed"]["paths"].as_array().unwrap().len(), 1);
    assert!(call["output"][0].to_string().contains("still-42"), "{call}");
    assert_eq!(project.ok(&["cat", &format!("{session}:f")]), "hi");
    project.ok(&["undo", &session]);
    project.sound();
}

#[test]
fn a_shell_can_be_another_program_and_fail() {
    if !isolates() {
        return;
    }
    let project = TestProject::new();
    let session = project.isolated();
    let mut person =
        Person::begins(&project, &["sh", &session, "--", "sh", "-c", "test -t 0 && echo yes > tty; exit 7"]);
    person.waits_for("shell ended");
    assert_eq!(person.child.wait().unwrap().code(), Some(1));
    assert!(person.is_left_in_order());
    assert_eq!(project.ok(&["cat", &format!("{session}:tty")]), "yes");
    // A program that cannot start leaves the terminal modes restored.
    for arguments in [&["sh", &session, "--", "no-such-program"][..], &["sh", &session, "--on", "host"]] {
        let mut person = Person::begins(&project, arguments);
        person.waits_for("error");
        assert_eq!(person.child.wait().unwrap().code(), Some(1), "{:?}", person.sees());
        assert!(person.is_left_in_order());
    }
    project.sound();
}
