//! Ignore rules, compared with git.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use rath_core::files::FilePath;
use rath_workspace::Options;

use super::{DiskEntry, Fixture};

const WORDS: &[&str] = &["a", "b", "ab", "a.o", "b.o", "#c", "!d", "e f", "x\\y", ".h"];

const PATTERNS: &[&str] = &[
    "a", "b", "*.o", "!a.o", "!*.o", "a/", "b/", "/a", "/b/", "a/b", "a/*", "a/**", "**/a", "**/b/", "a/**/b", "!a",
    "!b/", "!a/b", "/*", "!/a", "*", "!*/", "!*.o", "?", "[ab]", "[!a]", "[a-c].o", "\\#c", "#c", "\\!d", "!d",
    "e\\ f", "e f ", "e f\\ ", "", "   ", "# a", "a#", "**", "/**", "**/", "***", "a**", "a//b", "./a", "../a", "/",
    "!", "\\", "[", "[a", "a\\", "x\\\\y", "x\\y", ".*", "!.h", "*b", "a*", "a\r", "/a/b/a.o", "!/a/b/", "ab/a.o",
    "*/a", "*/b/*.o", "\\a", "{a,b}", "!!a", "a\\*", "!/", "! ", "{a", "a}", "\\{a", "[{a]", "a/b/", "!a/b/ab",
    "**/*.o", "!**/a.o", "b/**", "!b/a",
];

#[derive(Clone, Debug)]
struct Case {
    files: Vec<Vec<usize>>,
    rules: Vec<(Vec<usize>, Vec<usize>)>,
}

fn case() -> impl Strategy<Value = Case> {
    let directory = || prop::collection::vec(0..3usize, 0..3);
    let file = (directory(), 0..WORDS.len()).prop_map(|(mut path, name)| {
        path.push(name);
        path
    });
    let rules = (directory(), prop::collection::vec(0..PATTERNS.len(), 1..5));
    (prop::collection::vec(file, 1..14), prop::collection::vec(rules, 1..4))
        .prop_map(|(files, rules)| Case { files, rules })
}

fn git(root: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(root)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output.stdout)
}

fn write_case(fixture: &Fixture, case: &Case) {
    let path = |path: &[usize]| path.iter().fold(fixture.root(), |at, word| at.join(WORDS[*word]));
    for file in &case.files {
        let path = path(file);
        // If a name is already a directory, or a parent is already a file, the entry is skipped.
        let _ = fs::create_dir_all(path.parent().unwrap()).and_then(|()| fs::write(&path, "x"));
    }
    for (directory, lines) in &case.rules {
        let directory = path(directory);
        let text: String = lines.iter().map(|line| format!("{}\n", PATTERNS[*line])).collect();
        let _ = fs::create_dir_all(&directory).and_then(|()| fs::write(directory.join(".gitignore"), text));
    }
}

/// The files and links of a version.
fn files_of(fixture: &Fixture) -> BTreeSet<FilePath> {
    let saved = fixture.open().save().unwrap();
    let things = fixture.in_version(&saved.version);
    things
        .into_iter()
        .filter(|(_, thing)| !matches!(thing, DiskEntry::Directory { .. }))
        .map(|(path, _)| path)
        .collect()
}

