//! Tool calls: arguments, outcome, changed files, and what the model was shown of the result.

use rath::body::{CallOutcome, Exit, ToolFinished};
use rath::inspect::transcript::{ChangeSummary, Excerpt};
use rath::{Content, Point};

use super::text::{TextLines, seq, span};
use super::{RenderOptions, changes};
use crate::commands::log::clip;
use crate::output::{self, style};

/// How many characters of a call's arguments are shown.
const MAX_ARGUMENTS: usize = 160;

/// `→ shell {"command":"ls"} [call-0-1]`
pub(super) fn made(tool: &str, arguments: &Content, id: &str) -> String {
    let arguments = clip(&arguments.to_string(), MAX_ARGUMENTS);
    let (tool, id) = (style::title(output::escaped(tool)), style::dim(output::escaped(&format!("[{id}]"))));
    format!("→ {tool} {arguments} {id}")
}

/// A call that a person made, such as a command.
pub(super) fn made_by_hand(tool: &str, line: &str) -> String {
    let tool = if tool == "exec" { "$".to_owned() } else { output::escaped(tool) };
    format!("→ {} {}", style::title(tool), clip(line, MAX_ARGUMENTS))
}

/// Remarks about how a call started.
pub(super) fn started(again: bool, attempt: u32, outside: u64) -> Vec<String> {
    let mut lines = Vec::new();
    if again {
        lines.push(style::label("interrupted; repeated"));
    }
    if attempt > 1 {
        lines.push(style::label(format!("attempt {attempt}")));
    }
    if outside > 0 {
        let paths = output::count(outside, "path");
        lines.push(style::label(format!("{paths} changed by others before it")));
    }
    lines
}

/// Tool and id of a call, if the line does not directly follow it.
pub(super) type CallName<'a> = Option<(&'a str, &'a str)>;

fn call_name(named: CallName<'_>) -> String {
    named.map(|(tool, id)| style::dim(output::escaped(&format!("{tool} [{id}] ")))).unwrap_or_default()
}

/// The outcome, the changed files, and what the model was shown of the result.
pub(super) fn finished(
    body: &ToolFinished,
    changed: &ChangeSummary,
    shown: Option<&Excerpt>,
    how: RenderOptions,
    named: CallName<'_>,
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
        call_name(named),
        ended(body),
        style::dim(took),
        seq(at)
    )];
    let below = indent + 2;
    for refused in &body.refused {
        let what = output::escaped(&format!("blocked: {} ×{}", refused.what, refused.times));
        lines.push(format!("{:below$}{}", "", style::bad(what)));
    }
    if let Some(beyond) = &body.limit_exceeded {
        let what = style::bad(output::escaped(&format!("stopped: limit exceeded: {beyond}")));
        lines.push(format!("{:below$}{what}", ""));
    }
    for effect in &body.effects {
        let kept = if effect.reversible { "" } else { ", irreversible" };
        let what = output::escaped(&format!("outside: {} {}{kept}", effect.system, effect.object));
        lines.push(format!("{:below$}{}", "", style::label(what)));
    }
    if body.killed_orphans > 0 {
        let what = format!("{} orphaned, killed", output::count(body.killed_orphans, "process"));
        lines.push(format!("{:below$}{}", "", style::label(what)));
    }
    for remark in &body.remarks {
        lines.push(format!("{:below$}{}", "", style::label(output::escaped(remark))));
    }
    lines.extend(changes::difference(changed, how.whole).into_iter().map(|line| format!("{:below$}{line}", "")));
    match shown {
        Some(shown) => lines.extend(TextLines::of(shown).marked("│ ", below, at)),
        None => lines.push(format!("{:below$}{}", "", style::dim(format!("(output: rath show {at})")))),
    }
    for attached in body.attached() {
        lines.push(format!("{:below$}{}", "", style::dim(output::escaped(&attached.to_string()))));
    }
    if let Some(to) = &body.hand_off {
        lines.push(format!("{:below$}{}", "", style::label(output::escaped(&format!("hands off to {to}")))));
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
        CallOutcome::Lost => style::bad("outcome unknown"),
        CallOutcome::Unknown(way) => style::bad(output::escaped(&way.to_string())),
    }
}

/// A result that was recorded without a finished call: a refusal, an answer, invalid arguments.
pub(super) fn result(
    failed: bool,
    shown: Option<&Excerpt>,
    named: CallName<'_>,
    indent: usize,
    at: Point,
) -> Vec<String> {
    let Some(shown) = shown else {
        return vec![format!(
            "{:indent$}← {}{}",
            "",
            call_name(named),
            if failed { style::bad("failed") } else { style::good("done") }
        )];
    };
    let mut words = TextLines::of(shown);
    let first = if words.lines.is_empty() { String::new() } else { words.lines.remove(0) };
    let first = if failed { format!("{} {first}", style::bad("failed:")) } else { first };
    let mut lines = vec![format!("{:indent$}← {}{first}", "", call_name(named)).trim_end().to_owned()];
    lines.extend(words.indented(indent + 2, at));
    lines
}
