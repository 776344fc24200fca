//! What is not versioned: hidden paths, built-in rules, `.gitignore` and `.rathignore` files, and the configuration.
//!
//! Hidden paths and the built-in rules are absolute. The others say only what is not taken in: a path that is versioned
//! already stays versioned, as in git (see `tracked`).
//!
//! A deeper file wins over a higher one, `.rathignore` over `.gitignore` beside it, and the configuration over all. The
//! built-in rules give way to the configuration alone: whoever writes files must not bring in hooks of `.git`.

use std::borrow::Cow;
use std::io::Read as _;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder, Glob};
use rath_core::Digest;
use rath_core::files::Name;
use rustix::fs::{Mode, openat};
use serde::{Deserialize, Serialize};

use super::root::{READ, os};

/// The rules that hold everywhere unless the configuration says otherwise. Temporary files are ours, see `restore`.
const BUILT_IN: &[&str] = &[".git", ".rath", ".rath-*.tmp"];

/// What the rules of a version are as a blob.
pub const MEDIA_TYPE: &str = "application/vnd.rath.rules+json";

/// Names of files that hold rules; the later one wins.
pub(super) const FILES: [&[u8]; 2] = [b".gitignore", b".rathignore"];

/// How much of a rule file is read.
const LONGEST: usize = 1 << 20;

/// The rules of a workspace that stand in no file of it.
#[derive(Clone)]
pub(super) struct Rules {
    configured: Option<Arc<Gitignore>>,
    patterns: Vec<String>,
    /// Paths that no version has from now on, with all below them.
    hidden: Vec<Name>,
    hash: u64,
}

/// A rule in the configuration that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not an ignore rule: {1}")]
pub struct BadRule(String, String);

impl Rules {
    pub(super) fn new(patterns: &[String], hidden: &[Name]) -> Result<Self, BadRule> {
        let mut configured = GitignoreBuilder::new("");
        for pattern in patterns {
            configured
                .add_line(None, &plain_braces(pattern))
                .map_err(|error| BadRule(pattern.clone(), error.to_string()))?;
        }
        let build = |builder: GitignoreBuilder| {
            builder.build().map(Arc::new).map_err(|error| BadRule(patterns.join(", "), error.to_string()))
        };
        let configured = if patterns.is_empty() { None } else { Some(build(configured)?) };
        let hash = hash(0, patterns.join("\n").as_bytes());
        let hash = hidden.iter().fold(hash, |seed, path| self::hash(seed, path.as_bytes()));
        Ok(Self { configured, patterns: patterns.to_vec(), hidden: hidden.to_vec(), hash })
    }

    /// The rules at the root, before any file was read.
    pub(super) fn level(&self) -> Level<'_> {
        Level { rules: self, above: None, matchers: Vec::new(), prefix: 0, hash: self.hash }
    }

    /// Whether a path is hidden, or lies in a directory that is.
    pub(super) fn hides(&self, path: &Name) -> bool {
        let is_below = |hidden: &Name| {
            let rest = path.as_bytes().strip_prefix(hidden.as_bytes());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        self.hidden.iter().any(is_below)
    }

    /// Whether a path is left out also where it is versioned already.
    pub(super) fn is_absolute(&self, path: &Name) -> bool {
        self.hides(path) || self.forbid(path)
    }

    /// What the configuration says of a path, and if it is silent, the built-in rules.
    fn decide(&self, path: &Name, is_directory: bool) -> Option<bool> {
        if self.hides(path) {
            return Some(true);
        }
        let configured = self.configured.as_ref();
        let configured = configured.and_then(|rules| decided(rules.matched(Path::new(os(path)), is_directory)));
        configured.or_else(|| is_ignored_by_default(path.split().1.as_bytes()).then_some(true))
    }

    /// Whether no version may bring anything to this path, whatever rules it was saved under.
    pub(super) fn forbid(&self, path: &Name) -> bool {
        let mut above = Name::root();
        path.parts().any(|name| {
            above = above.join(&name);
            is_ignored_by_default(name.as_bytes()) && self.decide(&above, true) == Some(true)
        })
    }

    /// The rule files of a description, when all else in it is what these rules say.
    pub(super) fn files_of(&self, description: &[u8]) -> Option<Vec<RuleFile>> {
        #[derive(Deserialize)]
        struct Files {
            files: Vec<RuleFile>,
        }
        let Files { files } = serde_json::from_slice(description).ok()?;
        (self.describe(files.clone()) == description).then_some(files)
    }

    /// Everything that was in force, for the record: the same rules have the same bytes.
    pub(super) fn describe(&self, mut files: Vec<RuleFile>) -> Vec<u8> {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let all = Description { built_in: BUILT_IN, configured: &self.patterns, hidden: &self.hidden, files };
        serde_json::to_vec(&all).unwrap_or_default()
    }
}

