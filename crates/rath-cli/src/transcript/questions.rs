//! Questions to people, and their answers.

use rath::body::{Grant, QuestionKind, Verdict};
use rath::inspect::transcript::Excerpt;
use rath::{Actor, Point, Time};

use super::text::TextLines;
use crate::output::{self, style};
use crate::time;

pub(super) fn asked(
    about: QuestionKind,
    shown: Option<&Excerpt>,
    rule: Option<&str>,
    (by, when): (&Actor, Time),
    indent: usize,
    at: Point,
) -> Vec<String> {
    let what = match about {
        QuestionKind::Approval => "asks to approve this call",
        QuestionKind::OutcomeUnknown => "asks whether this call happened",
        QuestionKind::Question => "asks",
        QuestionKind::Unknown(about) => &format!("asks ({about})"),
    };
    let who = output::escaped(&by.to_string());
    let mut lines = vec![format!(
        "{:indent$}{} {}",
        "",
        style::label(format!("? {who} {what}")),
        style::dim(format!("{}, {at}", time::local(when)))
    )];
    if let Some(shown) = shown {
        lines.extend(TextLines::of(shown).indented(indent + 2, at));
    }
    if let Some(rule) = rule {
        lines.push(format!("{:1$}{2}", "", indent + 2, style::dim(output::escaped(&format!("rule: {rule}")))));
    }
    lines
}

/// A permanent permission.
pub(super) fn granted(allows: &Grant, by: &Actor, at: Point) -> String {
    let words = output::escaped(&format!("! {by} always allows {allows}"));
    format!("{words} {}", style::dim(at))
}

/// An answer to a question.
pub(super) struct RecordedAnswer<'a> {
    pub(super) verdict: &'a Verdict,
    pub(super) text: Option<&'a Excerpt>,
    pub(super) why: Option<&'a str>,
    pub(super) superseded: bool,
}

impl RecordedAnswer<'_> {
    pub(super) fn lines(&self, (by, when): (&Actor, Time), indent: usize, at: Point) -> Vec<String> {
        let verdict = match self.verdict {
            Verdict::Yes => style::good("yes"),
            Verdict::No => style::bad("no"),
            Verdict::Text(_) => String::new(),
            Verdict::Unknown(answer) => style::bad(output::escaped(&answer.to_string())),
        };
        let why = self.why.map(|why| format!(": {}", output::escaped(why))).unwrap_or_default();
        let superseded = if self.superseded { style::label(" (late: has no effect)") } else { String::new() };
        let who = output::escaped(&by.to_string());
        let said = if verdict.is_empty() { "answers".to_owned() } else { format!("answers {verdict}") };
        let when = style::dim(format!("{}, {at}", time::local(when)));
        let mut lines = vec![format!("{:indent$}! {who} {said}{why}{superseded} {when}", "")];
        if let Some(text) = self.text {
            lines.extend(TextLines::of(text).indented(indent + 2, at));
        }
        lines
    }
}
