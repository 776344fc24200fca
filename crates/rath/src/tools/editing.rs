//! The tool `edit`.

use std::ops::Range;

use rath_macros::tool;

use super::cut;
use super::nearest::most_like;
use super::tool_workspace::ToolWorkspace;
use crate::toolkit::Resource;

/// Replaces text in a file. The old text must match the file exactly and occur only once: include enough of the
/// surrounding lines.
#[tool(effect = "workspace", paths = "path")]
pub async fn edit(
    /// The file, relative to the workspace.
    path: String,
    /// The exact text to replace, with its indentation and without line numbers.
    old: String,
    /// The new text. Empty to delete the old text.
    new: String,
    /// Whether to replace every occurrence. Default: false.
    all: Option<bool>,
    workspace: Resource<ToolWorkspace>,
) -> Result<String, String> {
    let path = workspace.file_path(&path)?;
    let contents = workspace.contents(&path).await?;
    let shown = path.display();
    if old.is_empty() {
        return Err("`old` is empty: give the text to replace, or use `write` for a whole file".into());
    }
    if old == new {
        return Err("`old` and `new` are the same: nothing would change".into());
    }
    // Line endings are kept as in the file. They are compared only if the arguments contain CR and the file mixes both
    // kinds.
    let is_exact = (old.contains('\r') || new.contains('\r')) && !ends_in_crlf(&contents.bytes);
    let (file, old, new) = match is_exact {
        true => (Flat { bytes: contents.bytes.clone(), crlf: Vec::new() }, old, new),
        false => (Flat::of(&contents.bytes), with_lf(&old), with_lf(&new)),
    };
    let places = find(&file.bytes, old.as_bytes());
    let numbers: Vec<String> = places.iter().map(|at| line_of(&file.bytes, *at).to_string()).collect();
    match places.len() {
        0 => return Err(format!("{shown}: {}", not_found(&String::from_utf8_lossy(&contents.bytes), &old))),
        1 => {}
        _ if all == Some(true) => {}
        many => {
            let numbers = numbers.iter().take(20).cloned().collect::<Vec<_>>().join(", ");
            return Err(format!(
                "{shown}: `old` occurs {many} times, at lines {numbers}: give more lines around the one you mean, or \
                 set `all` to replace all of them"
            ));
        }
    }
    let bytes = file.replace(&contents.bytes, &places, old.len(), &new);
    if let Err(error) = workspace.sandbox().write(&path, &bytes, None).await {
        return Err(workspace.explain(&path, error).await);
    }
    match numbers.as_slice() {
        [one] => Ok(format!("{shown}: replaced at line {one}")),
        several => Ok(format!("{shown}: replaced {} times", several.len())),
    }
}

/// Whether every line ends in CRLF.
pub(super) fn ends_in_crlf(bytes: &[u8]) -> bool {
    let mut ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).peekable();
    ends.peek().is_some() && ends.all(|at| at > 0 && bytes[at - 1] == b'\r')
}

fn with_lf(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// A file with all line endings as LF, as models are shown it, and the positions that are CRLF in the file.
struct Flat {
    bytes: Vec<u8>,
    /// The positions of these line endings in `bytes`.
    crlf: Vec<usize>,
}

impl Flat {
    fn of(bytes: &[u8]) -> Self {
        let mut flat = Self { bytes: Vec::with_capacity(bytes.len()), crlf: Vec::new() };
        for (at, byte) in bytes.iter().enumerate() {
            match (byte, bytes.get(at + 1)) {
                (b'\r', Some(b'\n')) => flat.crlf.push(flat.bytes.len()),
                _ => flat.bytes.push(*byte),
            }
        }
        flat
    }

    /// Converts a position in `bytes` to one in the file.
    fn file_offset(&self, at: usize) -> usize {
        at + self.crlf.partition_point(|end| *end < at)
    }

    /// For each line ending in a range, whether it is CRLF.
    fn ends(&self, part: Range<usize>) -> impl DoubleEndedIterator<Item = bool> {
        let ends = part.filter(|at| self.bytes[*at] == b'\n');
        ends.map(|at| self.crlf.binary_search(&at).is_ok())
    }

    /// The file with `new` inserted at these positions. Each line of `new` gets the line ending of the old line that it
    /// replaces. Additional lines get the ending of the line that follows.
    fn replace(&self, bytes: &[u8], places: &[usize], length: usize, new: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut from = 0;
        for at in places {
            out.extend_from_slice(&bytes[from..self.file_offset(*at)]);
            let mut ends = self.ends(*at..at + length);
            let here = self.ends(at + length..self.bytes.len()).next();
            let mut is_crlf = here.or_else(|| self.ends(0..*at).next_back()).unwrap_or_default();
            for line in new.split_inclusive('\n') {
                is_crlf = ends.next().unwrap_or(is_crlf);
                match line.strip_suffix('\n') {
                    Some(line) if is_crlf => {
                        out.extend_from_slice(line.as_bytes());
                        out.extend_from_slice(b"\r\n");
                    }
                    _ => out.extend_from_slice(line.as_bytes()),
                }
            }
            from = self.file_offset(at + length);
        }
        out.extend_from_slice(&bytes[from..]);
        out
    }
}

/// The positions of `wanted`, without overlaps.
fn find(bytes: &[u8], wanted: &[u8]) -> Vec<usize> {
    let mut places = Vec::new();
    let mut from = 0;
    while let Some(at) = bytes[from..].windows(wanted.len()).position(|window| window == wanted) {
        places.push(from + at);
        from += at + wanted.len();
    }
    places
}

fn line_of(bytes: &[u8], at: usize) -> usize {
    bytes[..at].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// The error for a text that was not found, with the most similar lines.
fn not_found(text: &str, old: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let wanted: Vec<&str> = old.lines().collect();
    let normalized = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let (have, want): (Vec<_>, Vec<_>) =
        (lines.iter().map(|line| normalized(line)).collect(), wanted.iter().map(|line| normalized(line)).collect());
    let width = wanted.len().clamp(1, 40);
    if let Some(at) = have.windows(want.len()).position(|window| window == want) {
        return format!(
            "`old` was found only with different white space. The exact lines:\n{}",
            numbered(&lines, at, width)
        );
    }
    match nearest(&have, &want) {
        Some(at) => format!("`old` was not found. The most similar lines:\n{}", numbered(&lines, at, width)),
        None => "`old` was not found, and nothing similar either: read the file again".into(),
    }
}

/// The first of the lines that are most similar to `want`.
fn nearest(have: &[String], want: &[String]) -> Option<usize> {
    let score = |at: usize| {
        let window = have[at..].iter().zip(want).filter(|(have, want)| have == want && !want.is_empty());
        window.count()
    };
    let best = (0..have.len()).max_by_key(|at| (score(*at), usize::MAX - at)).filter(|at| score(*at) > 0);
    best.or_else(|| {
        let longest = want.iter().enumerate().max_by_key(|(_, line)| line.len())?;
        let lines = have.iter().take(20_000).map(String::as_str).filter(|line| line.len() < 1_000);
        let near = *most_like(longest.1, lines, 1).first()?;
        let at = have.iter().position(|line| line == near)?;
        Some(at.saturating_sub(longest.0))
    })
}

fn numbered(lines: &[&str], from: usize, count: usize) -> String {
    let shown = lines.iter().enumerate().skip(from).take(count);
    shown.map(|(at, line)| format!("{:>6}\t{}\n", at + 1, cut::line(line, 500))).collect()
}
