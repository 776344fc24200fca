//! Merges the user's file, the project's file and the environment; later ones override earlier ones.
//!
//! Tables are merged key by key; other values and lists are replaced. Two keys accumulate instead. `sandbox.hide`: no file
//! can show what another hides. `policy`: the rules of a trusted project come before the user's rules, those of an
//! untrusted project can only make a decision stricter.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use rath::policy::{Policy, PolicyRule};
use toml::{Table, Value};

use super::file::dotted;
use super::{Config, File, FileEntry, Origin, trust};

/// Paths of the configuration files, and the settings from the environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    pub(crate) user: Option<PathBuf>,
    /// The project's file, in the store directory.
    pub(crate) project: Option<PathBuf>,
    pub(crate) home: Option<PathBuf>,
    /// The value of `RATH_MODEL`.
    pub(crate) model: Option<String>,
}

/// The merged configuration, with the origin of every value.
#[derive(Clone, Debug)]
pub(crate) struct Layers {
    pub(crate) config: Config,
    pub(crate) entries: Vec<Entry>,
    /// The combined policy for tool calls.
    pub(crate) policy: Policy,
    /// Whether the user trusts the project.
    pub(crate) trusted: bool,
    /// Warnings about the files, for example that others can read an API key.
    pub(crate) warnings: Vec<String>,
}

/// A value that is in effect.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Vec<String>,
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

impl Entry {
    /// The dotted key.
    pub(crate) fn name(&self) -> String {
        dotted(&self.key)
    }

    /// Whether the value is a secret and must not be printed.
    pub(crate) fn is_secret(&self) -> bool {
        let names: Vec<_> = self.key.iter().map(String::as_str).collect();
        matches!(names[..], ["providers", _, "key"] | ["providers", _, "headers", ..])
    }
}

impl Layers {
    pub(crate) fn load(places: &Places) -> Result<Self> {
        let read = |path: &Option<PathBuf>| path.as_deref().map_or(Ok(None), File::read);
        Self::of(places, read(&places.user)?, read(&places.project)?)
    }

    /// Merges files that have been read already.
    pub(crate) fn of(places: &Places, user: Option<File>, project: Option<File>) -> Result<Self> {
        let users = user.as_ref().map(|file| file.config.clone()).unwrap_or_default();
        let dir = places.project.as_deref().and_then(Path::parent);
        let trusted = dir.is_some_and(|dir| trust::trusts(&users, places.home.as_deref(), dir));
        if let Some(project) = &project {
            trust::check_any(project)?;
            if !trusted {
                trust::check_stranger(&users, project)?;
            }
        }
        let policy = policy(user.as_ref(), project.as_ref(), trusted)?;
        let mut layers = Self { config: Config::default(), entries: Vec::new(), policy, trusted, warnings: Vec::new() };
        if let Some(file) = &user {
            layers.add(file, |line| Origin::User { file: file.path.clone(), line });
        }
        if let Some(file) = &project {
            layers.add(file, |line| Origin::Project { file: file.path.clone(), line });
        }
        if let Some(model) = &places.model {
            let origin = Origin::Environment { variable: "RATH_MODEL" };
            let value = Value::String(model.clone());
            layers.replace(&["model".into()]);
            layers.entries.push(Entry { key: vec!["model".into()], value, origin });
        }
        layers.entries.sort_by(|a, b| a.key.cmp(&b.key));
        layers.config = layers.merged().try_into().context("merging the configuration files")?;
        let hidden = [&user, &project].into_iter().flatten().flat_map(|file| file.config.sandbox.hide.clone());
        layers.config.sandbox.hide = hidden.collect();
        layers.check_providers()?;
        layers.warnings = [(&user, false), (&project, true)]
            .into_iter()
            .filter_map(|(file, is_project)| file.as_ref().map(|file| warnings(file, is_project)))
            .flatten()
            .collect();
        Ok(layers)
    }

    fn add(&mut self, file: &File, origin: impl Fn(usize) -> Origin) {
        for FileEntry { key, .. } in &file.entries {
            self.replace(key);
        }
        let entries = file.entries.iter().map(|FileEntry { key, value, line }| Entry {
            key: key.clone(),
            value: value.clone(),
            origin: origin(*line),
        });
        self.entries.extend(entries);
    }

