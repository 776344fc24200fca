//! Measuring. The work is done by `rath-bench`; see benches/.

use anyhow::Result;

use crate::run::run;

/// Measures one area: `ledger` or `placement`.
pub(crate) fn area(area: &str, flags: &[&str]) -> Result<()> {
    run("cargo build --release --quiet --package rath-bench")?;
    run(&format!("target/release/compare {area} {}", flags.join(" ")))
}
