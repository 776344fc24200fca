use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pollster::block_on;
use rath_core::files::{
    Change, Conflict, ConflictKind, Driver, Drivers, Forest, Name, NodeKind, Version, graft, marked, merge,
};
use rath_core::store::{Blobs, BoxFuture, GcGuard, Piece, Result};
use rath_core::{Blob, BlobRef, Digest};

use super::garden::{Bed, Garden, Plant, bed_of, file};

fn link(target: &str) -> Plant {
    Plant::Link(target.into())
}

fn moded(mode: u32, content: &str) -> Plant {
    Plant::File(mode, content.into())
}

/// What the merge leaves, and its conflicts as `path: kind`.
fn merged(base: &Bed, ours: &Bed, theirs: &Bed, drivers: &[(&str, Driver)]) -> (Bed, Vec<String>) {
    let drivers = Drivers::new(drivers.iter().copied()).unwrap();
    let (bed, merge) = Garden::new().merge_by(base, ours, theirs, &drivers);
    (bed, merge.conflicts.iter().map(|conflict| format!("{}: {}", conflict.path, conflict.kind)).collect())
}

/// One path on three sides: what comes of it, and the conflict.
fn one(base: Option<Plant>, ours: Option<Plant>, theirs: Option<Plant>) -> (Option<Plant>, Option<ConflictKind>) {
    let [base, ours, theirs] = [base, ours, theirs].map(|plant| Bed::from_iter(plant.map(|plant| ("p".into(), plant))));
    let (bed, merge) = Garden::new().merge(&base, &ours, &theirs);
    (bed.get(&Name::from("p")).cloned(), merge.conflicts.first().map(|conflict| conflict.kind))
}

const TEXT: &str = "1\n2\n3\n4\n5\n";
const OURS: &str = "one\n2\n3\n4\n5\n";
const THEIRS: &str = "1\n2\n3\n4\nfive\n";

#[test]
fn files_merge_by_line() {
    assert_eq!(one(Some(file(TEXT)), Some(file(OURS)), Some(file(THEIRS))), (Some(file("one\n2\n3\n4\nfive\n")), None));
    let kind = Some(ConflictKind::Content);
    assert_eq!(one(Some(file(TEXT)), Some(file(OURS)), Some(file("uno\n"))), (Some(file(OURS)), kind));
}

#[test]
fn what_is_not_text_conflicts() {
    let [base, ours, theirs] = [TEXT, OURS, THEIRS].map(|text| file(&format!("\0\n{text}")));
    assert_eq!(one(Some(base), Some(ours.clone()), Some(theirs)), (Some(ours), Some(ConflictKind::Binary)));
}

#[test]
fn one_side_changes_what_the_other_removes() {
    let kind = Some(ConflictKind::ModifyDelete);
    assert_eq!(one(Some(file(TEXT)), Some(file(OURS)), None), (Some(file(OURS)), kind));
    assert_eq!(one(Some(file(TEXT)), None, Some(file(OURS))), (None, kind));
    assert_eq!(one(Some(file(TEXT)), None, Some(file(TEXT))), (None, None));
}

#[test]
fn both_add() {
    assert_eq!(one(None, Some(file(OURS)), Some(file(THEIRS))), (Some(file(OURS)), Some(ConflictKind::AddAdd)));
    assert_eq!(one(None, Some(file(OURS)), Some(moded(0o755, OURS))), (Some(file(OURS)), Some(ConflictKind::Mode)));
    assert_eq!(one(Some(link("x")), Some(file(OURS)), Some(file(THEIRS))).1, Some(ConflictKind::AddAdd));
}

