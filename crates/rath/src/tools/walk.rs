//! Listing the files below a directory that git would not ignore.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rath_sandbox::{ByteRange, FileKind};

use super::tool_workspace::ToolWorkspace;

/// The files, sorted within each directory.
pub(super) struct Walked {
    pub(super) files: Vec<PathBuf>,
    /// Whether the list was cut at its limit.
    pub(super) cut: bool,
}

/// At most `most` files below `start`. Skips `.git` and files that `.gitignore` excludes; does not follow links.
pub(super) async fn walk(workspace: &ToolWorkspace, start: &Path, most: usize) -> Result<Walked, String> {
    let mut rules = Vec::new();
    for above in start.ancestors().skip(1).collect::<Vec<_>>().into_iter().rev() {
        rules.extend(rules_of(workspace, above).await);
    }
    let mut walked = Walked { files: Vec::new(), cut: false };
    let mut open = vec![(start.to_owned(), rules)];
    while let Some((directory, mut rules)) = open.pop() {
        let entries = match workspace.sandbox().list(&directory).await {
            Ok(entries) => entries,
            Err(error) if directory == start => return Err(error.to_string()),
            Err(_) => continue,
        };
        if entries.iter().any(|entry| entry.name == ".gitignore" && entry.kind == FileKind::File) {
            rules.extend(rules_of(workspace, &directory).await);
        }
        let mut below = Vec::new();
        for entry in entries {
            let path = directory.join(&entry.name);
            let is_directory = entry.kind == FileKind::Directory;
            if entry.name == ".git" || is_ignored(&rules, &path, is_directory) {
                continue;
            }
            match entry.kind {
                FileKind::Directory => below.push((path, rules.clone())),
                FileKind::File if walked.files.len() == most => {
                    walked.cut = true;
                    return Ok(walked);
                }
                FileKind::File => walked.files.push(path),
                FileKind::Link | FileKind::Special => {}
            }
        }
        open.extend(below.into_iter().rev());
    }
    Ok(walked)
}

async fn rules_of(workspace: &ToolWorkspace, directory: &Path) -> Option<Arc<Gitignore>> {
    let contents = workspace.sandbox().read(&directory.join(".gitignore"), ByteRange::first(1 << 20)).await.ok()?;
    let mut builder = GitignoreBuilder::new(directory);
    for line in String::from_utf8_lossy(&contents.bytes).lines() {
        // Malformed patterns are ignored, as git does.
        let _ = builder.add_line(None, line);
    }
    builder.build().ok().map(Arc::new)
}

fn is_ignored(rules: &[Arc<Gitignore>], path: &Path, is_directory: bool) -> bool {
    for rule in rules.iter().rev() {
        match rule.matched(path, is_directory) {
            Match::Ignore(_) => return true,
            Match::Whitelist(_) => return false,
            Match::None => {}
        }
    }
    false
}
