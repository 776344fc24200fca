//! Many files, and large ones.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use rath_core::files::Name;
use rath_store::Embedded;

use super::{Chance, Place, Thing, in_memory};

/// Whether the disk is large enough for this; says so when it is not.
fn has_room(place: &Place) -> bool {
    let disk = rustix::fs::statvfs(place.dir.path()).unwrap();
    let there = disk.f_bavail * disk.f_frsize >= 10 << 30;
    if !there {
        rath_testkit::Requirement::Disk.skip("less than 10 GB are free");
    }
    there
}

/// What the packs of a store take.
fn stored(place: &Place) -> u64 {
    let packs = fs::read_dir(place.dir.path().join("store/packs")).unwrap();
    packs.map(|pack| pack.unwrap().metadata().unwrap().len()).sum()
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut chance = Chance::new();
    (0..bytes.div_ceil(4)).flat_map(|_| (chance.below(1 << 31) as u32).to_le_bytes()).take(bytes).collect()
}

#[test]
fn a_hundred_thousand_files() {
    let place = Place::at(in_memory(2 << 30));
    if !has_room(&place) {
        return;
    }
    for directory in 0..1000 {
        let directory = place.path(format!("d{}/{directory}", directory % 10));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..100 {
            fs::write(directory.join(format!("f{file}")), format!("{}-{file}", directory.display())).unwrap();
        }
    }
    let mut workspace = place.open();
    let first = workspace.save().unwrap();
    assert_eq!((first.read, first.files), (100_000, 101_010));
    // What was written a moment ago is read again; after that nothing is.
    while workspace.save().unwrap().read > 0 {}
    fs::write(place.path("d3/13/f7"), "changed").unwrap();
    fs::remove_dir_all(place.path("d4")).unwrap();
    let second = workspace.save().unwrap();
    assert_eq!((second.read, second.files), (1, 90_909));
    assert_eq!(workspace.changes(&first.version, &second.version).unwrap().len(), 1 + 1 + 100 * 101);
    drop(workspace);
    let mut workspace = place.open();
    let restored = workspace.restore(Some(&second.version), &first.version).unwrap();
    assert_eq!(restored.kept, []);
    assert_eq!(restored.version, first.version);
    let again = workspace.save().unwrap();
    assert!(again.version.same_files(&first.version));
    assert_eq!(again.files, 101_010);
    // From the disk alone.
    drop(workspace);
    fs::remove_file(place.state().join("index")).unwrap();
    let again = place.open().save().unwrap();
    assert!(again.version.same_files(&first.version));
    assert_eq!(again.read, 100_000);
}

#[test]
fn a_sparse_file_keeps_its_holes() {
    const SIZE: u64 = 5 << 30;
    let place = Place::new();
    if !has_room(&place) {
        return;
    }
    let path = place.path("sparse");
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
    let mut workspace = place.open();
    let saved = workspace.save().unwrap();
    assert!(saved.bytes < 32 << 20);
    assert!(stored(&place) < 8 << 20);
    fs::remove_file(&path).unwrap();
    let restored = workspace.restore(None, &saved.version).unwrap();
    assert_eq!(restored.kept, []);
    assert_eq!(restored.version, saved.version);
    check(&path);
}

#[test]
fn a_large_file_that_is_edited_is_stored_by_its_pieces() {
    let place = Place::new();
    let mut content = noise(40 << 20);
    place.write("large", &content);
    let mut workspace = place.open();
    let first = place.save(&mut workspace).version;
    let before = stored(&place);
    assert!(before >= 40 << 20);
    content.splice(20 << 20..20 << 20, *b"a few bytes in the middle");
    place.write("large", &content);
    let second = place.save(&mut workspace).version;
    assert!(stored(&place) - before < 10 << 20, "{} more", stored(&place) - before);
    let after = stored(&place);
    // Shorter, longer, and something else altogether.
    OpenOptions::new().write(true).open(place.path("large")).unwrap().set_len(30 << 20).unwrap();
    let third = place.save(&mut workspace).version;
    OpenOptions::new().write(true).open(place.path("large")).unwrap().set_len(50 << 20).unwrap();
    let fourth = place.save(&mut workspace).version;
    assert!(stored(&place) - after < 10 << 20);
    place.write("large", "small now");
    let fifth = place.save(&mut workspace).version;
    for version in [&first, &fifth, &third, &second, &fourth, &first] {
        place.restore(&mut workspace, version);
    }
    // On either side of what is stored in pieces.
    for size in [(4 << 20) - 1, 4 << 20, (4 << 20) + 1] {
        place.write("large", &content[..size]);
        let version = place.save(&mut workspace).version;
        place.restore(&mut workspace, &fifth);
        place.restore(&mut workspace, &version);
    }
}

/// Pieces of several files are under way at once: each file waits for its own.
#[test]
fn many_large_files_at_once() {
    let place = Place::new();
    let content = noise(9 << 20);
    for n in 0..200 {
        place.write(&format!("small-{n:03}"), format!("{n}"));
    }
    for n in 0..6 {
        let mut content = content.clone();
        content.iter_mut().step_by(1000).for_each(|byte| *byte ^= n + 1);
        // In every chunk of files that is read by one thread.
        place.write(&format!("small-{:03}-large", u32::from(n) * 40), content);
    }
    for round in 0..3 {
        let _ = fs::remove_dir_all(place.state());
        let mut workspace = place.open();
        let version = place.save(&mut workspace).version;
        place.write("small-000", format!("round {round}"));
        place.restore(&mut workspace, &version);
    }
    let report =
        Embedded::open_here(place.dir.path().join("store"), "test").unwrap().verify(None, &mut |_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
    assert!(matches!(place.on_disk()[&Name::from("small-040-large")], Thing::File { .. }));
}

/// A file of nothing but zeros, with and without holes, is one content.
#[test]
fn zeros_are_zeros() {
    let place = Place::new();
    for size in [5u64 << 20, (9 << 20) + 7, 16 << 20] {
        let zeros = vec![0; size as usize];
        place.write("written", &zeros);
        File::create(place.path("hole")).unwrap().set_len(size).unwrap();
        let mut workspace = place.open();
        let version = place.save(&mut workspace).version;
        let files = place.in_version(&version);
        assert_eq!(files[&Name::from("written")], files[&Name::from("hole")]);
        fs::remove_file(place.path("hole")).unwrap();
        fs::remove_file(place.path("written")).unwrap();
        place.restore(&mut workspace, &version);
        assert!(place.path("hole").metadata().unwrap().blocks() < 64);
    }
}
