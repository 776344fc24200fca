//! The tokenizer of the search: splits text into words by the rules of Unicode, and folds them.
//!
//! A word is a word of UAX #29, split again at dots, hyphens and similar characters, so that `checkout` finds
//! `checkout.conf`. Case, width and accents are ignored. Scripts without spaces between words (Chinese, Japanese, Thai,
//! Khmer, …) and Korean are split into overlapping pairs of characters: each character starts a pair, and the last one
//! of a run is a token alone. So a single character is found as the prefix of a pair.

use std::ops::Range;

use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};
use unicode_segmentation::UnicodeSegmentation as _;

/// The number of characters of a word that are compared.
const MAX_WORD: usize = 64;

/// The least length of a run of letters, digits, `+`, `/` and `=` that counts as base64 data, if it has upper case,
/// lower case and digits.
const MIN_BASE64: usize = 160;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A word of a script that separates words by spaces.
    Word,
    /// Two adjacent characters of a script without spaces.
    Pair,
    /// The last character of a sequence in a script without spaces.
    Last,
    /// Skipped text. Phrases do not match across it.
    Break,
}

/// Calls `each` with every token of `text`: the folded word, its byte range, and its kind.
pub(crate) fn each(text: &str, each: &mut dyn FnMut(&str, Range<usize>, TokenKind)) {
    let mut scratch = String::new();
    let mut at = 0;
    for chunk in text.split(|c: char| c.is_ascii_whitespace()) {
        match chunk.is_ascii() {
            true => tokenize_ascii(chunk, at, &mut scratch, each),
            false => tokenize_unicode(chunk, at, each),
        }
        at += chunk.len() + 1;
    }
}

/// Tokenizes ASCII without spaces. Words are runs of letters and digits, which is what the Unicode rules amount to.
fn tokenize_ascii(chunk: &str, at: usize, scratch: &mut String, each: &mut dyn FnMut(&str, Range<usize>, TokenKind)) {
    let bytes = chunk.as_bytes();
    let mut from = 0;
    while from < bytes.len() {
        if !bytes[from].is_ascii_alphanumeric() {
            from += 1;
            continue;
        }
        let data = base64_length(&bytes[from..]);
        if data > 0 {
            each("", at + from..at + from + data, TokenKind::Break);
            from += data;
            continue;
        }
        let length = bytes[from..].iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
        scratch.clear();
        scratch.push_str(&chunk[from..from + length.min(MAX_WORD)]);
        scratch.make_ascii_lowercase();
        each(scratch, at + from..at + from + length, TokenKind::Word);
        from += length;
    }
}

/// The length of the base64 data at the start of `bytes`; 0 if there is none.
fn base64_length(bytes: &[u8]) -> usize {
    if bytes.len() < MIN_BASE64 {
        return 0;
    }
    let is_digit = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let run = &bytes[..bytes.iter().take_while(is_digit).count()];
    let has = |kind: fn(&u8) -> bool| run.iter().any(kind);
    let mixed = || has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase) && has(u8::is_ascii_digit);
    if run.len() >= MIN_BASE64 && mixed() { run.len() } else { 0 }
}

/// Tokenizes any text without ASCII spaces.
fn tokenize_unicode(chunk: &str, at: usize, each: &mut dyn FnMut(&str, Range<usize>, TokenKind)) {
    let mut begin = 0;
    let mut in_run = false;
    for (here, c) in chunk.char_indices() {
        let unspaced = is_unspaced(c) || in_run && continues_run(c);
        if unspaced != in_run {
            tokenize_run(&chunk[begin..here], at + begin, in_run, each);
            (begin, in_run) = (here, unspaced);
        }
    }
    tokenize_run(&chunk[begin..], at + begin, in_run, each);
}

fn tokenize_run(text: &str, at: usize, unspaced: bool, each: &mut dyn FnMut(&str, Range<usize>, TokenKind)) {
    if unspaced {
        return pairs(text, at, each);
    }
    for (from, word) in text.unicode_word_indices() {
        let mut begin = 0;
        for (here, c) in word.char_indices().chain([(word.len(), '.')]) {
            if !splits_word(c) {
                continue;
            }
            let folded = fold(&word[begin..here]);
            if !folded.is_empty() {
                each(cut(&folded), at + from + begin..at + from + here, TokenKind::Word);
            }
            begin = here + c.len_utf8();
        }
    }
}

