//! `apply_patch`: changes to several files at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rath_macros::tool;
use rath_sandbox::{ByteRange, Error, PathError};
use serde_json::Value;

use super::patch::{self, Action};
use super::tool_workspace::ToolWorkspace;
use crate::toolkit::Resource;

/// Applies a patch to one or more files. The whole patch is checked before anything is written. The format:
///
/// *** Begin Patch
/// *** Update File: src/a.rs
/// @@ fn main() {
///  an unchanged line
/// -a removed line
/// +an added line
/// *** Add File: src/b.rs
/// +its lines
/// *** Delete File: src/c.rs
/// *** End Patch
///
/// `*** Move to: path` after `*** Update File` renames the file. `@@` followed by a line of the file means that the
/// change is below that line. Give about three lines of context around each change, without line numbers.
#[tool(effect = "workspace", paths = paths_of)]
pub async fn apply_patch(
    /// The patch, from `*** Begin Patch` to `*** End Patch`.
    patch: String,
    workspace: Resource<ToolWorkspace>,
) -> Result<String, String> {
    let actions = patch::parse(&patch).map_err(|why| format!("nothing was changed: {why}"))?;
    let mut draft = Draft { workspace: &workspace, files: BTreeMap::new(), said: Vec::new() };
    for action in actions {
        draft.take(action).await.map_err(|why| format!("nothing was changed: {why}"))?;
    }
    draft.write().await
}

/// The paths in a patch. Empty if the patch cannot be parsed: then no file is changed.
fn paths_of(arguments: &Value) -> Vec<String> {
    arguments.get("patch").and_then(Value::as_str).and_then(patch::paths).unwrap_or_default()
}

/// The contents of the files before and after the patch.
struct Draft<'a> {
    workspace: &'a ToolWorkspace,
    files: BTreeMap<PathBuf, File>,
    said: Vec<String>,
}

#[derive(Default)]
struct File {
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
    mode: Option<u32>,
}

impl Draft<'_> {
    async fn take(&mut self, action: Action) -> Result<(), String> {
        match action {
            Action::Add { path, content } => {
                let path = self.workspace.file_path(&path)?;
                let file = self.file(&path).await?;
                if file.after.is_some() {
                    return Err(format!("{} exists already: use `*** Update File: `", path.display()));
                }
                file.after = Some(content.into_bytes());
                self.said.push(format!("A {}", path.display()));
            }
            Action::Delete { path } => {
                let path = self.workspace.file_path(&path)?;
                self.existing(&path).await?.after = None;
                self.said.push(format!("D {}", path.display()));
            }
            Action::Update { path, to, hunks } => {
                let path = self.workspace.file_path(&path)?;
                let file = self.existing(&path).await?;
                let text = String::from_utf8(file.after.take().unwrap_or_default());
                let text = text.map_err(|_| format!("{} is not UTF-8 text", path.display()))?;
                let text = patch::apply(&text, &hunks).map_err(|why| format!("{}: {why}", path.display()))?;
                let Some(to) = to else {
                    file.after = Some(text.into_bytes());
                    self.said.push(format!("M {}", path.display()));
                    return Ok(());
                };
                let mode = file.mode;
                let to = self.workspace.file_path(&to)?;
                let target = self.file(&to).await?;
                if target.after.is_some() {
                    return Err(format!(
                        "{} cannot move to {}: that file exists already",
                        path.display(),
                        to.display()
                    ));
                }
                (target.after, target.mode) = (Some(text.into_bytes()), mode);
                self.said.push(format!("R {} -> {}", path.display(), to.display()));
            }
        }
        Ok(())
    }

    async fn existing(&mut self, path: &Path) -> Result<&mut File, String> {
        let workspace = self.workspace;
        if self.file(path).await?.after.is_none() {
            return Err(workspace.explain(path, Error::path(path, PathError::Missing)).await);
        }
        self.file(path).await
    }

    /// A file with the changes so far.
    async fn file(&mut self, path: &Path) -> Result<&mut File, String> {
        if !self.files.contains_key(path) {
            let file = match self.workspace.sandbox().read(path, ByteRange::first(0)).await {
                Err(Error::BadPath { why: PathError::Missing, .. }) => File::default(),
                _ => {
                    let contents = self.workspace.contents(path).await?;
                    let bytes = Some(contents.bytes);
                    File { before: bytes.clone(), after: bytes, mode: Some(contents.mode) }
                }
            };
            self.files.insert(path.to_owned(), file);
        }
        Ok(self.files.entry(path.to_owned()).or_default())
    }

    /// Writes all files. If one cannot be written, restores those already written.
    async fn write(self) -> Result<String, String> {
        let mut written = Vec::new();
        for (path, file) in &self.files {
            if file.before == file.after {
                continue;
            }
            if let Err(error) = put(self.workspace, path, file.after.as_deref(), file.mode).await {
                let mut why = format!("nothing was changed: {error}");
                for (path, file) in written {
                    let file: &File = file;
                    if let Err(error) = put(self.workspace, path, file.before.as_deref(), file.mode).await {
                        why.push_str(&format!("\nexcept {}, which could not be restored: {error}", path.display()));
                    }
                }
                return Err(why);
            }
            written.push((path, file));
        }
        Ok(self.said.join("\n"))
    }
}

async fn put(workspace: &ToolWorkspace, path: &Path, bytes: Option<&[u8]>, mode: Option<u32>) -> Result<(), Error> {
    match bytes {
        Some(bytes) => workspace.sandbox().write(path, bytes, mode).await.map(drop),
        None => workspace.sandbox().remove(path).await,
    }
}
