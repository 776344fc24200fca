//! What the documentation and the transcripts show is what happens.

use std::path::Path;

use crate::transcript::check;

fn project(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn the_readme_is_true() {
    check(&project("README.md"));
}

#[test]
fn the_transcripts_are_true() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        check(&file);
    }
}
