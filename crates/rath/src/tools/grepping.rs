//! The tool `grep`.

use std::path::{Path, PathBuf};

use rath_macros::tool;
use rath_sandbox::{ByteRange, Error, PathError};
use regex::bytes::{Regex, RegexBuilder};

use super::cut;
use super::globbing::Names;
use super::tool_workspace::{LARGEST, ToolWorkspace, is_binary};
use super::walk::walk;
use crate::toolkit::Resource;

/// The largest number of files searched, the default number of matches, and the longest line in characters.
const MOST_FILES: usize = 100_000;
const MATCHES: usize = 100;
const LONGEST_LINE: usize = 500;

/// The largest output in bytes.
const MOST: usize = 60_000;

/// Searches the lines of files. Shows `path:line:text`. Skips binary files and files that `.gitignore` excludes.
#[tool(effect = "pure", reads, paths = "path")]
pub async fn grep(
    /// A regular expression in RE2 syntax. Start it with `(?i)` to ignore case.
    pattern: String,
    /// The file or directory to search, relative to the workspace. Default: the whole workspace.
    path: Option<String>,
    /// Search only files that match, e.g. `*.rs` or `src/**/*.ts`.
    glob: Option<String>,
    /// The number of lines to show before and after each match. Default: 0.
    context: Option<usize>,
    /// The largest number of matches to show. Default: 100.
    max_results: Option<usize>,
    workspace: Resource<ToolWorkspace>,
) -> Result<String, String> {
    let start = workspace.path(path.as_deref().unwrap_or_default())?;
    let regex = RegexBuilder::new(&pattern).size_limit(1 << 20).build();
    let regex = regex.map_err(|error| format!("`{pattern}` is not a regular expression: {error}"))?;
    let wanted = glob.as_deref().map(Names::new).transpose()?;
    let (files, cut) = files(&workspace, &start).await?;
    let most = max_results.unwrap_or(MATCHES).max(1);
    let mut search = Search { regex, context: context.unwrap_or(0).min(50), most, found: 0, out: String::new() };
    let mut left_out = 0;
    for file in files {
        if wanted.as_ref().is_some_and(|wanted| !wanted.has(&file, &start)) {
            continue;
        }
        if !workspace.may_read_below("grep", &start, &file) {
            left_out += 1;
            continue;
        }
        if !search.look_through(&workspace, &file).await {
            search.out.push_str("[more matches were omitted; use a narrower pattern, a path or a glob]\n");
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
        let files = if left_out == 1 { "1 file was".to_owned() } else { format!("{left_out} files were") };
        let note = format!("{gap}[{files} skipped because policy rules restrict them; name one to search it]\n");
        search.out.push_str(&note);
    }
    Ok(search.out)
}

/// The files below `start`, or `start` itself if it is a file. The flag says whether there are more.
async fn files(workspace: &ToolWorkspace, start: &Path) -> Result<(Vec<PathBuf>, bool), String> {
    match workspace.sandbox().list(start).await {
        Ok(_) => walk(workspace, start, MOST_FILES).await.map(|walked| (walked.files, walked.cut)),
        Err(Error::BadPath { why: PathError::NotADirectory, .. }) => Ok((vec![start.to_owned()], false)),
        Err(error) => Err(workspace.explain(start, error).await),
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
    /// Adds the matches in a file, which is read in parts. Returns `false` when the limit of matches or output is
    /// reached.
    async fn look_through(&mut self, workspace: &ToolWorkspace, path: &Path) -> bool {
        let (mut offset, mut before, mut begun) = (0, 0, Vec::new());
        loop {
            let part = ByteRange { offset, limit: LARGEST };
            let Ok(contents) = workspace.sandbox().read(path, part).await else { return true };
            if offset == 0 && is_binary(&contents.bytes) {
                return true;
            }
            offset += contents.bytes.len() as u64;
            let is_last = contents.bytes.is_empty() || offset >= contents.size;
            let mut bytes = std::mem::take(&mut begun);
            bytes.extend(contents.bytes);
            // A line that continues in the next part is searched with that part, unless it fills this whole part.
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

    /// Adds the matches in lines of a file that follow its first `before` lines. Returns `false` when the limit is
    /// reached.
    fn look(&mut self, path: &Path, before: usize, bytes: &[u8]) -> bool {
        let lines: Vec<&[u8]> = bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n').collect();
        let lines: Vec<&[u8]> = lines.into_iter().map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
        let mut shown = 0;
        // The context after a match ends before the next match, so that no line is shown twice.
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

    /// Adds lines. The first is line `from` of the file, counted from 0.
    fn show(&mut self, path: &Path, mark: char, from: usize, lines: &[&[u8]]) {
        for (number, line) in (from + 1..).zip(lines) {
            let text = cut::line(&String::from_utf8_lossy(line), LONGEST_LINE);
            self.out.push_str(&format!("{}{mark}{number}{mark}{text}\n", path.display()));
        }
    }
}
