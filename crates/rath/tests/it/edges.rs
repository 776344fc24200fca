//! Edge cases of workspaces, most of them former bugs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use pollster::block_on;
use rath::How;
use rath::body::{Restored, ToolFinished, ToolStarted};
use rath::files::FilePath;
use rath::sandbox::Command;
use rath::workspaces::{PlacementSpec, PruneOptions, Resolution};
use rath::{Kind, Point, Session};

use crate::support::{Shop, backends, disk, put, records, tree};

/// A session in a copy of a directory with these files.
fn copied(shop: &Shop, files: &[(&str, &str)]) -> (Session, std::path::PathBuf) {
    copied_on("host", shop, files)
}

fn copied_on(backend: &str, shop: &Shop, files: &[(&str, &str)]) -> (Session, std::path::PathBuf) {
    let origin = shop.directory("origin");
    files.iter().for_each(|(path, content)| put(&origin, path, Some(content)));
    let mut session = shop.create();
    block_on(shop.workspaces.assign(&mut session, PlacementSpec::copy_of(backend, &origin))).unwrap();
    (session, origin)
}

#[test]
fn apply_keeps_foreign_files_in_a_removed_directory() {
    for backend in backends() {
        let shop = Shop::new();
        let (mut session, origin) = copied_on(backend, &shop, &[("d/x", "x\n"), ("e/x", "x\n"), ("keep", "k\n")]);
        shop.sh(&mut session, "rm -r d e");
        put(&origin, "d/mine", Some("mine\n"));
        block_on(shop.workspaces.apply(&mut session, false)).unwrap();
        assert_eq!(disk(&origin), tree(&[("d/mine", "mine\n"), ("keep", "k\n")]));

        // If a file must replace the directory, apply fails.
        shop.sh(&mut session, "mkdir f && echo x > f/x");
        block_on(shop.workspaces.apply(&mut session, false)).unwrap();
        shop.sh(&mut session, "rm -r f && echo file > f");
        put(&origin, "f/mine", Some("mine\n"));
        let error = block_on(shop.workspaces.apply(&mut session, false)).unwrap_err();
        assert_eq!(error.code(), "changed-meanwhile");
        assert_eq!(disk(&origin)["f/mine"], "mine\n");
        assert_eq!(disk(&origin)["f/x"], "x\n");
    }
}

#[test]
fn apply_changes_a_directory_s_mode_without_its_contents() {
    for backend in backends() {
        let shop = Shop::new();
        let (mut session, origin) = copied_on(backend, &shop, &[("d/x", "x\n"), ("d/y", "y\n")]);
        shop.sh(&mut session, "chmod 700 d && echo changed > d/x");
        put(&origin, "d/mine", Some("mine\n"));
        put(&origin, "d/y", Some("my y\n"));
        block_on(shop.workspaces.apply(&mut session, false)).unwrap();
        assert_eq!(disk(&origin), tree(&[("d/x", "changed\n"), ("d/y", "my y\n"), ("d/mine", "mine\n")]));
        assert_eq!(fs::metadata(origin.join("d")).unwrap().permissions().mode() & 0o777, 0o700);
    }
}

#[test]
fn apply_counts_paths_that_are_already_equal() {
    for backend in backends() {
        let shop = Shop::new();
        let (mut session, origin) = copied_on(backend, &shop, &[("a", "0\n")]);
        shop.sh(&mut session, "echo 1 > a");
        put(&origin, "a", Some("1\n"));
        let applied = block_on(shop.workspaces.apply(&mut session, false)).unwrap();
        assert_eq!((applied.changed.len(), applied.already.len()), (0, 1));
        shop.sh(&mut session, "echo 2 > a");
        block_on(shop.workspaces.apply(&mut session, false)).unwrap();
        assert_eq!(disk(&origin), tree(&[("a", "2\n")]));
        // A second apply has nothing to do and records nothing.
        let head = session.head();
        block_on(shop.workspaces.apply(&mut session, false)).unwrap();
        assert_eq!(session.head(), head);
    }
}

