//! Everything that must hold, in one command.

use anyhow::Result;

use crate::rooms;
use crate::run::{run, works};

/// Installs what the tests need and runs all of them. Ends with the test runner's own closing line.
pub(crate) fn all() -> Result<()> {
    run("cargo fmt --all --check")?;
    run("cargo clippy --workspace --all-targets --quiet -- --deny warnings")?;
    rooms::check()?;
    licences()?;
    run("cargo build --release --quiet")?;
    run("cargo test --workspace --doc --quiet")?;
    // Everything is run in one go and last, so that the closing line counts all of it.
    run("cargo test --workspace --all-targets --quiet")
}

/// The warm loop.
pub(crate) fn fast() -> Result<()> {
    run("cargo fmt --all --check")?;
    run("cargo clippy --workspace --all-targets --quiet -- --deny warnings")?;
    rooms::check()?;
    run("cargo test --workspace --lib --bins --tests --quiet")
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
