//! A call: what it was asked, how it ended, what it changed, what the model was shown.

use rath::body::{CallOutcome, Exit, ToolFinished};
use rath::inspect::transcript::{ChangeSummary, Excerpt};
use rath::{Content, Point};

use super::words::{Words, seq, span};
use super::{How, changes};
use crate::commands::log::clip;
use crate::output::{self, style};

/// As much of a call's arguments as stands in its line.
const ARGUMENTS: usize = 160;

/// `→ shell {"command":"ls"} [call-0-1]`
pub(super) fn made(tool: &str, arguments: &Content, id: &str) -> String {
    let arguments = clip(&arguments.to_string(), ARGUMENTS);
    let (tool, id) = (style::title(output::harmless(tool)), style::dim(output::harmless(&format!("[{id}]"))));
    format!("→ {tool} {arguments} {id}")
}

/// A call that no model made: a command, mostly.
pub(super) fn made_by_hand(tool: &str, line: &str) -> String {
    let tool = if tool == "exec" { "$".to_owned() } else { output::harmless(tool) };
    format!("→ {} {}", style::title(tool), clip(line, ARGUMENTS))
}

/// What is unusual about the beginning of a call.
pub(super) fn started(again: bool, attempt: u32, outside: u64) -> Vec<String> {
    let mut lines = Vec::new();
    if again {
        lines.push(style::label("it was interrupted, and is made again"));
    }
    if attempt > 1 {
        lines.push(style::label(format!("attempt {attempt}")));
    }
    if outside > 0 {
        let paths = output::count(outside, "path");
        lines.push(style::label(format!("{paths} had changed outside before it")));
    }
    lines
}

/// Who the lines are about, where they do not stand under their call.
pub(super) type Whose<'a> = Option<(&'a str, &'a str)>;

fn whose(named: Whose<'_>) -> String {
    named.map(|(tool, id)| style::dim(output::harmless(&format!("{tool} [{id}] ")))).unwrap_or_default()
}

/// How it ended, what it changed, and what the model was shown of it.
pub(super) fn finished(
    body: &ToolFinished,
    changed: &ChangeSummary,
    shown: Option<&Excerpt>,
    how: How,
    named: Whose<'_>,
    indent: usize,
    at: Point,
) -> Vec<String> {
    let took = body.duration_us.map(|us| format!(" in {}", span(us))).unwrap_or_default();
    let paths = changes::paths(changed);
    let paths = if paths.is_empty() { String::new() } else { format!(", {}", style::label(&paths)) };
    let isolated = match body.isolated {
        Some(false) => format!(", {}", style::label("not isolated")),
        _ => String::new(),
    };
    let mut lines = vec![format!(
        "{:indent$}← {}{}{}{paths}{isolated} {}",
        "",
        whose(named),
        ended(body),
        style::dim(took),
        seq(at)
    )];
    let below = indent + 2;
    for refused in &body.refused {
        let what = output::harmless(&format!("refused: {} ×{}", refused.what, refused.times));
        lines.push(format!("{:below$}{}", "", style::bad(what)));
    }
    if let Some(beyond) = &body.beyond {
        let what = style::bad(output::harmless(&format!("stopped beyond its limit: {beyond}")));
        lines.push(format!("{:below$}{what}", ""));
    }
    for effect in &body.effects {
        let kept = if effect.reversible { "" } else { ", cannot be taken back" };
        let what = output::harmless(&format!("outside: {} {}{kept}", effect.system, effect.object));
        lines.push(format!("{:below$}{}", "", style::label(what)));
    }
    if body.left_behind > 0 {
        let what = format!("{} left behind, killed", output::count(body.left_behind, "process"));
        lines.push(format!("{:below$}{}", "", style::label(what)));
    }
    for remark in &body.remarks {
        lines.push(format!("{:below$}{}", "", style::label(output::harmless(remark))));
    }
    lines.extend(changes::difference(changed, how.whole).into_iter().map(|line| format!("{:below$}{line}", "")));
    match shown {
        Some(shown) => lines.extend(Words::of(shown).behind("│ ", below, at)),
        None => lines.push(format!("{:below$}{}", "", style::dim(format!("(what it put out: rath show {at})")))),
    }
    for attached in body.attached() {
        lines.push(format!("{:below$}{}", "", style::dim(output::harmless(&attached.to_string()))));
    }
    if let Some(to) = &body.hand_off {
        lines.push(format!("{:below$}{}", "", style::label(output::harmless(&format!("hands off to {to}")))));
    }
    lines
}

fn ended(body: &ToolFinished) -> String {
    let code = match &body.exit {
        Some(Exit::Code(code)) => format!("exit {code}"),
        Some(Exit::Signal(signal)) => format!("killed by signal {signal}"),
        Some(Exit::Unknown(way)) => way.to_string(),
        None => String::new(),
    };
    match body.outcome {
        CallOutcome::Done if code.is_empty() => style::good("done"),
        CallOutcome::Done if code == "exit 0" => style::good(code),
        CallOutcome::Done => style::label(code),
        CallOutcome::Failed if code.is_empty() => style::bad("failed"),
        CallOutcome::Failed => style::bad(code),
        CallOutcome::TimedOut => style::bad("timed out"),
        CallOutcome::Cancelled => style::label("stopped"),
        CallOutcome::Lost => style::bad("nobody saw it end"),
        CallOutcome::Unknown(way) => style::bad(output::harmless(&way.to_string())),
    }
}

/// What the model was told where no call ended: a refusal, an answer, arguments that could not be used.
pub(super) fn result(failed: bool, shown: Option<&Excerpt>, named: Whose<'_>, indent: usize, at: Point) -> Vec<String> {
    let Some(shown) = shown else {
        return vec![format!(
            "{:indent$}← {}{}",
            "",
            whose(named),
            if failed { style::bad("failed") } else { style::good("done") }
        )];
    };
    let mut words = Words::of(shown);
    let first = if words.lines.is_empty() { String::new() } else { words.lines.remove(0) };
    let first = if failed { format!("{} {first}", style::bad("failed:")) } else { first };
    let mut lines = vec![format!("{:indent$}← {}{first}", "", whose(named)).trim_end().to_owned()];
    lines.extend(words.indented(indent + 2, at));
    lines
}
