//! Search patterns: words, "phrases", prefixes*, -exclusions and OR.

use std::fmt::Write as _;
use std::ops::Range;
use std::str::FromStr;

use unicode_segmentation::UnicodeSegmentation as _;

use super::words::{self, TokenKind};

/// The most words and phrases of a pattern.
const MAX_PHRASES: usize = 64;

/// The most bytes of a pattern.
const MAX_BYTES: usize = 4096;

/// A search pattern: a record matches if one of the alternatives matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    alternatives: Vec<Alternative>,
}

/// Phrases that a record must contain, and phrases that it must not contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Alternative {
    required: Vec<Phrase>,
    excluded: Vec<Phrase>,
}

/// Words in sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Phrase {
    words: Vec<String>,
    /// Whether the last word is a prefix.
    is_prefix: bool,
}

/// Why a search pattern cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The pattern has no word.
    #[error("there is no word in `{0}`; a search finds words, not punctuation")]
    NoWord(String),
    /// A quotation mark is missing.
    #[error("the quotation `{0}` is not closed")]
    UnclosedQuote(String),
    /// `OR` has no pattern on one side.
    #[error("OR needs a word on both sides; to search for the word itself, write \"OR\" in quotation marks, or `or`")]
    DanglingOr,
    /// The pattern has only exclusions.
    #[error("the pattern has only exclusions; add a word that must occur")]
    OnlyNot,
    /// A star is not at the end of a word.
    #[error("a star is allowed only at the end of a word, as in `check*`, not in `{0}`")]
    Star(String),
    /// The pattern has too many words or bytes.
    #[error("the pattern is too long: at most {MAX_PHRASES} words and phrases, and {MAX_BYTES} bytes")]
    TooLong,
}

impl Pattern {
    /// A pattern for these words in sequence. Punctuation between them is ignored, and nothing in the text has a
    /// special meaning.
    pub fn phrase(text: &str) -> Result<Self, PatternError> {
        let phrase = Phrase::of(text, false).ok_or_else(|| PatternError::NoWord(short(text)))?;
        Ok(Self { alternatives: vec![Alternative { required: vec![phrase], excluded: Vec::new() }] })
    }

    /// The pattern as an FTS5 expression. Words contain only letters and digits, so they need no escaping.
    pub(super) fn expression(&self) -> String {
        let all = |phrases: &[Phrase], between: &str| {
            phrases.iter().map(Phrase::expression).collect::<Vec<_>>().join(between)
        };
        let alternatives = self.alternatives.iter().map(|alternative| match alternative.excluded.is_empty() {
            true => format!("({})", all(&alternative.required, " AND ")),
            false => {
                format!("(({}) NOT ({}))", all(&alternative.required, " AND "), all(&alternative.excluded, " OR "))
            }
        });
        alternatives.collect::<Vec<_>>().join(" OR ")
    }

    /// The matches in each text of a record, as byte ranges; `None` if the record does not match.
    pub(super) fn find(&self, texts: &[&str]) -> Option<Vec<Vec<Range<usize>>>> {
        let texts: Vec<Words<'_>> = texts.iter().map(|text| Words::of(text)).collect();
        let mut found = vec![Vec::new(); texts.len()];
        let mut fits = false;
        for alternative in &self.alternatives {
            let occurs = |phrase: &Phrase| texts.iter().any(|text| text.ranges(phrase).next().is_some());
            if alternative.required.iter().all(occurs) && !alternative.excluded.iter().any(occurs) {
                fits = true;
                for (text, found) in texts.iter().zip(&mut found) {
                    alternative.required.iter().for_each(|phrase| found.extend(text.ranges(phrase)));
                }
            }
        }
        for found in &mut found {
            found.sort_by_key(|range| (range.start, range.end));
            join(found);
        }
        fits.then_some(found)
    }
}

/// Merges ranges that overlap or touch.
fn join(ranges: &mut Vec<Range<usize>>) {
    ranges.dedup_by(|next, before| {
        let touches = next.start <= before.end;
        if touches {
            before.end = before.end.max(next.end);
        }
        touches
    });
}

/// A text with its words.
struct Words<'a> {
    text: &'a str,
    all: Vec<Word>,
}

struct Word {
    folded: String,
    range: Range<usize>,
    kind: TokenKind,
}

