//! Everything that must hold, in one command.

use anyhow::{Result, ensure};

use crate::run::{Count, run, run_tests, run_tests_with, works};
use crate::{needs, rooms};

/// Installs what the tests need and runs all of them. Ends with one line that counts them.
pub(crate) fn all() -> Result<()> {
    run("cargo fmt --all --check")?;
    run("cargo clippy --workspace --all-targets --quiet -- --deny warnings")?;
    rooms::check()?;
    licences()?;
    run("cargo build --release --quiet")?;
    needs::install();
    let mut count = Count::default();
    run_tests("cargo test --workspace --doc --quiet", &mut count)?;
    run_tests("cargo test --workspace --all-targets --quiet", &mut count)?;
    close(count)
}

/// What the warm loop does less of: fewer processes are killed, fewer sandboxes opened, and the largest tree and the
/// escape suite are left out.
const LESS: &[(&str, &str)] = &[
    ("RATH_KILL_ROUNDS", "2"),
    ("RATH_CRASH_ROUNDS", "2"),
    ("RATH_WORKSPACE_CASES", "12"),
    ("RATH_OPEN_ROUNDS", "10"),
    ("RATH_KILL_EVERY", "8"),
    ("RATH_RUN_CASES", "4"),
];
const LEFT_OUT: &str = "a_hundred_thousand_files --skip nothing_gets_out --skip without_a_sandbox --skip ui::";

/// The warm loop.
pub(crate) fn fast() -> Result<()> {
    run("cargo fmt --all --check")?;
    run("cargo clippy --workspace --all-targets --quiet -- --deny warnings")?;
    rooms::check()?;
    let mut count = Count::default();
    eprintln!("\nless than in the whole run: {LESS:?}; left out: {LEFT_OUT}");
    run_tests_with("cargo test --workspace --lib --bins --tests --quiet -- --skip", LEFT_OUT, LESS, &mut count)?;
    close(count)
}

/// Cargo closes once for every crate; this is the sum.
fn close(count: Count) -> Result<()> {
    let Count { passed, failed, ignored, remarks } = count;
    ensure!(passed > 0, "no test was run");
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