/// Tokenizes a run of a script without spaces into pairs.
fn pairs(text: &str, at: usize, each: &mut dyn FnMut(&str, Range<usize>, TokenKind)) {
    let mut units: Vec<(char, Range<usize>)> = Vec::new();
    // Grapheme clusters are folded as a whole, so that a letter with a separate mark equals the composed letter.
    for (from, cluster) in text.grapheme_indices(true) {
        let range = at + from..at + from + cluster.len();
        units.extend(fold(cluster).chars().map(|c| (c, range.clone())));
    }
    let mut pair = String::new();
    for (n, (c, range)) in units.iter().enumerate() {
        pair.clear();
        pair.push(*c);
        match units.get(n + 1) {
            Some((next, end)) => {
                pair.push(*next);
                each(&pair, range.start..end.end, TokenKind::Pair);
            }
            None => each(&pair, range.clone(), TokenKind::Last),
        }
    }
}

fn cut(word: &str) -> &str {
    word.char_indices().nth(MAX_WORD).map_or(word, |(at, _)| &word[..at])
}

/// Removes differences of case, width, accents and invisible marks.
pub(crate) fn fold(text: &str) -> String {
    const APART: DecomposingNormalizerBorrowed<'_> = DecomposingNormalizerBorrowed::new_nfkd();
    const TOGETHER: ComposingNormalizerBorrowed<'_> = ComposingNormalizerBorrowed::new_nfc();
    let letters = APART.normalize_iter(text.chars()).filter(|c| !is_accent(*c) && !is_invisible(*c));
    let lower = letters.flat_map(char::to_lowercase).flat_map(|c| match c {
        'ß' => ['s', 's'].into_iter().take(2),
        'ς' => ['σ', ' '].into_iter().take(1),
        c => [c, ' '].into_iter().take(1),
    });
    TOGETHER
        .normalize_iter(lower)
        .filter(|c| if c.is_ascii() { c.is_ascii_alphanumeric() } else { !c.is_control() })
        .collect()
}

/// Whether a character is a mark that the search ignores: accents of Latin, Greek and Cyrillic, and the optional marks
/// of Hebrew, Arabic and Syriac (points, vowels, cantillation, tatweel). Marks of other scripts are part of their
/// letters.
fn is_accent(c: char) -> bool {
    match c {
        '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}' => true,
        // Hebrew. The code points between these are punctuation.
        '\u{591}'..='\u{5bd}' | '\u{5bf}' | '\u{5c1}' | '\u{5c2}' | '\u{5c4}' | '\u{5c5}' | '\u{5c7}' => true,
        // Arabic.
        '\u{610}'..='\u{61a}'
        | '\u{640}'
        | '\u{64b}'..='\u{65f}'
        | '\u{670}'
        | '\u{6d6}'..='\u{6dc}'
        | '\u{6df}'..='\u{6e4}'
        | '\u{6e7}'
        | '\u{6e8}'
        | '\u{6ea}'..='\u{6ed}'
        | '\u{898}'..='\u{89f}'
        | '\u{8ca}'..='\u{8e1}'
        | '\u{8e3}'..='\u{8ff}' => true,
        // Syriac.
        '\u{711}' | '\u{730}'..='\u{74a}' => true,
        _ => false,
    }
}

/// Whether a character is invisible: soft hyphens, joiners, direction marks and variation selectors.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

/// Whether a character splits a word here although Unicode allows it inside a word.
fn splits_word(c: char) -> bool {
    matches!(
        c,
        '.' | ','
            | ':'
            | ';'
            | '\''
            | '"'
            | '_'
            | '·'
            | '\u{37e}'
            | '\u{387}'
            | '\u{55f}'
            | '\u{589}'
            | '\u{5f4}'
            | '\u{60c}'
            | '\u{60d}'
            | '\u{66c}'
            | '\u{7f8}'
            | '\u{2018}'
            | '\u{2019}'
            | '\u{2024}'
            | '\u{2027}'
            | '\u{202f}'
            | '\u{203f}'
            | '\u{2040}'
            | '\u{2044}'
            | '\u{2054}'
            | '\u{fe10}'
            | '\u{fe13}'
            | '\u{fe14}'
            | '\u{fe33}'
            | '\u{fe34}'
            | '\u{fe4d}'
            ..='\u{fe50}'
                | '\u{fe52}'
                | '\u{fe54}'
                | '\u{fe55}'
                | '\u{ff07}'
                | '\u{ff0c}'
                | '\u{ff0e}'
                | '\u{ff1a}'
                | '\u{ff1b}'
                | '\u{ff3f}'
    )
}