impl<'a> Words<'a> {
    fn of(text: &'a str) -> Self {
        let mut all = Vec::new();
        words::each(text, &mut |word, range, kind| all.push(Word { folded: word.to_owned(), range, kind }));
        Self { text, all }
    }

    fn ranges(&self, phrase: &Phrase) -> impl Iterator<Item = Range<usize>> {
        let fits = |(n, (wanted, word)): (usize, (&String, &Word))| {
            let last = n + 1 == phrase.words.len();
            if last && phrase.is_prefix { word.folded.starts_with(wanted.as_str()) } else { word.folded == *wanted }
        };
        self.all
            .windows(phrase.words.len())
            .filter(move |window| phrase.words.iter().zip(*window).enumerate().all(fits))
            .filter_map(|window| Some(window.first()?.range.start..self.end_of(phrase, window.last()?)))
    }

    /// The end of a match. If a single character matched the beginning of a pair, the match is that character, not the
    /// pair.
    fn end_of(&self, phrase: &Phrase, last: &Word) -> usize {
        match last.kind == TokenKind::Pair && phrase.is_prefix {
            true => last.range.start + self.text[last.range.clone()].graphemes(true).next().map_or(0, str::len),
            false => last.range.end,
        }
    }
}

impl Phrase {
    /// Parses a phrase; `None` if `text` has no word. `star` is whether the last word is a prefix.
    fn of(text: &str, star: bool) -> Option<Self> {
        let mut words: Vec<(String, TokenKind)> = Vec::new();
        words::each(text, &mut |word, _, kind| {
            if kind != TokenKind::Break {
                words.push((word.to_owned(), kind));
            }
        });
        let is_prefix = match words.last() {
            // In a searched text the run may continue after the last character, which the pair before contains already.
            Some((_, TokenKind::Last)) => match words.len().checked_sub(2).map(|before| words[before].1) {
                Some(TokenKind::Pair) => {
                    words.pop();
                    false
                }
                _ => true,
            },
            Some(_) => star,
            None => return None,
        };
        Some(Self { words: words.into_iter().map(|(word, _)| word).collect(), is_prefix })
    }

    fn expression(&self) -> String {
        let mut text = String::from("\"");
        for (n, word) in self.words.iter().enumerate() {
            let _ = write!(text, "{}{word}", if n > 0 { " " } else { "" });
        }
        text.push_str(if self.is_prefix { "\"*" } else { "\"" });
        text
    }
}

/// A token of a pattern.
enum Item<'a> {
    Or,
    Phrase { text: &'a str, not: bool, star: bool },
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.len() > MAX_BYTES {
            return Err(PatternError::TooLong);
        }
        let mut alternatives = vec![Alternative::default()];
        let mut count = 0;
        // Whether there was an item since the last OR, even one with punctuation only.
        let mut has_item = false;
        let mut rest = text.trim_start();
        while let Some((item, left)) = next(rest)? {
            rest = left.trim_start();
            let Item::Phrase { text, not, star } = item else {
                if !has_item || rest.is_empty() {
                    return Err(PatternError::DanglingOr);
                }
                has_item = false;
                alternatives.push(Alternative::default());
                continue;
            };
            has_item = true;
            count += 1;
            if count > MAX_PHRASES {
                return Err(PatternError::TooLong);
            }
            // An item with punctuation only is skipped: `a -> b` is `a b`.
            if let (Some(phrase), Some(alternative)) = (Phrase::of(text, star), alternatives.last_mut()) {
                if not { alternative.excluded.push(phrase) } else { alternative.required.push(phrase) }
            }
        }
        if alternatives.iter().all(|alternative| alternative.required.is_empty() && alternative.excluded.is_empty()) {
            return Err(PatternError::NoWord(short(text)));
        }
        match alternatives.iter().any(|alternative| alternative.required.is_empty()) {
            true => Err(PatternError::OnlyNot),
            false => Ok(Self { alternatives }),
        }
    }
}

