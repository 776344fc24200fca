//! Ignore rules, with git as the judge.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use rath_core::files::Name;
use rath_workspace::Options;

use super::{Place, Thing};

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

fn lay_out(place: &Place, case: &Case) {
    let path = |path: &[usize]| path.iter().fold(place.root(), |at, word| at.join(WORDS[*word]));
    for file in &case.files {
        let path = path(file);
        // A name may be taken by a directory, or the other way round: then it stays as it is.
        let _ = fs::create_dir_all(path.parent().unwrap()).and_then(|()| fs::write(&path, "x"));
    }
    for (directory, lines) in &case.rules {
        let directory = path(directory);
        let text: String = lines.iter().map(|line| format!("{}\n", PATTERNS[*line])).collect();
        let _ = fs::create_dir_all(&directory).and_then(|()| fs::write(directory.join(".gitignore"), text));
    }
}

/// The files of a version, links included.
fn files_of(place: &Place) -> BTreeSet<Name> {
    let saved = place.open().save().unwrap();
    let things = place.in_version(&saved.version);
    things.into_iter().filter(|(_, thing)| !matches!(thing, Thing::Directory { .. })).map(|(path, _)| path).collect()
}

fn files_of_git(place: &Place) -> BTreeSet<Name> {
    let listed = git(&place.root(), &["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).unwrap();
    listed.split(|byte| *byte == 0).filter(|path| !path.is_empty()).map(Name::from).collect()
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
    let place = Place::new();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let checked = runner.run(&case(), |case| {
        fs::remove_dir_all(place.root()).unwrap();
        fs::create_dir(place.root()).unwrap();
        git(&place.root(), &["init", "-q"]);
        lay_out(&place, &case);
        let (ours, theirs) = (files_of(&place), files_of_git(&place));
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
    let place = Place::new();
    git(&place.root(), &["init", "-q"]);
    place.write(".gitignore", "\u{feff}one\r\ntwo\r\n\u{feff}three\n");
    for name in ["one", "two", "three", "four"] {
        place.write(name, "x");
    }
    assert_eq!(files_of(&place), files_of_git(&place));
}

#[test]
fn a_rule_file_that_is_a_link_rules_nothing() {
    let place = Place::new();
    fs::write(place.dir.path().join("outside"), "secret\n").unwrap();
    std::os::unix::fs::symlink(place.dir.path().join("outside"), place.path(".gitignore")).unwrap();
    place.write("secret", "x");
    place.save(&mut place.open());
}

#[test]
fn the_stronger_rule_wins() {
    let mut place = Place::new();
    place.options = Options { ignore: vec!["*.log".into(), "!kept.log".into()], ..Options::default() };
    place.write(".gitignore", "*.o\n!a.log\n");
    place.write(".rathignore", "!mine.o\nnotes\n");
    place.write("deep/.gitignore", "!notes\n*.c\n");
    for name in ["a.log", "kept.log", "x.o", "mine.o", "notes", "deep/notes", "deep/x.c", "x.c"] {
        place.write(name, "x");
    }
    let expected = [".gitignore", ".rathignore", "deep/.gitignore", "deep/notes", "kept.log", "mine.o", "x.c"];
    assert_eq!(files_of(&place), expected.iter().map(|path| Name::from(*path)).collect());
}

/// Whoever can write files must not be able to have hooks carried along.
#[test]
fn no_file_brings_in_git_or_the_store() {
    let mut place = Place::new();
    for rules in ["!.git\n!.rath\n", "!.*\n", "*\n!*/\n!config\n", "!.rath-*.tmp\n"] {
        place.write(".gitignore", rules);
        place.write(".rathignore", rules);
        place.write(".git/config", "x");
        place.write(".git/hooks/pre-commit", "x");
        fs::create_dir_all(place.path(".git/refs/empty")).unwrap();
        place.write(".rath/rath.db", "x");
        place.write("sub/.git/config", "x");
        place.write("sub/.rath-x.tmp", "x");
        place.write("sub/config", "x");
        let saved = place.open().save().unwrap();
        let odd = |path: &Name| path.parts().any(|name| matches!(name.as_bytes(), b".git" | b".rath" | b".rath-x.tmp"));
        let found = place.in_version(&saved.version);
        assert!(!found.keys().any(odd), "{rules}: {found:?}");
    }
    place.options = Options { ignore: vec!["!.git".into()], ..Options::default() };
    assert!(files_of(&place).contains(&Name::from(".git/config")), "the configuration may");
}

/// What passed the rules once is not asked again while they are the same: they must be the same.
#[test]
fn rules_that_come_back_hold_again() {
    let place = Place::new();
    place.write("d/x.log", "x");
    place.write("x.log", "x");
    let mut workspace = place.open();
    let all = place.save(&mut workspace).version;
    place.write(".gitignore", "*.log\n");
    fs::remove_dir_all(place.path("d")).unwrap();
    fs::remove_file(place.path("x.log")).unwrap();
    let none = place.save(&mut workspace).version;
    place.restore(&mut workspace, &all);
    place.write(".gitignore", "*.log\n");
    let saved = workspace.save().unwrap();
    assert!(saved.version.same_files(&none), "{:?}", place.in_version(&saved.version));
}
