//! Special files, unusual directories and limits.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use pollster::block_on;
use rath_core::files::{FilePath, TreeStore, Version};
use rath_workspace::{Error, Options, Workspace, WorkspaceBudget};
use rustix::fs::{CWD, FileType, Mode, OFlags, mkdirat, mknodat, openat};

use super::{DiskEntry, Fixture, assert_same, chmod};

#[test]
fn special_files_are_reported_and_not_opened() {
    let fixture = Fixture::new();
    fixture.write("a", "x");
    mknodat(CWD, fixture.path("pipe"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    fs::create_dir(fixture.path("only")).unwrap();
    let _socket = UnixListener::bind(fixture.path("only/socket")).unwrap();
    let mut workspace = fixture.open();
    for _ in 0..2 {
        let saved = workspace.save().unwrap();
        let mut skipped: Vec<_> =
            saved.skipped.iter().map(|skipped| format!("{}: {}", skipped.path, skipped.why)).collect();
        skipped.sort();
        assert_eq!(skipped, ["only/socket: a socket", "pipe: a pipe"]);
        assert_eq!(fixture.in_version(&saved.version).len(), 1);
    }
}

/// A save does not block on a FIFO: neither on one named like a rule file, nor on one that replaces a file.
#[test]
fn a_fifo_does_not_block_a_save() {
    let fixture = Fixture::new();
    fixture.write("a", "x");
    for name in [".gitignore", ".rathignore"] {
        mknodat(CWD, fixture.path(name), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    }
    let mut workspace = fixture.open();
    assert_eq!(workspace.save().unwrap().skipped.len(), 2);
    let stop = AtomicBool::new(false);
    let path = fixture.path("b");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o644), 0);
                let _ = fs::remove_file(&path);
                let _ = fs::write(&path, "a file");
                let _ = fs::remove_file(&path);
                let _ = fs::create_dir(&path);
                let _ = fs::remove_dir(&path);
            }
        });
        for _ in 0..100 {
            workspace.save().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Files are created and removed during a save. It completes, and the store has everything that it names.
#[test]
fn a_save_of_changing_files_is_consistent() {
    let fixture = Fixture::new();
    for n in 0..300 {
        fixture.write(&format!("d{}/{n}", n % 7), format!("{n}"));
    }
    let mut workspace = fixture.open();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0usize.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let directory = fixture.path(format!("d{}", n % 7));
                if n % 50 == 0 {
                    let _ = fs::rename(&directory, fixture.path("moved"))
                        .and_then(|()| fs::rename(fixture.path("moved"), &directory));
                }
                let _ = fs::write(directory.join(format!("{}", n % 300)), "w".repeat(n % 5000));
                let _ = fs::remove_file(directory.join(format!("{}", (n * 7) % 300)));
            }
        });
        for _ in 0..30 {
            let saved = workspace.save().unwrap();
            // Everything that the version names can be read.
            fixture.in_version(&saved.version);
        }
        stop.store(true, Ordering::Relaxed);
    });
    fixture.save(&mut workspace);
}

#[test]
fn unreadable_files_are_reported_and_kept() {
    let fixture = Fixture::new();
    let mut workspace = fixture.open();
    fixture.write("secret", "one");
    fixture.write("closed/b", "one");
    let first = fixture.save(&mut workspace).version;
    chmod(&fixture.path("secret"), 0o000);
    chmod(&fixture.path("closed"), 0o000);
    fixture.write("never", "seen");
    chmod(&fixture.path("never"), 0o000);
    let saved = workspace.save().unwrap();
    let at =
        |version: &Version, path: &str| block_on(TreeStore::new(&*fixture.store).at(version, &path.into())).unwrap();
    let (now, then) = (at(&saved.version, "secret").unwrap(), at(&first, "secret").unwrap());
    assert_eq!((now.sha256, now.mode), (then.sha256, 0));
    assert_eq!(at(&saved.version, "closed/b"), at(&first, "closed/b"));
    match rustix::process::geteuid().is_root() {
        true => eprintln!("SKIPPED in part: root may read everything; `as_a_plain_user` runs this"),
        false => {
            let mut named: Vec<_> = saved.skipped.iter().map(|skipped| skipped.path.to_string()).collect();
            named.sort();
            assert_eq!(named, ["closed", "never", "secret"]);
            assert_eq!(at(&saved.version, "never"), None);
            fs::remove_file(fixture.path("never")).unwrap();
        }
    }
    // The version can be restored.
    let restored = workspace.restore(None, &first).unwrap();
    assert_eq!(restored.kept, []);
    assert_same(&fixture.on_disk(), &fixture.in_version(&first), "set back");
}

