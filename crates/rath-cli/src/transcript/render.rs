//! An entry of a transcript as lines of a terminal.

use rath::Kind;
use rath::inspect::transcript::{EntryKind, Speaker, TranscriptEntry};

use super::model::{self, COLUMN};
use super::questions::{self, RecordedAnswer};
use super::{branches, call, step};
use crate::commands::log::clip;
use crate::output::{self, style};

/// How entries are rendered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RenderOptions {
    /// Whether diffs are shown in full.
    pub(crate) whole: bool,
    /// Whether entries are printed as they happen: then each names its call, because it does not follow it directly.
    pub(crate) live: bool,
}

/// The lines of one entry.
pub(crate) struct CallLines {
    /// The call that the lines belong to.
    pub(crate) call: Option<String>,
    /// Whether they start its block.
    pub(crate) starts_block: bool,
    pub(crate) lines: Vec<String>,
}

/// Renders an entry.
pub(crate) fn render(entry: TranscriptEntry, how: RenderOptions) -> CallLines {
    let starts_block = entry.starts_call();
    CallLines { starts_block, lines: lines(&entry, how), call: entry.call }
}

fn lines(entry: &TranscriptEntry, how: RenderOptions) -> Vec<String> {
    let (at, time, indent) = (entry.at, entry.time, entry.depth * 2);
    let call_id = entry.call.as_deref().unwrap_or_default();
    let column = indent + COLUMN;
    // Questions about a call are indented below it.
    let question_indent = if entry.call.is_some() { column } else { indent };
    let plain = |line: String| vec![format!("{:indent$}{line}", "")];
    match &entry.what {
        EntryKind::Message { speaker, text, attached } => {
            let role = match speaker {
                Speaker::System => "system",
                Speaker::User => "user",
                Speaker::Note => "note",
            };
            let mut said = model::message(role, text, indent, at);
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
            model::FailedRequest { why, status, lost, retried, partial }.lines(indent, at)
        }
        EntryKind::StepEntered { name, role, model, version } => {
            plain(step::entered((name, *role), model.as_deref(), version.as_deref(), time, at))
        }
        EntryKind::StepLeft { name, outcome, duration_us, turns, usage, value } => {
            let finished = step::finished(name, *outcome, *duration_us, *turns, usage);
            plain(finished + &super::text::step_value(value.as_ref()))
        }
        EntryKind::CallStarted { tool, by_hand, again, attempt, outside } => {
            let first = by_hand.as_ref().map(|line| format!("{:column$}{}", "", call::made_by_hand(tool, line)));
            let mut lines: Vec<String> = first.into_iter().collect();
            let below = column + 2;
            let whose = if how.live { style::dim(output::escaped(&format!("[{call_id}] "))) } else { String::new() };
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
            let whose = if how.live { output::escaped(&format!("[{call_id}] ")) } else { String::new() };
            vec![format!("{:column$}← {whose}{}", "", style::label("abandoned"))]
        }
        EntryKind::Asked { by, about, shown, rule } => {
            questions::asked(*about, shown.as_ref(), rule.as_deref(), (by, time), question_indent, at)
        }
        EntryKind::Answered { by, verdict, text, why, late } => {
            let answer = RecordedAnswer { verdict, text: text.as_ref(), why: why.as_deref(), superseded: *late };
            answer.lines((by, time), question_indent, at)
        }
        EntryKind::Granted { by, allows } => plain(questions::granted(allows, by, at)),
        EntryKind::Failed { why, code } => {
            let code = code.as_ref().map(|code| format!(" (rath help error {code})")).unwrap_or_default();
            let why = style::bad(output::escaped(&format!("✗ failed: {why}")));
            plain(format!("{why}{}", style::dim(code)))
        }
        EntryKind::Cancelled { why } => plain(style::label(output::escaped(&format!("✗ cancelled: {why}")))),
        EntryKind::Forked { from, why, diverged } => plain(branches::forked(*from, why, diverged.as_deref())),
        EntryKind::Merged { branches, changed, conflicts } => {
            let render = branches::merged(branches, changed, conflicts, how);
            render.into_iter().map(|line| format!("{:indent$}{line}", "")).collect()
        }
        EntryKind::Restored { why, changed } => plain(branches::restored(*why, changed)),
        EntryKind::Sampled { what, value } => plain(style::dim(clip(&format!("sampled {what} = {value}"), 100))),
        EntryKind::Other { kind: Kind::SandboxLost, summary, unreadable: false } => {
            plain(style::label(clip(summary, 160)))
        }
        EntryKind::Other { summary, unreadable, .. } => {
            plain(style::dim(clip(summary, if *unreadable { 100 } else { 160 })))
        }
        // EntryKind is non-exhaustive.
        _ => Vec::new(),
    }
}
