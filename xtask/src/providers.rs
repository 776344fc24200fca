//! Recorded answers of providers, compared with what the vendors' own clients made of them.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::run::{command, root};

/// Where the check is: a program of its own, so that this one needs no client for HTTP and is there in seconds.
const CHECK: &str = "cargo run --quiet --package rath-recordings --example providers --";

/// Checks every recording in a folder; whether none differs.
pub(crate) fn providers(folder: Option<&str>) -> Result<bool> {
    let folder = folder.map_or_else(|| root().join("../shared/data/providers"), PathBuf::from);
    let folder = std::path::absolute(&folder).with_context(|| format!("looking at {}", folder.display()))?;
    let status = command(CHECK).arg(folder).status().with_context(|| format!("starting `{CHECK}`"))?;
    Ok(status.success())
}
