//! What is looked for: words, "phrases", beginnings*, -not, OR.

use std::fmt::Write as _;
use std::ops::Range;
use std::str::FromStr;

use unicode_segmentation::UnicodeSegmentation as _;

use super::words::{self, Sort};

/// At most this many words and phrases.
const MOST: usize = 64;

/// A pattern of at most this many bytes.
const LONGEST: usize = 4096;

/// What is looked for in a record: one of some choices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    choices: Vec<Choice>,
}

/// Phrases that must all be there, and others that must not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Choice {
    wanted: Vec<Phrase>,
    unwanted: Vec<Phrase>,
}

/// Words that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Phrase {
    words: Vec<String>,
    /// Whether the last one is only the beginning of a word.
    open: bool,
}

/// A pattern that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAPattern {
    /// There is nothing to look for in it.
    #[error("there is no word in `{0}`: a search is for words, not for signs")]
    NoWord(String),
    /// A quotation is not closed.
    #[error("the quotation `{0}` is not closed")]
    Open(String),
    /// `OR` has nothing on one side.
    #[error("OR stands between two things to look for; for the word itself, write \"OR\" with quotation marks or `or`")]
    LonelyOr,
    /// Only what must not be there is said.
    #[error("a search needs something that must be there, not only what must not")]
    OnlyNot,
    /// A star that ends no word.
    #[error("a star ends the beginning of a word, as in `check*`; `{0}` has one elsewhere")]
    Star(String),
    /// Too much.
    #[error("the pattern is too long: at most {MOST} words and phrases, and {LONGEST} bytes")]
    TooLong,
}

impl Pattern {
    /// Everything that has these words, one after the other, whatever signs stand in between. Nothing in them is
    /// special.
    pub fn phrase(text: &str) -> Result<Self, NotAPattern> {
        let phrase = Phrase::of(text, false).ok_or_else(|| NotAPattern::NoWord(short(text)))?;
        Ok(Self { choices: vec![Choice { wanted: vec![phrase], unwanted: Vec::new() }] })
    }

    /// The same in the language of the index. It holds nothing but what we write: words have no signs in them.
    pub(super) fn expression(&self) -> String {
        let all = |phrases: &[Phrase], between: &str| {
            phrases.iter().map(Phrase::expression).collect::<Vec<_>>().join(between)
        };
        let choices = self.choices.iter().map(|choice| match choice.unwanted.is_empty() {
            true => format!("({})", all(&choice.wanted, " AND ")),
            false => format!("(({}) NOT ({}))", all(&choice.wanted, " AND "), all(&choice.unwanted, " OR ")),
        });
        choices.collect::<Vec<_>>().join(" OR ")
    }

