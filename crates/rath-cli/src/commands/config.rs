use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::Answer;
use crate::config::{self, Entry, File, Layers};
use crate::output::{self, Page, style};
use crate::settings::Settings;

/// Look at and change configuration: yours, and the project's over it
///
/// Yours is in `$XDG_CONFIG_HOME/rath/config.toml` (`~/.config/rath/config.toml`), the project's in `.rath/config.toml`.
/// Tables merge; values and lists replace; what sandboxes hide adds up. The environment wins over both, flags over
/// everything. A project's file cannot widen what you allow until you trust it.
#[derive(clap::Args)]
pub(crate) struct Config {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    List(List),
    Get(Get),
    Set(Set),
    Trust(Trust),
    Path(Path),
}

/// List what is set; keys of providers are not shown
#[derive(clap::Args)]
struct List {
    /// Say where each value comes from
    #[arg(long)]
    origin: bool,
}

/// Print one value, or all below a table; exit code 3 if nothing is set
#[derive(clap::Args)]
struct Get {
    /// The key, as in `sandbox.memory`
    key: String,
}

/// Set a value in the project's file; comments and order stay
#[derive(clap::Args)]
struct Set {
    /// The key, as in `sandbox.memory`
    key: String,
    /// The value, as in TOML; what is not TOML is a text
    value: String,
    /// In your own file instead
    #[arg(long)]
    user: bool,
}

/// Trust a project: its file may widen what is allowed, and use your keys
#[derive(clap::Args)]
struct Trust {
    /// The project's directory, instead of the one around the store
    dir: Option<PathBuf>,
}

/// Say where the files are
#[derive(clap::Args)]
struct Path;

impl Config {
    pub(crate) fn run(self, settings: &Settings) -> Result<Answer> {
        match self.what {
            What::List(command) => command.run(settings),
            What::Get(command) => command.run(settings),
            What::Set(command) => command.run(settings),
            What::Trust(command) => command.run(settings),
            What::Path(command) => command.run(settings),
        }
    }
}

fn layers(settings: &Settings) -> Result<Layers> {
    let layers = settings.layers()?;
    for warning in &layers.warnings {
        output::remark(format_args!("{} {warning}", style::label("warning:")));
    }
    Ok(layers)
}

/// The value as TOML, where it may be seen.
fn shown(entry: &Entry) -> String {
    match entry.is_secret() {
        true => "(hidden)".into(),
        false => output::harmless(&entry.value.to_string()).to_string(),
    }
}

fn as_json(entry: &Entry) -> serde_json::Value {
    let value = match entry.is_secret() {
        true => json!({ "hidden": true }),
        false => json!(entry.value),
    };
    json!({ "key": entry.name(), "value": value, "origin": entry.origin })
}

impl List {
    fn run(self, settings: &Settings) -> Result<Answer> {
        let layers = layers(settings)?;
        if settings.json {
            output::json(&layers.entries.iter().map(as_json).collect::<Vec<_>>())?;
            return Ok(Answer::Yes);
        }
        let mut page = Page::default();
        for entry in &layers.entries {
            let line = format!("{} = {}", output::harmless(&entry.name()), shown(entry));
            match self.origin {
                true => page.line(format_args!("{line}  {}", style::dim(format!("# {}", entry.origin)))),
                false => page.line(line),
            }
        }
        page.show(settings)?;
        Ok(Answer::Yes)
    }
}

impl Get {
    fn run(self, settings: &Settings) -> Result<Answer> {
        let key = config::parse_key(&self.key)?;
        let layers = layers(settings)?;
        let found: Vec<_> = layers.entries.iter().filter(|entry| entry.key.starts_with(&key)).collect();
        match found.as_slice() {
            [] => {
                output::remark(format_args!("{} is not set", self.key));
                return Ok(Answer::No);
            }
            found if settings.json => output::json(&found.iter().map(|entry| as_json(entry)).collect::<Vec<_>>())?,
            [one] if one.key == key => match (&one.value, one.is_secret()) {
                (toml::Value::String(text), false) => output::answer(text)?,
                _ => output::answer(shown(one))?,
            },
            several => {
                for entry in several {
                    output::answer(format_args!("{} = {}", entry.name(), shown(entry)))?;
                }
            }
        }
        Ok(Answer::Yes)
    }
}

impl Set {
    fn run(self, settings: &Settings) -> Result<Answer> {
        let key = config::parse_key(&self.key)?;
        let store = settings.store_path();
        let places = settings.places(store.as_deref().ok());
        let (path, other) = match self.user {
            true => (places.user.clone().context(NO_HOME)?, &places.project),
            false => (store?.join("config.toml"), &places.user),
        };
        let (text, file) = config::with_value(&path, &key, &self.value)?;
        let other = other.as_deref().map_or(Ok(None), File::read)?;
        let (user, project) = if self.user { (Some(file), other) } else { (other, Some(file)) };
        // What would be refused afterwards is not written.
        Layers::of(&places, user, project)?;
        let holds_key = matches!(&key[..], [first, _, last] if first == "providers" && last == "key");
        config::write(&path, &text, holds_key)?;
        output::remark(format_args!("set in {}", settings.shown(&path)));
        if holds_key {
            let warning = style::label("warning:");
            output::remark(format_args!(
                "{warning} the key stands there in plain text; `rath auth set {}` keeps it in the keyring of the system",
                key[1]
            ));
        }
        Ok(Answer::Yes)
    }
}

const NO_HOME: &str = "there is no place for your own configuration: neither HOME nor XDG_CONFIG_HOME is set";

impl Trust {
    fn run(self, settings: &Settings) -> Result<Answer> {
        let dir = match self.dir {
            Some(dir) => settings.here.join(dir),
            None => match settings.store_path()?.canonicalize()?.parent() {
                Some(parent) => parent.to_owned(),
                None => anyhow::bail!("the store has no directory around it"),
            },
        };
        let dir = dir.canonicalize().with_context(|| format!("looking at {}", dir.display()))?;
        let path = settings.user_config.clone().context(NO_HOME)?;
        let mut trusted = File::read(&path)?.map(|file| file.config.trusted_dirs().to_vec()).unwrap_or_default();
        if !trusted.contains(&dir) {
            trusted.push(dir.clone());
            let list = toml::Value::try_from(&trusted).context("a directory's name is not text")?;
            let (text, _) = config::with_value(&path, &["trust".into()], &list.to_string())?;
            config::write(&path, &text, false)?;
        }
        output::remark(format_args!("{} {}", style::good("trusted:"), dir.display()));
        Ok(Answer::Yes)
    }
}

impl Path {
    fn run(self, settings: &Settings) -> Result<Answer> {
        let places = settings.places(settings.store_path().ok().as_deref());
        // A file that is wrong is found here too.
        let trusted = settings.layers().is_ok_and(|layers| layers.trusted);
        if settings.json {
            output::json(&json!({ "user": places.user, "project": places.project, "trusted": trusted }))?;
            return Ok(Answer::Yes);
        }
        for (name, path) in [("user", &places.user), ("project", &places.project)] {
            match path {
                Some(path) if name == "project" && trusted => {
                    output::answer(format_args!("{name:8} {} (trusted)", path.display()))?;
                }
                Some(path) if path.exists() => output::answer(format_args!("{name:8} {}", path.display()))?,
                Some(path) => output::answer(format_args!("{name:8} {} (not there)", path.display()))?,
                None => output::answer(format_args!("{name:8} none"))?,
            }
        }
        Ok(Answer::Yes)
    }
}