#[test]
fn a_deeply_nested_directory_is_saved_and_restored() {
    let fixture = Fixture::new();
    let name = "n".repeat(60);
    let root = openat(CWD, fixture.root(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let mut at = root;
    for _ in 0..500 {
        mkdirat(&at, name.as_str(), Mode::from_raw_mode(0o755)).unwrap();
        at = openat(&at, name.as_str(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let file = openat(&at, "bottom", OFlags::WRONLY | OFlags::CREATE, Mode::from_raw_mode(0o644)).unwrap();
    rustix::io::write(&file, b"deep").unwrap();
    let mut workspace = fixture.open();
    let saved = workspace.save().unwrap();
    assert!(saved.skipped.is_empty(), "{:?}", saved.skipped);
    let files = fixture.in_version(&saved.version);
    assert_eq!(files.len(), 501);
    let (path, bottom) = files.iter().max_by_key(|(path, _)| path.as_bytes().len()).unwrap();
    assert!(path.as_bytes().ends_with(b"/bottom"));
    assert_eq!(*bottom, DiskEntry::File { mode: 0o644, content: b"deep".into() });
    rustix::io::write(&file, b"er").unwrap();
    let changed = workspace.save().unwrap().version;
    assert!(!changed.same_files(&saved.version));
    assert!(workspace.restore(None, &saved.version).unwrap().kept.is_empty());
    assert!(workspace.save().unwrap().version.same_files(&saved.version));
    drop(workspace);
    let mut workspace = fixture.open();
    assert!(workspace.save().unwrap().version.same_files(&saved.version));
    // Remove everything and restore it.
    let none = {
        let empty = tempfile::tempdir().unwrap();
        let state = fixture.dir.path().join("empty");
        Workspace::open(fixture.store.clone(), empty.path(), &state, &fixture.options)
            .unwrap()
            .0
            .save()
            .unwrap()
            .version
    };
    fixture.restore(&mut workspace, &none);
    assert!(workspace.restore(None, &saved.version).unwrap().kept.is_empty());
    assert!(workspace.save().unwrap().version.same_files(&saved.version));
    fixture.restore(&mut workspace, &none);
}

/// The directory is nested deeper than a walk goes. The rest is skipped and reported.
#[test]
fn a_directory_beyond_the_depth_limit_is_skipped() {
    let fixture = Fixture::new();
    fixture.write("a", "x");
    let mut at = openat(CWD, fixture.root(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..6000 {
        mkdirat(&at, "n", Mode::from_raw_mode(0o755)).unwrap();
        at = openat(&at, "n", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let saved = fixture.open().save().unwrap();
    assert_eq!(saved.skipped.len(), 1);
    assert!(saved.skipped[0].why.contains("deep"), "{:?}", saved.skipped[0].why);
    assert!(fixture.in_version(&saved.version).contains_key(&FilePath::from("a")));
    drop(at);
    // The tree is too deep for the removal of the temporary directory, so remove it from the top in steps.
    std::process::Command::new("rm").arg("-rf").arg(fixture.root()).status().unwrap();
}

#[test]
fn long_and_non_utf8_names_are_versioned() {
    let fixture = Fixture::new();
    for name in
        [[b'n'; 255].as_slice(), b"\xff\xff", b"\n", b"\\x41", b" ", b"*", b"\"", b"{\"base64\":\"YQ==\"}", b"-"]
    {
        fs::write(fixture.path(name), name).unwrap();
    }
    symlink("x".repeat(4000), fixture.path("long")).unwrap();
    let mut workspace = fixture.open();
    let version = fixture.save(&mut workspace).version;
    fs::remove_dir_all(fixture.root()).unwrap();
    fs::create_dir(fixture.root()).unwrap();
    drop(workspace);
    let mut workspace = fixture.open();
    fixture.restore(&mut workspace, &version);
}

#[test]
fn a_workspace_behind_a_link_is_resolved() {
    let fixture = Fixture::new();
    fixture.write("a", "x");
    fixture.write("real/b", "x");
    symlink("real", fixture.path("d")).unwrap();
    let link = fixture.dir.path().join("link");
    symlink(fixture.root(), &link).unwrap();
    let (mut workspace, _) = Workspace::open(fixture.store.clone(), &link, &fixture.state(), &fixture.options).unwrap();
    assert_eq!(workspace.directory(), fixture.root().canonicalize().unwrap());
    let version = fixture.save(&mut workspace).version;
    assert_eq!(fixture.in_version(&version)[&FilePath::from("d")], DiskEntry::Link { target: b"real".into() });
    // A store in the directory is not versioned, whatever its name is.
    let inside = fixture.path("my-store");
    let store = rath_store::Embedded::create(&inside).unwrap();
    drop(workspace);
    let state = fixture.path("my-store/state");
    let (mut workspace, _) = Workspace::open(store, &fixture.root(), &state, &Options::default()).unwrap();
    assert!(workspace.save().unwrap().version.same_files(&version));
}

#[test]
fn protected_directories_are_refused() {
    let fixture = Fixture::new();
    let open = |root: &Path, options: &Options| {
        Workspace::open(fixture.store.clone(), root, &fixture.state(), options).map(drop).map_err(|error| error.code())
    };
    let home = fixture.path("home/me");
    fs::create_dir_all(home.join("project")).unwrap();
    let link = fixture.dir.path().join("home-link");
    symlink(&home, &link).unwrap();
    for home in [&home, &link] {
        let options = Options { home: Some(home.clone()), ..Options::default() };
        assert_eq!(open(Path::new("/"), &options), Err("protected-directory"));
        assert_eq!(open(home, &options), Err("protected-directory"));
        assert_eq!(open(&home.join("."), &options), Err("protected-directory"));
        assert_eq!(open(&fixture.path("home"), &options), Err("protected-directory"));
        assert_eq!(open(&home.join("project/../.."), &options), Err("protected-directory"));
        assert_eq!(open(&home.join("project"), &options), Ok(()));
        assert_eq!(open(home, &Options { anywhere: true, ..options }), Ok(()));
    }
    assert_eq!(open(Path::new("/"), &Options::default()), Err("protected-directory"));
    assert_eq!(open(&fixture.path("nowhere"), &Options::default()), Err("no-directory"));
    fixture.write("file", "x");
    assert_eq!(open(&fixture.path("file"), &Options::default()), Err("no-directory"));
}

#[test]
fn only_one_process_opens_a_workspace() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    match fixture.try_open() {
        Err(Error::Busy { process, .. }) => assert_eq!(process, std::process::id().to_string()),
        other => panic!("{:?}", other.map(drop)),
    }
    drop(workspace);
    fixture.open();
}

#[test]
fn a_workspace_over_budget_is_refused() {
    let mut fixture = Fixture::new();
    for n in 0..20 {
        fixture.write(&format!("heavy/{n}"), "x".repeat(5000));
    }
    fixture.write("light", "x");
    let said = |fixture: &Fixture| fixture.open().save().map(drop).map_err(|error| (error.code(), error.to_string()));
    fixture.options.budget = WorkspaceBudget { files: 10, ..WorkspaceBudget::default() };
    let (code, text) = said(&fixture).unwrap_err();
    assert_eq!(code, "over-budget");
    assert!(text.contains("heavy"), "{text}");
    fixture.options.budget = WorkspaceBudget { bytes: 10_000, ..WorkspaceBudget::default() };
    assert_eq!(said(&fixture).unwrap_err().0, "over-budget");
    // Ignored files and holes do not count.
    fixture.write(".gitignore", "heavy\n");
    fs::File::create(fixture.path("sparse")).unwrap().set_len(1 << 32).unwrap();
    fixture.options.budget = WorkspaceBudget { bytes: 100_000, files: 5 };
    fs::remove_file(fixture.path("sparse")).unwrap();
    said(&fixture).unwrap();
}