#[test]
fn a_fork_of_a_session_in_place_can_be_applied() {
    for backend in backends() {
        let shop = Shop::new();
        let directory = shop.directory("work");
        put(&directory, "a", Some("0\n"));
        let mut session = shop.create();
        block_on(shop.workspaces.assign(&mut session, PlacementSpec::in_place(*backend, &directory))).unwrap();
        shop.sh(&mut session, "echo 1 > a");
        let mut fork = session.fork("try");
        shop.sh(&mut fork, "echo 2 > a");
        assert_eq!(disk(&directory), tree(&[("a", "1\n")]));
        shop.workspaces.leave(session.id());
        block_on(shop.workspaces.apply(&mut fork, false)).unwrap();
        assert_eq!(disk(&directory), tree(&[("a", "2\n")]));
        let done = shop.sh(&mut session, "true");
        assert_eq!(done.outside.len(), 1);
    }
}

#[test]
fn a_closed_session_leaves_the_directory_alone() {
    for backend in backends() {
        let shop = Shop::new();
        let directory = shop.directory("work");
        put(&directory, "a", Some("0\n"));
        let mut session = shop.create();
        block_on(shop.workspaces.assign(&mut session, PlacementSpec::in_place(*backend, &directory))).unwrap();
        shop.sh(&mut session, "echo 1 > a");
        let id = session.id();
        block_on(session.close("done")).unwrap();
        shop.workspaces.leave(id);
        put(&directory, "a", Some("mine\n"));
        let mut session = shop.open(id);
        for over in [false, true] {
            let error = block_on(shop.workspaces.undo(&mut session, over)).unwrap_err();
            assert_eq!(error.code(), "session-closed", "{error}");
        }
        let error = block_on(shop.workspaces.exec(&mut session, Command::shell("echo 2 > a"), |_| {})).unwrap_err();
        assert_eq!(error.code(), "session-closed", "{error}");
        assert_eq!(disk(&directory), tree(&[("a", "mine\n")]));
    }
}

#[test]
fn external_edits_under_a_merge_block_everything_except_overwriting_them() {
    let shop = Shop::new();
    let (mut session, _) = copied(&shop, &[("a", "0\n"), ("b", "0\n")]);
    shop.sh(&mut session, "true");
    let mut fork = session.fork("try");
    shop.sh(&mut fork, "echo 1 > b");
    put(&shop.copy(session.id()), "a", Some("mine\n"));
    let mut session = block_on(session.merge([fork], How::Append)).unwrap();
    let before = disk(&shop.copy(session.id()));
    let error = block_on(shop.workspaces.exec(&mut session, Command::shell("true"), |_| {})).unwrap_err();
    assert_eq!(error.code(), "outside-changes");
    assert_eq!(block_on(shop.workspaces.save(&mut session)).unwrap_err().code(), "outside-changes");
    assert_eq!(disk(&shop.copy(session.id())), before);

    let here = session.head().point();
    let back = block_on(shop.workspaces.restore(&mut session, here, true)).unwrap();
    assert_eq!(back.outside.len(), 1);
    assert_eq!(disk(&shop.copy(session.id())), tree(&[("a", "0\n"), ("b", "1\n")]));
    let restored: Restored = records(&shop, &session, Kind::Restored)[0].body().unwrap();
    assert_eq!(shop.files(&restored.from)["a"], "mine\n");
    shop.sh(&mut session, "true");
}

#[test]
fn a_deleted_copy_is_created_again() {
    let mut shop = Shop::new();
    let (mut session, _) = copied(&shop, &[("a", "0\n"), ("d/b", "0\n")]);
    shop.sh(&mut session, "echo 1 > a");
    let (id, files) = (session.id(), shop.copy(session.id()));
    drop(session);
    shop.reopen();
    fs::remove_dir_all(&files).unwrap();
    let mut session = shop.open(id);
    let done = shop.sh(&mut session, "echo 2 > c");
    assert!(done.outside.is_empty(), "{:?}", done.outside);
    assert_eq!(disk(&files), tree(&[("a", "1\n"), ("c", "2\n"), ("d/b", "0\n")]));
    assert_eq!(records(&shop, &session, Kind::SandboxLost).len(), 1);

    // Its state directory is deleted too.
    drop(session);
    shop.reopen();
    fs::remove_dir_all(files.parent().unwrap()).unwrap();
    let mut session = shop.open(id);
    let done = shop.sh(&mut session, "true");
    assert!(done.outside.is_empty());
    assert_eq!(disk(&files), tree(&[("a", "1\n"), ("c", "2\n"), ("d/b", "0\n")]));
    assert_eq!(records(&shop, &session, Kind::SandboxLost).len(), 2);
}