fn files_of_git(fixture: &Fixture) -> BTreeSet<FilePath> {
    let listed = git(&fixture.root(), &["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).unwrap();
    listed.split(|byte| *byte == 0).filter(|path| !path.is_empty()).map(FilePath::from).collect()
}

fn has_git() -> bool {
    let there = Command::new("git").arg("--version").output().is_ok();
    if !there {
        rath_testkit::Requirement::Git.skip("git is not installed");
    }
    there
}

#[test]
fn a_save_ignores_what_git_ignores() {
    if !has_git() {
        return;
    }
    let cases = rath_testkit::scaled(150);
    let fixture = Fixture::new();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let checked = runner.run(&case(), |case| {
        fs::remove_dir_all(fixture.root()).unwrap();
        fs::create_dir(fixture.root()).unwrap();
        git(&fixture.root(), &["init", "-q"]);
        write_case(&fixture, &case);
        let (ours, theirs) = (files_of(&fixture), files_of_git(&fixture));
        prop_assert_eq!(ours, theirs);
        Ok(())
    });
    checked.unwrap();
}

#[test]
fn files_with_a_byte_order_mark_or_carriage_returns_are_read_as_git_reads_them() {
    if !has_git() {
        return;
    }
    let fixture = Fixture::new();
    git(&fixture.root(), &["init", "-q"]);
    fixture.write(".gitignore", "\u{feff}one\r\ntwo\r\n\u{feff}three\n");
    for name in ["one", "two", "three", "four"] {
        fixture.write(name, "x");
    }
    assert_eq!(files_of(&fixture), files_of_git(&fixture));
}

#[test]
fn a_rule_file_that_is_a_link_is_ignored() {
    let fixture = Fixture::new();
    fs::write(fixture.dir.path().join("outside"), "secret\n").unwrap();
    std::os::unix::fs::symlink(fixture.dir.path().join("outside"), fixture.path(".gitignore")).unwrap();
    fixture.write("secret", "x");
    fixture.save(&mut fixture.open());
}

#[test]
fn rules_have_the_documented_precedence() {
    let mut fixture = Fixture::new();
    fixture.options = Options { ignore: vec!["*.log".into(), "!kept.log".into()], ..Options::default() };
    fixture.write(".gitignore", "*.o\n!a.log\n");
    fixture.write(".rathignore", "!mine.o\nnotes\n");
    fixture.write("deep/.gitignore", "!notes\n*.c\n");
    for name in ["a.log", "kept.log", "x.o", "mine.o", "notes", "deep/notes", "deep/x.c", "x.c"] {
        fixture.write(name, "x");
    }
    let expected = [".gitignore", ".rathignore", "deep/.gitignore", "deep/notes", "kept.log", "mine.o", "x.c"];
    assert_eq!(files_of(&fixture), expected.iter().map(|path| FilePath::from(*path)).collect());
}

/// Files in a workspace must not be able to add hooks to a version.
#[test]
fn no_rule_file_can_version_git_or_the_store() {
    let mut fixture = Fixture::new();
    for rules in ["!.git\n!.rath\n", "!.*\n", "*\n!*/\n!config\n", "!.rath-*.tmp\n"] {
        fixture.write(".gitignore", rules);
        fixture.write(".rathignore", rules);
        fixture.write(".git/config", "x");
        fixture.write(".git/hooks/pre-commit", "x");
        fs::create_dir_all(fixture.path(".git/refs/empty")).unwrap();
        fixture.write(".rath/rath.db", "x");
        fixture.write("sub/.git/config", "x");
        fixture.write("sub/.rath-x.tmp", "x");
        fixture.write("sub/config", "x");
        let saved = fixture.open().save().unwrap();
        let odd =
            |path: &FilePath| path.parts().any(|name| matches!(name.as_bytes(), b".git" | b".rath" | b".rath-x.tmp"));
        let found = fixture.in_version(&saved.version);
        assert!(!found.keys().any(odd), "{rules}: {found:?}");
    }
    fixture.options = Options { ignore: vec!["!.git".into()], ..Options::default() };
    assert!(files_of(&fixture).contains(&FilePath::from(".git/config")), "the configuration may");
}

/// Entries are checked again only if the hash of the rules changes, so equal hashes must mean equal rules.
#[test]
fn rules_that_are_restored_apply_again() {
    let fixture = Fixture::new();
    fixture.write("d/x.log", "x");
    fixture.write("x.log", "x");
    let mut workspace = fixture.open();
    let all = fixture.save(&mut workspace).version;
    fixture.write(".gitignore", "*.log\n");
    fs::remove_dir_all(fixture.path("d")).unwrap();
    fs::remove_file(fixture.path("x.log")).unwrap();
    let none = fixture.save(&mut workspace).version;
    fixture.restore(&mut workspace, &all);
    fixture.write(".gitignore", "*.log\n");
    let saved = workspace.save().unwrap();
    assert!(saved.version.same_files(&none), "{:?}", fixture.in_version(&saved.version));
}
