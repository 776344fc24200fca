//! One configuration file: parsed, checked, and with the line number of each value.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::Config;

/// A valid configuration file.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) entries: Vec<FileEntry>,
    pub(crate) config: Config,
}

/// A value with its dotted key and line number.
#[derive(Clone, Debug)]
pub(crate) struct FileEntry {
    pub(crate) key: Vec<String>,
    pub(crate) value: Value,
    pub(crate) line: usize,
}

impl File {
    /// Reads and parses the file at `path`. `None` if it does not exist.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(path, &text).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self> {
        // The error does not quote the line, because it may contain an API key.
        let wrong = |error: toml::de::Error| {
            let at = error.span().unwrap_or_default().start;
            let key = DeTable::parse(text).ok().map(|table| dotted(&innermost(table.get_ref(), at)));
            let key = key.filter(|key| !key.is_empty()).map(|key| format!("{key}: ")).unwrap_or_default();
            anyhow!("{}:{}: {key}{}", path.display(), line(text, at), error.message())
        };
        let spans = DeTable::parse(text).map_err(wrong)?;
        let table: Table = toml::from_str(text).map_err(wrong)?;
        let config: Config = toml::from_str(text).map_err(wrong)?;
        let mut entries = Vec::new();
        gather(text, spans.get_ref(), &table, &mut Vec::new(), &mut entries);
        entries.sort_by_key(|entry| entry.line);
        Ok(Self { path: path.to_owned(), entries, config })
    }

    /// An error about `key`, with file and line.
    pub(crate) fn refuse(&self, key: &[&str], why: &str) -> anyhow::Error {
        let line = self.line_of(key);
        let key = dotted(&key.iter().map(|&key| key.to_owned()).collect::<Vec<_>>());
        anyhow!("{}:{line}: {key}: {why}", self.path.display())
    }

    /// The line of `key` or of the first entry below it. If the key is missing, the line of its closest parent table.
    fn line_of(&self, key: &[&str]) -> usize {
        let below = |key: &[&str], entry: &FileEntry| {
            entry.key.len() >= key.len() && entry.key.iter().zip(key).all(|(name, wanted)| name == wanted)
        };
        let line = |key: &[&str]| self.entries.iter().find(|entry| below(key, entry)).map(|entry| entry.line);
        (0..key.len()).rev().find_map(|last| line(&key[..=last])).unwrap_or(1)
    }
}

fn line(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|&&byte| byte == b'\n').count() + 1
}

/// Collects the entries of a table recursively. An array of tables yields one entry per element.
fn gather(text: &str, spans: &DeTable<'_>, table: &Table, above: &mut Vec<String>, entries: &mut Vec<FileEntry>) {
    for (name, value) in table {
        let Some((spot, spanned)) = spans.get_key_value(name.as_str()) else { continue };
        above.push(name.clone());
        match (value, spanned.get_ref()) {
            (Value::Table(table), DeValue::Table(spans)) => gather(text, spans, table, above, entries),
            (Value::Array(rows), DeValue::Array(spans)) if is_table_list(rows) => {
                for (row, span) in rows.iter().zip(spans.iter()) {
                    let line = line(text, span.span().start);
                    entries.push(FileEntry { key: above.clone(), value: row.clone(), line });
                }
            }
            _ => {
                let line = line(text, spot.span().start);
                entries.push(FileEntry { key: above.clone(), value: value.clone(), line });
            }
        }
        above.pop();
    }
}

fn is_table_list(rows: &[Value]) -> bool {
    !rows.is_empty() && rows.iter().all(Value::is_table)
}

/// The path of keys to the innermost value at byte offset `at`.
fn innermost(table: &DeTable<'_>, at: usize) -> Vec<String> {
    let holds = |span: Range<usize>| span.start <= at && at <= span.end;
    let under = |spanned: &Spanned<DeValue<'_>>| match spanned.get_ref() {
        DeValue::Table(table) => innermost(table, at),
        DeValue::Array(rows) => rows
            .iter()
            .filter_map(|row| row.get_ref().as_table())
            .map(|table| innermost(table, at))
            .find(|keys| !keys.is_empty())
            .unwrap_or_default(),
        _ => Vec::new(),
    };
    for (name, value) in table {
        let mut keys = under(value);
        if !keys.is_empty() || holds(name.span()) || holds(value.span()) && !value.get_ref().is_table() {
            keys.insert(0, name.get_ref().to_string());
            return keys;
        }
    }
    Vec::new()
}

/// Formats a path of keys in TOML's dotted syntax.
pub(crate) fn dotted(key: &[String]) -> String {
    let parts: Vec<_> = key.iter().map(|part| toml_edit::Key::new(part).display_repr().into_owned()).collect();
    parts.join(".")
}
