//! Flags and environment, resolved once. Nothing else in the program reads the environment.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rath::{Actor, Embedded};

use crate::commands::Global;

/// The directory that holds a project's sessions.
pub(crate) const STORE_DIR: &str = ".rath";

/// What a command needs to know about where it runs.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) here: PathBuf,
    /// The store that was named, by flag or environment.
    pub(crate) named_store: Option<PathBuf>,
    pub(crate) colour: bool,
    pub(crate) json: bool,
    pub(crate) pager: Option<String>,
    pub(crate) user: String,
    pub(crate) by: Option<String>,
}

impl Settings {
    #[allow(clippy::disallowed_methods, reason = "this is the owner of the environment")]
    pub(crate) fn from_environment(global: &Global) -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let terminal = std::io::stdout().is_terminal();
        let colour = match global.color {
            clap::ColorChoice::Always => true,
            clap::ColorChoice::Never => false,
            clap::ColorChoice::Auto => {
                terminal && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
            }
        };
        let pager = match terminal && !global.no_pager && !global.json {
            true => Some(set("RATH_PAGER").or_else(|| set("PAGER")).unwrap_or_else(|| "less".into())),
            false => None,
        };
        Self {
            here: std::env::current_dir().unwrap_or_else(|_| PathBuf::from(".")),
            named_store: global.store.clone(),
            colour,
            json: global.json,
            pager: pager.filter(|pager| pager != "cat"),
            user: set("USER").or_else(|| set("LOGNAME")).unwrap_or_else(|| "somebody".into()),
            by: global.by.clone(),
        }
    }

    /// Where the store is: named, or the nearest `.rath` from here upwards.
    pub(crate) fn store_path(&self) -> Result<PathBuf> {
        if let Some(named) = &self.named_store {
            return Ok(named.clone());
        }
        let found = self.here.ancestors().map(|dir| dir.join(STORE_DIR)).find(|dir| Embedded::exists(dir));
        found.with_context(|| {
            format!(
                "there is no store here: no {STORE_DIR} in {} or above\n  help: `rath init` makes one, `--store DIR` names one",
                self.here.display()
            )
        })
    }

    /// The store's own type, for what only the embedded one can do.
    pub(crate) fn embedded(&self) -> Result<Embedded> {
        Ok(Embedded::open_here(self.store_path()?, "rath")?)
    }

    /// The store.
    pub(crate) fn store(&self) -> Result<std::sync::Arc<dyn rath::Store>> {
        Ok(std::sync::Arc::new(self.embedded()?))
    }

    /// Who makes the records: `--by KIND:NAME`, or the person at the keyboard.
    pub(crate) fn actor(&self) -> Actor {
        let actor = match &self.by {
            Some(by) => match by.split_once(':') {
                Some((kind, name)) => Actor::new(kind, name),
                None => Actor::person(by),
            },
            None => Actor::person(&self.user),
        };
        actor.authenticated(&self.user, "os-user")
    }

    /// `path` seen from where the user stands.
    pub(crate) fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.here).unwrap_or(path).display().to_string()
    }
}
