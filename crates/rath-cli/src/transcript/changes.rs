//! What a call did to files.

use rath::inspect::transcript::{ChangeSummary, ChangedPath, LineCounts};

use crate::output::{self, style};

/// At most this many lines of a difference.
const LINES: usize = 10;

/// Changed paths in a few words: `M notes (+1 −1)`, empty where nothing changed.
pub(crate) fn paths(changed: &ChangeSummary) -> String {
    let named: Vec<_> = changed.paths.iter().map(named).collect();
    let more = if changed.more > 0 { format!(" and {} more", changed.more) } else { String::new() };
    output::harmless(&(named.join(", ") + &more))
}

/// The difference, line by line, coloured.
pub(crate) fn difference(changed: &ChangeSummary, whole: bool) -> Vec<String> {
    let Some(patch) = &changed.patch else { return Vec::new() };
    match whole {
        true => coloured(patch, true),
        false => cut(coloured(patch, changed.patched > 1)),
    }
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

/// The hunks of a patch; names of files only where there are several.
fn coloured(text: &str, names: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let mut in_hunk = false;
    for line in text.lines() {
        let shown = output::harmless(line);
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
                // Names that are no plain text stand in quotes.
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
    if lines.len() > LINES {
        let more = lines.len() - LINES;
        lines.truncate(LINES);
        lines.push(style::dim(format!("({more} more lines: --patch)")));
    }
    lines
}
