//! Reads typed values from TOML tables and reports what is wrong with their position.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::super::problem::{FileProblem, nearest};

/// A value with its position.
pub(super) type Found<'t> = &'t Spanned<DeValue<'t>>;

/// The text of a run file, and the problems found in it.
pub(super) struct Source<'t> {
    text: &'t str,
    pub(super) problems: Vec<FileProblem>,
}

impl<'t> Source<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, problems: Vec::new() }
    }

    /// Reports a problem. Returns `None`, so that a reader can return it.
    pub(super) fn problem<T>(&mut self, span: Range<usize>, problem: impl Into<String>) -> Option<T> {
        self.problems.push(FileProblem::at(self.text, &span, problem, None));
        None
    }

    /// Like [`problem`](Self::problem), with advice on how to correct it.
    pub(super) fn problem_with_help<T>(
        &mut self,
        span: Range<usize>,
        problem: impl Into<String>,
        help: impl Into<String>,
    ) -> Option<T> {
        self.problems.push(FileProblem::at(self.text, &span, problem, Some(help.into())));
        None
    }

    /// Reports an unknown name. Suggests the most similar known one, or else lists all.
    pub(super) fn unknown<'k, T>(
        &mut self,
        span: Range<usize>,
        what: &str,
        name: &str,
        known: impl IntoIterator<Item = &'k str>,
    ) -> Option<T> {
        let known: Vec<&str> = known.into_iter().collect();
        let help = match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean {near:?}?"),
            None if known.is_empty() => "there are none".into(),
            None => format!("known: {}", known.join(", ")),
        };
        self.problem_with_help(span, format!("unknown {what} {name:?}"), help)
    }

    /// Reports a value of the wrong type.
    pub(super) fn expected<T>(&mut self, found: Found<'_>, expected: &str) -> Option<T> {
        let is = found.get_ref().type_str();
        self.problem(found.span(), format!("expected {expected}, found a value of type {is}"))
    }

    pub(super) fn text(&mut self, found: Found<'t>) -> Option<String> {
        match found.get_ref().as_str() {
            Some(text) if text.trim().is_empty() => self.problem(found.span(), "the text is empty"),
            Some(text) => Some(text.to_owned()),
            None => self.expected(found, "a text"),
        }
    }

    pub(super) fn flag(&mut self, found: Found<'t>) -> Option<bool> {
        found.get_ref().as_bool().or_else(|| self.expected(found, "true or false"))
    }

    /// A whole number from 1 to 10,000.
    pub(super) fn count(&mut self, found: Found<'t>) -> Option<u32> {
        let Some(number) = found.get_ref().as_integer() else { return self.expected(found, "a whole number") };
        match u32::from_str_radix(number.as_str(), number.radix()) {
            Ok(count @ 1..=10_000) => Some(count),
            _ => self.problem(found.span(), format!("{number} is not a whole number from 1 to 10000")),
        }
    }

    pub(super) fn list(&mut self, found: Found<'t>, of_what: &str) -> Option<&'t [Spanned<DeValue<'t>>]> {
        match found.get_ref().as_array() {
            Some(list) if list.is_empty() => self.problem(found.span(), "the list is empty"),
            Some(list) => Some(list),
            None => self.expected(found, &format!("a list of {of_what}")),
        }
    }

    pub(super) fn texts(&mut self, found: Found<'t>) -> Option<Vec<String>> {
        match found.get_ref() {
            DeValue::String(_) => Some(vec![self.text(found)?]),
            _ => self.list(found, "texts")?.iter().map(|text| self.text(text)).collect(),
        }
    }

    /// A length of time, such as `90s` or `10 min`.
    pub(super) fn duration(&mut self, found: Found<'t>) -> Option<Duration> {
        const HELP: &str = "a time is a number and a unit: \"90s\", \"10 min\", \"2h\", \"3d\"";
        let text = match found.get_ref() {
            DeValue::String(text) => text.trim(),
            _ => return self.problem_with_help(found.span(), "expected a time", HELP),
        };
        let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let unit = match text[end..].trim() {
            "ms" => 1e-3,
            "s" | "sec" | "second" | "seconds" => 1.0,
            "m" | "min" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86_400.0,
            _ => return self.problem_with_help(found.span(), format!("{text:?} is not a time"), HELP),
        };
        let length = text[..end].parse().ok().and_then(|number: f64| Duration::try_from_secs_f64(number * unit).ok());
        match length {
            Some(length) => Some(length),
            None => self.problem_with_help(found.span(), format!("{text:?} is not a time"), HELP),
        }
    }
}

/// A table whose keys are read one after the other.
pub(super) struct Table<'t> {
    pub(super) span: Range<usize>,
    entries: BTreeMap<&'t str, Found<'t>>,
}

impl<'t> Table<'t> {
    /// Reports each key that is not in `known`. `what` names the table, as in "a gate".
    pub(super) fn of(
        source: &mut Source<'t>,
        span: Range<usize>,
        table: &'t DeTable<'t>,
        what: &str,
        known: &[&str],
    ) -> Self {
        let mut entries = BTreeMap::new();
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            match known.contains(&name) {
                true => drop(entries.insert(name, value)),
                false => {
                    source.unknown(key.span(), &format!("key of {what}:"), name, known.iter().copied()).unwrap_or(())
                }
            }
        }
        Self { span, entries }
    }

    pub(super) fn get(&self, key: &str) -> Option<Found<'t>> {
        self.entries.get(key).copied()
    }

    /// The value of a key that must be there.
    pub(super) fn need(&self, source: &mut Source<'t>, key: &str, help: &str) -> Option<Found<'t>> {
        match self.get(key) {
            Some(found) => Some(found),
            None => source.problem_with_help(self.span.clone(), format!("missing key {key:?}"), help),
        }
    }
}

/// A TOML value as JSON.
pub(super) fn json_of(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or(Value::Null, Value::from)
        }
        DeValue::Float(number) => number.as_str().parse::<f64>().map_or(Value::Null, Value::from),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Datetime(time) => Value::String(time.to_string()),
        DeValue::Array(list) => list.iter().map(|item| json_of(item.get_ref())).collect(),
        DeValue::Table(table) => {
            table.iter().map(|(key, value)| (key.get_ref().to_string(), json_of(value.get_ref()))).collect()
        }
    }
}
