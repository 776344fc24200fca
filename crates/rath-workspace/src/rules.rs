//! Ignore rules: hidden paths, built-in rules, `.gitignore` and `.rathignore` files, and the configuration.
//!
//! Hidden paths and built-in rules are absolute: matching paths are never versioned. The other rules apply only to new
//! paths. As in git, a path that is versioned already stays versioned (see `tracked`).
//!
//! Precedence: a file in a deeper directory wins over one above it, `.rathignore` wins over `.gitignore` in the same
//! directory, and the configuration wins over all files. Only the configuration can override the built-in rules: files
//! in a workspace must not be able to add hooks to `.git`.

use std::borrow::Cow;
use std::io::Read as _;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder, Glob};
use rath_core::Digest;
use rath_core::files::FilePath;
use rustix::fs::{Mode, openat};
use serde::{Deserialize, Serialize};

use super::root::{READ, os};

/// Rules that apply everywhere unless the configuration overrides them. `.rath-*.tmp` matches the temporary files of a
/// restore.
const BUILT_IN: &[&str] = &[".git", ".rath", ".rath-*.tmp"];

/// Media type of the blob that describes the rules of a version.
pub const MEDIA_TYPE: &str = "application/vnd.rath.rules+json";

/// Names of rule files. A later one wins over an earlier one.
pub(super) const FILES: [&[u8]; 2] = [b".gitignore", b".rathignore"];

/// Maximum number of bytes that are read from a rule file.
const LONGEST: usize = 1 << 20;

/// The rules of a workspace that do not come from its rule files.
#[derive(Clone)]
pub(super) struct Rules {
    configured: Option<Arc<Gitignore>>,
    patterns: Vec<String>,
    /// Paths that are never versioned, including everything below them.
    hidden: Vec<FilePath>,
    hash: u64,
}

/// An ignore rule in the configuration that cannot be parsed: the rule, and the parse error.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not an ignore rule: {1}")]
pub struct BadRule(String, String);

impl Rules {
    pub(super) fn new(patterns: &[String], hidden: &[FilePath]) -> Result<Self, BadRule> {
        let mut configured = GitignoreBuilder::new("");
        for pattern in patterns {
            configured
                .add_line(None, &escape_braces(pattern))
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

    /// The rules at the root, without the root's rule files.
    pub(super) fn level(&self) -> Level<'_> {
        Level { rules: self, above: None, matchers: Vec::new(), prefix: 0, hash: self.hash }
    }

    /// Whether a path is hidden, or is below a hidden directory.
    pub(super) fn hides(&self, path: &FilePath) -> bool {
        let is_below = |hidden: &FilePath| {
            let rest = path.as_bytes().strip_prefix(hidden.as_bytes());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        self.hidden.iter().any(is_below)
    }

    /// Whether a path is left out even if it is versioned already.
    pub(super) fn is_absolute(&self, path: &FilePath) -> bool {
        self.hides(path) || self.forbids(path)
    }

    /// Whether hidden paths, the configuration or the built-in rules ignore a path, in this order. `None` if none of
    /// them matches.
    fn decide(&self, path: &FilePath, is_directory: bool) -> Option<bool> {
        if self.hides(path) {
            return Some(true);
        }
        let configured = self.configured.as_ref();
        let configured = configured.and_then(|rules| decided(rules.matched(Path::new(os(path)), is_directory)));
        configured.or_else(|| is_ignored_by_default(path.split().1.as_bytes()).then_some(true))
    }

    /// Whether a restore must not write to this path, whichever rules its version was saved with.
    pub(super) fn forbids(&self, path: &FilePath) -> bool {
        let mut above = FilePath::root();
        path.parts().any(|name| {
            above = above.join(&name);
            is_ignored_by_default(name.as_bytes()) && self.decide(&above, true) == Some(true)
        })
    }

    /// The rule files in a description. `None` unless everything else in the description equals these rules.
    pub(super) fn files_of(&self, description: &[u8]) -> Option<Vec<RuleFile>> {
        #[derive(Deserialize)]
        struct Files {
            files: Vec<RuleFile>,
        }
        let Files { files } = serde_json::from_slice(description).ok()?;
        (self.describe(files.clone()) == description).then_some(files)
    }

    /// Serializes all rules that were applied. Equal rules give equal bytes.
    pub(super) fn describe(&self, mut files: Vec<RuleFile>) -> Vec<u8> {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let all = Description { built_in: BUILT_IN, configured: &self.patterns, hidden: &self.hidden, files };
        serde_json::to_vec(&all).unwrap_or_default()
    }
}

/// The serialized form of the rules of a version.
#[derive(Serialize)]
struct Description<'a> {
    built_in: &'a [&'a str],
    configured: &'a [String],
    #[serde(skip_serializing_if = "<[FilePath]>::is_empty")]
    hidden: &'a [FilePath],
    files: Vec<RuleFile>,
}

/// A rule file, with its text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RuleFile {
    pub(super) path: FilePath,
    pub(super) text: String,
}

/// The rules that apply in one directory: those of its own rule files and of all directories above it.
pub(super) struct Level<'a> {
    rules: &'a Rules,
    above: Option<&'a Level<'a>>,
    /// The rules of this directory's files; the first that matches wins.
    matchers: Vec<Gitignore>,
    /// Length of this directory's path, including the slash: rules match paths relative to it.
    prefix: usize,
    /// Hash of all rules that apply here.
    pub(super) hash: u64,
}

impl<'a> Level<'a> {
    /// The rules in the subdirectory `path`, whose rule files have these texts. Adds these files to `seen`.
    pub(super) fn down(
        &'a self,
        path: &FilePath,
        texts: &[(FilePath, String)],
        seen: &Mutex<Vec<RuleFile>>,
    ) -> Level<'a> {
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
                // Invalid lines are ignored, as git does. The matcher would take a lone `!` for a rule that unignores
                // everything.
                if !matches!(line.trim_end(), "!" | "!/") {
                    let _ = builder.add_line(None, &escape_braces(line));
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

    /// Whether `path` is ignored.
    pub(super) fn ignores(&self, path: &FilePath, is_directory: bool) -> bool {
        if let Some(ignored) = self.rules.decide(path, is_directory) {
            return ignored;
        }
        let mut level = Some(self);
        while let Some(at) = level {
            if !at.matchers.is_empty() {
                let below = FilePath::from(&path.as_bytes()[at.prefix..]);
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

/// Reads a rule file. `None` if it is not a regular file.
pub(super) fn read(fd: BorrowedFd<'_>, name: &[u8]) -> Option<String> {
    let file = openat(fd, os(&FilePath::from(name)), READ, Mode::empty()).ok()?;
    let file = std::fs::File::from(file);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(LONGEST as u64).read_to_end(&mut bytes).ok()?;
    Some(text(&bytes))
}

/// The text of a rule file with these bytes, up to [`LONGEST`].
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]).into_owned()
}

/// Escapes the braces in a rule: git does not treat them as alternatives, and the matcher does.
fn escape_braces(line: &str) -> Cow<'_, str> {
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

/// Whether [`BUILT_IN`] matches a name. Coded by hand, because compiling patterns takes longer than walking a small
/// directory.
fn is_ignored_by_default(name: &[u8]) -> bool {
    matches!(name, b".git" | b".rath") || (name.starts_with(b".rath-") && name.ends_with(b".tmp"))
}

fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let digest = Digest::of_parts(&[&seed.to_le_bytes(), bytes]);
    u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|at| digest.0[at]))
}
