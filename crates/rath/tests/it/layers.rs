//! Copies made of layers: forks share them and then differ, whatever happens to the one they came from.

use std::fs;

use pollster::block_on;
use rath::body::SandboxOpened;
use rath::files::Name;
use rath::sandbox::{Command, Local, Tier};
use rath::workshop::{Decision, Place, Prune};
use rath::{How, Kind, Session};

use crate::support::{Shop, count, disk, isolates, layers, put, records, tree};

/// A session on `local` with these files.
fn layered(shop: &Shop, files: &[(&str, &str)]) -> Session {
    let origin = shop.directory("origin");
    files.iter().for_each(|(path, content)| put(&origin, path, Some(content)));
    let mut session = shop.create();
    block_on(shop.workshop.place(&mut session, Place::copy_of("local", &origin))).unwrap();
    session
}

fn fork(shop: &Shop, session: &mut Session) -> Session {
    block_on(shop.workshop.fork(session, "try")).unwrap()
}

/// What a command sees in a file; nothing when it is not there.
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
    let mut child = fork(&shop, &mut parent);
    assert!(shop.is_layered(&parent) && shop.is_layered(&child));
    // Both go on from the same files, commands see them all, and neither sees what the other does.
    shop.sh(&mut parent, "test ! -e gone && echo parent > a && rm d/y");
    shop.sh(&mut child, "test ! -e gone && cat d/x d/y e/z && echo child > a && rm -r e && echo back > gone");
    assert_eq!(sees(&shop, &mut parent, "a d/x d/y e/z gone"), "parent\n0\n1\n");
    assert_eq!(sees(&shop, &mut child, "a d/x d/y e/z gone"), "child\n0\n1\nback\n");
    assert_eq!(shop.now(&parent), tree(&[("a", "parent\n"), ("d/x", "0\n"), ("e/z", "1\n")]));
    assert_eq!(shop.now(&child), tree(&[("a", "child\n"), ("d/x", "0\n"), ("d/y", "1\n"), ("gone", "back\n")]));
    // Nothing of it shows in the directory that the files came from.
    assert_eq!(disk(&shop.directory("origin")), tree(&[("a", "0\n"), ("d/x", "0\n"), ("gone", "0\n")]));
    block_on(shop.workshop.apply(&mut child, false)).unwrap();
    assert_eq!(disk(&shop.directory("origin")), shop.now(&child));
    shop.verify();
}

#[test]
fn ignored_files_go_along_with_layers_and_not_with_versions() {
    if !layers() {
        return;
    }
    let shop = Shop::new();
    let mut parent = layered(&shop, &[(".gitignore", "node_modules/\n*.log\n"), ("a", "0\n")]);
    shop.sh(&mut parent, "mkdir -p node_modules/x target; echo 1 > node_modules/x/index; echo 1 > my.log");
    let mut shares = fork(&shop, &mut parent);
    let mut copies = parent.fork("without");
    assert_eq!(sees(&shop, &mut shares, "node_modules/x/index my.log a"), "1\n1\n0\n");
    assert_eq!(sees(&shop, &mut copies, "node_modules/x/index my.log a"), "0\n");
    // They are each side's own from there on, and in no version.
    shop.sh(&mut shares, "echo 2 > node_modules/x/index; rm my.log");
    assert_eq!(sees(&shop, &mut parent, "node_modules/x/index my.log"), "1\n1\n");
    assert_eq!(shop.now(&parent), shop.now(&shares));
    // A fork of the fork has the fork's.
    let mut grandchild = fork(&shop, &mut shares);
    assert_eq!(sees(&shop, &mut grandchild, "node_modules/x/index my.log"), "2\n");
    shop.verify();
}

#[test]
fn what_is_changed_after_the_record_stays_with_the_parent() {
    if !layers() {
        return;
    }
    let mut shop = Shop::new();
    let mut parent = layered(&shop, &[("a", "0\n")]);
    shop.sh(&mut parent, "echo 1 > a");
    let (id, before) = (parent.id(), parent.head().point());
    drop(parent);
    shop.reopen();
    // As a process leaves it that died while a command ran.
    put(&shop.upper(id), "unrecorded", Some("u\n"));
    let view = shop.view(before);
    let fork = view.fork(rath::Actor::person("ada"), "try").unwrap();
    let child = fork.id();
    let mut fork = fork;
    block_on(fork.publish()).unwrap();
    assert!(!block_on(shop.workshop.share(&view, child)).unwrap());
    assert_eq!(sees(&shop, &mut fork, "a unrecorded"), "1\n");
    let mut parent = shop.open(id);
    let done = shop.sh(&mut parent, "cat unrecorded");
    assert_eq!(done.outside.len(), 1);
    assert_eq!(done.finished.stdout.bytes, b"u\n");
}

