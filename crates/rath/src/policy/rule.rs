//! Rules: plain data, and the same with its patterns read.

use std::collections::BTreeSet;
use std::fmt;

use globset::{GlobBuilder, GlobMatcher};
use rath_core::body::Effect;
use serde::{Deserialize, Serialize};

use super::command::{Line, name_of};
use super::place::Place;
use super::wildcard;
use super::wish::{Paths as Named, Seen};

/// What a rule says about the calls that it matches. A later one is stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    /// They are made.
    Allow,
    /// A person is asked first.
    Ask,
    /// They are refused.
    Deny,
}

/// A rule. It matches calls for which all of its conditions hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What is done.
    pub decision: Ruling,
    /// The reason: what the model and the person are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// A glob for the tool's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// A glob for paths that the call names: from the top of the workspace, or anywhere in it if there is no `/`. What
    /// matches a directory matches what is below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Globs for the words of a command of `shell`, one after the other. A `*` at the end stands for any further words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The effect of the call.
    #[serde(default, deserialize_with = "rath_core::body::only_known", skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// Where it was written: shown to people, and no part of what it says.
    #[serde(skip)]
    pub origin: Option<String>,
}

impl Rule {
    /// A rule without conditions.
    pub fn new(decision: Ruling) -> Self {
        Self { decision, why: None, tool: None, path: None, command: None, effect: None, origin: None }
    }

    /// Of tools with this name.
    #[must_use]
    pub fn tool(mut self, glob: impl Into<String>) -> Self {
        self.tool = Some(glob.into());
        self
    }

    /// Of calls that name such a path.
    #[must_use]
    pub fn path(mut self, glob: impl Into<String>) -> Self {
        self.path = Some(glob.into());
        self
    }

    /// Of such commands.
    #[must_use]
    pub fn command(mut self, pattern: impl Into<String>) -> Self {
        self.command = Some(pattern.into());
        self
    }

    /// Of calls with this effect.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = Some(effect);
        self
    }

    /// With a reason.
    #[must_use]
    pub fn why(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decision = match self.decision {
            Ruling::Allow => "allow",
            Ruling::Ask => "ask",
            Ruling::Deny => "deny",
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

/// A rule that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {pattern:?} is not a pattern: {why}")]
pub struct BadRule {
    /// Which rule, counted from 0.
    pub place: usize,
    /// The condition.
    pub key: &'static str,
    /// What it says.
    pub pattern: String,
    /// What is wrong with it.
    pub why: String,
}

/// A rule whose patterns are read.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub(crate) rule: Rule,
    tool: Option<GlobMatcher>,
    path: Option<Paths>,
    command: Option<Words>,
}

/// One thing that is decided about: a call, or one command of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit<'a> {
    /// A call that is no command.
    Call,
    /// A plain command.
    Part(&'a [String]),
    /// A line of which nobody knows what it does.
    Unsure(&'a Line),
}

impl Checked {
    pub(crate) fn new(place: usize, rule: Rule) -> Result<Self, BadRule> {
        let bad = |key, pattern: &str, why: String| BadRule { place, key, pattern: pattern.into(), why };
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
    pub(crate) fn matches(&self, seen: &Seen<'_>, unit: Unit<'_>) -> bool {
        let allows = self.rule.decision == Ruling::Allow;
        self.tool.as_ref().is_none_or(|glob| glob.is_match(seen.tool))
            && self.rule.effect.is_none_or(|effect| effect == seen.effect)
            && self.path.as_ref().is_none_or(|paths| match (&seen.paths, allows) {
                (Named::Known(places), true) => !places.is_empty() && places.iter().all(|place| paths.holds(place)),
                (Named::Known(places), false) => places.iter().any(|place| paths.may_hold(place)),
                (Named::Unknown(_), true) => false,
                (Named::Unknown(places), false) => {
                    places.is_empty() || places.iter().any(|place| paths.may_hold(place))
                }
            })
            && self.command.as_ref().is_none_or(|words| match (unit, allows) {
                (Unit::Call, _) | (Unit::Unsure(_), true) => false,
                (Unit::Part(part), true) => words.hold(part),
                (Unit::Part(part), false) => Line::may_say(part, |said| words.begin(said)),
                (Unit::Unsure(line), false) => line.may_say_anywhere(|said| words.begin(said)),
            })
    }
}

#[derive(Clone, Debug)]
struct Paths {
    glob: GlobMatcher,
    /// Whether it names a place outside the workspace.
    absolute: bool,
}

impl Paths {
    fn holds(&self, place: &Place) -> bool {
        match (place, self.absolute) {
            (Place::Inside(path), false) | (Place::Outside(path), true) => self.covers(path),
            _ => false,
        }
    }

    /// Whether it may be there: a path that leads out may come back in.
    fn may_hold(&self, place: &Place) -> bool {
        let path = place.names();
        let ends = std::iter::once(path).chain(path.match_indices('/').map(|(at, _)| &path[at + 1..]));
        match place {
            Place::Inside(_) => self.holds(place),
            Place::Outside(_) => ends.into_iter().any(|end| self.covers(end)),
        }
    }

    /// It, or a directory that it is in.
    fn covers(&self, path: &str) -> bool {
        let above = path.match_indices('/').map(|(at, _)| &path[..at]);
        above.chain([path]).any(|path| self.glob.is_match(path))
    }
}

#[derive(Clone, Debug)]
struct Words {
    globs: Vec<GlobMatcher>,
    /// The same as they were written.
    plain: Vec<String>,
    /// Whether further words may follow.
    open: bool,
    /// Whether the program is named with its directory.
    by_path: bool,
}

impl Words {
    /// Exactly these words, and further ones only where the pattern says so.
    fn hold(&self, words: &[String]) -> bool {
        let long_enough = words.len() == self.globs.len() || self.open && words.len() > self.globs.len();
        long_enough && self.globs.iter().zip(words).all(|(glob, word)| glob.is_match(word))
    }

    /// These words first, whatever follows: with options between them, each with a value or without, and the program from
    /// whatever directory.
    fn begin(&self, words: &[String]) -> bool {
        let (Some(glob), Some(program)) = (self.globs.first(), words.first()) else { return self.globs.is_empty() };
        if !(glob.is_match(program) || !self.by_path && glob.is_match(name_of(program))) {
            return false;
        }
        // Where the next word of the pattern may stand.
        let mut places = BTreeSet::from([1]);
        for (glob, plain) in self.globs.iter().zip(&self.plain).skip(1) {
            let mut next = BTreeSet::new();
            while let Some(at) = places.pop_first() {
                let Some(word) = words.get(at) else { continue };
                if glob.is_match(word) || wildcard::becomes(word, plain) {
                    next.insert(at + 1);
                }
                if word.starts_with('-') {
                    places.extend([at + 1, at + 2]);
                }
            }
            places = next;
        }
        !places.is_empty()
    }
}
