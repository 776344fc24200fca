//! Runs all checks and tests with one command.

use anyhow::{Result, ensure};

use crate::run::{Count, run, run_tests, works};
use crate::{binaries, crates, fuzz, tools};

/// The extent of a test run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// For use while editing: few iterations, and without large, deep and compile-only tests.
    Fast,
    /// Required for every commit.
    Whole,
    /// 20 times the iterations, and fuzzing.
    Nightly,
}

/// Runs the tests. Installs the required tools first, except for the fast tests. Prints the number of tests at the end.
pub(crate) fn test(extent: Extent) -> Result<()> {
    run("cargo fmt --all --check")?;
    crates::check()?;
    let mut count = Count::default();
    if extent == Extent::Fast {
        let skipped: Vec<String> = SKIPPED_IN_FAST.iter().map(|name| format!("--skip {name}")).collect();
        binaries::run(binaries::build("--lib --bins --tests")?, &skipped.join(" "), Some("0.1"), &mut count)?;
        return close(count);
    }
    licences()?;
    tools::install();
    let built = binaries::build("--all-targets")?;
    run_tests(&format!("cargo test {} --doc --quiet", binaries::TESTED), &mut count)?;
    let nightly = extent == Extent::Nightly;
    binaries::run(built, if nightly { "--include-ignored" } else { "" }, nightly.then_some("20"), &mut count)?;
    if nightly {
        count.remarks.insert(fuzz::short()?);
    }
    close(count)
}

/// Parts of the names of tests that `--fast` skips: large and deep tests, tests that run the compiler or another
/// language, the escape suite, and tests that run again as a plain user.
const SKIPPED_IN_FAST: &[&str] = &[
    "a_hundred_thousand",
    "ten_thousand",
    "a_sparse_file",
    "a_deeply_nested_directory",
    "tampered_vectors",
    "the_compiler_",
    "escape_from",
    "without_a_sandbox",
    "plain_user",
];

/// Prints the sums over all test binaries.
fn close(count: Count) -> Result<()> {
    let Count { passed, failed, ignored, remarks, mut slowest } = count;
    ensure!(passed > 0, "no test was run");
    slowest.sort_by(|one, other| other.0.total_cmp(&one.0));
    println!("\nthe slowest tests:");
    slowest.iter().take(10).for_each(|(seconds, test)| println!("{seconds:8.1} s  {test}"));
    println!();
    remarks.iter().for_each(|remark| println!("{remark}"));
    println!("total: {passed} passed, {failed} failed, {ignored} skipped");
    Ok(())
}

/// Checks licences and sources of the dependencies. `cargo-deny` takes minutes to build, so it is only used if it is
/// installed.
fn licences() -> Result<()> {
    match works("cargo deny --version") {
        true => run("cargo deny --offline check --hide-inclusion-graph bans licenses sources"),
        false => {
            eprintln!("\nskipped: cargo-deny is not installed (`cargo install cargo-deny` checks licences too)");
            Ok(())
        }
    }
}
