use pollster::block_on;
use rath_core::files::{Patch, diff, patch};

use super::test_files::{DirEntry, DirTree, TestFiles, file, tree_of};

fn patched(before: &DirTree, after: &DirTree) -> Patch {
    let test_files = TestFiles::new();
    let tree_store = test_files.tree_store();
    block_on(async {
        let changes = diff(&tree_store, &test_files.write(before), &test_files.write(after)).await.unwrap();
        patch(&tree_store, &changes).await.unwrap()
    })
}

#[test]
fn a_patch_reads_as_git_writes_it() {
    let before = tree_of([
        ("gone", file("x\n")),
        ("kind", DirEntry::Link("elsewhere".into())),
        ("long", file("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n")),
        ("mode", file("")),
        ("spa ced", file("no end")),
    ]);
    let after = tree_of([
        ("empty", file("")),
        ("kind", file("text\n")),
        ("long", file("1\n2\n3\n4\nfive\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n")),
        ("mode", DirEntry::File(0o755, vec![])),
        ("spa ced", file("end\n")),
        ("ün\"i", file("u\n")),
    ]);
    let patch = patched(&before, &after);
    let expected = r#"diff --git a/empty b/empty
new file mode 100644
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-x
diff --git a/kind b/kind
deleted file mode 120000
--- a/kind
+++ /dev/null
@@ -1 +0,0 @@
-elsewhere
\ No newline at end of file
diff --git a/kind b/kind
new file mode 100644
--- /dev/null
+++ b/kind
@@ -0,0 +1 @@
+text
diff --git a/long b/long
--- a/long
+++ b/long
@@ -2,7 +2,7 @@
 2
 3
 4
-5
+five
 6
 7
 8
@@ -13,3 +13,4 @@
 13
 14
 15
+16
diff --git a/mode b/mode
old mode 100644
new mode 100755
diff --git a/spa ced b/spa ced
--- a/spa ced@
+++ b/spa ced@
@@ -1 +1 @@
-no end
\ No newline at end of file
+end
diff --git "a/\303\274n\"i" "b/\303\274n\"i"
new file mode 100644
--- /dev/null
+++ "b/\303\274n\"i"
@@ -0,0 +1 @@
+u
"#;
    assert_eq!(String::from_utf8(patch.text).unwrap(), expected.replace('@', "\t").replace("\t\t", "@@"));
    let stat: Vec<String> = patch
        .stat
        .iter()
        .map(|stat| format!("{} {} +{} -{}", stat.letter, stat.path, stat.added, stat.removed))
        .collect();
    let expected = ["A empty +0 -0", "D gone +0 -1", "T kind +1 -1", "M long +2 -1", "M mode +0 -0", "M spa ced +1 -1"];
    assert_eq!(stat[..6], expected);
}

/// Changes that a patch cannot contain.
fn odd() -> (DirTree, DirTree) {
    let directory = |mode| DirEntry::Directory(mode, DirTree::new());
    let before = tree_of([
        ("binary", file("\0")),
        ("secret", DirEntry::File(0o600, b"s\n".to_vec())),
        ("text", file("1\n")),
        ("void", directory(0o755)),
    ]);
    let after = tree_of([
        ("binary", file("\0\0")),
        ("large", DirEntry::File(0o644, b"line\n".repeat(1 << 20))),
        ("new\nline", DirEntry::File(0o640, b"n\n".to_vec())),
        ("nothing", directory(0o700)),
        ("secret", DirEntry::File(0o640, b"s\n".to_vec())),
        ("text", file("2\n")),
    ]);
    (before, after)
}

#[test]
fn unsupported_changes_are_listed_before_the_patch() {
    let (before, after) = odd();
    let patch = patched(&before, &after);
    let text = String::from_utf8(patch.text).unwrap();
    let notes: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
    let expected = [
        "# binary: binary",
        "# binary: large",
        r#"# mode 0640: "new\nline""#,
        "# mode 0700: nothing",
        "# empty directory: nothing",
        "# mode 0600 to 0640: secret",
        "# empty directory gone: void",
    ];
    assert_eq!(notes, expected);
    assert!(patch.stat.iter().filter(|stat| stat.binary).map(|stat| stat.path.lossy()).eq(["binary", "large"]));
}

#[cfg(unix)]
mod git {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::process::{Command, Stdio};

    use proptest::prelude::*;
    use rath_core::files::FilePath;

    use super::super::test_files::{DirEntry, DirTree, any_tree, leaves};
    use super::{odd, patched};

