//! Errors in a run file, each with its line and column.

use std::fmt;
use std::ops::Range;

use serde::Serialize;

/// An error in a run file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileProblem {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// What is wrong.
    pub problem: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

impl FileProblem {
    /// A problem at these bytes of `text`.
    pub(super) fn at(text: &str, span: &Range<usize>, problem: impl Into<String>, help: Option<String>) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Self { line: before.matches('\n').count() + 1, column, problem: problem.into(), help }
    }
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.problem)?;
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

/// The name in `known` that is most similar to `name`, if one is similar enough to be what was meant.
pub(super) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (name.chars().count() + 1) / 3;
    let near = known.into_iter().map(|known| (strsim::damerau_levenshtein(name, known), known));
    near.filter(|(edits, _)| *edits <= most).min_by_key(|(edits, _)| *edits).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_are_counted_from_one() {
        let at = |start| {
            let found = FileProblem::at("ä = 1\nö = x\n", &(start..start + 1), "x", None);
            (found.line, found.column)
        };
        assert_eq!((at(0), at(5), at(7), at(12), at(99)), ((1, 1), (1, 5), (2, 1), (2, 5), (3, 1)));
    }

    #[test]
    fn only_a_similar_name_is_suggested() {
        assert_eq!(nearest("reviewr", ["writer", "reviewer"]), Some("reviewer"));
        assert_eq!(nearest("too", ["one", "two"]), Some("two"));
        assert_eq!(nearest("x", ["writer", "reviewer", "y"]), None);
    }
}
