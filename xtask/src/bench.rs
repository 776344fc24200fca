//! Runs the benchmarks. They are in the crate `rath-bench`, in benches/.

use anyhow::{Result, ensure};

use crate::run::{command, run};
use crate::tools;

/// The areas with benchmarks.
const AREAS: [&str; 4] = ["ledger", "placement", "loop", "compose"];

/// Runs the benchmarks of one area.
pub(crate) fn area(area: &str, flags: &[&str]) -> Result<()> {
    ensure!(AREAS.contains(&area), "there is no benchmark {area:?}: {}", AREAS.join(", "));
    if area == "loop" {
        // Built in a separate command, because building it together with other packages could enable other features.
        run("cargo build --profile dist --quiet --package rath-cli")?;
    }
    run("cargo build --profile bench --quiet --package rath-bench")?;
    if area == "ledger"
        && let Err(why) = tools::ripgrep()
    {
        eprintln!("search is measured against grep: {why}");
    }
    let line = format!("target/release/compare {area} {}", flags.join(" "));
    eprintln!("\n$ {line}");
    let status = command(&line).env("PATH", tools::path_with_tools()).status()?;
    ensure!(status.success(), "`{line}` failed");
    Ok(())
}
