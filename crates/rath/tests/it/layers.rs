//! Copies that consist of layers, which forks share.

use std::fs;

use pollster::block_on;
use rath::body::SandboxOpened;
use rath::files::FilePath;
use rath::sandbox::{Command, IsolationLevel, Local};
use rath::workspaces::{PlacementSpec, PruneOptions, Resolution};
use rath::{How, Kind, Session};

use crate::support::{Shop, count, disk, isolates, layers, put, records, tree};

/// A session on `local` with these files.
fn layered(shop: &Shop, files: &[(&str, &str)]) -> Session {
    let origin = shop.directory("origin");
    files.iter().for_each(|(path, content)| put(&origin, path, Some(content)));
    let mut session = shop.create();
    block_on(shop.workspaces.assign(&mut session, PlacementSpec::copy_of("local", &origin))).unwrap();
    session
}

/// The content of files as a command sees them. Empty if they do not exist.
fn sees(shop: &Shop, session: &mut Session, path: &str) -> String {
    let done = shop.sh(session, &format!("cat {path} 2>/dev/null; true"));
    String::from_utf8(done.finished.stdout.bytes).unwrap()
}

#[test]
fn forks_share_layers_and_then_differ() {
    if !layers() {
        return;
    }
    let shop = Shop::new();
    let mut parent = layered(&shop, &[("a", "0\n"), ("d/x", "0\n"), ("gone", "0\n")]);
    shop.sh(&mut parent, "echo 1 > a; echo 1 > d/y; rm gone; mkdir e; echo 1 > e/z");
    let mut child = parent.fork("try");
    // Both continue from the same files, and neither sees the other's changes.
    shop.sh(&mut parent, "test ! -e gone && echo parent > a && rm d/y");
    shop.sh(&mut child, "test ! -e gone && cat d/x d/y e/z && echo child > a && rm -r e && echo back > gone");
    assert!(shop.is_layered(&parent) && shop.is_layered(&child));
    assert_eq!(sees(&shop, &mut parent, "a d/x d/y e/z gone"), "parent\n0\n1\n");
    assert_eq!(sees(&shop, &mut child, "a d/x d/y e/z gone"), "child\n0\n1\nback\n");
    assert_eq!(shop.now(&parent), tree(&[("a", "parent\n"), ("d/x", "0\n"), ("e/z", "1\n")]));
    assert_eq!(shop.now(&child), tree(&[("a", "child\n"), ("d/x", "0\n"), ("d/y", "1\n"), ("gone", "back\n")]));
    // The origin does not change.
    assert_eq!(disk(&shop.directory("origin")), tree(&[("a", "0\n"), ("d/x", "0\n"), ("gone", "0\n")]));
    block_on(shop.workspaces.apply(&mut child, false)).unwrap();
    assert_eq!(disk(&shop.directory("origin")), shop.now(&child));
    shop.verify();
}

#[test]
fn a_fork_has_ignored_files_which_are_in_no_version() {
    if !layers() {
        return;
    }
    let shop = Shop::new();
    let mut parent = layered(&shop, &[(".gitignore", "node_modules/\n*.log\n"), ("a", "0\n")]);
    shop.sh(&mut parent, "mkdir -p node_modules/x target; echo 1 > node_modules/x/index; echo 1 > my.log");
    let mut shares = parent.fork("try");
    assert_eq!(sees(&shop, &mut shares, "node_modules/x/index my.log a"), "1\n1\n0\n");
    // Later changes to them stay on each side, and no version contains them.
    shop.sh(&mut shares, "echo 2 > node_modules/x/index; rm my.log");
    assert_eq!(sees(&shop, &mut parent, "node_modules/x/index my.log"), "1\n1\n");
    assert_eq!(shop.now(&parent), shop.now(&shares));
    // A fork of the fork has the fork's ignored files.
    let mut grandchild = shares.fork("try");
    assert_eq!(sees(&shop, &mut grandchild, "node_modules/x/index my.log"), "2\n");
    shop.verify();
}

