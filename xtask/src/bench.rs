//! Measuring. The work is done by `rath-bench`; see benches/.

use anyhow::Result;

use crate::run::run;

pub(crate) fn ledger(flags: &[&str]) -> Result<()> {
    run("cargo build --release --quiet --package rath-bench")?;
    run(&format!("target/release/compare {}", flags.join(" ")))
}
