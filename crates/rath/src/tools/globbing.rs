//! `glob`: files by their names.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use rath_macros::tool;
use serde_json::Value;

use super::desk::Desk;
use super::walk::walk;
use crate::toolkit::State;

/// How many files are looked at, and how many are shown.
const MOST_FILES: usize = 200_000;
const MOST: usize = 1_000;

/// Finds files by name. What `.gitignore` leaves out is left out.
#[tool(effect = "pure", reads, paths = paths_of)]
pub async fn glob(
    /// A pattern such as `*.rs`, `src/**/*.rs` or `{a,b}.txt`. Without a `/` it is looked for in all directories.
    pattern: String,
    /// The directory to look in, relative to the workspace. The workspace itself if not given.
    path: Option<String>,
    desk: State<Desk>,
) -> Result<String, String> {
    let start = desk.path(path.as_deref().unwrap_or_default())?;
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

/// The directory to look in, and the one below it that the pattern begins with.
fn paths_of(arguments: &Value) -> Vec<String> {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    let top = text("path").unwrap_or(".");
    let pattern = text("pattern").unwrap_or_default();
    let names = pattern.split('/').take_while(|name| !name.contains(['*', '?', '[', '{', '\\']));
    vec![top.into(), format!("{top}/{}", names.collect::<Vec<_>>().join("/"))]
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