/// A layered session that has written an ignored file.
fn with_cache(shop: &Shop) -> Session {
    let mut session = layered(shop, &[(".gitignore", "cache\n"), ("a", "0\n")]);
    shop.sh(&mut session, "echo 1 > a; echo 1 > cache");
    session
}

#[test]
fn a_fork_keeps_ignored_files_if_its_parent_works_first() {
    if !layers() {
        return;
    }
    let shop = Shop::new();
    let mut parent = with_cache(&shop);
    let mut early = parent.fork("early");
    shop.sh(&mut parent, "echo 2 > a; echo 2 > cache");
    let mut later = parent.fork("later");
    shop.sh(&mut parent, "echo 3 > cache");
    assert_eq!(sees(&shop, &mut early, "a cache"), "1\n1\n");
    assert_eq!(sees(&shop, &mut later, "a cache"), "2\n2\n");
    assert_eq!(sees(&shop, &mut parent, "a cache"), "2\n3\n");
    // The same if the fork works first, and for a fork of a fork that never used its files.
    let idle = parent.fork("idle");
    let mut grandchild = idle.fork("grandchild");
    assert_eq!(sees(&shop, &mut grandchild, "a cache"), "2\n3\n");
    shop.verify();
}

#[test]
fn a_fork_keeps_ignored_files_across_processes() {
    if !layers() {
        return;
    }
    for parent_first in [true, false] {
        let mut shop = Shop::new();
        let parent = with_cache(&shop);
        let mut child = parent.fork("try");
        block_on(child.publish()).unwrap();
        let ids = (parent.id(), child.id());
        drop((parent, child));
        shop.reopen();
        let (mut parent, mut child) = (shop.open(ids.0), shop.open(ids.1));
        if parent_first {
            shop.sh(&mut parent, "echo 2 > cache");
        }
        assert_eq!(sees(&shop, &mut child, "a cache"), "1\n1\n", "parent first: {parent_first}");
        shop.sh(&mut child, "echo 3 > cache");
        assert_eq!(sees(&shop, &mut parent, "cache"), if parent_first { "2\n" } else { "1\n" });
        shop.verify();
    }
}

#[test]
fn a_fork_does_not_get_ignored_files_from_after_its_fork_point() {
    if !layers() {
        return;
    }
    let shop = Shop::new();
    let mut parent = with_cache(&shop);
    let view = block_on(parent.view()).unwrap();
    let mut child = view.fork(rath::Actor::person("ada"), "try").unwrap();
    block_on(child.publish()).unwrap();
    // The parent's layers are open, and its session value does not know the fork.
    shop.sh(&mut parent, "echo 2 > cache");
    assert_eq!(sees(&shop, &mut child, "a cache"), "1\n");
    shop.verify();
}

#[test]
fn concurrent_forks_all_keep_ignored_files() {
    if !layers() {
        return;
    }
    let shop = Shop::new();
    let mut parent = with_cache(&shop);
    let mut forks: Vec<_> = (0..4).map(|_| parent.fork("at once")).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let seen = runtime.block_on(async {
        let read = |session| shop.workspaces.exec(session, Command::shell("cat cache; echo 2 > cache"), |_| {});
        let [a, b, c, d] = &mut forks[..] else { unreachable!() };
        let (a, b, c, d, e) = tokio::join!(read(a), read(b), read(c), read(d), read(&mut parent));
        [a, b, c, d, e].map(|done| String::from_utf8(done.unwrap().finished.stdout.bytes).unwrap())
    });
    assert_eq!(seen, ["1\n"; 5]);
    shop.verify();
}