    /// Removes the entries that a later value of `key` overrides. `sandbox.hide` and `policy` accumulate. `key` and
    /// `key_env` of a provider override each other, because they are two ways to set one thing.
    fn replace(&mut self, key: &[String]) {
        let names: Vec<_> = key.iter().map(String::as_str).collect();
        if names == ["sandbox", "hide"] || names == ["policy"] {
            return;
        }
        let is_key = |name: &str| matches!(name, "key" | "key_env");
        self.entries.retain(|entry| match (&names[..], &entry.key[..]) {
            (["providers", name, which], [first, other, what]) if is_key(which) => {
                !(first == "providers" && other == name && is_key(what))
            }
            _ => entry.key != key,
        });
    }

    fn merged(&self) -> Table {
        let mut all = Table::new();
        self.entries.iter().for_each(|entry| put(&mut all, &entry.key, entry.value.clone()));
        all
    }

    /// Checks each provider after merging, because its keys may come from both files.
    fn check_providers(&self) -> Result<()> {
        for (name, provider) in &self.config.providers {
            let Some((key, why)) = provider.problem(name) else { continue };
            let of = |entry: &&Entry| entry.key.starts_with(&["providers".into(), name.clone()]);
            let exact = self.entries.iter().filter(of).find(|entry| entry.key.get(2).is_some_and(|it| it == key));
            let place = exact.or_else(|| self.entries.iter().find(of)).map(|entry| format!("{}: ", entry.origin));
            let name = dotted(&["providers".into(), name.clone(), key.into()]);
            anyhow::bail!("{}{name}: {why}", place.unwrap_or_default());
        }
        Ok(())
    }
}

/// Puts a value where its keys lead. A table is one of a list of them.
fn put(table: &mut Table, key: &[String], value: Value) {
    match key {
        [] => {}
        [last] if value.is_table() => {
            if let Value::Array(rows) = table.entry(last.clone()).or_insert_with(|| Value::Array(Vec::new())) {
                rows.push(value);
            }
        }
        [last] => drop(table.insert(last.clone(), value)),
        [first, rest @ ..] => {
            if let Value::Table(below) = table.entry(first.clone()).or_insert_with(|| Value::Table(Table::new())) {
                put(below, rest, value);
            }
        }
    }
}

/// Combines the policy rules of both files.
fn policy(user: Option<&File>, project: Option<&File>, trusted: bool) -> Result<Policy> {
    let (users, projects) = (rules(user)?, rules(project)?);
    let built = match trusted {
        true => Policy::new([projects, users].concat()),
        false => Policy::new(users).and_then(|policy| policy.with_restrictions(projects)),
    };
    built.context("reading the policy")
}

/// The policy rules of a file, each with its line as origin. Invalid patterns are reported with that line.
fn rules(file: Option<&File>) -> Result<Vec<PolicyRule>> {
    let Some(file) = file else { return Ok(Vec::new()) };
    let lines = file.entries.iter().filter(|entry| entry.key == ["policy"]).map(|entry| entry.line);
    let origins = lines.map(|line| format!("{}:{line}", file.path.display()));
    let rules: Vec<_> = std::iter::zip(&file.config.policy, origins)
        .map(|(rule, origin)| PolicyRule { origin: Some(origin), ..rule.clone() })
        .collect();
    Policy::new(rules.clone()).map_err(|bad| {
        let origin = rules.get(bad.index).and_then(|rule| rule.origin.clone()).unwrap_or_default();
        anyhow!("{origin}: policy: {bad}")
    })?;
    Ok(rules)
}

/// Warnings for a file that contains an API key.
fn warnings(file: &File, is_project: bool) -> Vec<String> {
    let is_key = |entry: &&FileEntry| entry.key.len() == 3 && entry.key[0] == "providers" && entry.key[2] == "key";
    let Some(entry) = file.entries.iter().find(is_key) else { return Vec::new() };
    let place = format!("{}:{}", file.path.display(), entry.line);
    let mut warnings = Vec::new();
    let mode = std::fs::metadata(&file.path).map(|metadata| metadata.permissions().mode()).unwrap_or_default();
    if mode & 0o077 != 0 {
        let help = format!("chmod 600 {}", file.path.display());
        warnings.push(format!("{place}: other users of this machine can read this API key\n  help: `{help}`"));
    }
    if is_project {
        let help = "set `key_env` to the name of a variable that holds it, or move it with `rath config set --user`";
        warnings.push(format!("{place}: an API key in a project's file may get committed\n  help: {help}"));
    }
    warnings
}
