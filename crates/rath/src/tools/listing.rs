//! `ls`: a directory.

use rath_macros::tool;
use rath_sandbox::{EntryKind, Error, Why};

use super::desk::Desk;
use crate::toolkit::State;

/// How many entries are shown.
const MOST: usize = 1_000;

/// Lists a directory: directories end in `/`, links in `@`; files have their size in bytes.
#[tool(effect = "pure", reads, paths = "path")]
pub async fn ls(
    /// The directory, relative to the workspace. The workspace itself if not given.
    path: Option<String>,
    desk: State<Desk>,
) -> Result<String, String> {
    let path = desk.path(path.as_deref().unwrap_or_default())?;
    let entries = match desk.sandbox().list(&path).await {
        Ok(entries) => entries,
        Err(Error::BadPath { why: Why::NotADirectory, .. }) => {
            return Err(format!("{} is not a directory: use `read` for a file", path.display()));
        }
        Err(error) => return Err(desk.explain(&path, error).await),
    };
    if entries.is_empty() {
        return Ok("The directory is empty.".into());
    }
    let lines = entries.iter().take(MOST).map(|entry| {
        let name = entry.name.to_string_lossy();
        match entry.kind {
            EntryKind::Directory => format!("{name}/"),
            EntryKind::Link => format!("{name}@"),
            EntryKind::Special => format!("{name} (neither file nor directory)"),
            EntryKind::File => format!("{name} {}", entry.size),
        }
    });
    let mut lines: Vec<String> = lines.collect();
    if entries.len() > MOST {
        lines.push(format!("[{} more; use `glob` to see some of them]", entries.len() - MOST));
    }
    Ok(lines.join("\n"))
}