#[test]
fn modes_merge_beside_the_content() {
    let both = moded(0o755, OURS);
    assert_eq!(one(Some(file(TEXT)), Some(file(OURS)), Some(moded(0o755, TEXT))), (Some(both), None));
    let result = one(Some(file(TEXT)), Some(moded(0o600, OURS)), Some(moded(0o755, THEIRS)));
    assert_eq!(result, (Some(moded(0o600, "one\n2\n3\n4\nfive\n")), Some(ConflictKind::Mode)));
    // Where the content does not merge, a mode that we left alone still does.
    let result = one(Some(file(TEXT)), Some(file(OURS)), Some(moded(0o755, "uno\n")));
    assert_eq!(result, (Some(moded(0o755, OURS)), Some(ConflictKind::Content)));
    let directory = |mode, name: &str| Plant::Directory(mode, bed_of([(name, file(""))]));
    let (left, kind) = one(Some(directory(0o755, "x")), Some(directory(0o700, "x")), Some(directory(0o711, "x")));
    assert_eq!((left, kind), (Some(directory(0o700, "x")), Some(ConflictKind::Mode)));
    let (left, kind) = one(Some(directory(0o755, "x")), Some(directory(0o700, "x")), Some(directory(0o755, "y")));
    assert_eq!((left, kind), (Some(directory(0o700, "y")), None));
}

#[test]
fn links_do_not_merge() {
    let kind = Some(ConflictKind::Symlink);
    assert_eq!(one(Some(link("a")), Some(link("b")), Some(link("c"))), (Some(link("b")), kind));
    assert_eq!(one(None, Some(link("b")), Some(link("c"))), (Some(link("b")), kind));
    assert_eq!(one(None, Some(file(TEXT)), Some(link("c"))), (Some(file(TEXT)), kind));
    assert_eq!(one(Some(link("a")), Some(link("a")), Some(link("c"))), (Some(link("c")), None));
}

#[test]
fn a_directory_and_a_file_do_not_merge() {
    let directory = Plant::Directory(0o755, bed_of([("x", file("x"))]));
    let kind = Some(ConflictKind::DirectoryFile);
    assert_eq!(one(None, Some(directory.clone()), Some(file(TEXT))), (Some(directory.clone()), kind));
    assert_eq!(one(None, Some(file(TEXT)), Some(directory.clone())), (Some(file(TEXT)), kind));
    assert_eq!(one(None, Some(link("l")), Some(directory.clone())), (Some(link("l")), kind));
    assert_eq!(one(Some(file(TEXT)), Some(file(TEXT)), Some(directory.clone())), (Some(directory), None));
}

#[test]
fn a_directory_that_one_side_removed() {
    let base =
        bed_of([("d/same", file(TEXT)), ("d/changed", file(TEXT)), ("d/sub/same", file(TEXT)), ("e/x", file(""))]);
    let kept = bed_of([
        ("d/same", file(TEXT)),
        ("d/changed", file(OURS)),
        ("d/sub/same", file(TEXT)),
        ("d/new", file(TEXT)),
        ("e", Plant::Directory(0o700, Bed::new())),
    ]);
    let removed = Bed::new();
    let conflicts = ["d/changed: one side changed it, the other removed it"].map(str::to_owned).to_vec();
    let with_ours = bed_of([("d/changed", file(OURS)), ("d/new", file(TEXT))]);
    assert_eq!(merged(&base, &kept, &removed, &[]), (with_ours, conflicts.clone()));
    assert_eq!(merged(&base, &removed, &kept, &[]), (bed_of([("d/new", file(TEXT))]), conflicts));
}

#[test]
fn drivers_decide_where_both_changed() {
    let base = bed_of([
        ("a.lock", file(TEXT)),
        ("d/b.lock", file(TEXT)),
        ("gone.lock", file(TEXT)),
        ("quiet.lock", file(TEXT)),
    ]);
    let ours = bed_of([
        ("a.lock", file(OURS)),
        ("d/b.lock", file(OURS)),
        ("gone.lock", file(OURS)),
        ("quiet.lock", file(TEXT)),
    ]);
    let theirs = bed_of([("a.lock", file("a\n")), ("d/b.lock", file(THEIRS)), ("quiet.lock", file(THEIRS))]);
    let take_theirs = merged(&base, &ours, &theirs, &[("*.lock", Driver::Theirs)]);
    assert_eq!(take_theirs, (theirs.clone(), vec![]));
    let drivers = [("*.lock", Driver::Theirs), ("/*.lock", Driver::Ours), ("d/", Driver::Conflict)];
    let mut left = ours.clone();
    left.insert("quiet.lock".into(), file(THEIRS));
    assert_eq!(merged(&base, &ours, &theirs, &drivers), (left, vec!["d/b.lock: both changed it".to_owned()]));
}

