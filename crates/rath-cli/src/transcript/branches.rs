//! Forks, merges and restored files.

use rath::Point;
use rath::body::RestoreReason;
use rath::files::Conflict;
use rath::inspect::transcript::{ChangeSummary, MergedBranch};

use super::{RenderOptions, changes};
use crate::commands::log::clip;
use crate::output::{self, style};

pub(super) fn forked(from: Point, why: &str, diverged: Option<&str>) -> String {
    let diverged = diverged.map(|diverged| format!(": {diverged}")).unwrap_or_default();
    let why = clip(&rath::summary::one_line(&format!("{why}{diverged}")), 300);
    format!("⑂ forked from {from}: {why} {}", style::dim(format!("(rath show {})", from.session.short())))
}

/// One line for each branch, then the changes that the merge made to files.
pub(super) fn merged(
    branches: &[MergedBranch],
    changed: &ChangeSummary,
    conflicts: &[Conflict],
    how: RenderOptions,
) -> Vec<String> {
    let mut lines = Vec::new();
    for branch in branches {
        let why = branch.why.as_ref().map(|why| format!(", {why}")).unwrap_or_default();
        let left_out = if branch.without_files { ", without its files" } else { "" };
        let short = branch.session.short();
        lines.push(format!(
            "⇐ merged {}{}{left_out} {}",
            style::session(&short),
            output::escaped(&why),
            style::dim(format!("(rath show {short})"))
        ));
    }
    let paths = changes::paths(changed);
    if !paths.is_empty() {
        lines.push(format!("  {}", style::label(&paths)));
    }
    lines.extend(changes::difference(changed, how.whole).into_iter().map(|line| format!("  {line}")));
    for conflict in conflicts {
        let what = output::escaped(&format!("  conflict: {} ({})", conflict.path, conflict.kind));
        lines.push(style::bad(what));
    }
    lines
}

pub(super) fn restored(why: RestoreReason, changed: &ChangeSummary) -> String {
    let what = match why {
        RestoreReason::Asked => "↺ files restored",
        RestoreReason::Undo => "↺ undo",
        RestoreReason::Recovered => "↺ a restore finished after a crash",
        RestoreReason::Resumed => "↺ files restored before a call is repeated",
        RestoreReason::Unknown(why) => &output::escaped(&format!("↺ files restored ({why})")),
    };
    let paths = changes::paths(changed);
    let paths = if paths.is_empty() { String::new() } else { format!(": {paths}") };
    style::label(format!("{what}{paths}"))
}
