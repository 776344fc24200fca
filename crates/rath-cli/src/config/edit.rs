//! Edits one value of a configuration file and preserves comments, order and whitespace.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use toml_edit::{DocumentMut, Item, Key, Table, Value};

use super::File;
use crate::expression;

/// Splits a dotted key such as `providers.mine.base_url`.
pub(crate) fn parse_key(text: &str) -> Result<Vec<String>> {
    match Key::parse(text) {
        Ok(keys) => Ok(keys.into_iter().map(|key| key.get().to_owned()).collect()),
        Err(_) => Err(expression::usage_error(format!(
            "invalid key {text:?}: expected a dotted key such as `sandbox.memory`"
        ))),
    }
}

/// Returns the file's text with one value set. The value is parsed as TOML if the key accepts that, else it is a string.
pub(crate) fn with_value(path: &Path, key: &[String], text: &str) -> Result<(String, File)> {
    let before = match std::fs::read_to_string(path) {
        Ok(before) => before,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    };
    // Refuse to edit a file that is invalid already: a person has to fix it.
    File::parse(path, &before)?;
    let candidates = [text.parse::<Value>().ok(), Some(Value::from(text))];
    let mut wrong = None;
    for value in candidates.into_iter().flatten() {
        let after = set(&before, key, value)?;
        match File::parse(path, &after) {
            Ok(file) => return Ok((after, file)),
            Err(error) => drop(wrong.get_or_insert(error)),
        }
    }
    Err(wrong.unwrap_or_else(|| expression::usage_error("no value given")))
}

fn set(before: &str, key: &[String], value: Value) -> Result<String> {
    let mut document: DocumentMut = before.parse()?;
    let Some((last, above)) = key.split_last() else { return Err(expression::usage_error("no key given")) };
    let mut table = document.as_table_mut() as &mut dyn toml_edit::TableLike;
    for name in above {
        let below = table.entry(name).or_insert_with(|| {
            let mut table = Table::new();
            table.set_implicit(true);
            Item::Table(table)
        });
        let why = || expression::usage_error(format!("{name} is a value, not a table"));
        table = below.as_table_like_mut().ok_or_else(why)?;
    }
    match table.get_mut(last).and_then(Item::as_value_mut) {
        Some(old) => {
            let decor = old.decor().clone();
            *old = value;
            *old.decor_mut() = decor;
        }
        None => drop(table.insert(last, Item::Value(value))),
    }
    Ok(document.to_string())
}

/// Replaces the file atomically. With `private`, because it holds an API key, only its owner can read it (mode 600).
pub(crate) fn write(path: &Path, text: &str, private: bool) -> Result<()> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let dir = path.parent().context("the configuration file has no parent directory")?;
    std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let mode = match std::fs::metadata(&path) {
        _ if private => 0o600,
        Ok(metadata) => metadata.permissions().mode() & 0o7777,
        Err(_) => 0o644,
    };
    let writing = || -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        file.write_all(text.as_bytes())?;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.as_file().sync_all()?;
        file.persist(&path).map_err(|error| error.error)?;
        Ok(())
    };
    writing().with_context(|| format!("writing {}", path.display()))
}