    #[allow(clippy::disallowed_methods, reason = "git is the judge of what git takes")]
    fn git(at: &Path) -> Command {
        let mut git = Command::new("git");
        git.current_dir(at).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "").env("HOME", at);
        git
    }

    fn is_installed() -> bool {
        let found = git(Path::new(".")).arg("--version").stdout(Stdio::null()).status().is_ok();
        if !found {
            rath_testkit::Requirement::Git.skip("git is not installed");
        }
        found
    }

    fn write(at: &Path, tree: &DirTree) {
        for (name, entry) in tree {
            let path = at.join(OsStr::from_bytes(name.as_bytes()));
            match entry {
                DirEntry::File(mode, content) => {
                    fs::write(&path, content).unwrap();
                    fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
                }
                DirEntry::Link(target) => std::os::unix::fs::symlink(OsStr::from_bytes(target), path).unwrap(),
                // Git does not track empty directories and cannot create a file where one is in the way.
                DirEntry::Directory(_, below) if leaves(below).is_empty() => {}
                DirEntry::Directory(_, below) => {
                    fs::create_dir(&path).unwrap();
                    write(&path, below);
                }
            }
        }
    }

    fn read(at: &Path) -> DirTree {
        let mut tree = DirTree::new();
        for entry in fs::read_dir(at).unwrap().map(Result::unwrap).filter(|entry| entry.file_name() != ".git") {
            let kind = entry.file_type().unwrap();
            let node = match () {
                () if kind.is_dir() => DirEntry::Directory(0o755, read(&entry.path())),
                () if kind.is_symlink() => {
                    DirEntry::Link(fs::read_link(entry.path()).unwrap().as_os_str().as_bytes().into())
                }
                () => {
                    let runs = entry.metadata().unwrap().permissions().mode() & 0o100 != 0;
                    DirEntry::File(if runs { 0o755 } else { 0o644 }, fs::read(entry.path()).unwrap())
                }
            };
            tree.insert(FilePath::from(entry.file_name().as_bytes()), node);
        }
        tree
    }

    /// The result of applying the patch from `before` to `after` with git.
    fn applied(before: &DirTree, after: &DirTree) -> Result<DirTree, String> {
        let place = tempfile::tempdir().unwrap();
        write(place.path(), before);
        assert!(git(place.path()).args(["init", "-q"]).status().unwrap().success());
        let text = patched(before, after).text;
        let at = tempfile::NamedTempFile::new().unwrap();
        fs::write(at.path(), &text).unwrap();
        let told = git(place.path()).args(["apply", "--allow-empty"]).arg(at.path()).output().unwrap();
        match told.status.success() {
            true => Ok(read(place.path())),
            false => Err(format!("{}\n{}", String::from_utf8_lossy(&told.stderr), String::from_utf8_lossy(&text))),
        }
    }

    #[test]
    fn git_ignores_the_notes() {
        if !is_installed() {
            return;
        }
        let (before, after) = odd();
        let after_git = applied(&before, &after).unwrap();
        assert_eq!(after_git.get(&FilePath::from("text")), after.get(&FilePath::from("text")));
        assert_eq!(after_git.get(&FilePath::from("binary")), before.get(&FilePath::from("binary")));
        assert!(!after_git.contains_key(&FilePath::from("large")));
    }

    const NAMES: &[&[u8]] = &[
        b"a",
        b"b",
        b"with space",
        b" lead",
        b"trail ",
        b"quo\"te",
        b"back\\slash",
        b"new\nline",
        b"tab\t",
        b"cr\r",
        b"\xc3\xbcn\xc3\xaf",
        b"\xff\xfe",
        b"-dash",
        b"--",
        b"#",
        b"x b",
        b"\x01\x7f",
        b"a => b",
    ];

    fn any_trees() -> impl Strategy<Value = DirTree> {
        any_tree(NAMES, &[0o644, 0o755], &[0o755])
    }

    /// Two trees: unrelated ones, or one and a copy with some changed contents.
    fn pairs() -> impl Strategy<Value = (DirTree, DirTree)> {
        let line = prop::sample::select(&["", "x\n", "1\n", "\r\n", "}\n", "-- \n", "+\n", "\\ No\n"][..]);
        let texts = prop::collection::vec(line, 0..30);
        let end = prop::sample::select(&["", "end"][..]);
        let text = (texts, end).prop_map(|(lines, end)| (lines.concat() + end).into_bytes());
        let edited = (any_trees(), prop::collection::vec((text.clone(), text), 6)).prop_map(|(before, texts)| {
            let (mut old, mut new) = (before.clone(), before);
            for (at, (one, two)) in texts.into_iter().enumerate() {
                let name = FilePath::from(NAMES[at * 3]);
                old.insert(name.clone(), DirEntry::File(0o644, one));
                new.insert(name, DirEntry::File(0o644, two));
            }
            (old, new)
        });
        prop_oneof![(any_trees(), any_trees()), edited]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(rath_testkit::scaled(150)))]

        #[test]
        fn git_applies_patches((before, after) in pairs()) {
            if !is_installed() {
                return Ok(());
            }
            let made = applied(&before, &after).map_err(TestCaseError::fail)?;
            prop_assert_eq!(leaves(&made), leaves(&after));
        }
    }
}
