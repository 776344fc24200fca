//! What a call did to files.

use std::sync::Arc;

use anyhow::Result;
use rath::Store;
use rath::files::{Changes, Forest, Stat, patch};

use super::How;
use crate::output::{self, style};

/// At most this many paths are named and compared.
const PATHS: usize = 8;
/// At most this many lines of a difference.
const LINES: usize = 10;

/// Changed paths in a few words, and the difference.
pub(super) struct Told {
    /// `M notes (+1 −1)`, empty where nothing changed.
    pub(super) paths: String,
    /// The difference, line by line, coloured.
    pub(super) lines: Vec<String>,
}

pub(super) async fn tell(store: &Arc<dyn Store>, changes: &Changes, how: &How) -> Result<Told> {
    let shown: Vec<_> = changes.paths.iter().filter(|change| !change.is_directory()).cloned().collect();
    let few = shown.len() <= PATHS && changes.is_complete();
    if shown.is_empty() || !how.diff || !(few || how.whole) {
        let named: Vec<_> =
            shown.iter().take(PATHS).map(|change| format!("{} {}", change.letter(), change.path)).collect();
        let more = (changes.total as usize).saturating_sub(changes.paths.len()) + shown.len().saturating_sub(PATHS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        return Ok(Told { paths: output::harmless(&(named.join(", ") + &more)), lines: Vec::new() });
    }
    let forest = Forest::new(&**store);
    let Ok(patch) = patch(&forest, &shown).await else {
        // A version may have been swept away; which paths changed is known all the same.
        let named: Vec<_> = shown.iter().map(|change| format!("{} {}", change.letter(), change.path)).collect();
        return Ok(Told { paths: output::harmless(&named.join(", ")), lines: Vec::new() });
    };
    let paths = patch.stat.iter().take(PATHS).map(named).collect::<Vec<_>>().join(", ");
    let text = String::from_utf8_lossy(&patch.text);
    let lines = if how.whole { coloured(&text, true) } else { cut(coloured(&text, patch.stat.len() > 1)) };
    Ok(Told { paths, lines })
}

/// As [`tell`], for whoever shows a call while it happens: the paths, and the lines of the difference.
pub(crate) async fn changed_files(
    store: &Arc<dyn Store>,
    changes: &Changes,
    how: &How,
) -> Result<(String, Vec<String>)> {
    tell(store, changes, how).await.map(|told| (told.paths, told.lines))
}

fn named(stat: &Stat) -> String {
    let size = match (stat.binary, stat.added, stat.removed) {
        (true, ..) => " (binary)".to_owned(),
        (_, 0, 0) => String::new(),
        (_, added, 0) => format!(" (+{added})"),
        (_, 0, removed) => format!(" (−{removed})"),
        (_, added, removed) => format!(" (+{added} −{removed})"),
    };
    output::harmless(&format!("{} {}{size}", stat.letter, stat.path))
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
