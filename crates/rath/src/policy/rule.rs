//! Policy rules, and their compiled form.

use std::collections::BTreeSet;
use std::fmt;

use globset::{GlobBuilder, GlobMatcher};
use rath_core::body::Effect;
use serde::{Deserialize, Serialize};

use super::command::{CommandLine, name_of};
use super::path_ref::PathRef;
use super::proposed_call::{CallFacts, Paths as Named};
use super::wildcard;

/// What is done about the calls that a rule matches. Ordered by strictness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyAction {
    /// The calls are made.
    Allow,
    /// A person is asked first.
    Ask,
    /// The calls are refused.
    Deny,
}

/// A rule. It matches a call if all of its conditions hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRule {
    /// What to do with a call that matches.
    pub decision: PolicyAction,
    /// The reason, which the model and the person are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// A glob for the tool's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// A glob for paths in the call: relative to the root of the workspace, or anywhere in it if the glob has no `/`. A
    /// glob that matches a directory matches everything below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Globs for the words of a shell command, in order. A `*` at the end matches any further words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The effect of the call.
    #[serde(default, deserialize_with = "rath_core::body::only_known", skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// The configuration file, for messages. Not part of the rule.
    #[serde(skip)]
    pub origin: Option<String>,
}

impl PolicyRule {
    /// A rule without conditions.
    pub fn new(decision: PolicyAction) -> Self {
        Self { decision, why: None, tool: None, path: None, command: None, effect: None, origin: None }
    }

    /// Matches only tools whose name matches this glob.
    #[must_use]
    pub fn tool(mut self, glob: impl Into<String>) -> Self {
        self.tool = Some(glob.into());
        self
    }

    /// Matches only calls with a path that matches this glob.
    #[must_use]
    pub fn path(mut self, glob: impl Into<String>) -> Self {
        self.path = Some(glob.into());
        self
    }

    /// Matches only commands that match this pattern.
    #[must_use]
    pub fn command(mut self, pattern: impl Into<String>) -> Self {
        self.command = Some(pattern.into());
        self
    }

    /// Matches only calls with this effect.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = Some(effect);
        self
    }

    /// Adds the reason, which the model and the person are shown.
    #[must_use]
    pub fn why(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }
}

impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decision = match self.decision {
            PolicyAction::Allow => "allow",
            PolicyAction::Ask => "ask",
            PolicyAction::Deny => "deny",
        };
        let tool = self.tool.as_deref().unwrap_or(if self.command.is_some() { "shell" } else { "every tool" });
        write!(f, "{decision} {tool}")?;
        if let Some(command) = &self.command {
            write!(f, " {command:?}")?;
        }
        if let Some(path) = &self.path {
            write!(f, " on {path:?}")?;
        }
        if let Some(effect) = self.effect {
            write!(f, " with {} effects", effect)?;
        }
        Ok(())
    }
}

/// A malformed pattern in a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {pattern:?} is not a pattern: {why}")]
pub struct BadPolicyRule {
    /// The index of the rule.
    pub index: usize,
    /// The key of the condition.
    pub key: &'static str,
    /// The pattern that cannot be parsed.
    pub pattern: String,
    /// The problem.
    pub why: String,
}

/// A rule with compiled patterns.
#[derive(Clone, Debug)]
pub(crate) struct CompiledRule {
    pub(crate) rule: PolicyRule,
    tool: Option<GlobMatcher>,
    path: Option<Paths>,
    command: Option<Words>,
}

