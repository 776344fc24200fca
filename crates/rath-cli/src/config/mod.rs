//! Configuration: the user's `config.toml`, and the one in the project's store over it. Everything in it may be left out.
//!
//! A [`File`] is checked on its own. [`Layers`] are the files and the environment over each other, and know where every
//! value comes from. `trust` says what a project's file may not say.

mod edit;
mod file;
mod layers;
mod origin;
mod trust;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use rath::files::{Driver, Drivers};
use rath::policy::Rule;
use rath::providers::ProviderSpec;
use rath::sandbox::Limits;
use rath::workshop::Confinement;
use rath::workspace::Budget;
use serde::Deserialize;

pub(crate) use edit::{parse_key, with_value, write};
pub(crate) use file::{File, FileEntry};
pub(crate) use layers::{Entry, Layers, Places};
pub(crate) use origin::Origin;

/// What a file may say.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// The model that answers where nobody names one: PROVIDER/MODEL.
    pub(crate) model: Option<String>,
    pub(crate) providers: BTreeMap<String, ProviderSpec>,
    pub(crate) run: Run,
    /// Rules about calls, in order.
    policy: Vec<Rule>,
    /// Directories whose projects may widen what is allowed; in the user's file only.
    trust: Vec<PathBuf>,
    pub(crate) workspace: Workspace,
    pub(crate) sandbox: Sandbox,
    /// How long sessions are kept.
    pub(crate) retention: rath_audit::care::Policy,
    merge: Merge,
    pub(crate) checkpoint: Checkpoint,
}

/// Whose checkpoints count; in the user's file only.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Checkpoint {
    /// The public key that must be behind the checkpoints of a store.
    pub(crate) key: Option<rath_audit::checkpoint::PublicKey>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Workspace {
    /// Rules as in `.gitignore`. They win over those in files.
    pub(crate) ignore: Vec<String>,
    max_files: Option<u64>,
    max_bytes: Option<u64>,
    /// Warn when database, packs and copies take more than this many bytes.
    pub(crate) quota: Option<u64>,
}

/// What runs are given where they do not say.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Run {
    /// The most a run may spend.
    pub(crate) budget: Option<String>,
    pub(crate) tools: Option<Vec<String>>,
}

/// What sandboxes show, hide and allow.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Sandbox {
    /// Paths that commands may read besides the system and the tools in the home.
    read: Vec<PathBuf>,
    /// Paths that they do not see.
    hide: Vec<PathBuf>,
    /// Variables of yours that they find.
    pub(crate) env: Vec<String>,
    /// Seconds that a command may run.
    seconds: Option<u64>,
    processes: Option<u64>,
    memory: Option<u64>,
    address_space: Option<u64>,
    file_size: Option<u64>,
    open_files: Option<u64>,
    disk: Option<u64>,
}

impl Sandbox {
    /// In the words of the workshop. `~` is the home, other paths are taken from `here`; 0 is no limit.
    pub(crate) fn confinement(&self, home: Option<&Path>, here: &Path) -> Confinement {
        let path = |path: &PathBuf| match (path.strip_prefix("~"), home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => here.join(path),
        };
        Confinement {
            home: home.map(Path::to_owned),
            readable: self.read.iter().map(path).collect(),
            hidden: self.hide.iter().map(path).collect(),
            limits: self.limits(),
        }
    }

    fn limits(&self) -> Limits {
        self.given_limits(Limits::default())
    }

    /// What it says of limits, over others.
    fn given_limits(&self, usual: Limits) -> Limits {
        let limit = |given: Option<u64>, usual: Option<u64>| given.map_or(usual, |limit| (limit > 0).then_some(limit));
        let seconds = limit(self.seconds, usual.wall_time.map(|time| time.as_secs()));
        Limits {
            wall_time: seconds.map(Duration::from_secs),
            processes: limit(self.processes, usual.processes),
            memory: limit(self.memory, usual.memory),
            address_space: limit(self.address_space, usual.address_space),
            file_size: limit(self.file_size, usual.file_size),
            open_files: limit(self.open_files, usual.open_files),
            disk: limit(self.disk, usual.disk),
        }
    }
}

/// Patterns of paths, and who wins there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Merge {
    ours: Vec<String>,
    theirs: Vec<String>,
    conflict: Vec<String>,
}

impl Config {
    /// Directories that the user trusts.
    pub(crate) fn trusted_dirs(&self) -> &[PathBuf] {
        &self.trust
    }

    pub(crate) fn workspace_budget(&self) -> Budget {
        let usual = Budget::default();
        Budget {
            files: self.workspace.max_files.unwrap_or(usual.files),
            bytes: self.workspace.max_bytes.unwrap_or(usual.bytes),
        }
    }

    /// Who decides about files that both sides changed; what the command line says comes last and wins.
    pub(crate) fn drivers(&self, more: Vec<(String, Driver)>) -> Result<Drivers> {
        let Merge { ours, theirs, conflict } = self.merge.clone();
        let all = [(ours, Driver::Ours), (theirs, Driver::Theirs), (conflict, Driver::Conflict)];
        let rules = all.into_iter().flat_map(|(patterns, driver)| patterns.into_iter().map(move |p| (p, driver)));
        Ok(Drivers::new(rules.chain(more))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_in_the_readme_is_read() {
        let readme = include_str!("../../../../README.md");
        let block = readme.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let config: Config = toml::from_str(block).unwrap();
        assert_eq!(config.workspace_budget().files, 500_000);
        assert!(config.providers["mine"].is_here());
        assert_eq!(config.run.budget.as_deref(), Some("2usd"));
        assert_eq!(config.workspace.ignore.len(), 2);
        assert_eq!(config.drivers(Vec::new()).unwrap().rules().len(), 3);
    }

    #[test]
    fn a_word_that_means_nothing_is_refused() {
        let error = toml::from_str::<Config>("[workspace]\nignored = []").unwrap_err();
        assert!(error.to_string().contains("ignored"), "{error}");
    }
}
