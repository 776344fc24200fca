//! What a model may have meant by a path that is not there.

use std::path::Path;

use similar::get_close_matches;

use super::desk::Desk;
use super::walk::walk;

/// How many files are looked at.
const MOST_FILES: usize = 5_000;

/// Paths that are like `path`: of the same name elsewhere, or of a similar name.
pub(super) async fn paths(desk: &Desk, path: &Path) -> Vec<String> {
    let Ok(walked) = walk(desk, Path::new(""), MOST_FILES).await else { return Vec::new() };
    let all: Vec<String> = walked.files.iter().map(|path| path.display().to_string()).collect();
    let same_name = walked.files.iter().filter(|file| file.file_name() == path.file_name());
    let mut found: Vec<String> = same_name.take(3).map(|path| path.display().to_string()).collect();
    let wanted = path.display().to_string();
    let candidates: Vec<&str> = all.iter().map(String::as_str).collect();
    for near in get_close_matches(wanted.as_str(), &candidates, 3, 0.7) {
        if found.len() < 3 && !found.iter().any(|known| known == near) {
            found.push(near.into());
        }
    }
    found
}
