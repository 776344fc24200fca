//! Settings resolved once from flags and environment variables. No other module reads the environment.

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use rath::sandbox::{Host, Local, Registry};
use rath::workspace::Options;
use rath::{Actor, Embedded, Store, Workspaces};

use crate::commands::Global;
use crate::config::{Config, Layers, Places};
use crate::providers::Keyring;

/// Name of a project's store directory.
pub(crate) const STORE_DIR: &str = ".rath";

/// File name of a configuration, in a store and in the user's configuration directory.
const CONFIG_FILE: &str = "config.toml";

/// The environment that a command runs in.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) here: PathBuf,
    /// The store given by `--store` or `RATH_STORE`.
    pub(crate) named_store: Option<PathBuf>,
    pub(crate) colour: bool,
    pub(crate) json: bool,
    pub(crate) pager: Option<String>,
    /// Terminal width in columns.
    pub(crate) width: usize,
    pub(crate) user: String,
    pub(crate) by: Option<String>,
    /// The file that keeps the input history of conversations.
    pub(crate) history: Option<PathBuf>,
    /// The path of the user's configuration file.
    pub(crate) user_config: Option<PathBuf>,
    /// The value of `RATH_MODEL`.
    pub(crate) model: Option<String>,
    /// The user's home directory.
    pub(crate) home: Option<PathBuf>,
    /// Environment variables that sandboxed commands get. They contain no API keys.
    pub(crate) command_env: Vec<(OsString, OsString)>,
    /// The system keyring, which may hold API keys.
    pub(crate) keyring: Keyring,
}

/// Names of the environment variables that are passed to sandboxed commands by default.
const PLAIN: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TERM",
    "TMPDIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "JAVA_HOME",
    "GOPATH",
    "VIRTUAL_ENV",
];

/// Fails for a store without its database, which would otherwise look like a directory without a store.
fn check_database(store: &Path) -> Result<()> {
    let is_left = ["written-by.json", "packs", "holders"].iter().any(|name| store.join(name).exists());
    if is_left && !Embedded::exists(store) && !store.join("rath.db").exists() {
        bail!(
            "the database of the store is missing: {}\n  help: restore it from a backup; the other files of the store are useless without it",
            store.join("rath.db").display()
        );
    }
    Ok(())
}

