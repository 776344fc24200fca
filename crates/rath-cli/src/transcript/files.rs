//! Branches that came in, and files that were set back.

use rath::Point;
use rath::body::Why;
use rath::files::Conflict;
use rath::inspect::transcript::{ChangeSummary, MergedBranch};

use super::{How, changes};
use crate::commands::log::clip;
use crate::output::{self, style};

pub(super) fn forked(from: Point, why: &str, diverged: Option<&str>) -> String {
    let diverged = diverged.map(|diverged| format!(": {diverged}")).unwrap_or_default();
    let why = clip(&rath::summary::one_line(&format!("{why}{diverged}")), 300);
    format!("⑂ forked from {from}: {why} {}", style::dim(format!("(rath show {})", from.session.short())))
}

/// A line for each branch, then what the merge did to the files.
pub(super) fn merged(
    branches: &[MergedBranch],
    changed: &ChangeSummary,
    conflicts: &[Conflict],
    how: How,
) -> Vec<String> {
    let mut lines = Vec::new();
    for branch in branches {
        let why = branch.why.as_ref().map(|why| format!(", {why}")).unwrap_or_default();
        let left_out = if branch.without_files { ", its files left out" } else { "" };
        let short = branch.session.short();
        lines.push(format!(
            "⇐ merged {}{}{left_out} {}",
            style::session(&short),
            output::harmless(&why),
            style::dim(format!("(rath show {short})"))
        ));
    }
    let paths = changes::paths(changed);
    if !paths.is_empty() {
        lines.push(format!("  {}", style::label(&paths)));
    }
    lines.extend(changes::difference(changed, how.whole).into_iter().map(|line| format!("  {line}")));
    for conflict in conflicts {
        let what = output::harmless(&format!("  conflict: {} ({})", conflict.path, conflict.kind));
        lines.push(style::bad(what));
    }
    lines
}

pub(super) fn restored(why: Why, changed: &ChangeSummary) -> String {
    let what = match why {
        Why::Asked => "↺ files restored",
        Why::Undo => "↺ undo",
        Why::Recovered => "↺ a restore finished after a crash",
        Why::Resumed => "↺ files set back before a call is made again",
        Why::Unknown(why) => &output::harmless(&format!("↺ files restored ({why})")),
    };
    let paths = changes::paths(changed);
    let paths = if paths.is_empty() { String::new() } else { format!(": {paths}") };
    style::label(format!("{what}{paths}"))
}
