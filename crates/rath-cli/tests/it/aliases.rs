//! The names that commands had in the last release still work, with their old arguments; and the new arguments do.

use crate::workspace::TestProject;

/// A session with a fork, in a copy of `work`, and one change of a file.
fn project() -> (TestProject, String) {
    let project = TestProject::new();
    project.put("work/a", "one\n");
    let session = project.copied();
    project.sh(&session, "echo two >> a");
    (project, session)
}

#[test]
fn reading_commands_print_the_same_under_their_old_names() {
    let (project, session) = project();
    let file = format!("{session}:a");
    for (old, new) in [
        (&["sessions"][..], &["ls"][..]),
        (&["state", &session], &["show", &session, "--state"]),
        (&["steps", &session], &["show", &session, "--steps"]),
        (&["files", &session], &["file", "ls", &session]),
        (&["files", "-l", &session], &["file", "ls", &session, "--long"]),
        (&["cat", &file], &["file", "cat", &file]),
        (&["blame", "a", "-S", &session], &["file", "blame", &file]),
        (&["blame", "a:2", "-S", &session], &["file", "blame", &format!("{file}:2")]),
        (&["sandbox", "ls"], &["workspace", "ls"]),
        (&["sandbox", "path", &session], &["workspace", "path", &session]),
        (&["sandbox", "prune", "--dry-run"], &["workspace", "prune", "--dry-run"]),
        (&["conflicts", &session], &["resolve", "--list", &session]),
        (&["label", &session], &["session", "label", &session]),
        (&["stats"], &["store", "stats"]),
        (&["gc", "--dry-run"], &["store", "gc", "--dry-run"]),
        (&["hold"], &["store", "hold"]),
        (&["explain"], &["help", "error"]),
        (&["explain", "session-held"], &["help", "error", "session-held"]),
        (&["log", "--label", "urgent"], &["ls", "--label", "urgent", "-n", "0"]),
        (&["tail", "--follow", "--while-held", "-n", "1", &session], &["tail", "--while-locked", "-n", "1", &session]),
        (&["grep", "--newest", "try"], &["grep", "try"]),
    ] {
        let (before, after) = (project.run(old), project.run(new));
        assert_eq!(before.status.code(), after.status.code(), "{old:?}");
        assert_eq!(before.stdout, after.stdout, "{old:?}");
    }
}

#[test]
fn writing_commands_work_under_their_old_names() {
    let (project, session) = project();
    let at = |text: &str| text.starts_with(&format!("{session}@"));
    assert!(at(&project.ok(&["say", &session, "hello"])));
    assert!(at(&project.ok(&["label", &session, "urgent", "--title", "t"])));
    assert!(at(&project.ok(&["place", &session, "--on", "host"])) || project.last(&session, "placed").is_some());
    std::fs::write(project.copy(&session).join("b"), "new\n").unwrap();
    assert!(at(&project.ok(&["save", &session])));
    assert!(at(&project.ok(&["undo", &session, "--over"])));
    assert!(at(&project.ok(&["restore", &format!("{session}@4"), "--over"])));

    let other = project.ok(&["detach", &session, "a new start"]);
    assert_ne!(other, session);
    assert!(project.ok(&["take", &other]).starts_with(&other));
    let hold = project.ok(&["hold", &other, "--why", "case 17"]);
    project.fails(3, &["erase", &other, "--why", "ticket 12", "--yes"]);
    project.ok(&["release", &other, "--why", "closed"]);
    assert!(hold.contains('@'));
    project.ok(&["erase", &other, "--why", "ticket 12", "--yes"]);

    let fork = project.ok(&["fork", &session]);
    project.sh(&fork, "echo theirs > a");
    project.sh(&session, "echo ours > a");
    assert_eq!(project.run(&["merge", &session, &fork]).status.code(), Some(3));
    project.fails(3, &["conflicts", &session, "a"]);
    assert!(at(&project.ok(&["resolve", &session, "a", "--as-it-is"])));
    assert!(at(&project.ok(&["close", &session, "done"])));
    project.sound();
}

#[test]
fn the_old_names_are_not_in_the_help() {
    let (project, _) = project();
    let help = project.ok(&["--help"]);
    for old in ["  sessions", "  state", "  cat ", "  blame", "  place", "  detach", "  gc ", "  erase", "  explain"] {
        assert!(!help.contains(old), "{old}:\n{help}");
    }
}

#[test]
fn the_new_arguments_work() {
    let (project, session) = project();
    let mut complete = crate::workspace::command(project.root(), &["--", "rath", "show", ""]);
    complete.env("RATH_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "2").env("_CLAP_IFS", "\n");
    let candidates = crate::workspace::text(&complete.output().unwrap().stdout);
    assert!(candidates.lines().any(|candidate| candidate == session), "{candidates}");
    project.ok(&["completions", "--man", "man"]);
    assert!(project.read("man/rath-file-cat.1").contains("SESSION:PATH"));
    // Each new argument of `rath run -c` and `rath -C`.
    assert_eq!(project.run(&["-C", "work", "status"]).status.code(), Some(0));
    assert_eq!(project.run(&["-C", "nowhere", "status"]).status.code(), Some(2));
    project.put("run.toml", "task = \"Go.\"\n[agents.a]\n[[turn]]\ntext = \"Done.\"\n");
    project.ok(&["run", "-a", "run.toml", "-q"]);
    project.ok(&["new", "newer, but not a run"]);
    assert_eq!(project.ok(&["run", "-c", "more", "-q"]), "Done.");
    let log = project.ok(&["ls"]);
    let run = log.lines().find(|line| line.ends_with("Go.")).unwrap()[..8].to_owned();
    assert_eq!(project.ok(&["run", "-c", &run, "and more", "-q"]), "Done.");
    let shown = project.ok(&["show", &run]);
    assert!(shown.contains("user  more") && shown.contains("user  and more"), "{shown}");
    assert!(project.fails(2, &["run", "two", "words"]).contains("quote it"));
    assert!(project.ok(&["status", &run]).contains("rath run -c"));
    // A session before the command, or none.
    assert_eq!(project.ok(&["exec", &session, "cat", "a"]), "one\ntwo");
    project.sh(&session, "true");
    assert_eq!(project.ok(&["exec", "--", "cat", "a"]), "one\ntwo");
    assert!(project.fails(2, &["exec", "cat"]).contains("no command is named"));
    // Ranges of records.
    assert_eq!(project.ok(&["log", &format!("{session}@0..1")]).lines().count(), 2);
    let fork = project.ok(&["fork", &session]);
    assert_eq!(project.ok(&["log", &format!("{session}..{fork}")]).lines().count(), 1);
    // Merges that are probably mistakes.
    let other = project.ok(&["new", "unrelated"]);
    assert!(project.fails(2, &["merge", &session, &other]).contains("no common ancestor"));
    assert!(project.fails(2, &["merge", &fork, &session]).contains("was forked from"));
    let out = project.run(&["merge", &session, &fork]);
    assert!(crate::workspace::text(&out.stderr).contains(&format!("merged and closed {fork}")), "{out:?}");
    // Ten writers at once.
    let added: Vec<_> = (0..10)
        .map(|n| crate::workspace::command(project.root(), &["add", &session, &format!("{n}")]).spawn().unwrap())
        .collect();
    assert!(added.into_iter().all(|child| child.wait_with_output().unwrap().status.success()));
    project.sound();
}