#[test]
fn the_last_pattern_that_matches_counts() {
    let drivers =
        Drivers::new([("*.md", Driver::Ours), ("docs/**/*.md", Driver::Theirs), ("docs/*.md", Driver::Conflict)]);
    let drivers = drivers.unwrap();
    let of = |path: &[u8]| drivers.of(&Name::from(path));
    assert_eq!(of(b"a/b/c.md"), Some(Driver::Ours));
    assert_eq!(of(b"docs/a/b.md"), Some(Driver::Theirs));
    assert_eq!(of(b"docs/b.md"), Some(Driver::Conflict));
    assert_eq!(of(b"x/docs/b.md"), Some(Driver::Ours));
    assert_eq!(of(b"\xff\n.md"), Some(Driver::Ours));
    assert_eq!(of(b"c.mdx"), None);
    let written = serde_json::to_string(&drivers).unwrap();
    assert_eq!(written, r#"[["*.md","ours"],["docs/**/*.md","theirs"],["docs/*.md","conflict"]]"#);
    assert_eq!(serde_json::from_str::<Drivers>(&written).unwrap(), drivers);
}

#[test]
fn a_pattern_that_cannot_be_read_is_named() {
    let error = Drivers::new([("ok", Driver::Ours), ("src/[a", Driver::Ours)]).unwrap_err().to_string();
    assert!(error.starts_with(r#""src/[a" is not a pattern of paths: "#), "{error}");
    assert!(Drivers::new([("/", Driver::Ours)]).is_err());
    let error = serde_json::from_str::<Drivers>(r#"[["{a","ours"]]"#).unwrap_err().to_string();
    assert!(error.contains("{a"), "{error}");
}

#[test]
fn a_conflict_is_a_value() {
    let garden = Garden::new();
    let [base, ours, theirs] =
        [TEXT, OURS, "uno\n2\n3\n4\n5\n"].map(|text| garden.plant(&bed_of([("d/p", file(text))])));
    let forest = garden.forest();
    let branch: rath_core::SessionId = "0198f0a0-0000-7000-8000-000000000001".parse().unwrap();
    let merge = block_on(merge(&forest, Some(&base), &ours, &theirs, &Drivers::default(), Some(branch))).unwrap();
    let [conflict] = &merge.conflicts[..] else { panic!("{:?}", merge.conflicts) };
    assert_eq!((&conflict.path, conflict.branch, merge.version.clone()), (&Name::from("d/p"), Some(branch), ours));
    let text = block_on(marked(&forest, conflict)).unwrap().unwrap();
    let expected = "<<<<<<< ours\none\n||||||| base\n1\n=======\nuno\n>>>>>>> theirs\n2\n3\n4\n5\n";
    assert_eq!(String::from_utf8(text).unwrap(), expected);
    // Taking their side is a graft.
    let resolved = Change { path: conflict.path.clone(), before: conflict.ours, after: conflict.theirs };
    assert_eq!(block_on(graft(&forest, &merge.version, &[resolved])).unwrap(), theirs);
    let written = serde_json::to_value(Conflict { ours: None, branch: None, ..conflict.clone() }).unwrap();
    assert_eq!(written["kind"], "content");
    assert_eq!(written.as_object().unwrap().keys().collect::<Vec<_>>(), ["base", "kind", "path", "theirs"]);
    assert_eq!(serde_json::from_value::<Conflict>(serde_json::to_value(conflict).unwrap()).unwrap(), *conflict);
}

#[test]
fn ignore_rules_follow_the_side_that_changed_them() {
    let garden = Garden::new();
    let plain = garden.plant(&Bed::new());
    let ruled = Version { rules: Some(Blob::new(*b"target\n", "text/plain").reference), ..plain.clone() };
    for (ours, theirs) in [(&plain, &ruled), (&ruled, &plain), (&ruled, &ruled)] {
        let merge = block_on(merge(&garden.forest(), Some(&plain), ours, theirs, &Drivers::default(), None)).unwrap();
        assert_eq!(merge.version, ruled);
    }
}

/// Counts what is read, and refuses what is in pieces.
struct Watched<'a> {
    blobs: &'a dyn Blobs,
    reads: AtomicUsize,
    whole: Vec<Digest>,
}

impl Blobs for Watched<'_> {
    fn blob_put(&self, blobs: Vec<Blob>) -> BoxFuture<'_, Result<()>> {
        self.blobs.blob_put(blobs)
    }
    fn blob_put_soon(&self, blobs: Vec<Blob>) -> BoxFuture<'_, Result<()>> {
        self.blobs.blob_put_soon(blobs)
    }
    fn blob_has(&self, digest: Digest) -> BoxFuture<'_, Result<bool>> {
        self.blobs.blob_has(digest)
    }
    fn blob_get(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Arc<[u8]>>>> {
        assert!(!self.whole.contains(&digest), "a large content was read");
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.blobs.blob_get(digest)
    }
    fn blob_join(&self, whole: BlobRef, pieces: Vec<Piece>) -> BoxFuture<'_, Result<()>> {
        self.blobs.blob_join(whole, pieces)
    }
    fn blob_pieces(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Vec<Piece>>>> {
        self.blobs.blob_pieces(digest)
    }
    fn gc_guard(&self) -> Result<GcGuard> {
        self.blobs.gc_guard()
    }
    fn directory(&self) -> Option<&Path> {
        self.blobs.directory()
    }
}

