use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::Answer;
use crate::config::{self, Entry, File, Layers};
use crate::output::{self, Page, style};
use crate::settings::Settings;

/// Show and change your configuration and the project's
///
/// Yours is `$XDG_CONFIG_HOME/rath/config.toml` (`~/.config/rath/config.toml`), the project's `.rath/config.toml`. Tables
/// are merged; values and lists of the project replace yours; hidden paths add up. The environment wins over both files,
/// and flags win over everything. A project's file cannot widen what you allow until you trust the project.
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
    Unset(Unset),
    Edit(Edit),
    Trust(Trust),
    Path(Path),
}

/// List all values; provider keys are hidden
#[derive(clap::Args)]
struct List {
    /// Show which file each value comes from
    #[arg(long)]
    origin: bool,
}

/// Print one value, or all values of a table; exit code 3 if none is set
#[derive(clap::Args)]
struct Get {
    /// The key, such as `sandbox.memory`
    key: String,
}

/// Set a value in the project's file; comments and order are kept
#[derive(clap::Args)]
struct Set {
    /// The key, such as `sandbox.memory`
    key: String,
    /// The value, as TOML; a value that is not valid TOML is a string
    value: String,
    /// In your own file, not the project's
    #[arg(long)]
    user: bool,
}

/// Remove a value from the project's file; comments and order are kept; exit code 3 if it is not set there
#[derive(clap::Args)]
struct Unset {
    /// The key, such as `sandbox.memory`
    key: String,
    /// In your own file, not the project's
    #[arg(long)]
    user: bool,
}

/// Edit the project's file in $VISUAL or $EDITOR; an invalid file is not saved
#[derive(clap::Args)]
struct Edit {
    /// Your own file, not the project's
    #[arg(long)]
    user: bool,
}

/// Trust a project: its file may then widen what is allowed and use your provider keys
#[derive(clap::Args)]
struct Trust {
    /// The project's directory [default: the one that contains the store]
    dir: Option<PathBuf>,
}

/// Show where the files are
#[derive(clap::Args)]
struct Path;

