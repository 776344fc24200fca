//! What a model said, and when it did not.

use rath::body::{Assistant, Block};
use rath::inspect::transcript::Excerpt;
use rath::{Content, Point, Stop, StopWhy as Why, Usage};

use super::words::{Words, seq, span, usage};
use crate::output::{self, style};

/// Where words begin, behind the role.
pub(super) const COLUMN: usize = 11;

/// A role and what it says, as a conversation shows it.
pub(super) fn say(role: &str, content: &Content, indent: usize, at: Point) -> Vec<String> {
    let text = content.to_string();
    let mut words = Words::whole(&text).lines.into_iter();
    let below = indent + COLUMN;
    let first = words.next().unwrap_or_default();
    let mut lines =
        vec![format!("{:indent$}{}  {first}", "", style::record(format!("{role:>9}"))).trim_end().to_owned()];
    lines.extend(words.map(|line| format!("{:below$}{line}", "").trim_end().to_owned()));
    if matches!(content, Content::Blob(_)) {
        lines.push(format!("{:below$}{}", "", style::dim(format!("(whole: rath show {at})"))));
    }
    lines
}

/// The words of a turn; its calls stand below.
pub(super) fn turn(turn: &Assistant, indent: usize, at: Point) -> Vec<String> {
    let mut lines = Vec::new();
    for block in &turn.blocks {
        let content = match block {
            Block::Text { text } => text.clone(),
            Block::Reasoning { text } => Content::Text(format!("(thinks: {text})")),
            Block::Image { image } => Content::Text(format!("[picture, {} bytes]", image.bytes)),
            Block::Unknown(block) => Content::Text(format!("[{block}]")),
            Block::ToolUse { .. } => continue,
        };
        let role = if lines.is_empty() { "assistant" } else { "" };
        lines.extend(say(role, &content, indent, at));
    }
    lines
}

/// Why a turn ended, where that is unusual and a reader had better know.
pub(crate) fn unusual_end(word: &str) -> Option<String> {
    let said = output::harmless(word);
    match Stop::of(word).why {
        Why::Done | Why::Calls | Why::Sequence => None,
        Why::Length => Some(format!("cut off: no more tokens were allowed, or there is no room for them ({said})")),
        Why::Refusal => Some(format!("the model declined ({said})")),
        Why::Filtered => Some(format!("the provider took the answer away ({said})")),
        Why::Paused => Some(format!("the provider made a pause ({said})")),
        Why::Other => Some(format!("the model stopped: {said}")),
    }
}

/// What a turn cost, and why it ended where that is unusual.
pub(super) fn cost(turn: u64, latency_us: Option<u64>, used: &Usage, stop: Option<&str>, at: Point) -> String {
    let took = latency_us.map(|us| format!(" in {}", span(us))).unwrap_or_default();
    let stop = stop.filter(|stop| unusual_end(stop).is_some());
    let stop = stop.map(|stop| style::label(output::harmless(&format!(", stopped: {stop}")))).unwrap_or_default();
    format!("{}{stop} {}", style::dim(format!("· turn {turn}{took}{}", usage(used))), seq(at))
}

/// A model that failed.
pub(super) struct Failure<'a> {
    pub(super) why: &'a str,
    pub(super) status: Option<u16>,
    pub(super) lost: bool,
    pub(super) retried: bool,
    pub(super) partial: Option<&'a Excerpt>,
}

impl Failure<'_> {
    pub(super) fn lines(&self, indent: usize, at: Point) -> Vec<String> {
        let status = self.status.map(|status| format!(" ({status})")).unwrap_or_default();
        let what = if self.lost { "request lost" } else { "model failed" };
        let text = output::harmless(&format!("✗ {what}{status}: {}", self.why));
        let text = match self.retried {
            true => style::label(format!("{text}; asked again")),
            false => style::bad(text),
        };
        let mut lines = vec![format!("{:indent$}{text} {}", "", seq(at))];
        if let Some(partial) = self.partial {
            let below = indent + 2;
            lines.push(format!("{:below$}{}", "", style::dim("had said:")));
            lines.extend(Words::of(partial).indented(below, at));
        }
        lines
    }
}
