//! Two sessions in one directory.

use pollster::block_on;
use rath::sandbox::Command;
use rath::workspaces::PlacementSpec;

use crate::support::{Shop, disk, put, tree};

#[test]
fn each_session_sees_the_other_s_changes_as_external_edits() {
    let mut shop = Shop::new();
    let directory = shop.directory("work");
    put(&directory, "a", Some("0\n"));
    let (mut one, mut two) = (shop.create(), shop.create());
    block_on(shop.workspaces.assign(&mut one, PlacementSpec::in_place("host", &directory))).unwrap();
    block_on(shop.workspaces.assign(&mut two, PlacementSpec::in_place("host", &directory))).unwrap();

    let done = shop.sh(&mut one, "echo one > a; echo one > one");
    assert!(done.outside.is_empty());
    // One process has the directory open for one session at a time.
    let busy = block_on(shop.workspaces.exec(&mut two, Command::shell("true"), |_| {})).unwrap_err();
    assert_eq!(busy.code(), "workspace-busy");
    let busy = block_on(shop.second().save(&mut two)).unwrap_err();
    assert_eq!(busy.code(), "workspace-busy");
    assert!(busy.to_string().contains(&std::process::id().to_string()), "{busy}");
    shop.workspaces.leave(one.id());

    let done = shop.sh(&mut two, "cat a; echo two > two");
    assert_eq!(done.finished.stdout.bytes, b"one\n");
    assert_eq!(done.outside.len(), 2);
    assert_eq!(done.changed.len(), 1);
    shop.workspaces.leave(two.id());

    // An undo does not overwrite the other session's changes.
    let refused = block_on(shop.workspaces.undo(&mut one, false)).unwrap_err();
    assert_eq!(refused.code(), "outside-changes");
    assert_eq!(disk(&directory), tree(&[("a", "one\n"), ("one", "one\n"), ("two", "two\n")]));
    let back = block_on(shop.workspaces.undo(&mut one, true)).unwrap();
    assert_eq!(back.outside.len(), 1);
    assert_eq!(disk(&directory), tree(&[("a", "0\n")]));
    shop.workspaces.leave(one.id());

    // The other session's work is gone from the directory, but is in its versions and can be restored.
    let before = two.head().point();
    let (record, changes) = block_on(shop.workspaces.save(&mut two)).unwrap().unwrap();
    assert_eq!(changes.len(), 3);
    assert_eq!(shop.files(shop.view(record.point()).state().workspace.as_ref().unwrap()), tree(&[("a", "0\n")]));
    block_on(shop.workspaces.restore(&mut two, before, false)).unwrap();
    assert_eq!(disk(&directory), tree(&[("a", "one\n"), ("one", "one\n"), ("two", "two\n")]));

    // The same with two processes, one after the other.
    let ids = (one.id(), two.id());
    drop((one, two));
    shop.reopen();
    let mut one = shop.open(ids.0);
    let done = shop.sh(&mut one, "rm two");
    assert_eq!((done.outside.len(), done.changed.len()), (3, 1));
    shop.workspaces.leave(one.id());
    let mut two = shop.open(ids.1);
    let done = shop.sh(&mut two, "true");
    assert_eq!(done.outside.len(), 1);
    shop.verify();
}

#[test]
fn an_interrupted_restore_is_an_external_edit_for_the_other_session() {
    let mut shop = Shop::new();
    let directory = shop.directory("work");
    put(&directory, "a", Some("0\n"));
    let (mut one, mut two) = (shop.create(), shop.create());
    for session in [&mut one, &mut two] {
        block_on(shop.workspaces.assign(session, PlacementSpec::in_place("host", &directory))).unwrap();
    }
    shop.sh(&mut one, "echo 1 > a; echo 1 > b");
    shop.workspaces.leave(one.id());
    block_on(shop.workspaces.save(&mut two)).unwrap();
    let ids = (one.id(), two.id());
    let versions = (shop.view(rath::Point { session: one.id(), seq: 1 }).state().workspace.clone(), one.head());
    let (to, from) = (versions.0.unwrap(), one.state().workspace.clone().unwrap());
    drop((one, two));
    shop.reopen();
    // The state that a process leaves when it dies during the restore.
    let state = std::fs::read_dir(shop.dir.path().join("home")).unwrap().map(|entry| entry.unwrap().path());
    let state = state.into_iter().find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("dir-")).unwrap();
    let journal = serde_json::json!({ "from": from, "to": to });
    std::fs::write(state.join("restoring"), journal.to_string()).unwrap();
    let going = serde_json::json!({
        "head": versions.1.id, "from": from, "to": to, "point": rath::Point { session: ids.0, seq: 1 },
    });
    std::fs::write(state.join(format!("going-{}", ids.0)), going.to_string()).unwrap();
    put(&directory, "a", Some("0\n"));

    let mut two = shop.open(ids.1);
    let done = shop.sh(&mut two, "true");
    assert_eq!(disk(&directory), tree(&[("a", "0\n")]));
    assert_eq!(done.outside.len(), 2);
    shop.workspaces.leave(two.id());

    let mut one = shop.open(ids.0);
    let done = shop.sh(&mut one, "true");
    assert!(done.outside.is_empty());
    assert_eq!(shop.now(&one), tree(&[("a", "0\n")]));
    let log: Vec<_> = block_on(async { one.view().await?.own_records().await }).unwrap();
    let restored = log.iter().filter(|record| *record.kind() == rath::Kind::Restored).count();
    assert_eq!(restored, 1);
    // The finished restore counts as one change: after one undo there is nothing more to undo.
    let error = block_on(shop.workspaces.undo(&mut one, false)).unwrap_err();
    assert_eq!(error.code(), "nothing-to-undo");
    shop.verify();
}
