use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rath::Embedded;

use super::Answer;
use crate::output;
use crate::settings::{STORE_DIR, Settings};

/// Create a store for the sessions of this directory
#[derive(clap::Args)]
pub(crate) struct Init {
    /// The directory [default: the current one]; the store is DIR/.rath
    dir: Option<PathBuf>,
}

/// Creates a store.
pub(crate) fn make(path: &Path) -> Result<()> {
    Embedded::create(path)?;
    // Keep the store out of the repository around it.
    std::fs::write(path.join(".gitignore"), "*\n").with_context(|| format!("writing to {}", path.display()))
}

/// A store that was created.
#[derive(serde::Serialize)]
struct Initialized {
    store: PathBuf,
}

impl Init {
    pub(crate) fn run(self, settings: &Settings) -> Result<Answer> {
        let path = match (self.dir, &settings.named_store) {
            (Some(dir), _) => settings.here.join(dir).join(STORE_DIR),
            (None, Some(store)) => settings.here.join(store),
            (None, None) => settings.here.join(STORE_DIR),
        };
        if Embedded::exists(&path) {
            bail!("{} is already a store", settings.shown(&path));
        }
        make(&path)?;
        if settings.json {
            output::json("rath.init/1", &Initialized { store: path })?;
        } else {
            output::remark(format_args!("initialized store in {}", settings.shown(&path)));
        }
        Ok(Answer::Yes)
    }
}
