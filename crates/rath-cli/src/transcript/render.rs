//! An entry of a transcript as lines of a terminal.

use rath::Kind;
use rath::inspect::transcript::{Entry, EntryKind, Speaker};

use super::model::{self, COLUMN};
use super::people::{self, Answer};
use super::{call, files, step};
use crate::commands::log::clip;
use crate::output::{self, style};

/// How entries are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Whether differences are shown whole.
    pub(crate) whole: bool,
    /// Whether lines come as they happen, and so each names its call.
    pub(crate) live: bool,
}

/// The lines of one entry.
pub(crate) struct Told {
    /// The call that they are about.
    pub(crate) call: Option<String>,
    /// Whether they begin its block.
    pub(crate) begins: bool,
    pub(crate) lines: Vec<String>,
}

/// Shows an entry.
pub(crate) fn told(entry: Entry, how: How) -> Told {
    let begins = entry.begins_call();
    Told { begins, lines: lines(&entry, how), call: entry.call }
}

fn lines(entry: &Entry, how: How) -> Vec<String> {
    let (at, time, indent) = (entry.at, entry.time, entry.depth * 2);
    let call_id = entry.call.as_deref().unwrap_or_default();
    let column = indent + COLUMN;
    // Questions about a call stand below it.
    let beside = if entry.call.is_some() { column } else { indent };
    let plain = |line: String| vec![format!("{:indent$}{line}", "")];
    match &entry.what {
        EntryKind::Message { speaker, text, attached } => {
            let role = match speaker {
                Speaker::System => "system",
                Speaker::User => "user",
                Speaker::Note => "note",
            };
            let mut said = model::say(role, text, indent, at);
            said.extend(attached.iter().map(|attached| format!("{:column$}{attached}", "")));
            said
        }
        EntryKind::Turn { turn } => model::turn(turn, indent, at),
        EntryKind::CallRequested { tool, arguments, opens_turn } => {
            let made = call::made(tool, arguments, call_id);
            match opens_turn {
                true => plain(format!("{}  {made}", style::record("assistant"))),
                false => vec![format!("{:column$}{made}", "")],
            }
        }
        EntryKind::TurnFinished { turn, latency_us, usage, stop } => {
            plain(model::cost(*turn, *latency_us, usage, stop.as_deref(), at))
        }
        EntryKind::ModelFailed { why, status, lost, retried, partial } => {
            let (status, lost, retried, partial) = (*status, *lost, *retried, partial.as_ref());
            model::Failure { why, status, lost, retried, partial }.lines(indent, at)
        }
        EntryKind::StepEntered { name, role, model, version } => {
            plain(step::entered((name, *role), model.as_deref(), version.as_deref(), time, at))
        }
        EntryKind::StepLeft { name, outcome, duration_us, turns, usage, value } => {
            let left = step::left(name, *outcome, *duration_us, *turns, usage);
            plain(left + &super::words::step_value(value.as_ref()))
        }
        EntryKind::CallStarted { tool, by_hand, again, attempt, outside } => {
            let begun = by_hand.as_ref().map(|line| format!("{:column$}{}", "", call::made_by_hand(tool, line)));
            let mut lines: Vec<String> = begun.into_iter().collect();
            let below = column + 2;
            let whose = if how.live { style::dim(output::harmless(&format!("[{call_id}] "))) } else { String::new() };
            let unusual = call::started(*again, *attempt, *outside);
            lines.extend(unusual.into_iter().map(|line| format!("{:below$}{whose}{line}", "")));
            lines
        }
        EntryKind::CallFinished { tool, finished, changed, shown } => {
            let whose = how.live.then_some((tool.as_str(), call_id));
            call::finished(finished, changed, shown.as_ref(), how, whose, column, at)
        }
        EntryKind::CallResult { tool, failed, shown } => {
            let whose = how.live.then_some((tool.as_str(), call_id));
            call::result(*failed, shown.as_ref(), whose, column, at)
        }
        EntryKind::CallGivenUp => {
            let whose = if how.live { output::harmless(&format!("[{call_id}] ")) } else { String::new() };
            vec![format!("{:column$}← {whose}{}", "", style::label("given up"))]
        }
        EntryKind::Asked { by, about, shown, rule } => {
            people::asked(*about, shown.as_ref(), rule.as_deref(), (by, time), beside, at)
        }
        EntryKind::Answered { by, verdict, text, why, late } => {
            let answer = Answer { verdict, text: text.as_ref(), why: why.as_deref(), late: *late };
            answer.lines((by, time), beside, at)
        }
        EntryKind::Granted { by, allows } => plain(people::granted(allows, by, at)),
        EntryKind::Failed { why, code } => {
            let code = code.as_ref().map(|code| format!(" (rath explain {code})")).unwrap_or_default();
            let why = style::bad(output::harmless(&format!("✗ failed: {why}")));
            plain(format!("{why}{}", style::dim(code)))
        }
        EntryKind::Cancelled { why } => plain(style::label(output::harmless(&format!("✗ cancelled: {why}")))),
        EntryKind::Forked { from, why, diverged } => plain(files::forked(*from, why, diverged.as_deref())),
        EntryKind::Merged { branches, changed, conflicts } => {
            let told = files::merged(branches, changed, conflicts, how);
            told.into_iter().map(|line| format!("{:indent$}{line}", "")).collect()
        }
        EntryKind::Restored { why, changed } => plain(files::restored(*why, changed)),
        EntryKind::Sampled { what, value } => plain(style::dim(clip(&format!("sampled {what} = {value}"), 100))),
        EntryKind::Other { kind: Kind::SandboxLost, summary, unreadable: false } => {
            plain(style::label(clip(summary, 160)))
        }
        EntryKind::Other { summary, unreadable, .. } => {
            plain(style::dim(clip(summary, if *unreadable { 100 } else { 160 })))
        }
        // A later version of the library may know more.
        _ => Vec::new(),
    }
}