/// Whether a character is a letter or a mark of a script that is tokenized into pairs.
fn is_unspaced(c: char) -> bool {
    match c {
        // Currency signs and sentence punctuation of these scripts.
        '\u{e3f}'
        | '\u{e4f}'
        | '\u{e5a}'
        | '\u{e5b}'
        | '\u{104a}'..='\u{104f}'
        | '\u{17d4}'..='\u{17db}'
        | '\u{30a0}'
        | '\u{30fb}' => false,
        '\u{e00}'..='\u{eff}'
        | '\u{1000}'..='\u{109f}'
        | '\u{1100}'..='\u{11ff}'
        | '\u{1780}'..='\u{17ff}'
        | '\u{1950}'..='\u{19df}'
        | '\u{1a20}'..='\u{1aaf}'
        | '\u{2e80}'..='\u{2fdf}'
        | '\u{3005}'..='\u{3007}'
        | '\u{3021}'..='\u{3029}'
        | '\u{3041}'..='\u{30ff}'
        | '\u{3105}'..='\u{318e}'
        | '\u{31a0}'..='\u{31bf}'
        | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{a960}'..='\u{a97f}'
        | '\u{a9e0}'..='\u{a9ff}'
        | '\u{aa60}'..='\u{aa7f}'
        | '\u{ac00}'..='\u{d7ff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{ff66}'..='\u{ffdc}'
        | '\u{1b000}'..='\u{1b16f}'
        | '\u{20000}'..='\u{3ffff}' => true,
        _ => false,
    }
}

/// Whether a character continues a run but does not start one.
fn continues_run(c: char) -> bool {
    is_invisible(c) || is_accent(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut words = Vec::new();
        each(text, &mut |word, range, kind| {
            assert!(text.get(range).is_some(), "{text:?}");
            words.push(if kind == TokenKind::Break { "|".into() } else { word.to_owned() });
        });
        words
    }

    #[test]
    fn words_are_split_and_folded() {
        assert_eq!(words("The pool's 3.14 (checkout.conf)"), ["the", "pool", "s", "3", "14", "checkout", "conf"]);
        assert_eq!(words("snake_case CamelCase"), ["snake", "case", "camelcase"]);
        assert_eq!(words("Müller MU\u{308}LLER Straße STRASSE"), ["muller", "muller", "strasse", "strasse"]);
        assert_eq!(words("ΌΡΟΣ όρος İstanbul ＡＢＣ ﬁn"), ["οροσ", "οροσ", "istanbul", "abc", "fin"]);
        assert_eq!(words("не\u{ad}видно עברית مرحبا"), ["невидно", "עברית", "مرحبا"]);
        assert_eq!(words("हिन्दी नमस्ते"), ["हिन्दी", "नमस्ते"].map(fold));
        assert_eq!(words(" \n ->"), Vec::<String>::new());
    }

    #[test]
    fn points_and_vowels_are_ignored() {
        assert_eq!(words("שָׁלוֹם שלום \u{fb2a}לום"), ["שלום"; 3]);
        assert_eq!(words("בְּרֵאשִׁית־בָּרָא"), ["בראשית", "ברא"]);
        assert_eq!(words("مُحَمَّد محمد محمـــد مُحَمَّدٌ"), ["محمد"; 4]);
        assert_eq!(words("أَحْمَد احمد آخر"), ["احمد", "احمد", "اخر"]);
    }

    #[test]
    fn scripts_without_spaces_are_tokenized_into_pairs() {
        assert_eq!(words("東京都"), ["東京", "京都", "都"]);
        assert_eq!(words("ｶﾞｽとgas"), ["ガス", "スと", "と", "gas"]);
        assert_eq!(words("か\u{3099}が"), ["がが", "が"]);
        assert_eq!(words("한국어"), ["한국", "국어", "어"]);
        assert_eq!(words("ไทย").len(), 3);
    }

    #[test]
    fn base64_data_is_skipped() {
        let data = "iVBORw0KGgo/".repeat(20);
        assert_eq!(words(&format!("before {data} after")), ["before", "|", "after"]);
        assert_eq!(words(&"ab".repeat(200))[0].len(), MAX_WORD);
    }
}