#[test]
fn three_generations_and_a_dozen_forks_deep() {
    if !layers() {
        return;
    }
    let shop = Shop::new();
    let mut line = vec![layered(&shop, &[(".gitignore", "cache\n"), ("a", "0\n"), ("d/0", "0\n")])];
    for depth in 1..=12 {
        let last = line.last_mut().unwrap();
        let gone = depth - 1;
        shop.sh(last, &format!("echo {depth} > a; echo {depth} > d/{depth}; rm -f d/{gone}; echo {depth} >> cache"));
        let next = fork(&shop, last);
        line.push(next);
    }
    // Everyone has what was there when it began, and what it did.
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
    let child = fork(&shop, &mut parent);
    let ids = (parent.id(), child.id());
    block_on(parent.close("done")).unwrap();
    drop(child);
    shop.reopen();
    let pruned = block_on(shop.workshop.prune(Prune { ignored: true, ..Prune::default() })).unwrap();
    assert!(pruned.removed.contains(&shop.state(ids.0)), "{pruned:?}");
    assert!(!shop.state(ids.0).exists());
    let mut child = shop.open(ids.1);
    assert_eq!(sees(&shop, &mut child, "a cache"), "1\n1\n");
    // With everything pruned it is made from its version again.
    drop(child);
    shop.reopen();
    block_on(shop.workshop.prune(Prune { all: true, ignored: true, dry: false })).unwrap();
    assert_eq!(fs::read_dir(shop.workshop.home().join("layers")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(shop.workshop.home().join("checkouts")).unwrap().count(), 0);
    let mut child = shop.open(ids.1);
    assert_eq!(sees(&shop, &mut child, "a cache"), "1\n");
    shop.verify();
}

#[test]
fn files_go_back_under_a_sandbox_that_is_open() {
    if !isolates() {
        return;
    }
    let shop = Shop::new();
    let mut session = layered(&shop, &[("a", "0\n"), ("d/x", "0\n")]);
    let first = session.head().point();
    // What a command keeps beside its files stays.
    shop.sh(&mut session, "echo 1 > a; rm -r d; echo 1 > d; echo kept > /tmp/mine");
    let second = session.head().point();
    shop.sh(&mut session, "echo 2 > a");
    block_on(shop.workshop.undo(&mut session, false)).unwrap();
    assert_eq!(sees(&shop, &mut session, "a d /tmp/mine"), "1\n1\nkept\n");
    block_on(shop.workshop.undo(&mut session, false)).unwrap();
    assert_eq!(sees(&shop, &mut session, "a d/x /tmp/mine"), "0\n0\nkept\n");
    block_on(shop.workshop.restore(&mut session, second, false)).unwrap();
    assert_eq!(sees(&shop, &mut session, "a d"), "1\n1\n");
    block_on(shop.workshop.restore(&mut session, first, false)).unwrap();
    assert_eq!(sees(&shop, &mut session, "a d/x"), "0\n0\n");
    // It was one sandbox all the time.
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
    let (mut one, mut two) = (fork(&shop, &mut root), fork(&shop, &mut root));
    shop.sh(&mut one, "echo one > a; echo one > b");
    shop.sh(&mut two, "echo two > a; rm c");
    let mut root = block_on(root.merge([one, two], How::Append)).unwrap();
    assert_eq!(root.state().conflicts.len(), 1);
    assert_eq!(sees(&shop, &mut root, "a b c"), "one\none\n");
    let refused = block_on(shop.workshop.apply(&mut root, false)).unwrap_err();
    assert_eq!(refused.code(), "open-conflicts");
    block_on(shop.workshop.resolve(&mut root, &Name::from("a"), Decision::Theirs)).unwrap();
    assert_eq!(sees(&shop, &mut root, "a b c"), "two\none\n");
    block_on(shop.workshop.apply(&mut root, false)).unwrap();
    assert_eq!(disk(&shop.directory("origin")), tree(&[("a", "two\n"), ("b", "one\n")]));
    shop.verify();
}

#[test]
fn a_fork_does_not_wait_for_who_works_in_the_parent() {
    if !layers() {
        return;
    }
    let shop = Shop::new();
    let mut parent = layered(&shop, &[("a", "0\n")]);
    shop.sh(&mut parent, "echo 1 > a");
    // The first workshop has the copy open, with its anchor: to the second one it is another process.
    let other = shop.second();
    let view = block_on(parent.view()).unwrap();
    let mut fork = view.fork(rath::Actor::person("ada"), "beside").unwrap();
    block_on(fork.publish()).unwrap();
    assert!(!block_on(other.share(&view, fork.id())).unwrap());
    let done = block_on(other.exec(&mut fork, Command::shell("cat a; echo 2 > a"), |_| {})).unwrap();
    assert_eq!(done.finished.stdout.bytes, b"1\n");
    assert_eq!(sees(&shop, &mut parent, "a"), "1\n");
    shop.verify();
}

#[test]
fn a_session_takes_its_files_from_backend_to_backend() {
    if !isolates() {
        return;
    }
    let mut shop = Shop::new();
    let mut session = layered(&shop, &[(".gitignore", "cache\n"), ("a", "0\n")]);
    let origin = shop.directory("origin");
    shop.sh(&mut session, "echo 1 > a; echo 1 > cache");
    block_on(shop.workshop.place(&mut session, Place::copy_of("host", &origin))).unwrap();
    let done = shop.sh(&mut session, "cat a; echo 2 > a; pwd");
    assert_eq!(done.finished.stdout.bytes, format!("1\n{}\n", shop.copy(session.id()).display()).into_bytes());
    assert!(!done.isolated);
    assert_eq!(disk(&shop.copy(session.id())), tree(&[(".gitignore", "cache\n"), ("a", "2\n")]));
    block_on(shop.workshop.place(&mut session, Place::copy_of("local", &origin))).unwrap();
    let done = shop.sh(&mut session, "cat a; echo 3 > a");
    assert_eq!(done.finished.stdout.bytes, b"2\n");
    assert!(done.isolated);
    block_on(shop.workshop.apply(&mut session, false)).unwrap();
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
    let landlock = Local::only(Tier::Landlock);
    if landlock.diagnose().tier.is_none() {
        rath_testkit::Requirement::Sandbox.skip(format_args!("no Landlock: {:?}", landlock.diagnose().refusals));
        return;
    }
    let mut shop = Shop::new();
    let mut before = layered(&shop, &[(".gitignore", "cache\n"), ("a", "0\n")]);
    if isolates() {
        shop.sh(&mut before, "echo 1 > a; echo 1 > cache");
    }
    // As if the machine allowed no more than this from here on.
    shop.workshop = shop.second_on(landlock);
    let mut session = layered(&shop, &[]);
    shop.sh(&mut session, "echo 1 > a; echo 1 > cache");
    assert_eq!(disk(&shop.copy(session.id()))["cache"], "1\n");
    let mut child = fork(&shop, &mut session);
    assert!(!shop.is_layered(&session) && !shop.is_layered(&child));
    assert_eq!(sees(&shop, &mut child, "a cache"), "1\n");
    put(&shop.copy(session.id()), "mine", Some("m\n"));
    let done = shop.sh(&mut session, "cat mine; echo 2 > a");
    assert_eq!((done.outside.len(), done.finished.stdout.bytes), (1, b"m\n".to_vec()));
    block_on(shop.workshop.undo(&mut session, false)).unwrap();
    assert_eq!(sees(&shop, &mut session, "a mine"), "1\nm\n");
    let opened: SandboxOpened = records(&shop, &session, Kind::SandboxOpened)[0].body().unwrap();
    assert_eq!(opened.isolation.as_deref(), Some("landlock"));
    assert!(!opened.not_enforced.is_empty());
    // What was made of layers before is made anew, of its version.
    assert_eq!(sees(&shop, &mut before, "a cache"), if isolates() { "1\n" } else { "0\n" });
    assert!(!shop.is_layered(&before));
    shop.verify();
}

#[test]
fn what_a_lost_call_left_goes_along_too() {
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
    block_on(shop.workshop.place(&mut session, Place::copy_of("host", shop.directory("origin")))).unwrap();
    let done = shop.sh(&mut session, "cat a late");
    assert_eq!(done.finished.stdout.bytes, b"0\nl\n");
    shop.verify();
}
