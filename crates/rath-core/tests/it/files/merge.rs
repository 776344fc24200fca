use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pollster::block_on;
use rath_core::files::{
    Change, Conflict, ConflictKind, Driver, Drivers, FilePath, NodeKind, TreeStore, Version, marked, merge,
    with_changes,
};
use rath_core::store::{Blobs, BoxFuture, Chunk, GcGuard, Result};
use rath_core::{Blob, BlobRef, Digest};

use super::test_files::{DirEntry, DirTree, TestFiles, file, tree_of};

fn link(target: &str) -> DirEntry {
    DirEntry::Link(target.into())
}

fn with_mode(mode: u32, content: &str) -> DirEntry {
    DirEntry::File(mode, content.into())
}

/// The merged tree, and its conflicts as `path: kind`.
fn merged(base: &DirTree, ours: &DirTree, theirs: &DirTree, drivers: &[(&str, Driver)]) -> (DirTree, Vec<String>) {
    let drivers = Drivers::new(drivers.iter().copied()).unwrap();
    let (tree, merge) = TestFiles::new().merge_by(base, ours, theirs, &drivers);
    (tree, merge.conflicts.iter().map(|conflict| format!("{}: {}", conflict.path, conflict.kind)).collect())
}

/// Merges one path and returns the result and the conflict.
fn one(
    base: Option<DirEntry>,
    ours: Option<DirEntry>,
    theirs: Option<DirEntry>,
) -> (Option<DirEntry>, Option<ConflictKind>) {
    let [base, ours, theirs] =
        [base, ours, theirs].map(|entry| DirTree::from_iter(entry.map(|entry| ("p".into(), entry))));
    let (tree, merge) = TestFiles::new().merge(&base, &ours, &theirs);
    (tree.get(&FilePath::from("p")).cloned(), merge.conflicts.first().map(|conflict| conflict.kind))
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
fn binary_files_conflict() {
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
fn files_added_on_both_sides() {
    assert_eq!(one(None, Some(file(OURS)), Some(file(THEIRS))), (Some(file(OURS)), Some(ConflictKind::AddAdd)));
    assert_eq!(one(None, Some(file(OURS)), Some(with_mode(0o755, OURS))), (Some(file(OURS)), Some(ConflictKind::Mode)));
    assert_eq!(one(Some(link("x")), Some(file(OURS)), Some(file(THEIRS))).1, Some(ConflictKind::AddAdd));
}

#[test]
fn modes_merge_independently_of_content() {
    let both = with_mode(0o755, OURS);
    assert_eq!(one(Some(file(TEXT)), Some(file(OURS)), Some(with_mode(0o755, TEXT))), (Some(both), None));
    let result = one(Some(file(TEXT)), Some(with_mode(0o600, OURS)), Some(with_mode(0o755, THEIRS)));
    assert_eq!(result, (Some(with_mode(0o600, "one\n2\n3\n4\nfive\n")), Some(ConflictKind::Mode)));
    // If the content conflicts, the mode still merges.
    let result = one(Some(file(TEXT)), Some(file(OURS)), Some(with_mode(0o755, "uno\n")));
    assert_eq!(result, (Some(with_mode(0o755, OURS)), Some(ConflictKind::Content)));
    let directory = |mode, name: &str| DirEntry::Directory(mode, tree_of([(name, file(""))]));
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
    let directory = DirEntry::Directory(0o755, tree_of([("x", file("x"))]));
    let kind = Some(ConflictKind::DirectoryFile);
    assert_eq!(one(None, Some(directory.clone()), Some(file(TEXT))), (Some(directory.clone()), kind));
    assert_eq!(one(None, Some(file(TEXT)), Some(directory.clone())), (Some(file(TEXT)), kind));
    assert_eq!(one(None, Some(link("l")), Some(directory.clone())), (Some(link("l")), kind));
    assert_eq!(one(Some(file(TEXT)), Some(file(TEXT)), Some(directory.clone())), (Some(directory), None));
}

#[test]
fn a_directory_that_one_side_removed() {
    let base =
        tree_of([("d/same", file(TEXT)), ("d/changed", file(TEXT)), ("d/sub/same", file(TEXT)), ("e/x", file(""))]);
    let kept = tree_of([
        ("d/same", file(TEXT)),
        ("d/changed", file(OURS)),
        ("d/sub/same", file(TEXT)),
        ("d/new", file(TEXT)),
        ("e", DirEntry::Directory(0o700, DirTree::new())),
    ]);
    let removed = DirTree::new();
    let conflicts = ["d/changed: one side changed it, the other removed it"].map(str::to_owned).to_vec();
    let with_ours = tree_of([("d/changed", file(OURS)), ("d/new", file(TEXT))]);
    assert_eq!(merged(&base, &kept, &removed, &[]), (with_ours, conflicts.clone()));
    assert_eq!(merged(&base, &removed, &kept, &[]), (tree_of([("d/new", file(TEXT))]), conflicts));
}

#[test]
fn drivers_decide_where_both_changed() {
    let base = tree_of([
        ("a.lock", file(TEXT)),
        ("d/b.lock", file(TEXT)),
        ("gone.lock", file(TEXT)),
        ("quiet.lock", file(TEXT)),
    ]);
    let ours = tree_of([
        ("a.lock", file(OURS)),
        ("d/b.lock", file(OURS)),
        ("gone.lock", file(OURS)),
        ("quiet.lock", file(TEXT)),
    ]);
    let theirs = tree_of([("a.lock", file("a\n")), ("d/b.lock", file(THEIRS)), ("quiet.lock", file(THEIRS))]);
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
    let of = |path: &[u8]| drivers.of(&FilePath::from(path));
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
    assert!(error.starts_with(r#""src/[a" is not a path pattern: "#), "{error}");
    assert!(Drivers::new([("/", Driver::Ours)]).is_err());
    let error = serde_json::from_str::<Drivers>(r#"[["{a","ours"]]"#).unwrap_err().to_string();
    assert!(error.contains("{a"), "{error}");
}

#[test]
fn a_conflict_is_a_value() {
    let test_files = TestFiles::new();
    let [base, ours, theirs] =
        [TEXT, OURS, "uno\n2\n3\n4\n5\n"].map(|text| test_files.write(&tree_of([("d/p", file(text))])));
    let tree_store = test_files.tree_store();
    let branch: rath_core::SessionId = "0198f0a0-0000-7000-8000-000000000001".parse().unwrap();
    let merge = block_on(merge(&tree_store, Some(&base), &ours, &theirs, &Drivers::default(), Some(branch))).unwrap();
    let [conflict] = &merge.conflicts[..] else { panic!("{:?}", merge.conflicts) };
    assert_eq!((&conflict.path, conflict.branch, merge.version.clone()), (&FilePath::from("d/p"), Some(branch), ours));
    let text = block_on(marked(&tree_store, conflict)).unwrap().unwrap();
    let expected = "<<<<<<< ours\none\n||||||| base\n1\n=======\nuno\n>>>>>>> theirs\n2\n3\n4\n5\n";
    assert_eq!(String::from_utf8(text).unwrap(), expected);
    // Taking their side means to apply their entry with `with_changes`.
    let resolved = Change { path: conflict.path.clone(), before: conflict.ours, after: conflict.theirs };
    assert_eq!(block_on(with_changes(&tree_store, &merge.version, &[resolved])).unwrap(), theirs);
    let written = serde_json::to_value(Conflict { ours: None, branch: None, ..conflict.clone() }).unwrap();
    assert_eq!(written["kind"], "content");
    assert_eq!(written.as_object().unwrap().keys().collect::<Vec<_>>(), ["base", "kind", "path", "theirs"]);
    assert_eq!(serde_json::from_value::<Conflict>(serde_json::to_value(conflict).unwrap()).unwrap(), *conflict);
}

#[test]
fn ignore_rules_follow_the_side_that_changed_them() {
    let test_files = TestFiles::new();
    let plain = test_files.write(&DirTree::new());
    let ruled = Version { rules: Some(Blob::new(*b"target\n", "text/plain").reference), ..plain.clone() };
    for (ours, theirs) in [(&plain, &ruled), (&ruled, &plain), (&ruled, &ruled)] {
        let merge =
            block_on(merge(&test_files.tree_store(), Some(&plain), ours, theirs, &Drivers::default(), None)).unwrap();
        assert_eq!(merge.version, ruled);
    }
}

/// A blob store that counts reads and fails on chunked blobs.
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
    fn blob_join(&self, whole: BlobRef, pieces: Vec<Chunk>) -> BoxFuture<'_, Result<()>> {
        self.blobs.blob_join(whole, pieces)
    }
    fn blob_chunks(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Vec<Chunk>>>> {
        self.blobs.blob_chunks(digest)
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
    let test_files = TestFiles::new();
    let mut base = DirTree::new();
    for directory in 0..50 {
        for name in 0..20 {
            super::test_files::put(&mut base, &format!("d{directory}/f{name}").as_str().into(), file(TEXT));
        }
    }
    let (mut ours, mut theirs) = (base.clone(), base.clone());
    super::test_files::put(&mut ours, &"d1/f1".into(), file(OURS));
    super::test_files::put(&mut ours, &"d2/f1".into(), file(OURS));
    super::test_files::put(&mut theirs, &"d1/f2".into(), file(OURS));
    super::test_files::put(&mut theirs, &"d3/f2".into(), file(OURS));
    let [base, ours, theirs] = [base, ours, theirs].map(|tree| test_files.write(&tree));
    let watched = Watched { blobs: test_files.store(), reads: AtomicUsize::new(0), whole: Vec::new() };
    let merge =
        block_on(merge(&TreeStore::new(&watched), Some(&base), &ours, &theirs, &Drivers::default(), None)).unwrap();
    assert!(merge.conflicts.is_empty());
    assert_eq!(watched.reads.load(Ordering::Relaxed), 6);
}

#[test]
fn a_chunked_blob_is_not_read() {
    let test_files = TestFiles::new();
    let [base, ours, theirs] = [TEXT, OURS, THEIRS].map(|text| test_files.write(&tree_of([("p", file(text))])));
    let node = block_on(test_files.tree_store().at(&theirs, &"p".into())).unwrap().unwrap();
    assert_eq!(node.kind, NodeKind::File);
    let piece = Blob::new(THEIRS.as_bytes(), "text/plain").reference;
    let pieces = vec![Chunk { digest: piece.digest, bytes: piece.bytes }];
    block_on(test_files.store().blob_join(piece, pieces)).unwrap();
    let watched = Watched { blobs: test_files.store(), reads: AtomicUsize::new(0), whole: vec![node.sha256] };
    let tree_store = TreeStore::new(&watched);
    let merge = block_on(merge(&tree_store, Some(&base), &ours, &theirs, &Drivers::default(), None)).unwrap();
    assert_eq!(merge.conflicts[0].kind, ConflictKind::Binary);
    assert_eq!(merge.version, ours);
    assert_eq!(block_on(marked(&tree_store, &merge.conflicts[0])).unwrap(), None);
}
