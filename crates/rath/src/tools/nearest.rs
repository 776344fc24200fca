//! What a model may have meant by a path that is not there.

use std::path::Path;

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
    for near in most_like(&wanted, all.iter().map(String::as_str), 3) {
        if found.len() < 3 && !found.iter().any(|known| known == near) {
            found.push(near.into());
        }
    }
    found
}

/// How much of two texts is the same, at least, where one is said to be like the other.
const ALIKE: f64 = 0.6;

/// At most `most` of these that are like `wanted`, the likest first.
pub(super) fn most_like<'a>(wanted: &str, all: impl Iterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let mut near: Vec<(f64, &str)> = all.map(|text| (strsim::sorensen_dice(wanted, text), text)).collect();
    near.retain(|(alike, _)| *alike >= ALIKE);
    near.sort_by(|one, other| other.0.total_cmp(&one.0));
    near.into_iter().take(most).map(|(_, text)| text).collect()
}
