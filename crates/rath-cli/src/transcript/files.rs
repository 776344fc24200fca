//! Branches that came in, and files that were set back.

use std::sync::Arc;

use anyhow::Result;
use rath::Store;
use rath::body::{Forked, Merged, Restored, Why};

use super::{How, changes};
use crate::commands::log::clip;
use crate::output::{self, style};

pub(super) fn forked(body: &Forked) -> String {
    let diverged = body.instead.as_ref().map(|instead| format!(": {}", instead.diverged)).unwrap_or_default();
    let why = clip(&rath::summary::one_line(&format!("{}{diverged}", body.why)), 300);
    let text = format!("forked from {}: {why}", body.from);
    format!("⑂ {text} {}", style::dim(format!("(rath show {})", body.from.session.short())))
}

/// A line for each branch, then what it did to the files.
pub(super) async fn merged(store: &Arc<dyn Store>, body: &Merged, how: &How) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for branch in &body.branches {
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
    let Some(files) = &body.files else { return Ok(lines) };
    let told = changes::tell(store, &files.changed, how).await?;
    if !told.paths.is_empty() {
        lines.push(format!("  {}", style::label(&told.paths)));
    }
    lines.extend(told.lines.into_iter().map(|line| format!("  {line}")));
    for conflict in &files.conflicts {
        let what = output::harmless(&format!("  conflict: {} ({})", conflict.path, conflict.kind));
        lines.push(style::bad(what));
    }
    Ok(lines)
}

pub(super) async fn restored(store: &Arc<dyn Store>, body: &Restored, how: &How) -> Result<String> {
    let told = changes::tell(store, &body.changed, &How { diff: false, ..how.clone() }).await?;
    let what = match body.why {
        Why::Asked => "↺ files restored",
        Why::Undo => "↺ undo",
        Why::Recovered => "↺ a restore finished after a crash",
        Why::Resumed => "↺ files set back before a call is made again",
    };
    let paths = if told.paths.is_empty() { String::new() } else { format!(": {}", told.paths) };
    Ok(style::label(format!("{what}{paths}")))
}