#[test]
fn unrecorded_changes_stay_with_the_parent() {
    if !layers() {
        return;
    }
    let mut shop = Shop::new();
    let mut parent = layered(&shop, &[("a", "0\n")]);
    shop.sh(&mut parent, "echo 1 > a");
    let (id, before) = (parent.id(), parent.head().point());
    drop(parent);
    shop.reopen();
    // The state that a process leaves when it dies during a command.
    put(&shop.upper(id), "unrecorded", Some("u\n"));
    let view = shop.view(before);
    let mut fork = view.fork(rath::Actor::person("ada"), "try").unwrap();
    assert_eq!(sees(&shop, &mut fork, "a unrecorded"), "1\n");
    let mut parent = shop.open(id);
    let done = shop.sh(&mut parent, "cat unrecorded");
    assert_eq!(done.outside.len(), 1);
    assert_eq!(done.finished.stdout.bytes, b"u\n");
}

#[test]
fn a_dozen_generations_of_forks() {
    if !layers() {
        return;
    }
    let shop = Shop::new();
    let mut line = vec![layered(&shop, &[(".gitignore", "cache\n"), ("a", "0\n"), ("d/0", "0\n")])];
    for depth in 1..=12 {
        let last = line.last_mut().unwrap();
        let gone = depth - 1;
        shop.sh(last, &format!("echo {depth} > a; echo {depth} > d/{depth}; rm -f d/{gone}; echo {depth} >> cache"));
        let next = last.fork("try");
        line.push(next);
    }
    // Each session has the files from its fork point, and its own changes.
    for (depth, session) in line.iter_mut().enumerate() {
        let done = (depth + 1).min(12);
        let expected = tree(&[
            (".gitignore", "cache\n"),
            ("a", &format!("{done}\n")),
            (&format!("d/{done}"), &format!("{done}\n")),
        ]);
        assert_eq!(shop.now(session), expected, "generation {depth}");
        let cache: String = (1..=done).map(|depth| format!("{depth}\n")).collect();
        let seen = sees(&shop, session, "a d/* cache");
        assert_eq!(seen, format!("{done}\n{done}\n{cache}"), "generation {depth}");
    }
    let deepest = fs::read(shop.state(line[12].id()).join("stack.json")).unwrap();
    let deepest: serde_json::Value = serde_json::from_slice(&deepest).unwrap();
    assert!(deepest["lowers"].as_array().unwrap().len() <= 8, "{deepest}");
    shop.verify();
}

