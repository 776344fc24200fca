//! Compares how Rath parses recorded answers of providers with how the vendors' own clients parse them.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::run::{command, root};

/// The command of the check. It is a separate program so that xtask needs no HTTP client and builds in seconds.
const CHECK: &str = "cargo run --quiet --package rath-recordings --example providers --";

/// Checks every recording in a folder. Returns whether all of them agree.
pub(crate) fn providers(folder: Option<&str>) -> Result<bool> {
    let folder = folder.map_or_else(|| root().join("../shared/data/providers"), PathBuf::from);
    let folder = std::path::absolute(&folder).with_context(|| format!("resolving {}", folder.display()))?;
    let status = command(CHECK).arg(folder).status().with_context(|| format!("starting `{CHECK}`"))?;
    Ok(status.success())
}
