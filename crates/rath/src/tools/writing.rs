//! The tool `write`.

use rath_macros::tool;
use rath_sandbox::WriteOutcome;

use super::tool_workspace::ToolWorkspace;
use crate::toolkit::Resource;

/// Writes a whole file. Creates it and its directories, or replaces its content. To change part of a file, use `edit`.
#[tool(effect = "workspace", paths = "path")]
pub async fn write(
    /// The file, relative to the workspace.
    path: String,
    /// The whole content of the file.
    content: String,
    workspace: Resource<ToolWorkspace>,
) -> Result<String, String> {
    let path = workspace.file_path(&path)?;
    let what = match workspace.sandbox().write(&path, content.as_bytes(), None).await {
        Ok(WriteOutcome::Created) => "new",
        Ok(WriteOutcome::Replaced) => "replaced",
        Err(error) => return Err(workspace.explain(&path, error).await),
    };
    let lines = content.lines().count();
    let unit = if lines == 1 { "line" } else { "lines" };
    Ok(format!("{}: {what}, {lines} {unit}, {} bytes", path.display(), content.len()))
}
