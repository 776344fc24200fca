//! A call that a model wants to make, as rules see it.

use std::path::Path;

use rath_core::ToolSpec;
use rath_core::body::Effect;
use serde_json::Value;

use super::command::Line;
use super::place::Place;
use super::unsure;

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
    /// What is known of the tool: which of its arguments are paths. Without it the paths are unknown.
    pub spec: Option<&'a ToolSpec>,
    /// Where tools see the workspace, so that absolute paths are understood.
    pub root: Option<&'a Path>,
}

/// What a wish names.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) tool: &'a str,
    pub(crate) effect: Effect,
    pub(crate) arguments: Value,
    pub(crate) paths: Paths,
    pub(crate) line: Option<Line>,
}

/// The paths of a call.
#[derive(Debug)]
pub(crate) enum Paths {
    /// The tool says which arguments they are; empty where the call names none.
    Known(Vec<Place>),
    /// The tool does not say: everything in the arguments that could be one. Empty where nothing could, and so where the
    /// paths are in no argument at all.
    Unknown(Vec<Place>),
}

impl<'a> Seen<'a> {
    pub(crate) fn of(wish: &Wish<'a>) -> Self {
        let arguments: Value = serde_json::from_str(wish.arguments).unwrap_or_default();
        let line = arguments.get("command").and_then(Value::as_str).filter(|_| wish.tool == SHELL).map(Line::parse);
        let paths = match wish.spec.and_then(|spec| spec.paths.in_call(&spec.schema, &arguments)) {
            Some(paths) => {
                let mut places: Vec<_> = paths.iter().map(|path| Place::of(path, wish.root)).collect();
                places.dedup();
                Paths::Known(places)
            }
            None => Paths::Unknown(unsure::places(&arguments, wish.root)),
        };
        Self { tool: wish.tool, effect: wish.effect, paths, line, arguments }
    }

    /// A call that comes to a file of the workspace, whatever it named.
    pub(crate) fn at(tool: &'a str, effect: Effect, path: &Path) -> Self {
        let paths = Paths::Known(vec![Place::Inside(path.to_string_lossy().into_owned())]);
        Self { tool, effect, paths, line: None, arguments: Value::Null }
    }

    /// The first thing it names that looks like a secret.
    pub(crate) fn secret(&self) -> Option<String> {
        let named = match &self.paths {
            Paths::Known(places) => places.iter().find(|place| place.looks_secret()).map(|place| place.names().into()),
            Paths::Unknown(_) => unsure::secret(&self.arguments),
        };
        let words = || self.line.iter().flat_map(|line| line.parts.iter().flatten());
        named.or_else(|| words().find(|word| Place::of(word, None).looks_secret()).cloned())
    }
}