/// Rules, written down.
#[derive(Serialize)]
struct Description<'a> {
    built_in: &'a [&'a str],
    configured: &'a [String],
    #[serde(skip_serializing_if = "<[Name]>::is_empty")]
    hidden: &'a [Name],
    files: Vec<RuleFile>,
}

/// A file with rules, as it was read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RuleFile {
    pub(super) path: Name,
    pub(super) text: String,
}

/// The rules in one directory: its own files' and those above.
pub(super) struct Level<'a> {
    rules: &'a Rules,
    above: Option<&'a Level<'a>>,
    /// The winning one first.
    matchers: Vec<Gitignore>,
    /// How many bytes of a path are in front of this directory.
    prefix: usize,
    /// Names everything that is in force here.
    pub(super) hash: u64,
}

impl<'a> Level<'a> {
    /// The rules one directory further down, whose rule files have these texts.
    pub(super) fn down(&'a self, path: &Name, texts: &[(Name, String)], seen: &Mutex<Vec<RuleFile>>) -> Level<'a> {
        let mut level = Level {
            rules: self.rules,
            above: Some(self),
            matchers: Vec::new(),
            prefix: match path.as_bytes().len() {
                0 => 0,
                length => length + 1,
            },
            hash: self.hash,
        };
        for (file, text) in texts {
            let mut builder = GitignoreBuilder::new("");
            for line in text.strip_prefix('\u{feff}').unwrap_or(text).lines() {
                // A line that is no rule is passed over, as git does. `!` alone would bring back everything.
                if !matches!(line.trim_end(), "!" | "!/") {
                    let _ = builder.add_line(None, &plain_braces(line));
                }
            }
            if let Ok(matcher) = builder.build() {
                level.matchers.insert(0, matcher);
            }
            level.hash = hash(level.hash, text.as_bytes()) ^ hash(level.prefix as u64, file.as_bytes());
            let read = RuleFile { path: file.clone(), text: text.clone() };
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(read);
        }
        level
    }

    /// Whether `path` is not versioned.
    pub(super) fn ignores(&self, path: &Name, is_directory: bool) -> bool {
        if let Some(ignored) = self.rules.decide(path, is_directory) {
            return ignored;
        }
        let mut level = Some(self);
        while let Some(at) = level {
            if !at.matchers.is_empty() {
                let below = Name::from(&path.as_bytes()[at.prefix..]);
                for matcher in &at.matchers {
                    if let Some(ignored) = decided(matcher.matched(Path::new(os(&below)), is_directory)) {
                        return ignored;
                    }
                }
            }
            level = at.above;
        }
        false
    }
}

/// Reads a rule file; a pipe or link of that name is none.
pub(super) fn read(fd: BorrowedFd<'_>, name: &[u8]) -> Option<String> {
    let file = openat(fd, os(&Name::from(name)), READ, Mode::empty()).ok()?;
    let file = std::fs::File::from(file);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(LONGEST as u64).read_to_end(&mut bytes).ok()?;
    Some(text(&bytes))
}

/// The rules in a file that holds these bytes.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]).into_owned()
}

/// The line with its braces escaped: they mean nothing to git.
fn plain_braces(line: &str) -> Cow<'_, str> {
    if !line.contains(['{', '}']) {
        return line.into();
    }
    let mut plain = String::with_capacity(line.len() + 4);
    let mut is_escaped = false;
    for c in line.chars() {
        if matches!(c, '{' | '}') && !is_escaped {
            plain.push('\\');
        }
        is_escaped = c == '\\' && !is_escaped;
        plain.push(c);
    }
    plain.into()
}

fn decided(found: Match<&Glob>) -> Option<bool> {
    match found {
        Match::None => None,
        Match::Ignore(_) => Some(true),
        Match::Whitelist(_) => Some(false),
    }
}

/// What [`BUILT_IN`] says of a name. By hand, because every walk begins with it and compiling patterns takes longer than
/// the walk of a small directory.
fn is_ignored_by_default(name: &[u8]) -> bool {
    matches!(name, b".git" | b".rath") || (name.starts_with(b".rath-") && name.ends_with(b".tmp"))
}

fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let digest = Digest::of_parts(&[&seed.to_le_bytes(), bytes]);
    u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|at| digest.0[at]))
}
