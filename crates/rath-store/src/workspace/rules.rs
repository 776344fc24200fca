//! What is not versioned: built-in rules, `.gitignore` and `.rathignore` files, and the configuration.
//!
//! A deeper file wins over a higher one, `.rathignore` over `.gitignore` beside it, the configuration over all, and the
//! built-in rules give way to any of them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rath_core::Digest;
use rath_core::files::Name;
use serde::Serialize;

use super::root::os;

/// The rules that hold everywhere unless a file says otherwise. Temporary files are ours, see `restore`.
const BUILT_IN: &[&str] = &[".git", ".rath", ".rath-*.tmp"];

/// What the rules of a version are as a blob.
pub(super) const MEDIA_TYPE: &str = "application/vnd.rath.rules+json";

/// Names of files that hold rules; the later one wins.
pub(super) const FILES: [&[u8]; 2] = [b".gitignore", b".rathignore"];

/// The rules of a workspace that stand in no file of it.
#[derive(Clone)]
pub(super) struct Rules {
    built_in: Arc<Gitignore>,
    configured: Arc<Gitignore>,
    patterns: Vec<String>,
    hash: u64,
}

/// A rule in the configuration that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not an ignore rule: {1}")]
pub struct BadRule(String, String);

impl Rules {
    pub(super) fn new(patterns: &[String]) -> Result<Self, BadRule> {
        let mut configured = GitignoreBuilder::new("");
        for pattern in patterns {
            configured.add_line(None, pattern).map_err(|error| BadRule(pattern.clone(), error.to_string()))?;
        }
        let mut built_in = GitignoreBuilder::new("");
        for pattern in BUILT_IN {
            built_in.add_line(None, pattern).map_err(|error| BadRule((*pattern).into(), error.to_string()))?;
        }
        let build = |builder: GitignoreBuilder| {
            builder.build().map(Arc::new).map_err(|error| BadRule(patterns.join(", "), error.to_string()))
        };
        let hash = hash(0, patterns.join("\n").as_bytes());
        Ok(Self { built_in: build(built_in)?, configured: build(configured)?, patterns: patterns.to_vec(), hash })
    }

    /// The rules at the root, before any file was read.
    pub(super) fn level(&self) -> Level<'_> {
        Level { rules: self, above: None, matchers: Vec::new(), prefix: 0, hash: self.hash }
    }

    /// Everything that was in force, for the record: the same rules have the same bytes.
    pub(super) fn describe(&self, mut files: Vec<RuleFile>) -> Vec<u8> {
        #[derive(Serialize)]
        struct Description<'a> {
            built_in: &'a [&'a str],
            configured: &'a [String],
            files: Vec<RuleFile>,
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let all = Description { built_in: BUILT_IN, configured: &self.patterns, files };
        serde_json::to_vec(&all).unwrap_or_default()
    }
}

/// A file with rules, as it was read.
#[derive(Clone, Debug, Serialize)]
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
            for line in text.lines() {
                // A line that is no rule is passed over, as git does.
                let _ = builder.add_line(None, line);
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
        let full = Path::new(os(path));
        let decided = |found: Match<&ignore::gitignore::Glob>| match found {
            Match::None => None,
            Match::Ignore(_) => Some(true),
            Match::Whitelist(_) => Some(false),
        };
        if let Some(ignored) = decided(self.rules.configured.matched(full, is_directory)) {
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
        decided(self.rules.built_in.matched(full, is_directory)).unwrap_or(false)
    }
}

fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let digest = Digest::of_parts(&[&seed.to_le_bytes(), bytes]);
    u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|at| digest.0[at]))
}
