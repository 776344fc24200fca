//! Suggestions for paths that do not exist.

use std::path::Path;

use super::tool_workspace::ToolWorkspace;
use super::walk::walk;

/// The largest number of files that are compared.
const MOST_FILES: usize = 5_000;

/// Up to three paths that are similar to `path`: with the same file name elsewhere, or with a similar name.
pub(super) async fn paths(workspace: &ToolWorkspace, path: &Path) -> Vec<String> {
    let Ok(walked) = walk(workspace, Path::new(""), MOST_FILES).await else { return Vec::new() };
    let all: Vec<String> = walked.files.iter().map(|path| path.display().to_string()).collect();
    let same_name = walked.files.iter().filter(|file| file.file_name() == path.file_name());
    let mut found: Vec<String> = same_name.take(3).map(|path| path.display().to_string()).collect();
    let wanted = path.display().to_string();
    for near in most_like(&wanted, all.iter().map(String::as_str), 3) {
        if found.len() < 3 && !found.iter().any(|known| known == near) {
            found.push(near.into());
        }
    }
    found
}

/// The smallest similarity of a suggestion, from 0 to 1.
const ALIKE: f64 = 0.6;

/// At most `most` of the texts that are similar to `wanted`, the most similar first.
pub(super) fn most_like<'a>(wanted: &str, all: impl Iterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let mut near: Vec<(f64, &str)> = all.map(|text| (strsim::sorensen_dice(wanted, text), text)).collect();
    near.retain(|(alike, _)| *alike >= ALIKE);
    near.sort_by(|one, other| other.0.total_cmp(&one.0));
    near.into_iter().take(most).map(|(_, text)| text).collect()
}
