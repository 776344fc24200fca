//! The tool `glob`.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use rath_macros::tool;
use serde_json::Value;

use super::tool_workspace::ToolWorkspace;
use super::walk::walk;
use crate::toolkit::Resource;

/// The largest numbers of files searched and shown.
const MOST_FILES: usize = 200_000;
const MOST: usize = 1_000;

/// Finds files by name. Skips files that `.gitignore` excludes.
#[tool(effect = "pure", reads, paths = paths_of)]
pub async fn glob(
    /// A pattern such as `*.rs`, `src/**/*.rs` or `{a,b}.txt`. Without a `/` it matches in all directories.
    pattern: String,
    /// The directory to search, relative to the workspace. Default: the whole workspace.
    path: Option<String>,
    workspace: Resource<ToolWorkspace>,
) -> Result<String, String> {
    let start = workspace.path(path.as_deref().unwrap_or_default())?;
    let wanted = Names::new(&pattern)?;
    let walked = walk(&workspace, &start, MOST_FILES).await?;
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
        found.push(format!("[only the first {MOST_FILES} files were searched; name a directory]"));
    }
    Ok(found.join("\n"))
}

/// The directory to search, and the one below it that the pattern starts with.
fn paths_of(arguments: &Value) -> Vec<String> {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    let top = text("path").unwrap_or(".");
    let pattern = text("pattern").unwrap_or_default();
    let names = pattern.split('/').take_while(|name| !name.contains(['*', '?', '[', '{', '\\']));
    vec![top.into(), format!("{top}/{}", names.collect::<Vec<_>>().join("/"))]
}

/// A glob for file names.
pub(super) struct Names(GlobMatcher);

impl Names {
    pub(super) fn new(pattern: &str) -> Result<Self, String> {
        let anywhere = if pattern.contains('/') { pattern.to_owned() } else { format!("**/{pattern}") };
        let wrong = |error: globset::Error| format!("`{pattern}` is not a pattern: {}", error.kind());
        let built = GlobBuilder::new(anywhere.trim_start_matches("./")).literal_separator(true).build();
        Ok(Self(built.map_err(wrong)?.compile_matcher()))
    }

    /// Whether `file`, which is below `start`, matches.
    pub(super) fn has(&self, file: &Path, start: &Path) -> bool {
        self.0.is_match(file.strip_prefix(start).unwrap_or(file)) || self.0.is_match(file)
    }
}
