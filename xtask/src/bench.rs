//! Measuring. The work is done by `rath-bench`; see benches/.

use anyhow::{Result, ensure};

use crate::needs;
use crate::run::{command, run};

/// The areas that can be measured.
const AREAS: [&str; 3] = ["ledger", "placement", "loop"];

/// Measures one area.
pub(crate) fn area(area: &str, flags: &[&str]) -> Result<()> {
    ensure!(AREAS.contains(&area), "there is no benchmark {area:?}: {}", AREAS.join(", "));
    if area == "loop" {
        // Alone: what is built with it would change which features it has.
        run("cargo build --profile dist --quiet --package rath-cli")?;
    }
    run("cargo build --profile bench --quiet --package rath-bench")?;
    if area == "ledger"
        && let Err(why) = needs::ripgrep()
    {
        eprintln!("search is measured against grep: {why}");
    }
    let line = format!("target/release/compare {area} {}", flags.join(" "));
    eprintln!("\n$ {line}");
    let status = command(&line).env("PATH", needs::path_with_tools()).status()?;
    ensure!(status.success(), "`{line}` failed");
    Ok(())
}
