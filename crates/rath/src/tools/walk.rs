//! All files below a directory, but for those that version control leaves out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rath_sandbox::{EntryKind, Part};

use super::desk::Desk;

/// Files, sorted within each directory.
pub(super) struct Walked {
    pub(super) files: Vec<PathBuf>,
    /// Whether there are more.
    pub(super) cut: bool,
}

/// At most `most` files below `start`. `.git` and what `.gitignore` names are left out; links are not followed.
pub(super) async fn walk(desk: &Desk, start: &Path, most: usize) -> Result<Walked, String> {
    let mut rules = Vec::new();
    for above in start.ancestors().skip(1).collect::<Vec<_>>().into_iter().rev() {
        rules.extend(rules_of(desk, above).await);
    }
    let mut walked = Walked { files: Vec::new(), cut: false };
    let mut open = vec![(start.to_owned(), rules)];
    while let Some((directory, mut rules)) = open.pop() {
        let entries = match desk.sandbox().list(&directory).await {
            Ok(entries) => entries,
            Err(error) if directory == start => return Err(error.to_string()),
            Err(_) => continue,
        };
        if entries.iter().any(|entry| entry.name == ".gitignore" && entry.kind == EntryKind::File) {
            rules.extend(rules_of(desk, &directory).await);
        }
        let mut below = Vec::new();
        for entry in entries {
            let path = directory.join(&entry.name);
            let is_directory = entry.kind == EntryKind::Directory;
            if entry.name == ".git" || is_ignored(&rules, &path, is_directory) {
                continue;
            }
            match entry.kind {
                EntryKind::Directory => below.push((path, rules.clone())),
                EntryKind::File if walked.files.len() == most => {
                    walked.cut = true;
                    return Ok(walked);
                }
                EntryKind::File => walked.files.push(path),
                EntryKind::Link | EntryKind::Special => {}
            }
        }
        open.extend(below.into_iter().rev());
    }
    Ok(walked)
}

async fn rules_of(desk: &Desk, directory: &Path) -> Option<Arc<Gitignore>> {
    let contents = desk.sandbox().read(&directory.join(".gitignore"), Part::first(1 << 20)).await.ok()?;
    let mut builder = GitignoreBuilder::new(directory);
    for line in String::from_utf8_lossy(&contents.bytes).lines() {
        // A line that is no pattern is no rule, as with git.
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
