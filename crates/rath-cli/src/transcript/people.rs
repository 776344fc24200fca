//! Questions to people, and their answers.

use rath::body::{About, Grant, Verdict};
use rath::inspect::transcript::Excerpt;
use rath::{Actor, Point, Time};

use super::words::Words;
use crate::output::{self, style};
use crate::time;

pub(super) fn asked(
    about: About,
    shown: Option<&Excerpt>,
    rule: Option<&str>,
    (by, when): (&Actor, Time),
    indent: usize,
    at: Point,
) -> Vec<String> {
    let what = match about {
        About::Approval => "asks to allow this call",
        About::InDoubt => "asks whether this call happened",
        About::Question => "asks",
        About::Unknown(about) => &format!("asks ({about})"),
    };
    let who = output::harmless(&by.to_string());
    let mut lines = vec![format!(
        "{:indent$}{} {}",
        "",
        style::label(format!("? {who} {what}")),
        style::dim(format!("{}, {at}", time::local(when)))
    )];
    if let Some(shown) = shown {
        lines.extend(Words::of(shown).indented(indent + 2, at));
    }
    if let Some(rule) = rule {
        lines.push(format!("{:1$}{2}", "", indent + 2, style::dim(output::harmless(&format!("rule: {rule}")))));
    }
    lines
}

/// What need not be asked about any more.
pub(super) fn granted(allows: &Grant, by: &Actor, at: Point) -> String {
    let words = output::harmless(&format!("! {by} always allows {allows}"));
    format!("{words} {}", style::dim(at))
}

/// An answer.
pub(super) struct Answer<'a> {
    pub(super) verdict: &'a Verdict,
    pub(super) text: Option<&'a Excerpt>,
    pub(super) why: Option<&'a str>,
    pub(super) late: bool,
}

impl Answer<'_> {
    pub(super) fn lines(&self, (by, when): (&Actor, Time), indent: usize, at: Point) -> Vec<String> {
        let verdict = match self.verdict {
            Verdict::Yes => style::good("yes"),
            Verdict::No => style::bad("no"),
            Verdict::Text(_) => String::new(),
            Verdict::Unknown(answer) => style::bad(output::harmless(&answer.to_string())),
        };
        let why = self.why.map(|why| format!(": {}", output::harmless(why))).unwrap_or_default();
        let late = if self.late { style::label(" (late: it changes nothing)") } else { String::new() };
        let who = output::harmless(&by.to_string());
        let said = if verdict.is_empty() { "answers".to_owned() } else { format!("answers {verdict}") };
        let when = style::dim(format!("{}, {at}", time::local(when)));
        let mut lines = vec![format!("{:indent$}! {who} {said}{why}{late} {when}", "")];
        if let Some(text) = self.text {
            lines.extend(Words::of(text).indented(indent + 2, at));
        }
        lines
    }
}
