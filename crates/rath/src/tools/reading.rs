//! The tool `read`.

use std::fmt::Write as _;

use rath_macros::tool;

use super::cut;
use super::tool_workspace::{ToolWorkspace, is_binary};
use crate::toolkit::Resource;

/// The default number of lines.
const LINES: u64 = 2_000;

/// The largest output, and the longest line, in characters.
const MOST: usize = 60_000;
const LONGEST_LINE: usize = 2_000;

/// Reads a text file. Each line is shown with its number, which is not part of the file.
#[tool(effect = "pure", reads, paths = "path")]
pub async fn read(
    /// The file, relative to the workspace.
    path: String,
    /// The number of the first line to show. 1 if not given.
    offset: Option<u64>,
    /// How many lines to show. 2000 if not given.
    limit: Option<u64>,
    workspace: Resource<ToolWorkspace>,
) -> Result<String, String> {
    let path = workspace.file_path(&path)?;
    let contents = workspace.contents(&path).await?;
    let shown = path.display();
    if is_binary(&contents.bytes) {
        return Err(format!("{shown} is not text: a binary file of {} bytes", contents.size));
    }
    if contents.bytes.is_empty() {
        return Ok(format!("{shown} is empty."));
    }
    let text = String::from_utf8_lossy(&contents.bytes);
    let total = text.lines().count() as u64;
    let first = offset.unwrap_or(1).max(1);
    if first > total {
        return Err(format!("{shown} has {total} lines: there is no line {first}"));
    }
    let limit = limit.unwrap_or(LINES).max(1);
    let mut out = String::new();
    let mut next = first;
    for line in text.lines().skip((first - 1) as usize).take(usize::try_from(limit).unwrap_or(usize::MAX)) {
        if out.len() > MOST {
            break;
        }
        let _ = writeln!(out, "{next:>6}\t{}", cut::line(line, LONGEST_LINE));
        next += 1;
    }
    if next <= total {
        let _ = write!(out, "[lines {first} to {} of {total}; read on with offset {next}]", next - 1);
    } else if !text.ends_with('\n') {
        out.push_str("[no newline at the end of the file]");
    }
    Ok(out)
}
