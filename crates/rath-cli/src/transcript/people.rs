//! Questions to people, and their answers.

use std::sync::Arc;

use anyhow::Result;
use rath::body::{About, Answered, Asked, Granted, Verdict};
use rath::{Actor, Point, Store, Time};

use super::words::Words;
use crate::output::{self, style};
use crate::time;

pub(super) async fn asked(
    store: &Arc<dyn Store>,
    asked: &Asked,
    (by, when): (&Actor, Time),
    indent: usize,
    at: Point,
) -> Result<Vec<String>> {
    let what = match asked.about {
        About::Approval => "asks to allow this call",
        About::InDoubt => "asks whether this call happened",
        About::Question => "asks",
    };
    let who = output::harmless(&by.to_string());
    let mut lines = vec![format!(
        "{:indent$}{} {}",
        "",
        style::label(format!("? {who} {what}")),
        style::dim(format!("{}, {at}", time::local(when)))
    )];
    // What an approval shows is the call above it.
    if asked.about != About::Approval || asked.call.is_none() {
        lines.extend(Words::of(store, &asked.shown).await?.indented(indent + 2, at));
    }
    if let Some(rule) = &asked.policy {
        lines.push(format!("{:1$}{2}", "", indent + 2, style::dim(output::harmless(&format!("rule: {rule}")))));
    }
    Ok(lines)
}

/// What need not be asked about any more.
pub(super) fn granted(granted: &Granted, by: &Actor, at: Point) -> String {
    let words = output::harmless(&format!("! {by} always allows {}", granted.allows));
    format!("{words} {}", style::dim(at))
}

pub(super) async fn answered(
    store: &Arc<dyn Store>,
    answered: &Answered,
    late: bool,
    (by, when): (&Actor, Time),
    indent: usize,
    at: Point,
) -> Result<Vec<String>> {
    let (verdict, words) = match &answered.verdict {
        Verdict::Yes => (style::good("yes"), None),
        Verdict::No => (style::bad("no"), None),
        Verdict::Text(text) => (String::new(), Some(Words::of(store, text).await?)),
    };
    let why = answered.why.as_ref().map(|why| format!(": {}", output::harmless(why))).unwrap_or_default();
    let late = if late { style::label(" (late: it changes nothing)") } else { String::new() };
    let who = output::harmless(&by.to_string());
    let said = if verdict.is_empty() { "answers".to_owned() } else { format!("answers {verdict}") };
    let mut lines =
        vec![format!("{:indent$}! {who} {said}{why}{late} {}", "", style::dim(format!("{}, {at}", time::local(when))))];
    if let Some(words) = words {
        lines.extend(words.indented(indent + 2, at));
    }
    Ok(lines)
}
