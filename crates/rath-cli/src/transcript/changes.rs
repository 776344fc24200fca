//! Changed files of a call.

use rath::inspect::transcript::{ChangeSummary, ChangedPath, LineCounts};

use crate::output::{self, style};

/// How many lines of a diff are shown.
const MAX_LINES: usize = 10;

/// Changed paths with line counts: `M notes (+1 −1)`. Empty if nothing changed.
pub(crate) fn paths(changed: &ChangeSummary) -> String {
    let named: Vec<_> = changed.paths.iter().map(named).collect();
    let more = if changed.more > 0 { format!(" and {} more", changed.more) } else { String::new() };
    output::escaped(&(named.join(", ") + &more))
}

/// The lines of the diff, coloured.
pub(crate) fn difference(changed: &ChangeSummary, whole: bool) -> Vec<String> {
    let Some(patch) = &changed.patch else { return Vec::new() };
    if whole { coloured(patch, true) } else { cut(coloured(patch, changed.patched > 1)) }
}

fn named(changed: &ChangedPath) -> String {
    let size = match changed.lines {
        None | Some(LineCounts { binary: false, added: 0, removed: 0 }) => String::new(),
        Some(LineCounts { binary: true, .. }) => " (binary)".to_owned(),
        Some(LineCounts { added, removed: 0, .. }) => format!(" (+{added})"),
        Some(LineCounts { added: 0, removed, .. }) => format!(" (−{removed})"),
        Some(LineCounts { added, removed, .. }) => format!(" (+{added} −{removed})"),
    };
    format!("{} {}{size}", changed.letter, changed.path)
}

/// The hunks of a patch, with file names only if there are several files.
fn coloured(text: &str, names: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let mut in_hunk = false;
    for line in text.lines() {
        let shown = output::escaped(line);
        match line.as_bytes().first() {
            _ if line.starts_with("diff ") => in_hunk = false,
            Some(b'@') => {
                in_hunk = true;
                lines.push(style::record(shown));
            }
            Some(b'+') if in_hunk => lines.push(style::good(shown)),
            Some(b'-') if in_hunk => lines.push(style::bad(shown)),
            _ if in_hunk => lines.push(shown),
            _ if names => {
                // Names with special characters are quoted.
                let plain = || shown.strip_prefix("+++ b/").or_else(|| shown.strip_prefix("--- a/"));
                let quoted = || shown.strip_prefix("+++ \"b/").or_else(|| shown.strip_prefix("--- \"a/"));
                let name = plain().or_else(|| quoted()?.strip_suffix('"')).map(style::title);
                if name.is_some() && lines.last() != name.as_ref() {
                    lines.extend(name);
                }
            }
            _ => {}
        }
    }
    lines
}

fn cut(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > MAX_LINES {
        let more = lines.len() - MAX_LINES;
        lines.truncate(MAX_LINES);
        lines.push(style::dim(format!("({more} more lines: --patch)")));
    }
    lines
}
