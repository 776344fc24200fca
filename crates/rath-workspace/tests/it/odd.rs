//! Things that are no plain files, places that are no plain directories, and limits.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use pollster::block_on;
use rath_core::files::{Forest, Name, Version};
use rath_workspace::{Budget, Error, Options, Workspace};
use rustix::fs::{CWD, FileType, Mode, OFlags, mkdirat, mknodat, openat};

use super::{Place, Thing, assert_same, chmod};

#[test]
fn special_files_are_named_and_not_opened() {
    let place = Place::new();
    place.write("a", "x");
    mknodat(CWD, place.path("pipe"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    fs::create_dir(place.path("only")).unwrap();
    let _socket = UnixListener::bind(place.path("only/socket")).unwrap();
    let mut workspace = place.open();
    for _ in 0..2 {
        let saved = workspace.save().unwrap();
        let mut skipped: Vec<_> =
            saved.skipped.iter().map(|skipped| format!("{}: {}", skipped.path, skipped.why)).collect();
        skipped.sort();
        assert_eq!(skipped, ["only/socket: a socket", "pipe: a pipe"]);
        assert_eq!(place.in_version(&saved.version).len(), 1);
    }
}

/// A pipe as a rule file does not make a save wait, nor does one that takes a file's place.
#[test]
fn a_pipe_does_not_make_it_wait() {
    let place = Place::new();
    place.write("a", "x");
    for name in [".gitignore", ".rathignore"] {
        mknodat(CWD, place.path(name), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    }
    let mut workspace = place.open();
    assert_eq!(workspace.save().unwrap().skipped.len(), 2);
    let stop = AtomicBool::new(false);
    let path = place.path("b");
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

/// Files come and go while a save runs: it ends, and what it names it has.
#[test]
fn a_tree_that_changes_while_it_is_saved() {
    let place = Place::new();
    for n in 0..300 {
        place.write(&format!("d{}/{n}", n % 7), format!("{n}"));
    }
    let mut workspace = place.open();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0usize.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let directory = place.path(format!("d{}", n % 7));
                if n % 50 == 0 {
                    let _ = fs::rename(&directory, place.path("moved"))
                        .and_then(|()| fs::rename(place.path("moved"), &directory));
                }
                let _ = fs::write(directory.join(format!("{}", n % 300)), "w".repeat(n % 5000));
                let _ = fs::remove_file(directory.join(format!("{}", (n * 7) % 300)));
            }
        });
        for _ in 0..30 {
            let saved = workspace.save().unwrap();
            // Everything it names can be read.
            place.in_version(&saved.version);
        }
        stop.store(true, Ordering::Relaxed);
    });
    place.save(&mut workspace);
}

#[test]
fn what_cannot_be_read_is_named_and_not_gone() {
    let place = Place::new();
    let mut workspace = place.open();
    place.write("secret", "one");
    place.write("closed/b", "one");
    let first = place.save(&mut workspace).version;
    chmod(&place.path("secret"), 0o000);
    chmod(&place.path("closed"), 0o000);
    place.write("never", "seen");
    chmod(&place.path("never"), 0o000);
    let saved = workspace.save().unwrap();
    let at = |version: &Version, path: &str| block_on(Forest::new(&*place.store).at(version, &path.into())).unwrap();
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
            fs::remove_file(place.path("never")).unwrap();
        }
    }
    // And it can be set back.
    let restored = workspace.restore(None, &first).unwrap();
    assert_eq!(restored.kept, []);
    assert_same(&place.on_disk(), &place.in_version(&first), "set back");
}

