//! Everything that must hold, in one command.

use anyhow::{Result, ensure};

use crate::run::{Count, run, run_tests, works};
use crate::{binaries, fuzz, needs, rooms};

/// How much of the tests is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The warm loop: short loops, and without what is large, deep or only the compiler's business.
    Fast,
    /// What must hold for every commit.
    Whole,
    /// Loops of twenty times the length, and fuzzing.
    Nightly,
}

/// Runs the tests; all but the fast ones first install what they need. Ends with one line that counts them.
pub(crate) fn test(extent: Extent) -> Result<()> {
    run("cargo fmt --all --check")?;
    rooms::check()?;
    let mut count = Count::default();
    if extent == Extent::Fast {
        let skipped: Vec<String> = LEFT_OUT.iter().map(|name| format!("--skip {name}")).collect();
        binaries::run(binaries::build("--lib --bins --tests")?, &skipped.join(" "), Some("0.1"), &mut count)?;
        return close(count);
    }
    licences()?;
    needs::install();
    let built = binaries::build("--all-targets")?;
    run_tests(&format!("cargo test {} --doc --quiet", binaries::TESTED), &mut count)?;
    let nightly = extent == Extent::Nightly;
    binaries::run(built, if nightly { "--include-ignored" } else { "" }, nightly.then_some("20"), &mut count)?;
    if nightly {
        count.remarks.insert(fuzz::short()?);
    }
    close(count)
}

/// What the warm loop leaves out: what is large or deep by nature, what the compiler or another language has to say,
/// the escape suite, and what is run a second time as a plain user.
const LEFT_OUT: &[&str] = &[
    "a_hundred_thousand",
    "ten_thousand",
    "a_sparse_file",
    "a_bottomless",
    "tampered_vectors",
    "what_must_not_compile",
    "nothing_gets_out",
    "without_a_sandbox",
    "plain_user",
];

/// Cargo closes once for every crate; this is the sum.
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

/// Licences and advisories of what we depend on. `cargo-deny` takes minutes to build, so it is used where it is.
fn licences() -> Result<()> {
    match works("cargo deny --version") {
        true => run("cargo deny --offline check --hide-inclusion-graph bans licenses sources"),
        false => {
            eprintln!("\nskipped: cargo-deny is not installed (`cargo install cargo-deny` checks licences too)");
            Ok(())
        }
    }
}
