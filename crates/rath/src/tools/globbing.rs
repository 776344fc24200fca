//! `glob`: files by their names.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use rath_core::body::Effect;
use rath_macros::tool;

use super::desk::Desk;
use super::walk::walk;
use crate::toolkit::State;

/// How many files are looked at, and how many are shown.
const MOST_FILES: usize = 200_000;
const MOST: usize = 1_000;

/// Finds files by name. What `.gitignore` leaves out is left out.
#[tool(effect = "pure", reads)]
pub async fn glob(
    /// A pattern such as `*.rs`, `src/**/*.rs` or `{a,b}.txt`. Without a `/` it is looked for in all directories.
    pattern: String,
    /// The directory to look in, relative to the workspace. The workspace itself if not given.
    path: Option<String>,
    desk: State<Desk>,
) -> Result<String, String> {
    let start = desk.path(path.as_deref().unwrap_or_default())?;
    desk.may("glob", Effect::Pure, &start).await?;
    let wanted = Names::new(&pattern)?;
    let walked = walk(&desk, &start, MOST_FILES).await?;
    let mut found: Vec<String> =
        walked.files.iter().filter(|file| wanted.has(file, &start)).map(|file| file.display().to_string()).collect();
    found.sort();
    let total = found.len();
    if total == 0 {
        return Ok(format!("No file matches {pattern}."));
    }
    found.truncate(MOST);
    if total > MOST {
        found.push(format!("[{} more; use a narrower pattern]", total - MOST));
    }
    if walked.cut {
        found.push(format!("[only the first {MOST_FILES} files were looked at; name a directory]"));
    }
    Ok(found.join("\n"))
}

/// Which files are wanted.
pub(super) struct Names(GlobMatcher);

impl Names {
    pub(super) fn new(pattern: &str) -> Result<Self, String> {
        let anywhere = if pattern.contains('/') { pattern.to_owned() } else { format!("**/{pattern}") };
        let wrong = |error: globset::Error| format!("`{pattern}` is not a pattern: {}", error.kind());
        let built = GlobBuilder::new(anywhere.trim_start_matches("./")).literal_separator(true).build();
        Ok(Self(built.map_err(wrong)?.compile_matcher()))
    }

    /// Whether `file` is wanted, of those below `start`.
    pub(super) fn has(&self, file: &Path, start: &Path) -> bool {
        self.0.is_match(file.strip_prefix(start).unwrap_or(file)) || self.0.is_match(file)
    }
}
