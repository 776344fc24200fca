//! Parsing scripts.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rath_core::{Failure, Usage};
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;

use super::error::ScriptError;
use super::turn::Turn;
use super::{Pattern, Scripted};

/// A script in TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    model: Option<String>,
    #[serde(default)]
    turn: Vec<Spanned<Entry>>,
}

/// A line of JSONL that names the model instead of a turn.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelLine {
    #[serde(rename = "model")]
    _name: String,
}

/// A turn and its condition. The field `model` is only here for a helpful error: it belongs outside the turns.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Entry {
    model: Option<String>,
    agent: Option<String>,
    when: Option<String>,
    matches: Option<String>,
    otherwise: bool,
    reasoning: Option<String>,
    text: Option<String>,
    call: Vec<Call>,
    fails: Vec<Fails>,
    breaks_off_after: Option<usize>,
    delay_ms: u64,
    chunks: Option<usize>,
    chunk_delay_ms: u64,
    usage: Option<Used>,
    stop: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    tool: String,
    id: Option<String>,
    arguments: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fails {
    why: String,
    /// The number of attempts that fail. `None`: all of them.
    times: Option<u32>,
    #[serde(default = "yes")]
    retry: bool,
    after_ms: Option<u64>,
    status: Option<u16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Used {
    #[serde(default = "one")]
    requests: u64,
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    cached_tokens: u64,
    #[serde(default)]
    cache_write_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
    #[serde(default)]
    reasoning_tokens: u64,
    #[serde(default)]
    cost_nano_usd: u64,
}

fn yes() -> bool {
    true
}

fn one() -> u64 {
    1
}

/// The name of an invalid field, and why it is invalid.
type Wrong = (&'static str, String);

pub(super) fn read(path: &Path) -> Result<Scripted, ScriptError> {
    let parse = match path.extension().and_then(|form| form.to_str()) {
        Some("toml") => toml,
        Some("jsonl") => jsonl,
        _ => return Err(ScriptError::UnknownForm { path: path.into() }),
    };
    let text = fs::read_to_string(path).map_err(|cause| ScriptError::Unreadable { path: path.into(), cause })?;
    parse(&text).map_err(|cause| ScriptError::InFile { path: path.into(), cause: cause.into() })
}

pub(super) fn toml(text: &str) -> Result<Scripted, ScriptError> {
    let line = |at: usize| text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count();
    let script: Script = toml::from_str(text).map_err(|error| {
        let line = line(error.span().map_or(0, |span| span.start));
        let at = format!("`{}`", text.lines().nth(line).unwrap_or_default().trim());
        ScriptError::Invalid { line: line + 1, at, why: error.message().into() }
    })?;
    let mut scripted = Scripted::new(script.model.unwrap_or_else(|| "scripted".into()));
    for entry in script.turn {
        let line = line(entry.span().start) + 1;
        let entry = entry.into_inner();
        let added = match entry.model {
            Some(_) => Err(("model", "it names the model of the whole script and belongs above the turns".into())),
            None => entry.add_to(&mut scripted),
        };
        added.map_err(|(field, why)| ScriptError::Invalid { line, at: format!("field `{field}` of the turn"), why })?;
    }
    Ok(scripted)
}

pub(super) fn jsonl(text: &str) -> Result<Scripted, ScriptError> {
    let mut scripted = Scripted::new("scripted");
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let invalid = |at: String, why| ScriptError::Invalid { line: number + 1, at, why };
        let mut from = serde_json::Deserializer::from_str(line);
        let entry: Entry = serde_path_to_error::deserialize(&mut from).map_err(|error| {
            let at = match error.path().to_string() {
                path if path == "." || path.ends_with('?') => "the turn".into(),
                path => format!("field `{path}`"),
            };
            invalid(at, reason(error.inner()))
        })?;
        from.end().map_err(|error| invalid("after the turn".into(), reason(&error)))?;
        let wrong = |(field, why)| invalid(format!("field `{field}`"), why);
        match entry.model {
            Some(name) if serde_json::from_str::<ModelLine>(line).is_ok() => scripted.name = name,
            Some(_) => {
                return Err(wrong(("model", "it names the model and must be the only field on its line".into())));
            }
            None => entry.add_to(&mut scripted).map_err(wrong)?,
        }
    }
    Ok(scripted)
}

/// The message of serde_json without its line number, which is always 1 here.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((why, _)) => format!("{why} (column {})", error.column()),
        None => text,
    }
}

impl Entry {
    fn add_to(self, scripted: &mut Scripted) -> Result<(), Wrong> {
        let conditions = [self.when.is_some(), self.matches.is_some(), self.otherwise];
        if conditions.into_iter().filter(|given| *given).count() > 1 {
            return Err(("when", "expected one of `when`, `matches` and `otherwise`, or none".into()));
        }
        let pattern = match (&self.when, &self.matches) {
            (Some(words), _) => Some(Pattern::Words(words.clone())),
            (_, Some(pattern)) => {
                let pattern = Regex::new(pattern);
                Some(Pattern::Regex(pattern.map_err(|e| ("matches", format!("expected a regular expression: {e}")))?))
            }
            _ => None,
        };
        let otherwise = self.otherwise;
        let turn = self.turn()?;
        match pattern {
            Some(pattern) => scripted.rules.push((pattern, turn)),
            None if otherwise => scripted.otherwise.push(turn),
            None => scripted.turns.push(turn),
        }
        Ok(())
    }

    fn turn(self) -> Result<Turn, Wrong> {
        let mut turn = Turn::new().delay(Duration::from_millis(self.delay_ms));
        if let Some(agent) = self.agent {
            turn = turn.for_agent(agent);
        }
        if let Some(text) = self.reasoning {
            turn = turn.reasoning(text);
        }
        if let Some(text) = self.text {
            turn = turn.text(text);
        }
        for Call { tool, id, arguments } in self.call {
            turn = match arguments {
                None => turn.call_text(tool, "{}"),
                Some(Value::String(words)) => turn.call_text(tool, words),
                Some(arguments) => turn.call(tool, arguments),
            };
            if let Some(id) = id {
                turn = turn.id(id);
            }
        }
        for Fails { why, times, retry, after_ms, status } in self.fails {
            let after = after_ms.map(Duration::from_millis);
            let failure = Failure { retry, after, status, ..Failure::transient(why) };
            turn = turn.fails_first(times.unwrap_or(u32::MAX), failure);
        }
        if let Some(characters) = self.breaks_off_after {
            turn = turn.breaks_off_after(characters);
        }
        let chunk_delay = Duration::from_millis(self.chunk_delay_ms);
        turn = match self.chunks {
            Some(0) => return Err(("chunks", "found 0, expected at least 1".into())),
            chunks => turn.chunks(chunks.unwrap_or(1), chunk_delay),
        };
        if let Some(used) = self.usage {
            turn = turn.usage(Usage {
                requests: used.requests,
                input_tokens: used.input_tokens,
                cached_tokens: used.cached_tokens,
                cache_write_tokens: used.cache_write_tokens,
                output_tokens: used.output_tokens,
                reasoning_tokens: used.reasoning_tokens,
                cost_nano_usd: used.cost_nano_usd,
            });
        }
        if let Some(stop) = self.stop {
            turn = turn.stop(stop);
        }
        match turn.is_empty() {
            true => Err(("text", "expected `text`, `reasoning`, `call` or `fails`: the turn is empty".into())),
            false => Ok(turn),
        }
    }
}
