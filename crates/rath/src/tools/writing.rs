//! `write`: a whole file.

use rath_macros::tool;
use rath_sandbox::Written;

use super::desk::Desk;
use crate::toolkit::State;

/// Writes a file: makes it, with its directories, or replaces all that is in it. To change a part of a file, use
/// `edit`.
#[tool(effect = "workspace", paths = "path")]
pub async fn write(
    /// The file, relative to the workspace.
    path: String,
    /// All that is to be in it.
    content: String,
    desk: State<Desk>,
) -> Result<String, String> {
    let path = desk.file_path(&path)?;
    let what = match desk.sandbox().write(&path, content.as_bytes(), None).await {
        Ok(Written::New) => "new",
        Ok(Written::Replaced) => "replaced",
        Err(error) => return Err(desk.explain(&path, error).await),
    };
    Ok(format!("{}: {what}, {} lines, {} bytes", path.display(), content.lines().count(), content.len()))
}
