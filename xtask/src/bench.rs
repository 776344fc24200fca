//! Measuring. The work is done by `rath-bench`; see benches/.

use anyhow::{Result, ensure};

use crate::run::run;

/// The areas that can be measured.
const AREAS: [&str; 3] = ["ledger", "placement", "loop"];

/// Measures one area.
pub(crate) fn area(area: &str, flags: &[&str]) -> Result<()> {
    ensure!(AREAS.contains(&area), "there is no benchmark {area:?}: {}", AREAS.join(", "));
    if area == "loop" {
        // Alone: what is built with it would change which features it has.
        run("cargo build --release --quiet --package rath-cli")?;
    }
    run("cargo build --profile bench --quiet --package rath-bench")?;
    run(&format!("target/release/compare {area} {}", flags.join(" ")))
}
