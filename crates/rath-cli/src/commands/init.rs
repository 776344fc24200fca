use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rath::Embedded;

use super::Answer;
use crate::output;
use crate::settings::{STORE_DIR, Settings};

/// Make a store for the sessions of this directory
#[derive(clap::Args)]
pub(crate) struct Init {
    /// The directory; the store becomes DIR/.rath
    dir: Option<PathBuf>,
}

/// Makes a store.
pub(crate) fn make(path: &Path) -> Result<()> {
    Embedded::create(path)?;
    // A store inside a repository is no part of it.
    std::fs::write(path.join(".gitignore"), "*\n").with_context(|| format!("writing to {}", path.display()))
}

impl Init {
    pub(crate) fn run(self, settings: &Settings) -> Result<Answer> {
        let path = match self.dir {
            Some(dir) => settings.here.join(dir).join(STORE_DIR),
            None => settings.here.join(STORE_DIR),
        };
        if Embedded::exists(&path) {
            bail!("{} is a store already", settings.shown(&path));
        }
        make(&path)?;
        match settings.json {
            true => output::json(&serde_json::json!({ "store": path.to_string_lossy() }))?,
            false => output::remark(format_args!("made a store in {}", settings.shown(&path))),
        }
        Ok(Answer::Yes)
    }
}
