//! `grep`: lines by what is in them.

use std::path::{Path, PathBuf};

use rath_macros::tool;
use rath_sandbox::{Error, Part, Why};
use regex::bytes::{Regex, RegexBuilder};

use super::cut;
use super::desk::{Desk, LARGEST, is_binary};
use super::globbing::Names;
use super::walk::walk;
use crate::toolkit::State;

/// How many files are looked at, how many matches are shown unless the model says otherwise, and in how long lines.
const MOST_FILES: usize = 100_000;
const MATCHES: usize = 100;
const LONGEST_LINE: usize = 500;

/// How many bytes are shown at most.
const MOST: usize = 60_000;

/// Searches in files, line by line. Shows `path:line:text`. Binary files and what `.gitignore` leaves out are left
/// out.
#[tool(effect = "pure", reads, paths = "path")]
pub async fn grep(
    /// A regular expression as in Rust or RE2. `(?i)` at its beginning ignores case.
    pattern: String,
    /// The file or directory to search in, relative to the workspace. The workspace itself if not given.
    path: Option<String>,
    /// Which files, e.g. `*.rs` or `src/**/*.ts`.
    glob: Option<String>,
    /// How many lines to show before and after each match.
    context: Option<usize>,
    /// How many matches to show. 100 if not given.
    max_results: Option<usize>,
    desk: State<Desk>,
) -> Result<String, String> {
    let start = desk.path(path.as_deref().unwrap_or_default())?;
    let regex = RegexBuilder::new(&pattern).size_limit(1 << 20).build();
    let regex = regex.map_err(|error| format!("`{pattern}` is not a regular expression: {error}"))?;
    let wanted = glob.as_deref().map(Names::new).transpose()?;
    let (files, cut) = files(&desk, &start).await?;
    let most = max_results.unwrap_or(MATCHES).max(1);
    let mut search = Search { regex, context: context.unwrap_or(0).min(50), most, found: 0, out: String::new() };
    let mut left_out = 0;
    for file in files {
        if wanted.as_ref().is_some_and(|wanted| !wanted.has(&file, &start)) {
            continue;
        }
        if !desk.may_look_into("grep", &start, &file) {
            left_out += 1;
            continue;
        }
        if !search.look_through(&desk, &file).await {
            search.out.push_str("[there are more; use a narrower pattern, a path or a glob]\n");
            return Ok(search.out);
        }
    }
    if cut {
        search.out.push_str(&format!("[only the first {MOST_FILES} files were searched; name a directory]\n"));
    }
    if search.out.is_empty() {
        search.out = format!("Nothing matches {pattern}.");
    }
    if left_out > 0 {
        let gap = if search.out.ends_with('\n') { "" } else { "\n" };
        search
            .out
            .push_str(&format!("{gap}[{left_out} files that rules guard were left out; name one to search in it]\n"));
    }
    Ok(search.out)
}

/// The files below `start`, or `start` if it is one.
async fn files(desk: &Desk, start: &Path) -> Result<(Vec<PathBuf>, bool), String> {
    match desk.sandbox().list(start).await {
        Ok(_) => walk(desk, start, MOST_FILES).await.map(|walked| (walked.files, walked.cut)),
        Err(Error::BadPath { why: Why::NotADirectory, .. }) => Ok((vec![start.to_owned()], false)),
        Err(error) => Err(desk.explain(start, error).await),
    }
}

struct Search {
    regex: Regex,
    context: usize,
    most: usize,
    found: usize,
    out: String,
}

impl Search {
    /// Adds what is found in a file of any length, which is read by parts. False when there is room for no more.
    async fn look_through(&mut self, desk: &Desk, path: &Path) -> bool {
        let (mut offset, mut before, mut begun) = (0, 0, Vec::new());
        loop {
            let part = Part { offset, limit: LARGEST };
            let Ok(contents) = desk.sandbox().read(path, part).await else { return true };
            if offset == 0 && is_binary(&contents.bytes) {
                return true;
            }
            offset += contents.bytes.len() as u64;
            let is_last = contents.bytes.is_empty() || offset >= contents.size;
            let mut bytes = std::mem::take(&mut begun);
            bytes.extend(contents.bytes);
            // A line that does not end in this part goes on in the next, unless it is longer than any should be.
            let whole = memchr::memrchr(b'\n', &bytes).filter(|_| !is_last).map_or(bytes.len(), |at| at + 1);
            begun = bytes.split_off(whole);
            if !bytes.is_empty() && !self.look(path, before, &bytes) {
                return false;
            }
            if is_last {
                return true;
            }
            before += memchr::memchr_iter(b'\n', &bytes).count();
        }
    }

    /// Adds what is found in lines of a file, `before` which there are others. False when there is room for no more.
    fn look(&mut self, path: &Path, before: usize, bytes: &[u8]) -> bool {
        let lines: Vec<&[u8]> = bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n').collect();
        let lines: Vec<&[u8]> = lines.into_iter().map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
        let mut shown = 0;
        // The lines after a match end where the next one begins, so that no line is shown twice.
        let matches: Vec<usize> = (0..lines.len()).filter(|at| self.regex.is_match(lines[*at])).collect();
        for (number, at) in matches.iter().copied().enumerate() {
            if self.found == self.most || self.out.len() > MOST {
                return false;
            }
            self.found += 1;
            let from = at.saturating_sub(self.context).max(shown);
            if self.context > 0 && (from > shown || shown == 0) && !self.out.is_empty() {
                self.out.push_str("--\n");
            }
            self.show(path, '-', before + from, &lines[from..at]);
            self.show(path, ':', before + at, &lines[at..=at]);
            let to = (at + 1 + self.context).min(lines.len());
            let next = matches.get(number + 1).map_or(to, |next| to.min(*next));
            self.show(path, '-', before + at + 1, &lines[at + 1..next]);
            shown = next;
        }
        true
    }

    /// Adds lines, the first of which is the file's line `from`, counted from 0.
    fn show(&mut self, path: &Path, mark: char, from: usize, lines: &[&[u8]]) {
        for (number, line) in (from + 1..).zip(lines) {
            let text = cut::line(&String::from_utf8_lossy(line), LONGEST_LINE);
            self.out.push_str(&format!("{}{mark}{number}{mark}{text}\n", path.display()));
        }
    }
}