#[test]
fn a_fork_outlives_the_copy_of_its_parent() {
    if !layers() {
        return;
    }
    let mut shop = Shop::new();
    let mut parent = layered(&shop, &[(".gitignore", "cache\n"), ("a", "0\n")]);
    shop.sh(&mut parent, "echo 1 > a; echo 1 > cache");
    let mut child = parent.fork("try");
    block_on(child.publish()).unwrap();
    let ids = (parent.id(), child.id());
    block_on(parent.close("done")).unwrap();
    drop(child);
    shop.reopen();
    let pruned = block_on(shop.workspaces.prune(PruneOptions { ignored: true, ..PruneOptions::default() })).unwrap();
    assert!(pruned.removed.contains(&shop.state(ids.0)), "{pruned:?}");
    assert!(!shop.state(ids.0).exists());
    let mut child = shop.open(ids.1);
    assert_eq!(sees(&shop, &mut child, "a cache"), "1\n1\n");
    // After everything is pruned, the copy is created from its version.
    drop(child);
    shop.reopen();
    block_on(shop.workspaces.prune(PruneOptions { all: true, ignored: true, dry: false })).unwrap();
    assert_eq!(fs::read_dir(shop.workspaces.home().join("layers")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(shop.workspaces.home().join("checkouts")).unwrap().count(), 0);
    let mut child = shop.open(ids.1);
    assert_eq!(sees(&shop, &mut child, "a cache"), "1\n");
    shop.verify();
}

#[test]
fn restores_keep_the_sandbox_open() {
    if !isolates() {
        return;
    }
    let shop = Shop::new();
    let mut session = layered(&shop, &[("a", "0\n"), ("d/x", "0\n")]);
    let first = session.head().point();
    // Files outside the workspace stay.
    shop.sh(&mut session, "echo 1 > a; rm -r d; echo 1 > d; echo kept > /tmp/mine");
    let second = session.head().point();
    shop.sh(&mut session, "echo 2 > a");
    block_on(shop.workspaces.undo(&mut session, false)).unwrap();
    assert_eq!(sees(&shop, &mut session, "a d /tmp/mine"), "1\n1\nkept\n");
    block_on(shop.workspaces.undo(&mut session, false)).unwrap();
    assert_eq!(sees(&shop, &mut session, "a d/x /tmp/mine"), "0\n0\nkept\n");
    block_on(shop.workspaces.restore(&mut session, second, false)).unwrap();
    assert_eq!(sees(&shop, &mut session, "a d"), "1\n1\n");
    block_on(shop.workspaces.restore(&mut session, first, false)).unwrap();
    assert_eq!(sees(&shop, &mut session, "a d/x"), "0\n0\n");
    // It was the same sandbox all the time.
    assert_eq!(count(&shop, &session, Kind::SandboxOpened), 1);
    assert_eq!(count(&shop, &session, Kind::SandboxLost), 0);
    shop.verify();
}

#[test]
fn a_merge_of_two_layered_branches_has_their_conflicts() {
    if !isolates() {
        return;
    }
    let shop = Shop::new();
    let mut root = layered(&shop, &[("a", "0\n"), ("b", "0\n"), ("c", "0\n")]);
    shop.sh(&mut root, "true");
    let (mut one, mut two) = (root.fork("try"), root.fork("try"));
    shop.sh(&mut one, "echo one > a; echo one > b");
    shop.sh(&mut two, "echo two > a; rm c");
    let mut root = block_on(root.merge([one, two], How::Append)).unwrap();
    assert_eq!(root.state().conflicts.len(), 1);
    assert_eq!(sees(&shop, &mut root, "a b c"), "one\none\n");
    let refused = block_on(shop.workspaces.apply(&mut root, false)).unwrap_err();
    assert_eq!(refused.code(), "open-conflicts");
    block_on(shop.workspaces.resolve(&mut root, &FilePath::from("a"), Resolution::Theirs)).unwrap();
    assert_eq!(sees(&shop, &mut root, "a b c"), "two\none\n");
    block_on(shop.workspaces.apply(&mut root, false)).unwrap();
    assert_eq!(disk(&shop.directory("origin")), tree(&[("a", "two\n"), ("b", "one\n")]));
    shop.verify();
}

#[test]
fn a_fork_does_not_wait_for_a_process_that_works_in_the_parent() {
    if !layers() {
        return;
    }
    let shop = Shop::new();
    let mut parent = layered(&shop, &[("a", "0\n")]);
    shop.sh(&mut parent, "echo 1 > a");
    // The first value has the copy open, with a supervisor. To the second one it is like another process.
    let other = shop.second();
    let view = block_on(parent.view()).unwrap();
    let mut fork = view.fork(rath::Actor::person("ada"), "beside").unwrap();
    block_on(fork.publish()).unwrap();
    let done = block_on(other.exec(&mut fork, Command::shell("cat a; echo 2 > a"), |_| {})).unwrap();
    assert_eq!(done.finished.stdout.bytes, b"1\n");
    assert_eq!(sees(&shop, &mut parent, "a"), "1\n");
    shop.verify();
}

#[test]
fn a_session_keeps_its_files_when_its_backend_changes() {
    if !isolates() {
        return;
    }
    let mut shop = Shop::new();
    let mut session = layered(&shop, &[(".gitignore", "cache\n"), ("a", "0\n")]);
    let origin = shop.directory("origin");
    shop.sh(&mut session, "echo 1 > a; echo 1 > cache");
    block_on(shop.workspaces.assign(&mut session, PlacementSpec::copy_of("host", &origin))).unwrap();
    let done = shop.sh(&mut session, "cat a; echo 2 > a; pwd");
    assert_eq!(done.finished.stdout.bytes, format!("1\n{}\n", shop.copy(session.id()).display()).into_bytes());
    assert!(!done.isolated);
    assert_eq!(disk(&shop.copy(session.id())), tree(&[(".gitignore", "cache\n"), ("a", "2\n")]));
    block_on(shop.workspaces.assign(&mut session, PlacementSpec::copy_of("local", &origin))).unwrap();
    let done = shop.sh(&mut session, "cat a; echo 3 > a");
    assert_eq!(done.finished.stdout.bytes, b"2\n");
    assert!(done.isolated);
    block_on(shop.workspaces.apply(&mut session, false)).unwrap();
    assert_eq!(disk(&origin), tree(&[(".gitignore", "cache\n"), ("a", "3\n")]));
    assert_eq!(count(&shop, &session, Kind::SandboxLost), 0);
    assert_eq!(records(&shop, &session, Kind::SandboxClosed).len(), 2);
    let id = session.id();
    drop(session);
    shop.reopen();
    let mut session = shop.open(id);
    assert_eq!(sees(&shop, &mut session, "a"), "3\n");
    shop.verify();
}

#[test]
fn without_layers_a_copy_is_a_directory() {
    let landlock = Local::only(IsolationLevel::Landlock);
    if landlock.diagnose().level.is_none() {
        rath_testkit::Requirement::Sandbox.skip(format_args!("no Landlock: {:?}", landlock.diagnose().refusals));
        return;
    }
    let mut shop = Shop::new();
    let mut before = layered(&shop, &[(".gitignore", "cache\n"), ("a", "0\n")]);
    if isolates() {
        shop.sh(&mut before, "echo 1 > a; echo 1 > cache");
    }
    // As if the machine supported only this level from now on.
    shop.workspaces = shop.second_on(landlock);
    let mut session = layered(&shop, &[]);
    shop.sh(&mut session, "echo 1 > a; echo 1 > cache");
    assert_eq!(disk(&shop.copy(session.id()))["cache"], "1\n");
    let mut child = session.fork("try");
    assert!(!shop.is_layered(&session) && !shop.is_layered(&child));
    assert_eq!(sees(&shop, &mut child, "a cache"), "1\n");
    put(&shop.copy(session.id()), "mine", Some("m\n"));
    let done = shop.sh(&mut session, "cat mine; echo 2 > a");
    assert_eq!((done.outside.len(), done.finished.stdout.bytes), (1, b"m\n".to_vec()));
    block_on(shop.workspaces.undo(&mut session, false)).unwrap();
    assert_eq!(sees(&shop, &mut session, "a mine"), "1\nm\n");
    let opened: SandboxOpened = records(&shop, &session, Kind::SandboxOpened)[0].body().unwrap();
    assert_eq!(opened.isolation.as_deref(), Some("landlock"));
    assert!(!opened.not_enforced.is_empty());
    // A layered copy is created again from its version, as a directory.
    assert_eq!(sees(&shop, &mut before, "a cache"), if isolates() { "1\n" } else { "0\n" });
    assert!(!shop.is_layered(&before));
    shop.verify();
}

#[test]
fn changes_of_an_interrupted_call_are_kept_when_the_backend_changes() {
    if !isolates() {
        return;
    }
    let mut shop = Shop::new();
    let mut session = layered(&shop, &[("a", "0\n")]);
    shop.sh(&mut session, "true");
    let sandbox = session.state().placement.as_ref().unwrap().sandbox.clone().unwrap();
    crate::edges::lose_a_call(&mut session);
    session.append(rath::body::SandboxLost { sandbox, why: "a test".into() }).unwrap();
    block_on(session.publish()).unwrap();
    let id = session.id();
    drop(session);
    shop.reopen();
    let files = if layers() { shop.upper(id) } else { shop.copy(id) };
    put(&files, "late", Some("l\n"));
    let mut session = shop.open(id);
    block_on(shop.workspaces.assign(&mut session, PlacementSpec::copy_of("host", shop.directory("origin")))).unwrap();
    let done = shop.sh(&mut session, "cat a late");
    assert_eq!(done.finished.stdout.bytes, b"0\nl\n");
    shop.verify();
}
