//! The file changes of a call.

use std::sync::Arc;

use rath_core::Store;
use rath_core::files::{Changes, FilePath, TreeStore, patch};
use serde::Serialize;

use super::Differences;

/// The largest number of paths that are listed.
const PATHS: usize = 8;

/// Changed paths and their differences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChangeSummary {
    /// The first changed paths.
    pub paths: Vec<ChangedPath>,
    /// The number of further paths.
    pub more: u64,
    /// The differences as a patch. `None` if they were not requested, are too many, or a version was collected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// The number of files in the patch.
    #[serde(skip)]
    pub patched: usize,
}

/// A changed path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedPath {
    /// A for added, M for modified, D for deleted.
    pub letter: char,
    /// The path.
    pub path: FilePath,
    /// The number of changed lines, if the difference was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<LineCounts>,
}

/// The number of changed lines of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LineCounts {
    /// Added lines.
    pub added: u64,
    /// Removed lines.
    pub removed: u64,
    /// Whether the file is binary: then both counts are 0.
    pub binary: bool,
}

impl ChangeSummary {
    /// Summarizes `changes`, with their differences as far as `differences` allows.
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
        let Ok(patch) = patch(&TreeStore::new(&**store), &files).await else {
            // A version may have been collected. The changed paths are known from the record.
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