impl Config {
    pub(crate) fn run(self, settings: &Settings) -> Result<Answer> {
        match self.what {
            What::List(command) => command.run(settings),
            What::Get(command) => command.run(settings),
            What::Set(command) => command.run(settings),
            What::Unset(command) => command.run(settings),
            What::Edit(command) => command.run(settings),
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

/// The value as TOML; `(hidden)` if it is a secret.
fn shown(entry: &Entry) -> String {
    if entry.is_secret() { "(hidden)".into() } else { output::escaped(&entry.value.to_string()).to_string() }
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
            output::json_list("rath.config.list/1", layers.entries.iter().map(as_json))?;
            return Ok(Answer::Yes);
        }
        let mut page = Page::default();
        for entry in &layers.entries {
            let line = format!("{} = {}", output::escaped(&entry.name()), shown(entry));
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
            found if settings.json => output::json_list("rath.config.get/1", found.iter().map(|entry| as_json(entry)))?,
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
        let (path, other) = if self.user {
            (places.user.clone().context(NO_HOME)?, &places.project)
        } else {
            (store?.join("config.toml"), &places.user)
        };
        let (text, file) = config::with_value(&path, &key, &self.value)?;
        let other = other.as_deref().map_or(Ok(None), File::read)?;
        let (user, project) = if self.user { (Some(file), other) } else { (other, Some(file)) };
        // Validate first: an invalid file is not written.
        Layers::of(&places, user, project)?;
        let holds_key = matches!(&key[..], [first, _, last] if first == "providers" && last == "key");
        config::write(&path, &text, holds_key)?;
        output::remark(format_args!("set in {}", settings.shown(&path)));
        if holds_key {
            let warning = style::label("warning:");
            output::remark(format_args!(
                "{warning} the key is stored there in plain text; `rath auth set {}` stores it in the system keyring",
                key[1]
            ));
        }
        Ok(Answer::Yes)
    }
}

const NO_HOME: &str = "you have no configuration directory: neither HOME nor XDG_CONFIG_HOME is set";

/// The file of the project, or of the user.
fn file_of(settings: &Settings, user: bool) -> Result<PathBuf> {
    if user { settings.user_config.clone().context(NO_HOME) } else { Ok(settings.store_path()?.join("config.toml")) }
}

/// Checks that the file, together with the other one, is a valid configuration.
fn validate(settings: &Settings, path: &std::path::Path, text: &str, user: bool) -> Result<()> {
    let places = settings.places(settings.store_path().ok().as_deref());
    let file = File::parse(path, text)?;
    let other = if user { &places.project } else { &places.user };
    let other = other.as_deref().map_or(Ok(None), File::read)?;
    let (own, project) = if user { (Some(file), other) } else { (other, Some(file)) };
    Layers::of(&places, own, project).map(drop)
}

impl Unset {
    fn run(self, settings: &Settings) -> Result<Answer> {
        let key = config::parse_key(&self.key)?;
        let path = file_of(settings, self.user)?;
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let mut document: toml_edit::DocumentMut =
            text.parse().with_context(|| format!("reading {}", path.display()))?;
        let removed = key.split_last().and_then(|(last, above)| {
            let mut table: &mut dyn toml_edit::TableLike = document.as_table_mut();
            for name in above {
                table = table.get_mut(name)?.as_table_like_mut()?;
            }
            table.remove(last)
        });
        if removed.is_none() {
            output::remark(format_args!("{} is not set in {}", self.key, settings.shown(&path)));
            return Ok(Answer::No);
        }
        let text = document.to_string();
        validate(settings, &path, &text, self.user)?;
        config::write(&path, &text, text.contains("key"))?;
        output::remark(format_args!("removed from {}", settings.shown(&path)));
        Ok(Answer::Yes)
    }
}

impl Edit {
    #[allow(clippy::disallowed_methods, reason = "the editor is a program that the user names")]
    fn run(self, settings: &Settings) -> Result<Answer> {
        let path = file_of(settings, self.user)?;
        let editor =
            ["VISUAL", "EDITOR"].iter().find_map(|name| settings.variable(name)).filter(|name| !name.is_empty());
        let editor = editor.unwrap_or_else(|| "vi".into());
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        // The editor gets a copy, so that an invalid file never takes effect.
        let copy = tempfile::Builder::new().prefix("rath-config-").suffix(".toml").tempfile()?;
        std::fs::write(copy.path(), &before)?;
        // Through a shell, because $EDITOR may have arguments.
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "exec $0 \"$1\""]).arg(&editor).arg(copy.path());
        let status = command.status().with_context(|| format!("starting {}", editor.to_string_lossy()))?;
        anyhow::ensure!(
            status.success(),
            "{} failed: {status}; the configuration is unchanged",
            editor.to_string_lossy()
        );
        let text = std::fs::read_to_string(copy.path())?;
        if text == before {
            output::remark("unchanged");
            return Ok(Answer::Yes);
        }
        if let Err(error) = validate(settings, &path, &text, self.user) {
            let (_, kept) = copy.keep()?;
            return Err(error.context(format!("the configuration is unchanged; your text is in {}", kept.display())));
        }
        config::write(&path, &text, text.contains("key"))?;
        output::remark(format_args!("saved {}", settings.shown(&path)));
        Ok(Answer::Yes)
    }
}

impl Trust {
    fn run(self, settings: &Settings) -> Result<Answer> {
        let dir = match self.dir {
            Some(dir) => settings.here.join(dir),
            None => match settings.store_path()?.canonicalize()?.parent() {
                Some(parent) => parent.to_owned(),
                None => anyhow::bail!("the store has no parent directory"),
            },
        };
        let dir = dir.canonicalize().with_context(|| format!("resolving {}", dir.display()))?;
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
        // The paths are shown even if a file is invalid.
        let trusted = settings.layers().is_ok_and(|layers| layers.trusted);
        if settings.json {
            let paths = json!({ "user": places.user, "project": places.project, "trusted": trusted });
            output::json("rath.config.path/1", &paths)?;
            return Ok(Answer::Yes);
        }
        for (name, path) in [("user", &places.user), ("project", &places.project)] {
            match path {
                Some(path) if name == "project" && trusted => {
                    output::answer(format_args!("{name:8} {} (trusted)", path.display()))?;
                }
                Some(path) if path.exists() => output::answer(format_args!("{name:8} {}", path.display()))?,
                Some(path) => output::answer(format_args!("{name:8} {} (does not exist)", path.display()))?,
                None => output::answer(format_args!("{name:8} none"))?,
            }
        }
        Ok(Answer::Yes)
    }
}
