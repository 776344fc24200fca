//! Sends SIGKILL while a layered workspace is created, forked and restored.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rath_core::files::Version;
use rath_store::Embedded;
use rath_workspace::{Options, Workspace, collect_layers};

use super::killed::{killed, rounds, three_versions};
use super::layers::{can_mount, view};
use super::{Fixture, Random, assert_same};
use crate::support::{child_dir, verify};

fn versions(dir: &Path) -> Vec<Version> {
    serde_json::from_slice(&fs::read(dir.join("versions")).unwrap()).unwrap()
}

fn fresh() -> String {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos().to_string()
}

/// Child process: creates, restores and forks workspaces until it is killed.
#[test]
fn worker() {
    let Some(dir) = child_dir() else { return };
    let store = Embedded::open(dir.join("store")).unwrap();
    let home = dir.join("home");
    let versions = versions(&dir);
    let mut chance = Random::new();
    let options = Options::default();
    let mut name = fs::read_to_string(dir.join("current")).unwrap();
    println!("\nready");
    loop {
        let state = home.join(&name);
        let mut workspace = match Workspace::is_layered(&state) {
            true => Workspace::open_layered(store.clone(), &home, &state, &options).unwrap().0,
            false => {
                let _ = collect_layers(&home, false).unwrap();
                Workspace::create_layered(store.clone(), &home, &state, &versions[0], &options).unwrap().0
            }
        };
        let to = &versions[chance.below(3) as usize];
        assert!(workspace.restore(None, to).unwrap().version.same_files(to));
        let child = fresh();
        let sealed = workspace.fork_into(&home.join(&child)).unwrap();
        assert!(sealed.saved.version.same_files(to));
        drop(workspace);
        if chance.below(12) == 0 {
            // Start again with a new workspace.
            name = fresh();
            fs::write(dir.join("current.new"), &name).unwrap();
            fs::rename(dir.join("current.new"), dir.join("current")).unwrap();
            for entry in fs::read_dir(&home).unwrap() {
                let path = entry.unwrap().path();
                if path.join("stack.json").exists() {
                    let _ = rath_workspace::remove_tree(&path);
                }
            }
        }
    }
}

/// A process is killed while it replaces the upper directory. The next open creates the missing directories.
#[test]
fn an_interrupted_reset_of_the_upper_directory_is_completed() {
    let fixture = Fixture::new();
    let all = three_versions(&fixture);
    let (home, options) = (fixture.dir.path().join("home"), Options::default());
    let (parent, child) = (home.join("parent"), home.join("child"));
    let (mut workspace, _) =
        Workspace::create_layered(fixture.store.clone(), &home, &parent, &all[0], &options).unwrap();
    fs::write(parent.join("upper/new"), "new").unwrap();
    workspace.fork_into(&child).unwrap();
    let version = workspace.save().unwrap().version;
    drop(workspace);
    for missing in [&["work"][..], &["upper"], &["upper", "work"]] {
        for name in missing {
            rath_workspace::remove_tree(&parent.join(name)).unwrap();
        }
        let (mut workspace, _) = Workspace::open_layered(fixture.store.clone(), &home, &parent, &options).unwrap();
        let overlay = workspace.overlay().unwrap();
        assert!(overlay.upper.is_dir() && overlay.work.is_dir(), "{missing:?}");
        assert!(workspace.save().unwrap().version.same_files(&version), "{missing:?}");
    }
}

#[test]
fn killed_layer_operations_are_completed() {
    let fixture = Fixture::new();
    let all = three_versions(&fixture);
    let dir = fixture.dir.path();
    fs::write(dir.join("versions"), serde_json::to_vec(&all).unwrap()).unwrap();
    fs::write(dir.join("current"), fresh()).unwrap();
    let home = dir.join("home");
    let mut chance = Random::new();
    let (mut finished, mut whole) = (0, 0);
    for round in 0.. {
        if round >= rounds() && (finished > 0 || round > 1000) {
            break;
        }
        // In most rounds, let it live until it restores something.
        let current = home.join(fs::read_to_string(dir.join("current")).unwrap());
        if !Workspace::is_layered(&current) && chance.below(4) > 0 {
            Workspace::create_layered(fixture.store.clone(), &home, &current, &all[0], &Options::default()).unwrap();
        }
        // A slow machine gets more time, so that it reaches a restore.
        let longest = 400_000 * (1 + round / rounds().max(1)).min(20);
        killed("layers_killed::worker", dir, Duration::from_micros(chance.below(longest)));
        let sites: Vec<_> = fs::read_dir(&home).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
        for state in sites.iter().filter(|state| Workspace::is_layered(state)) {
            let options = Options::default();
            let (mut workspace, recovered) =
                Workspace::open_layered(fixture.store.clone(), &home, state, &options).unwrap();
            assert!(!state.join("restoring").exists() && !state.join("staging").exists());
            let version = workspace.save().unwrap().version;
            if let Some(recovered) = recovered {
                finished += 1;
                assert!(recovered.version.same_files(&recovered.to), "round {round}");
                assert!(recovered.version.same_files(&version), "round {round}");
            }
            assert!(all.iter().any(|one| one.same_files(&version)), "round {round}: {}", state.display());
            whole += 1;
            if can_mount() && chance.below(8) == 0 {
                let files = view(&workspace.overlay().unwrap(), dir);
                assert_same(&files, &fixture.in_version(&version), &format!("round {round}"));
            }
            drop(workspace);
            if *state != current {
                rath_workspace::remove_tree(state).unwrap();
            }
        }
        collect_layers(&home, false).unwrap();
    }
    assert!(finished > 0, "no restore was interrupted");
    eprintln!("{} rounds, {whole} stacks whole, {finished} restores finished", rounds());
    let report = verify(&dir.join("store"));
    assert!(report.is_valid(), "{:?}", report.findings);
}