/// Splits the first token off a pattern.
fn next(text: &str) -> Result<Option<(Item<'_>, &str)>, PatternError> {
    if text.is_empty() {
        return Ok(None);
    }
    // `-x` excludes `x`. In `--x` and `->`, the hyphens are punctuation.
    let not = text.strip_prefix('-').filter(|rest| {
        rest.starts_with(|c: char| c == '"' || c.is_alphanumeric()) || rest.starts_with(['_', '/', '.', '$', '@', '#'])
    });
    let (not, text) = (not.is_some(), not.unwrap_or(text));
    if let Some(quoted) = text.strip_prefix('"') {
        let (inside, rest) = quoted.split_once('"').ok_or_else(|| PatternError::UnclosedQuote(short(text)))?;
        let (star, rest) = rest.strip_prefix('*').map_or((false, rest), |rest| (true, rest));
        return Ok(Some((Item::Phrase { text: inside, not, star }, rest)));
    }
    let end = text.find(|c: char| c.is_whitespace() || c == '"').unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    if word == "OR" && !not {
        return Ok(Some((Item::Or, rest)));
    }
    let (plain, star) = word.strip_suffix('*').map_or((word, false), |plain| (plain, true));
    // A star next to punctuation, as in `**/*.rs`, is punctuation.
    let misplaced = |(at, _): (usize, &str)| plain[at + 1..].starts_with(char::is_alphanumeric);
    if plain.match_indices('*').any(misplaced) || star && Phrase::of(plain, true).is_none() {
        return Err(PatternError::Star(short(word)));
    }
    Ok(Some((Item::Phrase { text: plain, not, star }, rest)))
}

/// The first 60 characters of a text, for errors.
fn short(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expression(text: &str) -> String {
        text.parse::<Pattern>().unwrap().expression()
    }

    #[test]
    fn patterns_become_index_expressions() {
        assert_eq!(expression("error Rate"), r#"("error" AND "rate")"#);
        assert_eq!(expression(r#""Error rate" -9.1"#), r#"(("error rate") NOT ("9 1"))"#);
        assert_eq!(expression("a b OR c*"), r#"("a" AND "b") OR ("c"*)"#);
        assert_eq!(expression(r#""raise the po"*"#), r#"("raise the po"*)"#);
        assert_eq!(
            expression("or checkout.conf --json a -> b"),
            r#"("or" AND "checkout conf" AND "json" AND "a" AND "b")"#
        );
        assert_eq!(expression("a\" OR NEAR(b\""), r#"("a" AND "or near b")"#);
        assert_eq!(expression("東京都 都 東京 abc"), r#"("東京 京都" AND "都"* AND "東京" AND "abc")"#);
        assert_eq!(expression("\"東京 abc\""), r#"("東京 京 abc")"#);
    }

    #[test]
    fn invalid_patterns_are_errors() {
        let why = |text: &str| text.parse::<Pattern>().unwrap_err();
        assert!(matches!(why("  "), PatternError::NoWord(_)));
        assert!(matches!(why("-> !"), PatternError::NoWord(_)));
        assert!(matches!(why("a \"b c"), PatternError::UnclosedQuote(_)));
        assert_eq!([why("OR a"), why("a OR"), why("a OR OR b")], [(); 3].map(|()| PatternError::DanglingOr));
        assert_eq!([why("-a"), why("a OR -b")], [(); 2].map(|()| PatternError::OnlyNot));
        assert!(matches!(why("*a"), PatternError::Star(_)));
        assert!(matches!(why("*"), PatternError::Star(_)));
        assert_eq!(why(&"a ".repeat(65)), PatternError::TooLong);
        assert_eq!(why(&"a".repeat(5000)), PatternError::TooLong);
    }

    #[test]
    fn matches_are_byte_ranges_of_the_text() {
        let find = |pattern: &str, text: &str| {
            let found = pattern.parse::<Pattern>().unwrap().find(&[text])?;
            Some(found[0].iter().map(|range| text[range.clone()].to_owned()).collect::<Vec<_>>())
        };
        let found = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(find("RATE", "Error rate: 0.1 rate"), found(&["rate", "rate"]));
        assert_eq!(find("\"rate 0.1\"", "Error rate: 0.1 rate"), found(&["rate: 0.1"]));
        assert_eq!(find("err*", "Error rate"), found(&["Error"]));
        assert_eq!(find("error -rate", "Error rate"), None);
        assert_eq!(find("x OR error", "Error rate"), found(&["Error"]));
        assert_eq!(find("京都", "東京都庁"), found(&["京都"]));
        assert_eq!(find("都", "東京都庁"), found(&["都"]));
        assert_eq!(find("CAFÉ", "un cafe\u{301}!"), found(&["cafe\u{301}"]));
    }
}