/// A part of a call that is decided separately.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clause<'a> {
    /// A call without a command line.
    Call,
    /// A command of a parsed line.
    Part(&'a [String]),
    /// A whole line that was not parsed.
    Unparsed(&'a CommandLine),
}

impl CompiledRule {
    pub(crate) fn new(index: usize, rule: PolicyRule) -> Result<Self, BadPolicyRule> {
        let bad = |key, pattern: &str, why: String| BadPolicyRule { index, key, pattern: pattern.into(), why };
        let glob = |key, pattern: &str, within: bool| {
            let built = GlobBuilder::new(pattern).literal_separator(within).backslash_escape(true).build();
            built.map(|glob| glob.compile_matcher()).map_err(|error| bad(key, pattern, error.kind().to_string()))
        };
        let tool = rule.tool.as_deref().map(|pattern| glob("tool", pattern, false)).transpose()?;
        let path = match rule.path.as_deref() {
            None => None,
            Some(pattern) => {
                let plain = pattern.trim_start_matches("./").trim_end_matches('/');
                if plain.is_empty() || plain.split('/').any(|name| name == "..") {
                    return Err(bad("path", pattern, "name a path from the top of the workspace, without `..`".into()));
                }
                let absolute = plain.starts_with('/');
                let anywhere = if plain.contains('/') { plain.to_owned() } else { format!("**/{plain}") };
                Some(Paths { glob: glob("path", anywhere.trim_start_matches('/'), true)?, absolute })
            }
        };
        let command = match rule.command.as_deref() {
            None => None,
            Some(pattern) => {
                let mut words: Vec<&str> = pattern.split_whitespace().collect();
                let Some(last) = words.last() else {
                    return Err(bad("command", pattern, "it has no words".into()));
                };
                let open = last.ends_with('*');
                if *last == "*" {
                    words.pop();
                }
                let globs = words.iter().map(|word| glob("command", word, false)).collect::<Result<_, _>>()?;
                let by_path = words.first().is_some_and(|program| program.contains('/'));
                let plain = words.iter().map(|word| (*word).to_owned()).collect();
                Some(Words { globs, plain, open, by_path })
            }
        };
        Ok(Self { rule, tool, path, command })
    }

    /// Whether all conditions hold. Ambiguous input matches rules that deny or ask, and never rules that allow.
    pub(crate) fn matches(&self, facts: &CallFacts<'_>, clause: Clause<'_>) -> bool {
        let allows = self.rule.decision == PolicyAction::Allow;
        self.tool.as_ref().is_none_or(|glob| glob.is_match(facts.tool))
            && self.rule.effect.is_none_or(|effect| effect == facts.effect)
            && self.path.as_ref().is_none_or(|paths| match (&facts.paths, allows) {
                (Named::Known(path_refs), true) => {
                    !path_refs.is_empty() && path_refs.iter().all(|path_ref| paths.contains(path_ref))
                }
                (Named::Known(path_refs), false) => path_refs.iter().any(|path_ref| paths.may_contain(path_ref)),
                (Named::Unknown(_), true) => false,
                (Named::Unknown(path_refs), false) => {
                    path_refs.is_empty() || path_refs.iter().any(|path_ref| paths.may_contain(path_ref))
                }
            })
            && self.command.as_ref().is_none_or(|words| match (clause, allows) {
                (Clause::Call, _) | (Clause::Unparsed(_), true) => false,
                (Clause::Part(part), true) => words.matches_exactly(part),
                (Clause::Part(part), false) => CommandLine::may_invoke(part, |said| words.begins_with(said)),
                (Clause::Unparsed(line), false) => line.may_invoke_anywhere(|said| words.begins_with(said)),
            })
    }
}

#[derive(Clone, Debug)]
struct Paths {
    glob: GlobMatcher,
    /// Whether the pattern is for paths outside the workspace.
    absolute: bool,
}

impl Paths {
    fn contains(&self, path_ref: &PathRef) -> bool {
        match (path_ref, self.absolute) {
            (PathRef::Inside(path), false) | (PathRef::Outside(path), true) => self.covers(path),
            _ => false,
        }
    }

    /// Whether the path may match: a path that leaves the workspace may come back into it.
    fn may_contain(&self, path_ref: &PathRef) -> bool {
        let path = path_ref.names();
        let ends = std::iter::once(path).chain(path.match_indices('/').map(|(at, _)| &path[at + 1..]));
        match path_ref {
            PathRef::Inside(_) => self.contains(path_ref),
            PathRef::Outside(_) => ends.into_iter().any(|end| self.covers(end)),
        }
    }

    /// Whether the path or a directory above it matches.
    fn covers(&self, path: &str) -> bool {
        let above = path.match_indices('/').map(|(at, _)| &path[..at]);
        above.chain([path]).any(|path| self.glob.is_match(path))
    }
}

#[derive(Clone, Debug)]
struct Words {
    globs: Vec<GlobMatcher>,
    /// The words as written.
    plain: Vec<String>,
    /// Whether the pattern allows further words.
    open: bool,
    /// Whether the pattern names the program with its directory.
    by_path: bool,
}

impl Words {
    /// Whether the words match exactly, with further words only if the pattern allows them.
    fn matches_exactly(&self, words: &[String]) -> bool {
        let long_enough = words.len() == self.globs.len() || self.open && words.len() > self.globs.len();
        long_enough && self.globs.iter().zip(words).all(|(glob, word)| glob.is_match(word))
    }

    /// Whether the words start with the pattern. Options, with or without a value, may come between its words, and the
    /// program may be in any directory.
    fn begins_with(&self, words: &[String]) -> bool {
        let (Some(glob), Some(program)) = (self.globs.first(), words.first()) else { return self.globs.is_empty() };
        if !(glob.is_match(program) || !self.by_path && glob.is_match(name_of(program))) {
            return false;
        }
        // The positions at which the next word of the pattern may be.
        let mut positions = BTreeSet::from([1]);
        for (glob, plain) in self.globs.iter().zip(&self.plain).skip(1) {
            let mut next = BTreeSet::new();
            while let Some(at) = positions.pop_first() {
                let Some(word) = words.get(at) else { continue };
                if glob.is_match(word) || wildcard::may_expand_to(word, plain) {
                    next.insert(at + 1);
                }
                if word.starts_with('-') {
                    positions.extend([at + 1, at + 2]);
                }
            }
            positions = next;
        }
        !positions.is_empty()
    }
}
