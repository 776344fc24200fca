//! Texts, numbers and durations in a transcript.

use anyhow::Result;
use rath::inspect::transcript::Excerpt;
use rath::{Content, Point, Record, Usage};

use crate::commands::log::clip;
use crate::output::{self, style};
use crate::time;

/// The lines of a text, possibly truncated.
pub(crate) struct TextLines {
    pub(crate) lines: Vec<String>,
    cut: bool,
}

impl TextLines {
    /// All of a text.
    pub(crate) fn whole(text: &str) -> Self {
        Self { lines: output::escaped(text).lines().map(str::to_owned).collect(), cut: false }
    }

    /// The first lines of a text.
    pub(crate) fn of(excerpt: &Excerpt) -> Self {
        Self { lines: excerpt.lines.iter().map(|line| output::escaped(line)).collect(), cut: excerpt.cut }
    }

    /// The lines, indented; if the text is truncated, also how to show all of it.
    pub(crate) fn indented(self, indent: usize, at: Point) -> Vec<String> {
        self.marked("", indent, at)
    }

    /// Puts a mark before each line.
    pub(crate) fn marked(self, mark: &str, indent: usize, at: Point) -> Vec<String> {
        let mark = if mark.is_empty() { String::new() } else { style::dim(mark) };
        let line = |line: String| format!("{:indent$}{mark}{line}", "").trim_end().to_owned();
        let mut lines: Vec<String> = self.lines.into_iter().map(line).collect();
        if self.cut {
            lines.push(format!("{:indent$}{}", "", style::dim(format!("(full text: rath show {at})"))));
        }
        lines
    }
}

/// A duration with a unit: `250 ms`, `2.9 s`, `1 min 1 s`.
pub(crate) fn span(micros: u64) -> String {
    match micros / 1000 {
        millis @ 0..=999 => format!("{millis} ms"),
        millis @ 1000..=59_999 => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        millis => format!("{} min {} s", millis / 60_000, millis / 1000 % 60),
    }
}

/// The number of a record in its session.
pub(crate) fn seq(at: Point) -> String {
    style::dim(format!("@{}", at.seq))
}

/// The usage after a comma; empty if nothing was used.
pub(crate) fn usage(usage: &Usage) -> String {
    match usage.input_tokens + usage.output_tokens + usage.cost_nano_usd {
        0 => String::new(),
        _ => format!(", {usage}"),
    }
}

/// A record in one line.
pub(crate) fn record_line(record: &Record) -> Result<String> {
    let time = record.time()?;
    Ok(format!(
        "{}  {}  {}  {}",
        style::record(format!("{:>4}", record.seq())),
        style::dim(&record.id().short()[..8]),
        style::dim(time::local(time).get(11..19).unwrap_or_default()),
        style::warn_of_isolation(&crate::commands::log::clip(&rath::summary::of(record), 100)),
    ))
}

/// The value that a step returned, truncated to 100 characters.
pub(crate) fn step_value(value: Option<&Content>) -> String {
    match value {
        Some(value) => format!(" = {}", output::escaped(&clip(&value.to_string(), 100))),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_fitting_unit() {
        assert_eq!(span(0), "0 ms");
        assert_eq!(span(999_999), "999 ms");
        assert_eq!(span(2_950_000), "2.9 s");
        assert_eq!(span(59_999_999), "59.9 s");
        assert_eq!(span(61_000_000), "1 min 1 s");
    }

    #[test]
    fn control_characters_in_a_text_are_escaped() {
        assert_eq!(TextLines::of(&Excerpt::of_text("\u{1b}[2J")).lines, ["\\u{1b}[2J"]);
    }
}
