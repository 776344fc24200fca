//! `apply_patch`: changes to several files at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rath_macros::tool;
use rath_sandbox::{Error, Part, Why};
use serde_json::Value;

use super::desk::Desk;
use super::patch::{self, Action};
use crate::toolkit::State;

/// Changes files by a patch. All of it is checked before anything is written. The format:
///
/// *** Begin Patch
/// *** Update File: src/a.rs
/// @@ fn main() {
///  a line that stays
/// -a line that goes
/// +a line that comes
/// *** Add File: src/b.rs
/// +its lines
/// *** Delete File: src/c.rs
/// *** End Patch
///
/// `*** Move to: path` after `*** Update File` gives the file another name. `@@` and a line of the file say below which
/// line to look. Give about three lines around each change, without line numbers.
#[tool(effect = "workspace", paths = paths_of)]
pub async fn apply_patch(
    /// The patch, from `*** Begin Patch` to `*** End Patch`.
    patch: String,
    desk: State<Desk>,
) -> Result<String, String> {
    let actions = patch::parse(&patch).map_err(|why| format!("nothing was changed: {why}"))?;
    let mut draft = Draft { desk: &desk, files: BTreeMap::new(), said: Vec::new() };
    for action in actions {
        draft.take(action).await.map_err(|why| format!("nothing was changed: {why}"))?;
    }
    draft.write().await
}

/// The paths that a patch names. None if it cannot be read: then nothing is changed.
fn paths_of(arguments: &Value) -> Vec<String> {
    arguments.get("patch").and_then(Value::as_str).and_then(patch::paths).unwrap_or_default()
}

/// The files as they were and as they will be; `None` where there is none.
struct Draft<'a> {
    desk: &'a Desk,
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
                let path = self.desk.file_path(&path)?;
                let file = self.file(&path).await?;
                if file.after.is_some() {
                    return Err(format!("{} is there already: use `*** Update File: `", path.display()));
                }
                file.after = Some(content.into_bytes());
                self.said.push(format!("A {}", path.display()));
            }
            Action::Delete { path } => {
                let path = self.desk.file_path(&path)?;
                self.existing(&path).await?.after = None;
                self.said.push(format!("D {}", path.display()));
            }
            Action::Update { path, to, hunks } => {
                let path = self.desk.file_path(&path)?;
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
                let to = self.desk.file_path(&to)?;
                let target = self.file(&to).await?;
                if target.after.is_some() {
                    return Err(format!("{} cannot move to {}: that is there already", path.display(), to.display()));
                }
                (target.after, target.mode) = (Some(text.into_bytes()), mode);
                self.said.push(format!("R {} -> {}", path.display(), to.display()));
            }
        }
        Ok(())
    }

    async fn existing(&mut self, path: &Path) -> Result<&mut File, String> {
        let desk = self.desk;
        if self.file(path).await?.after.is_none() {
            return Err(desk.explain(path, Error::path(path, Why::Missing)).await);
        }
        self.file(path).await
    }

    /// A file as the patch has left it so far.
    async fn file(&mut self, path: &Path) -> Result<&mut File, String> {
        if !self.files.contains_key(path) {
            let file = match self.desk.sandbox().read(path, Part::first(0)).await {
                Err(Error::BadPath { why: Why::Missing, .. }) => File::default(),
                _ => {
                    let contents = self.desk.contents(path).await?;
                    let bytes = Some(contents.bytes);
                    File { before: bytes.clone(), after: bytes, mode: Some(contents.mode) }
                }
            };
            self.files.insert(path.to_owned(), file);
        }
        Ok(self.files.entry(path.to_owned()).or_default())
    }

    /// Writes all files, or, where one cannot be written, none.
    async fn write(self) -> Result<String, String> {
        let mut written = Vec::new();
        for (path, file) in &self.files {
            if file.before == file.after {
                continue;
            }
            if let Err(error) = put(self.desk, path, file.after.as_deref(), file.mode).await {
                let mut why = format!("nothing was changed: {error}");
                for (path, file) in written {
                    let file: &File = file;
                    if let Err(error) = put(self.desk, path, file.before.as_deref(), file.mode).await {
                        why.push_str(&format!("\nbut {} was changed, and stays so: {error}", path.display()));
                    }
                }
                return Err(why);
            }
            written.push((path, file));
        }
        Ok(self.said.join("\n"))
    }
}

async fn put(desk: &Desk, path: &Path, bytes: Option<&[u8]>, mode: Option<u32>) -> Result<(), Error> {
    match bytes {
        Some(bytes) => desk.sandbox().write(path, bytes, mode).await.map(drop),
        None => desk.sandbox().remove(path).await,
    }
}
