//! A call that a model wants to make, and the facts about it that rules match.

use std::path::Path;

use rath_core::ToolSpec;
use rath_core::body::Effect;
use serde_json::Value;

use super::command::CommandLine;
use super::path_ref::{PathRef, pattern_may_match_secret};
use super::unparsed;

/// The tool whose calls are shell commands.
const SHELL: &str = "shell";

/// A tool call that a model wants to make.
#[derive(Clone, Copy, Debug)]
pub struct ProposedCall<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// The arguments, as JSON.
    pub arguments: &'a str,
    /// The effect of the call: the less safe of the tool's own and the one that its placement implies.
    pub effect: Effect,
    /// The tool's specification, which says which arguments are paths. Without it the paths are unknown.
    pub spec: Option<&'a ToolSpec>,
    /// The mount path of the workspace, to resolve absolute paths.
    pub root: Option<&'a Path>,
}

/// The parsed arguments of a call.
#[derive(Debug)]
pub(crate) struct CallFacts<'a> {
    pub(crate) tool: &'a str,
    pub(crate) effect: Effect,
    pub(crate) arguments: Value,
    pub(crate) paths: Paths,
    pub(crate) line: Option<CommandLine>,
}

/// The paths of a call.
#[derive(Debug)]
pub(crate) enum Paths {
    /// The specification says which arguments are paths. Empty if the call names none.
    Known(Vec<PathRef>),
    /// The specification does not say: every text in the arguments that could be a path. Empty if there is none, or too
    /// many.
    Unknown(Vec<PathRef>),
}

impl<'a> CallFacts<'a> {
    pub(crate) fn of(call: &ProposedCall<'a>) -> Self {
        let arguments: Value = serde_json::from_str(call.arguments).unwrap_or_default();
        let line =
            arguments.get("command").and_then(Value::as_str).filter(|_| call.tool == SHELL).map(CommandLine::parse);
        let paths = match call.spec.and_then(|spec| spec.paths.in_call(&spec.schema, &arguments)) {
            Some(paths) => {
                let mut path_refs: Vec<_> = paths.iter().map(|path| PathRef::of(path, call.root)).collect();
                path_refs.dedup();
                Paths::Known(path_refs)
            }
            None => Paths::Unknown(unparsed::path_refs(&arguments, call.root)),
        };
        Self { tool: call.tool, effect: call.effect, paths, line, arguments }
    }

    /// A call that reaches this file of the workspace, such as through a link.
    pub(crate) fn at(tool: &'a str, effect: Effect, path: &Path) -> Self {
        let paths = Paths::Known(vec![PathRef::Inside(path.to_string_lossy().into_owned())]);
        Self { tool, effect, paths, line: None, arguments: Value::Null }
    }

    /// The first path or word in the call that looks like a secret.
    pub(crate) fn secret(&self) -> Option<String> {
        let named = match &self.paths {
            Paths::Known(path_refs) => {
                path_refs.iter().find(|path_ref| path_ref.looks_secret()).map(|path_ref| path_ref.names().into())
            }
            Paths::Unknown(_) => unparsed::secret(&self.arguments),
        };
        let words = || self.line.iter().flat_map(|line| line.parts.iter().flatten());
        let is_secret = |word: &&String| PathRef::of(word, None).looks_secret() || pattern_may_match_secret(word);
        named.or_else(|| words().find(is_secret).cloned())
    }
}