#[test]
fn only_directories_that_both_changed_are_read() {
    let garden = Garden::new();
    let mut base = Bed::new();
    for directory in 0..50 {
        for name in 0..20 {
            super::garden::put(&mut base, &format!("d{directory}/f{name}").as_str().into(), file(TEXT));
        }
    }
    let (mut ours, mut theirs) = (base.clone(), base.clone());
    super::garden::put(&mut ours, &"d1/f1".into(), file(OURS));
    super::garden::put(&mut ours, &"d2/f1".into(), file(OURS));
    super::garden::put(&mut theirs, &"d1/f2".into(), file(OURS));
    super::garden::put(&mut theirs, &"d3/f2".into(), file(OURS));
    let [base, ours, theirs] = [base, ours, theirs].map(|bed| garden.plant(&bed));
    let watched = Watched { blobs: garden.store(), reads: AtomicUsize::new(0), whole: Vec::new() };
    let merge =
        block_on(merge(&Forest::new(&watched), Some(&base), &ours, &theirs, &Drivers::default(), None)).unwrap();
    assert!(merge.conflicts.is_empty());
    assert_eq!(watched.reads.load(Ordering::Relaxed), 6);
}

#[test]
fn a_content_in_pieces_is_not_read() {
    let garden = Garden::new();
    let [base, ours, theirs] = [TEXT, OURS, THEIRS].map(|text| garden.plant(&bed_of([("p", file(text))])));
    let node = block_on(garden.forest().at(&theirs, &"p".into())).unwrap().unwrap();
    assert_eq!(node.kind, NodeKind::File);
    let piece = Blob::new(THEIRS.as_bytes(), "text/plain").reference;
    let pieces = vec![Piece { digest: piece.digest, bytes: piece.bytes }];
    block_on(garden.store().blob_join(piece, pieces)).unwrap();
    let watched = Watched { blobs: garden.store(), reads: AtomicUsize::new(0), whole: vec![node.sha256] };
    let forest = Forest::new(&watched);
    let merge = block_on(merge(&forest, Some(&base), &ours, &theirs, &Drivers::default(), None)).unwrap();
    assert_eq!(merge.conflicts[0].kind, ConflictKind::Binary);
    assert_eq!(merge.version, ours);
    assert_eq!(block_on(marked(&forest, &merge.conflicts[0])).unwrap(), None);
}