#[test]
fn an_interrupted_restore_is_not_finished_in_a_deleted_copy() {
    let mut shop = Shop::new();
    let (mut session, _) = copied(&shop, &[("a", "0\n"), ("b", "0\n")]);
    let from = shop.sh(&mut session, "echo 1 > a").after;
    let point = Point { session: session.id(), seq: 1 };
    let to = shop.view(point).state().workspace.clone().unwrap();
    let (id, files, head) = (session.id(), shop.copy(session.id()), session.head().id);
    drop(session);
    shop.reopen();
    // The state that a process leaves when it dies during the restore.
    let state = files.parent().unwrap();
    fs::write(state.join("restoring"), serde_json::json!({ "from": from, "to": to }).to_string()).unwrap();
    let going = serde_json::json!({ "head": head, "from": from, "point": point });
    fs::write(state.join(format!("going-{id}")), going.to_string()).unwrap();
    fs::remove_dir_all(&files).unwrap();
    let mut session = shop.open(id);
    shop.sh(&mut session, "true");
    assert_eq!(shop.now(&session), tree(&[("a", "1\n"), ("b", "0\n")]));
    assert!(records(&shop, &session, Kind::Restored).is_empty());
}

#[test]
fn a_restore_that_lacks_only_its_record_is_recorded() {
    for is_over in [false, true] {
        let mut shop = Shop::new();
        let (mut session, _) = copied(&shop, &[("a", "0\n"), ("b", "0\n")]);
        shop.sh(&mut session, "echo 1 > a; echo 1 > c");
        let (id, files, head) = (session.id(), shop.copy(session.id()), session.head().id);
        let point = Point { session: id, seq: 1 };
        let (from, to) = (session.state().workspace.clone().unwrap(), shop.view(point).state().workspace.clone());
        drop(session);
        shop.reopen();
        // The state that a process leaves when it dies before the restore, or just before its record.
        let going = serde_json::json!({ "head": head, "from": from, "to": to, "point": point });
        fs::write(files.parent().unwrap().join(format!("going-{id}")), going.to_string()).unwrap();
        if is_over {
            put(&files, "a", Some("0\n"));
            put(&files, "c", None);
        }
        put(&files, "mine", Some("2\n"));
        let mut session = shop.open(id);
        block_on(shop.workspaces.save(&mut session)).unwrap();
        let restored = records(&shop, &session, Kind::Restored);
        let restored: Vec<Restored> = restored.iter().map(|record| record.body().unwrap()).collect();
        assert_eq!(
            restored.iter().map(|body| &body.from).collect::<Vec<_>>(),
            Vec::from_iter(is_over.then_some(&from))
        );
        assert_eq!(shop.now(&session), disk(&files));
        assert!(block_on(shop.workspaces.save(&mut session)).unwrap().is_none());
        shop.verify();
    }
}

