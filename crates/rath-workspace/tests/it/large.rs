//! Many files and large files.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use rath_core::files::FilePath;
use rath_store::Embedded;

use super::{DiskEntry, Fixture, Random, in_memory};

/// Whether the disk has enough space. Prints that the test is skipped if not.
fn has_room(fixture: &Fixture) -> bool {
    let disk = rustix::fs::statvfs(fixture.dir.path()).unwrap();
    let there = disk.f_bavail * disk.f_frsize >= 10 << 30;
    if !there {
        rath_testkit::Requirement::Disk.skip("less than 10 GB are free");
    }
    there
}

/// Bytes in the pack files of a store.
fn stored(fixture: &Fixture) -> u64 {
    let packs = fs::read_dir(fixture.dir.path().join("store/packs")).unwrap();
    packs.map(|pack| pack.unwrap().metadata().unwrap().len()).sum()
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut chance = Random::new();
    (0..bytes.div_ceil(4)).flat_map(|_| (chance.below(1 << 31) as u32).to_le_bytes()).take(bytes).collect()
}

#[test]
fn a_hundred_thousand_files() {
    let fixture = Fixture::at(in_memory(2 << 30));
    if !has_room(&fixture) {
        return;
    }
    for directory in 0..1000 {
        let directory = fixture.path(format!("d{}/{directory}", directory % 10));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..100 {
            fs::write(directory.join(format!("f{file}")), format!("{}-{file}", directory.display())).unwrap();
        }
    }
    let mut workspace = fixture.open();
    let first = workspace.save().unwrap();
    assert_eq!((first.read, first.files), (100_000, 101_010));
    // Files that were just written are racy and read again. After that, none are.
    while workspace.save().unwrap().read > 0 {}
    fs::write(fixture.path("d3/13/f7"), "changed").unwrap();
    fs::remove_dir_all(fixture.path("d4")).unwrap();
    let second = workspace.save().unwrap();
    assert_eq!((second.read, second.files), (1, 90_909));
    assert_eq!(workspace.changes(&first.version, &second.version).unwrap().len(), 1 + 1 + 100 * 101);
    drop(workspace);
    let mut workspace = fixture.open();
    let restored = workspace.restore(Some(&second.version), &first.version).unwrap();
    assert_eq!(restored.kept, []);
    assert_eq!(restored.version, first.version);
    let again = workspace.save().unwrap();
    assert!(again.version.same_files(&first.version));
    assert_eq!(again.files, 101_010);
    // With the index from disk.
    drop(workspace);
    fs::remove_file(fixture.state().join("index")).unwrap();
    let again = fixture.open().save().unwrap();
    assert!(again.version.same_files(&first.version));
    assert_eq!(again.read, 100_000);
}

#[test]
fn a_sparse_file_keeps_its_holes() {
    const SIZE: u64 = 5 << 30;
    let fixture = Fixture::new();
    if !has_room(&fixture) {
        return;
    }
    let path = fixture.path("sparse");
    let file = File::create(&path).unwrap();
    file.set_len(SIZE).unwrap();
    file.write_all_at(b"in the middle", (2 << 30) + 12_345).unwrap();
    file.write_all_at(&noise(300_000), (3 << 30) + 1).unwrap();
    drop(file);
    let check = |path: &Path| {
        let meta = path.metadata().unwrap();
        assert_eq!(meta.len(), SIZE);
        assert!(meta.blocks() * 512 < 32 << 20, "{} blocks", meta.blocks());
        let file = File::open(path).unwrap();
        let mut there = [0; 13];
        file.read_exact_at(&mut there, (2 << 30) + 12_345).unwrap();
        assert_eq!(&there, b"in the middle");
        let mut there = vec![0; 300_000];
        file.read_exact_at(&mut there, (3 << 30) + 1).unwrap();
        assert_eq!(there, noise(300_000));
    };
    check(&path);
    let mut workspace = fixture.open();
    let saved = workspace.save().unwrap();
    assert!(saved.bytes < 32 << 20);
    assert!(stored(&fixture) < 8 << 20);
    fs::remove_file(&path).unwrap();
    let restored = workspace.restore(None, &saved.version).unwrap();
    assert_eq!(restored.kept, []);
    assert_eq!(restored.version, saved.version);
    check(&path);
}

