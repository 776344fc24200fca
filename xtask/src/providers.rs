//! Recorded answers of providers, compared with what the vendors' own clients made of them.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use rath_model::recordings::check;

use crate::run::root;

/// Checks every recording in a folder; whether none differs. The last line counts them, and nothing follows it.
pub(crate) fn providers(folder: Option<&str>) -> Result<bool> {
    let folder = folder.map_or_else(|| root().join("../shared/data/providers"), PathBuf::from);
    if !folder.join("recordings").is_dir() {
        println!("skipped: no recordings in {}", folder.display());
        println!("0 equal, 0 differ, 0 skipped");
        return Ok(true);
    }
    let report = check(&folder).with_context(|| format!("reading {}", folder.display()))?;
    println!("{report}");
    Ok(report.differ() == 0)
}
