//! A call that a model wants to make, as rules see it.

use std::path::Path;

use rath_core::body::Effect;
use serde_json::Value;

use super::command::Line;
use super::place::Place;
use crate::tools;

/// The tool whose calls are commands.
const SHELL: &str = "shell";

/// A call that a model wants to make.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// The tool.
    pub tool: &'a str,
    /// The arguments, as JSON.
    pub arguments: &'a str,
    /// What it would mean to make the call: the less safe of the tool's effect and the place's.
    pub effect: Effect,
    /// Where tools see the workspace, so that absolute paths are understood.
    pub root: Option<&'a Path>,
}

/// What a wish names.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) tool: &'a str,
    pub(crate) effect: Effect,
    pub(crate) arguments: Value,
    /// The paths; empty where the tool names none.
    pub(crate) places: Vec<Place>,
    pub(crate) line: Option<Line>,
}

impl<'a> Seen<'a> {
    pub(crate) fn of(wish: &Wish<'a>) -> Self {
        let arguments: Value = serde_json::from_str(wish.arguments).unwrap_or_default();
        let text = |name: &str| arguments.get(name).and_then(Value::as_str);
        let line = text("command").filter(|_| wish.tool == SHELL).map(Line::parse);
        let paths: Vec<String> = match wish.tool {
            "ls" => vec![text("path").unwrap_or(".").into()],
            "glob" | "grep" => {
                let top = text("path").unwrap_or(".");
                let within = text("pattern").filter(|_| wish.tool == "glob").map(literal_beginning).unwrap_or_default();
                vec![top.into(), format!("{top}/{within}")]
            }
            "apply_patch" => text("patch").and_then(tools::paths_of_patch).unwrap_or_default(),
            SHELL => Vec::new(),
            _ => text("path").map(str::to_owned).into_iter().collect(),
        };
        let mut places: Vec<_> = paths.iter().map(|path| Place::of(path, wish.root)).collect();
        places.dedup();
        Self { tool: wish.tool, effect: wish.effect, places, line, arguments }
    }

    /// A call that comes to a file of the workspace, whatever it named.
    pub(crate) fn at(tool: &'a str, effect: Effect, path: &Path) -> Self {
        let places = vec![Place::Inside(path.to_string_lossy().into_owned())];
        Self { tool, effect, places, line: None, arguments: Value::Null }
    }

    /// The first thing it names that looks like a secret.
    pub(crate) fn secret(&self) -> Option<String> {
        let named = self.places.iter().find(|place| place.looks_secret()).map(|place| place.names().to_owned());
        let words = || self.line.iter().flat_map(|line| line.parts.iter().flatten());
        named.or_else(|| words().find(|word| Place::of(word, None).looks_secret()).cloned())
    }
}

/// The directories of a pattern before its first wildcard.
fn literal_beginning(pattern: &str) -> String {
    let names = pattern.split('/').take_while(|name| !name.contains(['*', '?', '[', '{', '\\']));
    names.collect::<Vec<_>>().join("/")
}