    /// Where the pattern is in a record's texts, for each of them; `None` when the record is not one that is looked for.
    pub(super) fn find(&self, texts: &[&str]) -> Option<Vec<Vec<Range<usize>>>> {
        let texts: Vec<Words<'_>> = texts.iter().map(|text| Words::of(text)).collect();
        let mut found = vec![Vec::new(); texts.len()];
        let mut fits = false;
        for choice in &self.choices {
            let stands = |phrase: &Phrase| texts.iter().any(|text| text.places(phrase).next().is_some());
            if choice.wanted.iter().all(stands) && !choice.unwanted.iter().any(stands) {
                fits = true;
                for (text, found) in texts.iter().zip(&mut found) {
                    choice.wanted.iter().for_each(|phrase| found.extend(text.places(phrase)));
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

/// Makes one of ranges that touch.
fn join(ranges: &mut Vec<Range<usize>>) {
    ranges.dedup_by(|next, before| {
        let touches = next.start <= before.end;
        if touches {
            before.end = before.end.max(next.end);
        }
        touches
    });
}

/// The words of a text, in order.
struct Words<'a> {
    text: &'a str,
    all: Vec<Word>,
}

struct Word {
    folded: String,
    range: Range<usize>,
    sort: Sort,
}

impl<'a> Words<'a> {
    fn of(text: &'a str) -> Self {
        let mut all = Vec::new();
        words::each(text, &mut |word, range, sort| all.push(Word { folded: word.to_owned(), range, sort }));
        Self { text, all }
    }

    fn places(&self, phrase: &Phrase) -> impl Iterator<Item = Range<usize>> {
        let fits = |(n, (wanted, word)): (usize, (&String, &Word))| {
            let last = n + 1 == phrase.words.len();
            if last && phrase.open { word.folded.starts_with(wanted.as_str()) } else { word.folded == *wanted }
        };
        self.all
            .windows(phrase.words.len())
            .filter(move |window| phrase.words.iter().zip(*window).enumerate().all(fits))
            .filter_map(|window| Some(window.first()?.range.start..self.end_of(phrase, window.last()?)))
    }

    /// Where a phrase ends: one character that was found at the beginning of a pair is not the pair.
    fn end_of(&self, phrase: &Phrase, last: &Word) -> usize {
        match last.sort == Sort::Pair && phrase.open {
            true => last.range.start + self.text[last.range.clone()].graphemes(true).next().map_or(0, str::len),
            false => last.range.end,
        }
    }
}

impl Phrase {
    /// The words of `text`; `None` when it has none.
    fn of(text: &str, star: bool) -> Option<Self> {
        let mut words: Vec<(String, Sort)> = Vec::new();
        words::each(text, &mut |word, _, sort| {
            if sort != Sort::Break {
                words.push((word.to_owned(), sort));
            }
        });
        let open = match words.last() {
            // A run may go on in the text: its last character says no more than the pair before it.
            Some((_, Sort::Last)) => match words.len().checked_sub(2).map(|before| words[before].1) {
                Some(Sort::Pair) => {
                    words.pop();
                    false
                }
                _ => true,
            },
            Some(_) => star,
            None => return None,
        };
        Some(Self { words: words.into_iter().map(|(word, _)| word).collect(), open })
    }

    fn expression(&self) -> String {
        let mut text = String::from("\"");
        for (n, word) in self.words.iter().enumerate() {
            let _ = write!(text, "{}{word}", if n > 0 { " " } else { "" });
        }
        text.push_str(if self.open { "\"*" } else { "\"" });
        text
    }
}

/// A part of a pattern, as it was typed.
enum Item<'a> {
    Or,
    Phrase { text: &'a str, not: bool, star: bool },
}

impl FromStr for Pattern {
    type Err = NotAPattern;

    fn from_str(text: &str) -> Result<Self, NotAPattern> {
        if text.len() > LONGEST {
            return Err(NotAPattern::TooLong);
        }
        let mut choices = vec![Choice::default()];
        let mut count = 0;
        // Whether something was said since the last OR, be it only signs.
        let mut said = false;
        let mut rest = text.trim_start();
        while let Some((item, left)) = next(rest)? {
            rest = left.trim_start();
            let Item::Phrase { text, not, star } = item else {
                if !said || rest.is_empty() {
                    return Err(NotAPattern::LonelyOr);
                }
                said = false;
                choices.push(Choice::default());
                continue;
            };
            said = true;
            count += 1;
            if count > MOST {
                return Err(NotAPattern::TooLong);
            }
            // Signs alone are looked for nowhere: `a -> b` is `a b`.
            if let (Some(phrase), Some(choice)) = (Phrase::of(text, star), choices.last_mut()) {
                if not { choice.unwanted.push(phrase) } else { choice.wanted.push(phrase) }
            }
        }
        if choices.iter().all(|choice| choice.wanted.is_empty() && choice.unwanted.is_empty()) {
            return Err(NotAPattern::NoWord(short(text)));
        }
        match choices.iter().any(|choice| choice.wanted.is_empty()) {
            true => Err(NotAPattern::OnlyNot),
            false => Ok(Self { choices }),
        }
    }
}

/// The first part of a pattern, and the rest of it.
fn next(text: &str) -> Result<Option<(Item<'_>, &str)>, NotAPattern> {
    if text.is_empty() {
        return Ok(None);
    }
    // `-x` is "not x"; `--x` and `->` are signs before a word.
    let not = text.strip_prefix('-').filter(|rest| {
        rest.starts_with(|c: char| c == '"' || c.is_alphanumeric()) || rest.starts_with(['_', '/', '.', '$', '@', '#'])
    });
    let (not, text) = (not.is_some(), not.unwrap_or(text));
    if let Some(quoted) = text.strip_prefix('"') {
        let (inside, rest) = quoted.split_once('"').ok_or_else(|| NotAPattern::Open(short(text)))?;
        let (star, rest) = rest.strip_prefix('*').map_or((false, rest), |rest| (true, rest));
        return Ok(Some((Item::Phrase { text: inside, not, star }, rest)));
    }
    let end = text.find(|c: char| c.is_whitespace() || c == '"').unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    if word == "OR" && !not {
        return Ok(Some((Item::Or, rest)));
    }
    let (plain, star) = word.strip_suffix('*').map_or((word, false), |plain| (plain, true));
    // A star between signs, as in `**/*.rs`, is one of them.
    let misplaced = |(at, _): (usize, &str)| plain[at + 1..].starts_with(char::is_alphanumeric);
    if plain.match_indices('*').any(misplaced) || star && Phrase::of(plain, true).is_none() {
        return Err(NotAPattern::Star(short(word)));
    }
    Ok(Some((Item::Phrase { text: plain, not, star }, rest)))
}

/// As much of a text as an error shows.
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
    fn the_language() {
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
    fn what_cannot_be_read_is_said() {
        let why = |text: &str| text.parse::<Pattern>().unwrap_err();
        assert!(matches!(why("  "), NotAPattern::NoWord(_)));
        assert!(matches!(why("-> !"), NotAPattern::NoWord(_)));
        assert!(matches!(why("a \"b c"), NotAPattern::Open(_)));
        assert_eq!([why("OR a"), why("a OR"), why("a OR OR b")], [(); 3].map(|()| NotAPattern::LonelyOr));
        assert_eq!([why("-a"), why("a OR -b")], [(); 2].map(|()| NotAPattern::OnlyNot));
        assert!(matches!(why("*a"), NotAPattern::Star(_)));
        assert!(matches!(why("*"), NotAPattern::Star(_)));
        assert_eq!(why(&"a ".repeat(65)), NotAPattern::TooLong);
        assert_eq!(why(&"a".repeat(5000)), NotAPattern::TooLong);
    }

    #[test]
    fn a_pattern_is_found_where_it_stands() {
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
