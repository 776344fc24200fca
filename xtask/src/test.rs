//! Everything that must hold, in one command.

use anyhow::{Result, ensure};

use crate::run::{Count, run, run_tests, works};
use crate::{binaries, fuzz, needs, rooms};

/// Installs what the tests need and runs all of them. Ends with one line that counts them.
pub(crate) fn all() -> Result<()> {
    run("cargo fmt --all --check")?;
    run("cargo clippy --workspace --all-targets --quiet -- --deny warnings")?;
    rooms::check()?;
    licences()?;
    needs::install();
    let mut count = Count::default();
    run_tests(&format!("cargo test {} --doc --quiet", binaries::TESTED), &mut count)?;
    let built = binaries::build("--all-targets")?;
    binaries::run(built, "", &[], &mut count)?;
    count.remarks.insert(fuzz::short()?);
    close(count)
}

/// What the warm loop does less of: fewer processes are killed, fewer sandboxes opened, fewer random programs run.
const LESS: &[(&str, &str)] = &[
    ("RATH_KILL_ROUNDS", "2"),
    ("RATH_CRASH_ROUNDS", "2"),
    ("RATH_WORKSPACE_CASES", "12"),
    ("RATH_SESSION_CASES", "100"),
    ("RATH_STORED_CASES", "6"),
    ("RATH_POWER_IMAGES", "12"),
    ("RATH_PATCH_CASES", "10"),
    ("RATH_MODEL_CASES", "4"),
    ("RATH_OPEN_ROUNDS", "10"),
    ("RATH_KILL_EVERY", "8"),
    ("RATH_RUN_CASES", "4"),
    ("RATH_SCHEDULES", "10000"),
    ("RATH_STORED_SCHEDULES", "4"),
];
/// What it leaves out: what is large or deep by nature, what the compiler or another language has to say, the escape
/// suite, and what is run once more as a plain user.
const LEFT_OUT: &[&str] = &[
    "a_hundred_thousand",
    "ten_thousand",
    "a_sparse_file",
    "a_bottomless",
    "tampered_vectors",
    "ui::",
    "nothing_gets_out",
    "without_a_sandbox",
    "plain_user",
];

/// The warm loop.
pub(crate) fn fast() -> Result<()> {
    run("cargo fmt --all --check")?;
    run("cargo clippy --workspace --all-targets --quiet -- --deny warnings")?;
    rooms::check()?;
    let mut count = Count::default();
    let skipped: Vec<String> = LEFT_OUT.iter().map(|name| format!("--skip {name}")).collect();
    eprintln!("\nless than in the whole run: {LESS:?}");
    binaries::run(binaries::build("--lib --bins --tests")?, &skipped.join(" "), LESS, &mut count)?;
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
