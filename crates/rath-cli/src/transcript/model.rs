//! Turns of a model, and failed requests.

use rath::body::{Assistant, Block};
use rath::inspect::transcript::Excerpt;
use rath::model::{StopKind, StopReason};
use rath::{Content, Point, Usage};

use super::text::{TextLines, seq, span, usage};
use crate::output::{self, style};

/// The column at which text starts, after the role.
pub(super) const COLUMN: usize = 11;

/// A message with its role.
pub(super) fn message(role: &str, content: &Content, indent: usize, at: Point) -> Vec<String> {
    let text = content.to_string();
    let mut words = TextLines::whole(&text).lines.into_iter();
    let below = indent + COLUMN;
    let first = words.next().unwrap_or_default();
    let mut lines =
        vec![format!("{:indent$}{}  {first}", "", style::record(format!("{role:>9}"))).trim_end().to_owned()];
    lines.extend(words.map(|line| format!("{:below$}{line}", "").trim_end().to_owned()));
    if matches!(content, Content::Blob(_)) {
        lines.push(format!("{:below$}{}", "", style::dim(format!("(full text: rath show {at})"))));
    }
    lines
}

/// The text of a turn; its calls follow as entries of their own.
pub(super) fn turn(turn: &Assistant, indent: usize, at: Point) -> Vec<String> {
    let mut lines = Vec::new();
    for block in &turn.blocks {
        let content = match block {
            Block::Text { text } => text.clone(),
            Block::Reasoning { text } => Content::Text(format!("(reasoning: {text})")),
            Block::Image { image } => Content::Text(format!("[image, {} bytes]", image.bytes)),
            Block::Unknown(block) => Content::Text(format!("[{block}]")),
            Block::ToolUse { .. } => continue,
        };
        let role = if lines.is_empty() { "assistant" } else { "" };
        lines.extend(message(role, &content, indent, at));
    }
    lines
}

/// Why a turn ended, if that is unusual.
pub(crate) fn unusual_end(word: &str) -> Option<String> {
    let said = output::escaped(word);
    match StopReason::of(word).kind {
        StopKind::Done | StopKind::Calls | StopKind::Sequence => None,
        StopKind::Length => Some(format!("truncated: the token limit or the context window was reached ({said})")),
        StopKind::Refusal => Some(format!("the model declined ({said})")),
        StopKind::Filtered => Some(format!("the provider filtered the answer ({said})")),
        StopKind::Paused => Some(format!("the provider paused ({said})")),
        StopKind::Other => Some(format!("the model stopped: {said}")),
    }
}

/// Duration and usage of a turn, and why it ended if that is unusual.
pub(super) fn cost(turn: u64, latency_us: Option<u64>, used: &Usage, stop: Option<&str>, at: Point) -> String {
    let took = latency_us.map(|us| format!(" in {}", span(us))).unwrap_or_default();
    let stop = stop.filter(|stop| unusual_end(stop).is_some());
    let stop = stop.map(|stop| style::label(output::escaped(&format!(", stopped: {stop}")))).unwrap_or_default();
    format!("{}{stop} {}", style::dim(format!("· turn {turn}{took}{}", usage(used))), seq(at))
}

/// A failed model request.
pub(super) struct FailedRequest<'a> {
    pub(super) why: &'a str,
    pub(super) status: Option<u16>,
    pub(super) lost: bool,
    pub(super) retried: bool,
    pub(super) partial: Option<&'a Excerpt>,
}

impl FailedRequest<'_> {
    pub(super) fn lines(&self, indent: usize, at: Point) -> Vec<String> {
        let status = self.status.map(|status| format!(" ({status})")).unwrap_or_default();
        let what = if self.lost { "request with unknown outcome" } else { "model failed" };
        let text = output::escaped(&format!("✗ {what}{status}: {}", self.why));
        let text = match self.retried {
            true => style::label(format!("{text}; retried")),
            false => style::bad(text),
        };
        let mut lines = vec![format!("{:indent$}{text} {}", "", seq(at))];
        if let Some(partial) = self.partial {
            let below = indent + 2;
            lines.push(format!("{:below$}{}", "", style::dim("partial answer:")));
            lines.extend(TextLines::of(partial).indented(below, at));
        }
        lines
    }
}