#[test]
fn a_very_deep_directory() {
    let place = Place::new();
    let name = "n".repeat(60);
    let root = openat(CWD, place.root(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let mut at = root;
    for _ in 0..500 {
        mkdirat(&at, name.as_str(), Mode::from_raw_mode(0o755)).unwrap();
        at = openat(&at, name.as_str(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let file = openat(&at, "bottom", OFlags::WRONLY | OFlags::CREATE, Mode::from_raw_mode(0o644)).unwrap();
    rustix::io::write(&file, b"deep").unwrap();
    let mut workspace = place.open();
    let saved = workspace.save().unwrap();
    assert!(saved.skipped.is_empty(), "{:?}", saved.skipped);
    let files = place.in_version(&saved.version);
    assert_eq!(files.len(), 501);
    let (path, bottom) = files.iter().max_by_key(|(path, _)| path.as_bytes().len()).unwrap();
    assert!(path.as_bytes().ends_with(b"/bottom"));
    assert_eq!(*bottom, Thing::File { mode: 0o644, content: b"deep".into() });
    rustix::io::write(&file, b"er").unwrap();
    let changed = workspace.save().unwrap().version;
    assert!(!changed.same_files(&saved.version));
    assert!(workspace.restore(None, &saved.version).unwrap().kept.is_empty());
    assert!(workspace.save().unwrap().version.same_files(&saved.version));
    drop(workspace);
    let mut workspace = place.open();
    assert!(workspace.save().unwrap().version.same_files(&saved.version));
    // All of it goes, and comes back.
    let none = {
        let empty = tempfile::tempdir().unwrap();
        let state = place.dir.path().join("empty");
        Workspace::open(place.store.clone(), empty.path(), &state, &place.options).unwrap().0.save().unwrap().version
    };
    place.restore(&mut workspace, &none);
    assert!(workspace.restore(None, &saved.version).unwrap().kept.is_empty());
    assert!(workspace.save().unwrap().version.same_files(&saved.version));
    place.restore(&mut workspace, &none);
}

/// Deeper than any project: it is said, and nothing breaks.
#[test]
fn a_bottomless_directory() {
    let place = Place::new();
    place.write("a", "x");
    let mut at = openat(CWD, place.root(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..6000 {
        mkdirat(&at, "n", Mode::from_raw_mode(0o755)).unwrap();
        at = openat(&at, "n", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let saved = place.open().save().unwrap();
    assert_eq!(saved.skipped.len(), 1);
    assert!(saved.skipped[0].why.contains("deep"), "{:?}", saved.skipped[0].why);
    assert!(place.in_version(&saved.version).contains_key(&Name::from("a")));
    drop(at);
    // The temporary directory cannot be removed by its depth: from above it can.
    std::process::Command::new("rm").arg("-rf").arg(place.root()).status().unwrap();
}

#[test]
fn long_names_and_names_of_bytes() {
    let place = Place::new();
    for name in
        [[b'n'; 255].as_slice(), b"\xff\xff", b"\n", b"\\x41", b" ", b"*", b"\"", b"{\"base64\":\"YQ==\"}", b"-"]
    {
        fs::write(place.path(name), name).unwrap();
    }
    symlink("x".repeat(4000), place.path("long")).unwrap();
    let mut workspace = place.open();
    let version = place.save(&mut workspace).version;
    fs::remove_dir_all(place.root()).unwrap();
    fs::create_dir(place.root()).unwrap();
    drop(workspace);
    let mut workspace = place.open();
    place.restore(&mut workspace, &version);
}

#[test]
fn a_root_behind_a_link() {
    let place = Place::new();
    place.write("a", "x");
    place.write("real/b", "x");
    symlink("real", place.path("d")).unwrap();
    let link = place.dir.path().join("link");
    symlink(place.root(), &link).unwrap();
    let (mut workspace, _) = Workspace::open(place.store.clone(), &link, &place.state(), &place.options).unwrap();
    assert_eq!(workspace.directory(), place.root().canonicalize().unwrap());
    let version = place.save(&mut workspace).version;
    assert_eq!(place.in_version(&version)[&Name::from("d")], Thing::Link { target: b"real".into() });
    // The store in the directory is not part of it, whatever it is called.
    let inside = place.path("my-store");
    let store = rath_store::Embedded::create(&inside).unwrap();
    drop(workspace);
    let state = place.path("my-store/state");
    let (mut workspace, _) = Workspace::open(store, &place.root(), &state, &Options::default()).unwrap();
    assert!(workspace.save().unwrap().version.same_files(&version));
}

#[test]
fn places_that_are_hardly_meant() {
    let place = Place::new();
    let open = |root: &Path, options: &Options| {
        Workspace::open(place.store.clone(), root, &place.state(), options).map(drop).map_err(|error| error.code())
    };
    let home = place.path("home/me");
    fs::create_dir_all(home.join("project")).unwrap();
    let link = place.dir.path().join("home-link");
    symlink(&home, &link).unwrap();
    for home in [&home, &link] {
        let options = Options { home: Some(home.clone()), ..Options::default() };
        assert_eq!(open(Path::new("/"), &options), Err("protected-directory"));
        assert_eq!(open(home, &options), Err("protected-directory"));
        assert_eq!(open(&home.join("."), &options), Err("protected-directory"));
        assert_eq!(open(&place.path("home"), &options), Err("protected-directory"));
        assert_eq!(open(&home.join("project/../.."), &options), Err("protected-directory"));
        assert_eq!(open(&home.join("project"), &options), Ok(()));
        assert_eq!(open(home, &Options { anywhere: true, ..options }), Ok(()));
    }
    assert_eq!(open(Path::new("/"), &Options::default()), Err("protected-directory"));
    assert_eq!(open(&place.path("nowhere"), &Options::default()), Err("no-directory"));
    place.write("file", "x");
    assert_eq!(open(&place.path("file"), &Options::default()), Err("no-directory"));
}

#[test]
fn one_at_a_time() {
    let place = Place::new();
    let workspace = place.open();
    match place.try_open() {
        Err(Error::Busy { process, .. }) => assert_eq!(process, std::process::id().to_string()),
        other => panic!("{:?}", other.map(drop)),
    }
    drop(workspace);
    place.open();
}

#[test]
fn more_than_the_budget_allows() {
    let mut place = Place::new();
    for n in 0..20 {
        place.write(&format!("heavy/{n}"), "x".repeat(5000));
    }
    place.write("light", "x");
    let said = |place: &Place| place.open().save().map(drop).map_err(|error| (error.code(), error.to_string()));
    place.options.budget = Budget { files: 10, ..Budget::default() };
    let (code, text) = said(&place).unwrap_err();
    assert_eq!(code, "over-budget");
    assert!(text.contains("heavy"), "{text}");
    place.options.budget = Budget { bytes: 10_000, ..Budget::default() };
    assert_eq!(said(&place).unwrap_err().0, "over-budget");
    // What is ignored does not count, and neither do holes.
    place.write(".gitignore", "heavy\n");
    fs::File::create(place.path("sparse")).unwrap().set_len(1 << 32).unwrap();
    place.options.budget = Budget { bytes: 100_000, files: 5 };
    fs::remove_file(place.path("sparse")).unwrap();
    said(&place).unwrap();
}
