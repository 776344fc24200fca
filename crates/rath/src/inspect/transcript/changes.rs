//! What a call did to files.

use std::sync::Arc;

use rath_core::Store;
use rath_core::files::{Changes, Forest, Name, patch};
use serde::Serialize;

use super::Differences;

/// At most this many paths are named.
const PATHS: usize = 8;

/// Changed paths, and how their contents differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChangeSummary {
    /// The first of the changed files.
    pub paths: Vec<ChangedPath>,
    /// How many more there are.
    pub more: u64,
    /// The differences of files, as a patch; none if they were not asked for, are too many, or a version is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// Of how many files the patch is.
    #[serde(skip)]
    pub patched: usize,
}

/// A changed path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedPath {
    /// A for added, M for modified, D for deleted.
    pub letter: char,
    /// The path.
    pub path: Name,
    /// How many lines changed, if the difference was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<LineCounts>,
}

/// How many lines of a file changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LineCounts {
    /// Lines that are new.
    pub added: u64,
    /// Lines that are gone.
    pub removed: u64,
    /// Whether it is not text.
    pub binary: bool,
}

impl ChangeSummary {
    /// The paths of `changes`, and their differences where they are few enough for `differences`.
    pub async fn of(store: &Arc<dyn Store>, changes: &Changes, differences: Differences) -> Self {
        let files: Vec<_> = changes.paths.iter().filter(|change| !change.is_directory()).cloned().collect();
        let named = |count: usize| {
            let path = |change: &rath_core::files::Change| ChangedPath {
                letter: change.letter(),
                path: change.path.clone(),
                lines: None,
            };
            files.iter().take(count).map(path).collect()
        };
        let few = files.len() <= PATHS && changes.is_complete();
        let read = match differences {
            Differences::None => false,
            Differences::Few => few,
            Differences::All => true,
        };
        if files.is_empty() || !read {
            let more = (changes.total as usize).saturating_sub(changes.paths.len()) + files.len().saturating_sub(PATHS);
            return Self { paths: named(PATHS), more: more as u64, ..Self::default() };
        }
        let Ok(patch) = patch(&Forest::new(&**store), &files).await else {
            // A version may have been collected; which paths changed is known all the same.
            return Self { paths: named(usize::MAX), ..Self::default() };
        };
        let path = |stat: &rath_core::files::Stat| ChangedPath {
            letter: stat.letter,
            path: stat.path.clone(),
            lines: Some(LineCounts { added: stat.added, removed: stat.removed, binary: stat.binary }),
        };
        Self {
            paths: patch.stat.iter().take(PATHS).map(path).collect(),
            more: 0,
            patched: patch.stat.len(),
            patch: Some(String::from_utf8_lossy(&patch.text).into_owned()),
        }
    }

    /// Whether no file changed.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.more == 0
    }
}
