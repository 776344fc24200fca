//! Blame: the record that wrote each line of a file.

use rath_core::files::FilePath;
use rath_core::{LineOrigin, Result, View};
use serde::Serialize;

/// A line of a file, and the record that wrote it.
#[derive(Clone, Debug, Serialize)]
pub struct BlamedLine {
    /// Its number, from 1.
    pub line: usize,
    /// Its text, including the line ending.
    pub text: Option<String>,
    /// The record that wrote it.
    pub origin: LineOrigin,
}

/// A file, line by line.
#[derive(Clone, Debug, Serialize)]
pub struct BlamedFile {
    /// Whether the file is text. A binary file has one line.
    pub is_text: bool,
    /// Its lines, from the first, each with its origin.
    pub lines: Vec<BlamedLine>,
}

/// The lines of a file at `view`, and the record that wrote each.
pub async fn blame(view: &View, path: &FilePath) -> Result<BlamedFile> {
    let blame = view.blame(path).await?;
    let mut texts = blame.content.split_inclusive(|byte| *byte == b'\n');
    let lines = blame.lines.iter().enumerate().map(|(at, origin)| BlamedLine {
        line: at + 1,
        text: texts.next().map(|text| String::from_utf8_lossy(text).into_owned()),
        origin: blame.origins[*origin].clone(),
    });
    Ok(BlamedFile { is_text: blame.is_text, lines: lines.collect() })
}