#[test]
fn an_edited_large_file_stores_only_changed_chunks() {
    let fixture = Fixture::new();
    let mut content = noise(40 << 20);
    fixture.write("large", &content);
    let mut workspace = fixture.open();
    let first = fixture.save(&mut workspace).version;
    let before = stored(&fixture);
    assert!(before >= 40 << 20);
    content.splice(20 << 20..20 << 20, *b"a few bytes in the middle");
    fixture.write("large", &content);
    let second = fixture.save(&mut workspace).version;
    assert!(stored(&fixture) - before < 10 << 20, "{} more", stored(&fixture) - before);
    let after = stored(&fixture);
    // A shorter content, a longer one, and a completely different one.
    OpenOptions::new().write(true).open(fixture.path("large")).unwrap().set_len(30 << 20).unwrap();
    let third = fixture.save(&mut workspace).version;
    OpenOptions::new().write(true).open(fixture.path("large")).unwrap().set_len(50 << 20).unwrap();
    let fourth = fixture.save(&mut workspace).version;
    assert!(stored(&fixture) - after < 10 << 20);
    fixture.write("large", "small now");
    let fifth = fixture.save(&mut workspace).version;
    for version in [&first, &fifth, &third, &second, &fourth, &first] {
        fixture.restore(&mut workspace, version);
    }
    // Just below and just above the size from which files are stored in chunks.
    for size in [(4 << 20) - 1, 4 << 20, (4 << 20) + 1] {
        fixture.write("large", &content[..size]);
        let version = fixture.save(&mut workspace).version;
        fixture.restore(&mut workspace, &fifth);
        fixture.restore(&mut workspace, &version);
    }
}

/// Chunks of several files are in flight at the same time. Each file must wait for its own.
#[test]
fn many_large_files_are_saved_in_parallel() {
    let fixture = Fixture::new();
    let content = noise(9 << 20);
    for n in 0..200 {
        fixture.write(&format!("small-{n:03}"), format!("{n}"));
    }
    for n in 0..6 {
        let mut content = content.clone();
        content.iter_mut().step_by(1000).for_each(|byte| *byte ^= n + 1);
        // One in each group of files that one thread reads.
        fixture.write(&format!("small-{:03}-large", u32::from(n) * 40), content);
    }
    for round in 0..3 {
        let _ = fs::remove_dir_all(fixture.state());
        let mut workspace = fixture.open();
        let version = fixture.save(&mut workspace).version;
        fixture.write("small-000", format!("round {round}"));
        fixture.restore(&mut workspace, &version);
    }
    let report =
        Embedded::open_as(fixture.dir.path().join("store"), "test").unwrap().verify(None, &mut |_, _| {}).unwrap();
    assert!(report.is_valid(), "{:?}", report.findings);
    assert!(matches!(fixture.on_disk()[&FilePath::from("small-040-large")], DiskEntry::File { .. }));
}

#[test]
fn zeros_with_and_without_holes_are_one_content() {
    let fixture = Fixture::new();
    for size in [5u64 << 20, (9 << 20) + 7, 16 << 20] {
        let zeros = vec![0; size as usize];
        fixture.write("written", &zeros);
        File::create(fixture.path("hole")).unwrap().set_len(size).unwrap();
        let mut workspace = fixture.open();
        let version = fixture.save(&mut workspace).version;
        let files = fixture.in_version(&version);
        assert_eq!(files[&FilePath::from("written")], files[&FilePath::from("hole")]);
        fs::remove_file(fixture.path("hole")).unwrap();
        fs::remove_file(fixture.path("written")).unwrap();
        fixture.restore(&mut workspace, &version);
        assert!(fixture.path("hole").metadata().unwrap().blocks() < 64);
    }
}