/// Records a call that was started and never finished.
pub(crate) fn lose_a_call(session: &mut Session) {
    let started = ToolStarted {
        attempt: 1,
        call: "exec-lost".into(),
        tool: "exec".into(),
        arguments: Some(r#"{"shell":"lost"}"#.into()),
        effect: rath::body::Effect::Irreversible,
        isolated: Some(false),
        workspace: session.state().workspace.clone(),
        outside: Default::default(),
    };
    session.append(started).unwrap();
    block_on(session.publish()).unwrap();
}

#[test]
fn a_deleted_copy_is_not_attributed_to_an_interrupted_call() {
    let mut shop = Shop::new();
    let (mut session, _) = copied(&shop, &[("a", "0\n")]);
    shop.sh(&mut session, "echo 1 > b");
    lose_a_call(&mut session);
    let (id, files) = (session.id(), shop.copy(session.id()));
    drop(session);
    shop.reopen();
    fs::remove_dir_all(files.parent().unwrap()).unwrap();
    let mut session = shop.open(id);
    assert_eq!(block_on(shop.workspaces.save(&mut session)).unwrap(), None);
    assert_eq!(disk(&files), tree(&[("a", "0\n"), ("b", "1\n")]));
    assert_eq!(shop.now(&session), disk(&files));
    assert!(session.pending().is_empty());

    // Changes in an existing copy are attributed to it.
    lose_a_call(&mut session);
    put(&files, "late", Some("l\n"));
    assert_eq!(block_on(shop.workspaces.save(&mut session)).unwrap(), None);
    let lost: ToolFinished = records(&shop, &session, Kind::ToolFinished).pop().unwrap().body().unwrap();
    assert_eq!(lost.changed.paths[0].path, FilePath::from("late"));
}

#[test]
fn an_interrupted_apply_is_not_blamed_for_edits() {
    let mut shop = Shop::new();
    let (mut session, _) = copied(&shop, &[("a", "0\n")]);
    shop.sh(&mut session, "echo 1 > a");
    let started = ToolStarted {
        attempt: 1,
        call: "apply-lost".into(),
        tool: "apply".into(),
        arguments: None,
        effect: rath::body::Effect::Idempotent,
        isolated: Some(false),
        workspace: None,
        outside: Default::default(),
    };
    session.append(started).unwrap();
    block_on(session.publish()).unwrap();
    let id = session.id();
    drop(session);
    shop.reopen();
    put(&shop.copy(id), "a", Some("mine\n"));
    let mut session = shop.open(id);
    let done = shop.sh(&mut session, "true");
    assert_eq!(done.outside.len(), 1);
    let blame = block_on(async { session.view().await?.blame(&FilePath::from("a")).await }).unwrap();
    assert!(blame.origins[0].outside, "{:?}", blame.origins);
}

#[test]
fn a_branch_with_an_open_conflict_cannot_be_merged() {
    for backend in backends() {
        let shop = Shop::new();
        let (mut root, _) = copied_on(backend, &shop, &[("a", "0\n")]);
        shop.sh(&mut root, "true");
        let mut middle = root.fork("middle");
        let mut leaf = middle.fork("leaf");
        shop.sh(&mut middle, "echo middle > a");
        shop.sh(&mut leaf, "echo leaf > a");
        let middle = block_on(middle.merge([leaf], How::Append)).unwrap();
        assert_eq!(middle.state().conflicts.len(), 1);
        let refused = block_on(root.merge([middle], How::Append)).unwrap_err();
        assert_eq!(refused.code(), "still-open", "{refused}");
        let [root, mut middle] = <[Session; 2]>::try_from(refused.into_sessions()).unwrap();
        block_on(shop.workspaces.resolve(&mut middle, &FilePath::from("a"), Resolution::Theirs)).unwrap();
        let root = block_on(root.merge([middle], How::Append)).unwrap();
        assert_eq!(shop.now(&root), tree(&[("a", "leaf\n")]));
    }
}

#[test]
fn moving_a_session_in_place_deletes_no_files_there() {
    for backend in backends() {
        let shop = Shop::new();
        let (mut session, origin) = copied_on(backend, &shop, &[("a", "0\n")]);
        shop.sh(&mut session, "echo 1 > a");
        let other = shop.directory("other");
        put(&other, "mine", Some("m\n"));
        put(&other, "a", Some("0\n"));
        block_on(shop.workspaces.assign(&mut session, PlacementSpec::copy_of(*backend, &other))).unwrap();
        shop.sh(&mut session, "echo 1 > new");
        block_on(shop.workspaces.apply(&mut session, false)).unwrap();
        assert_eq!(disk(&other), tree(&[("a", "0\n"), ("mine", "m\n"), ("new", "1\n")]));
        assert_eq!(disk(&origin), tree(&[("a", "0\n")]));
        // An empty directory gets all files.
        let empty = shop.directory("empty");
        block_on(shop.workspaces.assign(&mut session, PlacementSpec::copy_of(*backend, &empty))).unwrap();
        block_on(shop.workspaces.apply(&mut session, false)).unwrap();
        assert_eq!(disk(&empty), tree(&[("a", "1\n"), ("new", "1\n")]));
    }
}

#[test]
fn a_restore_accepts_unpublished_records() {
    for backend in backends() {
        let shop = Shop::new();
        let (mut session, _) = copied_on(backend, &shop, &[("a", "0\n")]);
        shop.sh(&mut session, "echo 1 > a");
        session.note("in memory").unwrap();
        let here = session.head().point();
        let back = block_on(shop.workspaces.restore(&mut session, here, false)).unwrap();
        assert!(back.record.is_none());
        let start = Point { seq: 1, ..here };
        block_on(shop.workspaces.restore(&mut session, start, false)).unwrap();
        assert_eq!(shop.now(&session), tree(&[("a", "0\n")]));
    }
}

#[test]
fn protected_directories_are_checked_once() {
    for backend in backends() {
        let shop = Shop::new();
        let home = shop.directory("user");
        put(&home, "a", Some("0\n"));
        let guarded = |anywhere| {
            let options = rath::workspace::Options { home: Some(home.clone()), anywhere, ..Default::default() };
            shop.second().with_options(options)
        };
        let mut session = shop.create();
        for place in [
            PlacementSpec::in_place(*backend, &home),
            PlacementSpec::copy_of(*backend, &home),
            PlacementSpec::copy_of(*backend, "/"),
        ] {
            let error = block_on(guarded(false).assign(&mut session, place)).unwrap_err();
            assert_eq!(error.code(), "protected-directory");
        }
        block_on(guarded(true).assign(&mut session, PlacementSpec::in_place(*backend, &home))).unwrap();
        put(&home, "a", Some("1\n"));
        block_on(guarded(false).save(&mut session)).unwrap();
        block_on(guarded(false).undo(&mut session, false)).unwrap();
        assert_eq!(disk(&home), tree(&[("a", "0\n")]));
    }
}

#[test]
fn an_unknown_backend_is_named_in_the_error() {
    let shop = Shop::new();
    let mut session = shop.create();
    let error = block_on(shop.workspaces.assign(&mut session, PlacementSpec::empty("elsewhere"))).unwrap_err();
    assert!(error.to_string().contains("local") && error.to_string().contains("host"), "{error}");
    assert!(session.state().placement.is_none());
}

#[test]
fn operations_on_sessions_without_a_workspace_fail() {
    for backend in backends() {
        let shop = Shop::new();
        let mut session = shop.create();
        let not_placed = [
            block_on(shop.workspaces.exec(&mut session, Command::shell("true"), |_| {})).unwrap_err(),
            block_on(shop.workspaces.save(&mut session)).unwrap_err(),
            block_on(shop.workspaces.apply(&mut session, false)).unwrap_err(),
        ];
        assert!(not_placed.iter().all(|error| error.code() == "not-placed"));
        assert_eq!(block_on(shop.workspaces.undo(&mut session, false)).unwrap_err().code(), "nothing-to-undo");
        block_on(shop.workspaces.assign(&mut session, PlacementSpec::empty(*backend))).unwrap();
        assert_eq!(block_on(shop.workspaces.undo(&mut session, false)).unwrap_err().code(), "nothing-to-undo");
        assert_eq!(block_on(shop.workspaces.apply(&mut session, false)).unwrap_err().code(), "nothing-to-apply");
        let error =
            block_on(shop.workspaces.resolve(&mut session, &FilePath::from("a"), Resolution::Ours)).unwrap_err();
        assert_eq!(error.code(), "no-conflict");
    }
}

#[test]
fn a_branch_of_a_branch_is_merged_against_that_branch() {
    for backend in backends() {
        let shop = Shop::new();
        let (mut root, _) = copied_on(backend, &shop, &[("a", "0\n")]);
        shop.sh(&mut root, "true");
        let mut first = root.fork("first");
        shop.sh(&mut first, "echo 1 > a");
        let mut second = first.fork("on top of it");
        shop.sh(&mut second, "echo 2 > a");
        let root = block_on(root.merge([first, second], How::Append)).unwrap();
        assert_eq!(root.state().conflicts, []);
        assert_eq!(shop.now(&root), tree(&[("a", "2\n")]));
    }
}

/// A session with a conflict on `a`, between `ours` and `theirs`.
fn in_conflict_on(backend: &str, shop: &Shop) -> Session {
    let (mut root, _) = copied_on(backend, shop, &[("a", "0\n")]);
    shop.sh(&mut root, "true");
    let mut branch = root.fork("branch");
    shop.sh(&mut branch, "echo theirs > a");
    shop.sh(&mut root, "echo ours > a");
    let root = block_on(root.merge([branch], How::Append)).unwrap();
    assert_eq!(root.state().conflicts.len(), 1);
    root
}

#[test]
fn a_conflict_resolved_on_a_fork_stays_resolved() {
    for backend in backends() {
        let shop = Shop::new();
        let root = in_conflict_on(backend, &shop);
        let mut fork = root.fork("somebody decides");
        block_on(shop.workspaces.resolve(&mut fork, &FilePath::from("a"), Resolution::Theirs)).unwrap();
        let mut root = block_on(root.merge([fork], How::Append)).unwrap();
        assert_eq!(root.state().conflicts, []);
        assert_eq!(shop.now(&root), tree(&[("a", "theirs\n")]));
        block_on(shop.workspaces.apply(&mut root, false)).unwrap();
        // Also after the session is opened again.
        let id = root.id();
        drop(root);
        assert_eq!(shop.open(id).state().conflicts, []);
    }
}

#[test]
fn keeping_a_branch_takes_its_files_without_conflicts() {
    for backend in backends() {
        let shop = Shop::new();
        let root = in_conflict_on(backend, &shop);
        let mut fork = root.fork("away with it");
        block_on(shop.workspaces.resolve(&mut fork, &FilePath::from("a"), Resolution::Remove)).unwrap();
        let kept = fork.id();
        let root = block_on(root.merge([fork], How::keep(kept, "simpler"))).unwrap();
        assert_eq!(root.state().conflicts, []);
        assert_eq!(shop.now(&root), tree(&[]));
    }
}

#[test]
fn resolving_theirs_needs_a_branch_if_several_conflict() {
    for backend in backends() {
        let shop = Shop::new();
        let (mut root, _) = copied_on(backend, &shop, &[("a", "0\n")]);
        shop.sh(&mut root, "true");
        let (mut one, mut two) = (root.fork("one"), root.fork("two"));
        shop.sh(&mut one, "echo one > a");
        shop.sh(&mut two, "echo two > a");
        shop.sh(&mut root, "echo ours > a");
        let second = two.id();
        let mut root = block_on(root.merge([one, two], How::Append)).unwrap();
        assert_eq!(root.state().conflicts.len(), 2);
        let path = FilePath::from("a");
        let error = block_on(shop.workspaces.resolve(&mut root, &path, Resolution::Theirs)).unwrap_err();
        assert_eq!(error.code(), "several-sides");
        block_on(shop.workspaces.resolve(&mut root, &path, Resolution::TheirsOf(second))).unwrap();
        assert_eq!(root.state().conflicts, []);
        assert_eq!(shop.now(&root), tree(&[("a", "two\n")]));
    }
}

#[test]
fn unsaved_lists_external_edits() {
    let shop = Shop::new();
    let (mut session, _) = copied(&shop, &[("a", "0\n")]);
    shop.sh(&mut session, "true");
    shop.workspaces.leave(session.id());
    let view = || block_on(session.view()).unwrap();
    assert_eq!(block_on(shop.workspaces.unsaved(&view())).unwrap(), []);
    put(&shop.copy(session.id()), "a", Some("mine\n"));
    let unsaved = block_on(shop.workspaces.unsaved(&view())).unwrap();
    assert_eq!(unsaved.iter().map(|change| change.path.to_string()).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn git_in_a_copy_does_not_reach_the_repository_around_it() {
    if std::process::Command::new("git").arg("--version").output().is_err() {
        rath_testkit::Requirement::Git.skip("git is not installed");
        return;
    }
    let shop = Shop::new();
    let git = |line: &str| {
        let line = format!("git -c user.name=a -c user.email=a@b {line}");
        let done = std::process::Command::new("sh").args(["-c", &line]).current_dir(shop.dir.path()).output().unwrap();
        assert!(done.status.success(), "{line}: {done:?}");
    };
    let (mut session, _) = copied(&shop, &[("f", "one\n")]);
    git("init -q && git add origin");
    git("commit -qm first");
    fs::write(shop.dir.path().join("origin/f"), "my edit\n").unwrap();
    let command = Command::shell("git reset -q --hard; git rev-parse --show-toplevel");
    let done = block_on(shop.workspaces.exec(&mut session, command, |_| {})).unwrap();
    assert!(!done.finished.ended.success(), "git found a repository: {:?}", done.finished);
    assert_eq!(fs::read_to_string(shop.dir.path().join("origin/f")).unwrap(), "my edit\n");
}

#[test]
fn a_refused_restore_leaves_no_pending_file() {
    let shop = Shop::new();
    let (mut session, _) = copied(&shop, &[("f", "0\n"), ("g", "0\n"), ("other", "0\n")]);
    let placed = session.head().point();
    let mut branch = session.fork("branch");
    shop.sh(&mut branch, "echo theirs > f");
    shop.sh(&mut session, "echo ours > f; rm g; echo g > .gitignore");
    let mut session = block_on(session.merge([branch], How::Append)).unwrap();
    assert_eq!(session.state().conflicts.len(), 1);
    block_on(shop.workspaces.sync(&mut session)).unwrap();
    put(&shop.copy(session.id()), "g", Some("precious\n"));
    let error = block_on(shop.workspaces.restore(&mut session, placed, false)).unwrap_err();
    assert_eq!(error.code(), "in-the-way");
    put(&shop.copy(session.id()), "other", Some("mine\n"));
    let (_, saved) = block_on(shop.workspaces.save(&mut session)).unwrap().unwrap();
    assert_eq!(saved.iter().map(|change| change.path.to_string()).collect::<Vec<_>>(), ["other"]);
    assert_eq!(session.state().conflicts.len(), 1);
    assert_eq!(records(&shop, &session, Kind::Restored).len(), 0);
}

#[test]
fn the_outcome_of_a_command_is_recorded_even_if_its_files_cannot_be_saved() {
    let mut shop = Shop::new();
    let budget = rath::workspace::WorkspaceBudget { files: 20, ..Default::default() };
    let options = rath::workspace::Options { budget, ..Default::default() };
    shop.workspaces = shop.workspaces.with_options(options);
    let (mut session, _) = copied(&shop, &[("f", "0\n")]);
    let command = Command::shell("for n in $(seq 50); do echo x > many$n; done; echo said; exit 7");
    let error = block_on(shop.workspaces.exec(&mut session, command, |_| {})).unwrap_err();
    assert_eq!(error.code(), "over-budget");
    let body: ToolFinished = records(&shop, &session, Kind::ToolFinished)[0].body().unwrap();
    assert_eq!(body.exit, Some(rath::body::Exit::Code(7)));
    assert_eq!(body.output[0].text.as_deref(), Some("said\n"));
    assert!(body.remarks[0].contains("not saved"), "{:?}", body.remarks);
    assert!(session.pending().is_empty());
    // The user finds the files in the directory and deletes them.
    let directory = block_on(shop.workspaces.directory(&mut session)).unwrap();
    for n in 1..=50 {
        fs::remove_file(directory.join(format!("many{n}"))).unwrap();
    }
    shop.sh(&mut session, "true");
}

#[test]
fn a_resolution_that_keeps_the_current_content_can_be_undone() {
    for backend in backends() {
        let shop = Shop::new();
        let mut session = in_conflict_on(backend, &shop);
        block_on(shop.workspaces.resolve(&mut session, &FilePath::from("a"), Resolution::Ours)).unwrap();
        let resolved = session.head();
        let back = block_on(shop.workspaces.undo(&mut session, false)).unwrap();
        assert_eq!(back.undone.unwrap().record, resolved);
        assert_eq!(session.state().conflicts.len(), 1);
        // A second undo goes back one change further.
        let back = block_on(shop.workspaces.undo(&mut session, false)).unwrap();
        assert_ne!(back.undone.unwrap().record, resolved);
        assert_eq!(session.state().conflicts, []);
    }
}

#[test]
fn a_copy_with_unversioned_files_is_not_pruned() {
    let shop = Shop::new();
    let (mut session, _) = copied(&shop, &[("f", "0\n"), (".gitignore", ".env\n")]);
    shop.sh(&mut session, "echo secret > .env");
    let copy = shop.copy(session.id());
    shop.workspaces.leave(session.id());
    block_on(session.close("done")).unwrap();
    let pruned = block_on(shop.workspaces.prune(PruneOptions::default())).unwrap();
    assert_eq!(pruned.removed.len(), 0);
    assert!(pruned.kept[0].why.contains(".env"), "{:?}", pruned.kept);
    assert!(copy.join(".env").exists());
    let pruned = block_on(shop.workspaces.prune(PruneOptions { ignored: true, ..PruneOptions::default() })).unwrap();
    assert_eq!(pruned.removed.len(), 1);
    assert!(!copy.exists());
}

#[test]
fn the_order_of_both_streams_is_recorded() {
    for backend in backends() {
        let shop = Shop::new();
        let (mut session, _) = copied_on(backend, &shop, &[("f", "0\n")]);
        shop.sh(&mut session, "echo one; sleep 0.2; echo two >&2; sleep 0.2; echo three");
        let body: ToolFinished = records(&shop, &session, Kind::ToolFinished)[0].body().unwrap();
        let order: Vec<_> = body.order.iter().map(|stretch| (stretch.stream.as_str(), stretch.bytes)).collect();
        assert_eq!(order, [("stdout", 4), ("stderr", 4), ("stdout", 6)]);
    }
}
