//! Configuration: the user's `config.toml`, overridden by the one in the project's store. Every key is optional.
//!
//! A [`File`] is one parsed and checked file. [`Layers`] merges the files and the environment, and records where each
//! value comes from. `trust` lists what a project's file may not set.

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
use rath::policy::PolicyRule;
use rath::providers::ProviderSpec;
use rath::sandbox::Limits;
use rath::workspace::WorkspaceBudget;
use rath::workspaces::Confinement;
use serde::Deserialize;

pub(crate) use edit::{parse_key, with_value, write};
pub(crate) use file::{File, FileEntry};
pub(crate) use layers::{Entry, Layers, Places};
pub(crate) use origin::Origin;

/// The keys of a configuration file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// The default model, as PROVIDER/MODEL.
    pub(crate) model: Option<String>,
    pub(crate) providers: BTreeMap<String, ProviderSpec>,
    pub(crate) run: Run,
    /// Policy rules for tool calls, in order of precedence.
    policy: Vec<PolicyRule>,
    /// Directories whose projects may relax the defaults. Allowed in the user's file only.
    trust: Vec<PathBuf>,
    pub(crate) workspace: Workspace,
    pub(crate) sandbox: Sandbox,
    /// How long sessions are kept before `rath store gc` deletes them.
    pub(crate) retention: rath_audit::admin::RetentionPolicy,
    merge: Merge,
    pub(crate) checkpoint: Checkpoint,
}

/// Which signing key is trusted. Allowed in the user's file only.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Checkpoint {
    /// The public key that must have signed the checkpoints of a store.
    pub(crate) key: Option<rath_audit::checkpoint::PublicKey>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Workspace {
    /// Ignore patterns in `.gitignore` syntax. They override those in ignore files.
    pub(crate) ignore: Vec<String>,
    max_files: Option<u64>,
    max_bytes: Option<u64>,
    /// Disk use, in bytes, of database, packs and copies above which a warning is printed.
    pub(crate) quota: Option<u64>,
}

/// Defaults for runs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Run {
    /// The budget of a run, as in `2usd`.
    pub(crate) budget: Option<String>,
    pub(crate) tools: Option<Vec<String>>,
}

/// Sandbox settings: readable and hidden paths, environment variables and limits. A limit of 0 means no limit.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Sandbox {
    /// Paths that commands may read in addition to the system and the tools in the home directory.
    read: Vec<PathBuf>,
    /// Paths that are hidden from commands.
    hide: Vec<PathBuf>,
    /// Names of environment variables that are passed to commands.
    pub(crate) env: Vec<String>,
    /// Wall time limit of a command, in seconds.
    seconds: Option<u64>,
    processes: Option<u64>,
    memory: Option<u64>,
    address_space: Option<u64>,
    file_size: Option<u64>,
    open_files: Option<u64>,
    disk: Option<u64>,
}

impl Sandbox {
    /// Resolves the paths: `~` is the home directory, relative paths are relative to `here`.
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

    /// `default_model` with the limits that this section sets.
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

/// Path patterns and the side that wins when a merge finds both sides changed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Merge {
    ours: Vec<String>,
    theirs: Vec<String>,
    conflict: Vec<String>,
}

impl Config {
    /// Directories whose projects the user trusts.
    pub(crate) fn trusted_dirs(&self) -> &[PathBuf] {
        &self.trust
    }

    pub(crate) fn workspace_budget(&self) -> WorkspaceBudget {
        let usual = WorkspaceBudget::default();
        WorkspaceBudget {
            files: self.workspace.max_files.unwrap_or(usual.files),
            bytes: self.workspace.max_bytes.unwrap_or(usual.bytes),
        }
    }

    /// Merge drivers by path. `more` comes from the command line and overrides the configuration.
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
    fn the_example_in_the_docs_parses() {
        let page = include_str!("../../../../docs/reference/configuration.md");
        let block = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let config: Config = toml::from_str(block).unwrap();
        assert_eq!(config.workspace_budget().files, 500_000);
        assert!(config.providers["mine"].is_local());
        assert_eq!(config.run.budget.as_deref(), Some("2usd"));
        assert_eq!(config.workspace.ignore.len(), 2);
        assert_eq!(config.drivers(Vec::new()).unwrap().rules().len(), 3);
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let error = toml::from_str::<Config>("[workspace]\nignored = []").unwrap_err();
        assert!(error.to_string().contains("ignored"), "{error}");
    }
}
