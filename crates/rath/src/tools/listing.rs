//! The tool `ls`.

use rath_macros::tool;
use rath_sandbox::{Error, FileKind, PathError};

use super::tool_workspace::ToolWorkspace;
use crate::toolkit::Resource;

/// The largest number of entries shown.
const MOST: usize = 1_000;

/// Lists a directory. Directories end in `/`, links in `@`; files are shown with their size in bytes.
#[tool(effect = "pure", reads, paths = "path")]
pub async fn ls(
    /// The directory, relative to the workspace. Default: the workspace itself.
    path: Option<String>,
    workspace: Resource<ToolWorkspace>,
) -> Result<String, String> {
    let path = workspace.path(path.as_deref().unwrap_or_default())?;
    let entries = match workspace.sandbox().list(&path).await {
        Ok(entries) => entries,
        Err(Error::BadPath { why: PathError::NotADirectory, .. }) => {
            return Err(format!("{} is not a directory: use `read` for a file", path.display()));
        }
        Err(error) => return Err(workspace.explain(&path, error).await),
    };
    if entries.is_empty() {
        return Ok("The directory is empty.".into());
    }
    let lines = entries.iter().take(MOST).map(|entry| {
        let name = entry.name.to_string_lossy();
        match entry.kind {
            FileKind::Directory => format!("{name}/"),
            FileKind::Link => format!("{name}@"),
            FileKind::Special => format!("{name} (neither file nor directory)"),
            FileKind::File => format!("{name} {}", entry.size),
        }
    });
    let mut lines: Vec<String> = lines.collect();
    if entries.len() > MOST {
        lines.push(format!("[{} more; use `glob` to see some of them]", entries.len() - MOST));
    }
    Ok(lines.join("\n"))
}