/// The name of the user according to the system: for an environment without USER and LOGNAME, as in cron and containers.
fn system_user() -> String {
    let uid = rustix::process::getuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut entries = users.lines().map(|line| line.split(':'));
    let name = entries.find_map(|mut fields| {
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| format!("uid-{uid}"))
}

impl Settings {
    #[allow(clippy::disallowed_methods, reason = "this module owns access to the environment")]
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
        // Data goes to stdout and messages to stderr: each is coloured only if it goes to a terminal.
        match global.color {
            clap::ColorChoice::Always => anstream::ColorChoice::Always.write_global(),
            clap::ColorChoice::Never => anstream::ColorChoice::Never.write_global(),
            clap::ColorChoice::Auto => {}
        }
        let pager = match terminal && !global.no_pager && !global.json {
            true => Some(set("RATH_PAGER").or_else(|| set("PAGER")).unwrap_or_else(|| "less".into())),
            false => None,
        };
        let window = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok().filter(|window| window.ws_col > 0);
        let columns = || set("COLUMNS").and_then(|columns| columns.parse().ok());
        let width = window.map(|window| usize::from(window.ws_col)).or_else(columns).unwrap_or(120);
        let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
        let xdg = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
        let states = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
        let states = states.or_else(|| home.as_ref().map(|home| home.join(".local").join("state")));
        let configs = xdg.or_else(|| home.as_ref().map(|home| home.join(".config")));
        Self {
            here: std::env::current_dir().unwrap_or_else(|_| PathBuf::from(".")),
            named_store: global.store.clone(),
            colour,
            json: global.json,
            pager: pager.filter(|pager| pager != "cat"),
            width,
            user: set("USER").or_else(|| set("LOGNAME")).unwrap_or_else(system_user),
            by: global.by.clone(),
            history: states.map(|dir| dir.join("rath").join("history")),
            user_config: configs.map(|dir| dir.join("rath").join(CONFIG_FILE)),
            model: set("RATH_MODEL"),
            home,
            command_env: PLAIN.iter().filter_map(|name| Some((name.into(), std::env::var_os(name)?))).collect(),
            keyring: Keyring::system(),
        }
    }

    /// Reads an environment variable whose name comes from the configuration.
    #[allow(clippy::disallowed_methods, reason = "this module owns access to the environment")]
    pub(crate) fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    /// The merged configuration of user and project.
    pub(crate) fn config(&self) -> Result<Config> {
        Ok(self.layers()?.config)
    }

    /// The merged configuration with the origin of every value. Works without a store.
    pub(crate) fn layers(&self) -> Result<Layers> {
        Layers::load(&self.places(self.store_path().ok().as_deref()))
    }

    /// The paths of the configuration files for this store.
    pub(crate) fn places(&self, store: Option<&Path>) -> Places {
        Places {
            user: self.user_config.clone(),
            project: store.map(|store| store.join(CONFIG_FILE)),
            home: self.home.clone(),
            model: self.model.clone(),
        }
    }

    /// The workspaces of the store. `anywhere` allows the home directory and `/`.
    pub(crate) fn workspaces(&self, anywhere: bool) -> Result<Workspaces> {
        self.workspaces_on(self.store()?, &self.store_path()?, anywhere)
    }

    /// The workspaces of a store that is open.
    pub(crate) fn workspaces_on(&self, store: Arc<dyn Store>, root: &Path, anywhere: bool) -> Result<Workspaces> {
        let config = Layers::load(&self.places(Some(root)))?.config;
        let options = Options {
            ignore: config.workspace.ignore.clone(),
            budget: config.workspace_budget(),
            home: self.home.clone(),
            anywhere,
            ..Options::default()
        };
        let backends = Registry::new().with(Arc::new(Local::new())).with(Arc::new(Host::new()));
        let home = std::path::absolute(root.join("workspaces"))?;
        let confinement = config.sandbox.confinement(self.home.as_deref(), &self.here);
        let handed_on = config.sandbox.env.iter().filter_map(|name| Some((name.into(), self.variable(name)?)));
        let env = self.command_env.iter().cloned().chain(handed_on).collect();
        let workspaces = Workspaces::new(store, home, backends).with_options(options).with_env(env);
        Ok(workspaces.with_confinement(confinement).on_notice(crate::output::remark))
    }

    /// Resolves on Ctrl-C or SIGTERM. For commands that stop then and are not resumed.
    pub(crate) fn interrupted(&self) -> Result<impl Future<Output = ()> + use<>> {
        crate::termination::interrupted_or_terminated()
    }

    /// Prints a warning if the store exceeds its disk quota.
    pub(crate) fn warn_of_quota(&self) -> Result<()> {
        let Some(quota) = self.config()?.workspace.quota else { return Ok(()) };
        let used = crate::space::store_bytes(&self.store_path()?);
        if used > quota {
            crate::output::remark(format_args!(
                "the store uses {} of disk, its quota is {}\n  help: free space with `rath store gc` or `rath workspace prune`",
                crate::output::bytes(used),
                crate::output::bytes(quota)
            ));
        }
        Ok(())
    }

    /// The path of the store: as given, or the nearest `.rath` in this directory or its parents.
    pub(crate) fn store_path(&self) -> Result<PathBuf> {
        let missing = || {
            anyhow!(
                "no store found: no {STORE_DIR} in {} or its parents\n  help: create one with `rath init`, or name one with `--store DIR`",
                self.here.display()
            )
        };
        self.find_store()?.ok_or_else(missing)
    }

    /// As [`store_path`](Self::store_path), but `None` if there is no store. Fails if a `.rath` exists but cannot be read.
    pub(crate) fn find_store(&self) -> Result<Option<PathBuf>> {
        if let Some(named) = &self.named_store {
            check_database(named)?;
            return Ok(Some(named.clone()));
        }
        let places = || self.here.ancestors().map(|dir| dir.join(STORE_DIR));
        for directory in places() {
            if Embedded::exists(&directory) {
                return Ok(Some(directory));
            }
            check_database(&directory)?;
        }
        let is_denied = |error: std::io::Error| error.kind() == ErrorKind::PermissionDenied;
        let is_closed = |dir: &PathBuf| dir.symlink_metadata().is_ok() && std::fs::read_dir(dir).is_err_and(is_denied);
        if let Some(closed) = places().find(is_closed) {
            bail!(
                "permission denied: {}\n  help: ask its owner for access, create another store here with `rath init`, or name one with `--store DIR`",
                closed.display()
            );
        }
        Ok(None)
    }

    /// Opens the store as [`Embedded`], for operations that only the embedded store has.
    pub(crate) fn embedded(&self) -> Result<Embedded> {
        let here = self.here.clone();
        Ok(Embedded::open_as(self.store_path()?, "rath")?.on_upgrade(move |upgrade| {
            let backup = upgrade.backup.strip_prefix(&here).unwrap_or(&upgrade.backup);
            crate::output::remark(format_args!(
                "upgraded the store from format {} to {}; the old database is kept in {}; to go back, replace rath.db with it (docs/explanation/formats.md)",
                upgrade.from,
                upgrade.to,
                backup.display()
            ));
        }))
    }

    /// Opens the store.
    pub(crate) fn store(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(self.embedded()?))
    }

    /// The author of new records: `--by KIND:NAME`, or else the current user.
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

    /// The actor that created a session. A resumed run keeps recording as this actor.
    pub(crate) async fn actor_of(&self, store: &Arc<dyn Store>, session: rath::SessionId) -> Result<Actor> {
        let first = rath::View::of(store, session, Some(0)).await?;
        Ok(first.record().header()?.actor)
    }

    /// `path` relative to the current directory, for messages.
    pub(crate) fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.here).unwrap_or(path).display().to_string()
    }
}
