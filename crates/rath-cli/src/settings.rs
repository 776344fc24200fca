//! Flags and environment, resolved once. Nothing else in the program reads the environment.

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use rath::sandbox::{Host, Local, Registry};
use rath::workspace::Options;
use rath::{Actor, Embedded, Store, Workshop};

use crate::commands::Global;
use crate::config::{Config, Layers, Places};
use crate::providers::Keyring;

/// The directory that holds a project's sessions.
pub(crate) const STORE_DIR: &str = ".rath";

/// What a configuration is called, in a store and in the user's directory of them.
const CONFIG_FILE: &str = "config.toml";

/// What a command needs to know about where it runs.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) here: PathBuf,
    /// The store that was named, by flag or environment.
    pub(crate) named_store: Option<PathBuf>,
    pub(crate) colour: bool,
    pub(crate) json: bool,
    pub(crate) pager: Option<String>,
    /// How many characters a line of a table may have.
    pub(crate) width: usize,
    pub(crate) user: String,
    pub(crate) by: Option<String>,
    /// Where lines that were typed are remembered.
    pub(crate) history: Option<PathBuf>,
    /// The user's own configuration.
    pub(crate) user_config: Option<PathBuf>,
    /// The model that the environment names.
    pub(crate) model: Option<String>,
    /// The user's home directory.
    pub(crate) home: Option<PathBuf>,
    /// What commands find in their environment: enough to work, no keys.
    pub(crate) command_env: Vec<(OsString, OsString)>,
    /// Where keys of providers may be kept.
    pub(crate) keyring: Keyring,
}

/// The variables that commands get.
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
        // Remarks go to another stream than data: each is coloured where a person sees it.
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
            user: set("USER").or_else(|| set("LOGNAME")).unwrap_or_else(|| "somebody".into()),
            by: global.by.clone(),
            history: states.map(|dir| dir.join("rath").join("history")),
            user_config: configs.map(|dir| dir.join("rath").join(CONFIG_FILE)),
            model: set("RATH_MODEL"),
            home,
            command_env: PLAIN.iter().filter_map(|name| Some((name.into(), std::env::var_os(name)?))).collect(),
            keyring: Keyring::of_system(),
        }
    }

    /// A variable of the environment that the user names.
    #[allow(clippy::disallowed_methods, reason = "this is the owner of the environment")]
    pub(crate) fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    /// What the user's and the project's configuration say together.
    pub(crate) fn config(&self) -> Result<Config> {
        Ok(self.layers()?.config)
    }

    /// The same, with where every value comes from. There need not be a store.
    pub(crate) fn layers(&self) -> Result<Layers> {
        Layers::load(&self.places(self.store_path().ok().as_deref()))
    }

    /// Where configuration is looked for, with this store.
    pub(crate) fn places(&self, store: Option<&Path>) -> Places {
        Places {
            user: self.user_config.clone(),
            project: store.map(|store| store.join(CONFIG_FILE)),
            home: self.home.clone(),
            model: self.model.clone(),
        }
    }

    /// The workshop on the store; `anywhere` allows the home directory and `/`.
    pub(crate) fn workshop(&self, anywhere: bool) -> Result<Workshop> {
        self.workshop_on(self.store()?, &self.store_path()?, anywhere)
    }

    /// A workshop on a store that is open.
    pub(crate) fn workshop_on(&self, store: Arc<dyn Store>, root: &Path, anywhere: bool) -> Result<Workshop> {
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
        let workshop = Workshop::new(store, home, backends).with_options(options).with_env(env);
        Ok(workshop.with_confinement(confinement).telling(crate::output::remark))
    }

    /// Comes when the person interrupts, or another process ends this one: for what is over then, and not resumed.
    pub(crate) fn interrupted(&self) -> Result<impl Future<Output = ()> + use<>> {
        crate::termination::interrupted_or_terminated()
    }

    /// Says so when the store takes more than its quota.
    pub(crate) fn warn_of_quota(&self) -> Result<()> {
        let Some(quota) = self.config()?.workspace.quota else { return Ok(()) };
        let held = crate::space::held(&self.store_path()?);
        if held > quota {
            crate::output::remark(format_args!(
                "the store holds {}, its quota is {}\n  help: `rath gc` and `rath sandbox prune` make room",
                crate::output::bytes(held),
                crate::output::bytes(quota)
            ));
        }
        Ok(())
    }

    /// Where the store is: named, or the nearest `.rath` from here upwards.
    pub(crate) fn store_path(&self) -> Result<PathBuf> {
        let missing = || {
            anyhow!(
                "there is no store here: no {STORE_DIR} in {} or above\n  help: `rath init` makes one, `--store DIR` names one",
                self.here.display()
            )
        };
        self.find_store()?.ok_or_else(missing)
    }

    /// The same; `None` where there is no store. Fails where one may be that nobody lets us look into.
    pub(crate) fn find_store(&self) -> Result<Option<PathBuf>> {
        if let Some(named) = &self.named_store {
            return Ok(Some(named.clone()));
        }
        let places = || self.here.ancestors().map(|dir| dir.join(STORE_DIR));
        if let Some(found) = places().find(|dir| Embedded::exists(dir)) {
            return Ok(Some(found));
        }
        let is_denied = |error: std::io::Error| error.kind() == ErrorKind::PermissionDenied;
        let is_closed = |dir: &PathBuf| dir.symlink_metadata().is_ok() && std::fs::read_dir(dir).is_err_and(is_denied);
        if let Some(closed) = places().find(is_closed) {
            bail!(
                "{} is closed to you: its permissions do not let you look into it\n  help: its owner can let you; `rath init` makes another here, `--store DIR` names one",
                closed.display()
            );
        }
        Ok(None)
    }

    /// The store's own type, for what only the embedded one can do.
    pub(crate) fn embedded(&self) -> Result<Embedded> {
        let here = self.here.clone();
        Ok(Embedded::open_here(self.store_path()?, "rath")?.telling(move |raised| {
            let backup = raised.backup.strip_prefix(&here).unwrap_or(&raised.backup);
            crate::output::remark(format_args!(
                "the store is raised from format {} to {}; the old database is kept in {}, to go back put it in place of rath.db (docs/ledger/formats.md)",
                raised.from,
                raised.to,
                backup.display()
            ));
        }))
    }

    /// The store.
    pub(crate) fn store(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(self.embedded()?))
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

    /// The actor that began a session: whoever resumes its run makes the records in its name.
    pub(crate) async fn actor_of(&self, store: &Arc<dyn Store>, session: rath::SessionId) -> Result<Actor> {
        let first = rath::View::of(store, session, Some(0)).await?;
        Ok(first.record().header()?.actor)
    }

    /// `path` seen from where the user stands.
    pub(crate) fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.here).unwrap_or(path).display().to_string()
    }
}
