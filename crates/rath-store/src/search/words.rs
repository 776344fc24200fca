//! Words as the search sees them: cut by the rules of Unicode, folded, and where they stand.
//!
//! A word is what UAX #29 calls one, cut again where it joins parts with a dot, a hyphen or the like, so that
//! `checkout.conf` is found by `checkout`. Letters are compared without case, width and accents. Scripts that put no
//! spaces between words (Chinese, Japanese, Thai, Khmer, …) and Korean are cut into overlapping pairs of characters: one
//! for every character, the last of a run alone, so that a single character is found as the beginning of a pair.

use std::ops::Range;

use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};
use unicode_segmentation::UnicodeSegmentation as _;

/// Of longer words this many characters count.
const LONGEST: usize = 64;

/// Letters, digits, `+`, `/` and `=` in a row that are taken for data in base 64, where both cases and digits are in it.
const DATA: usize = 160;

/// What stands at a place of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// A word.
    Word,
    /// Two neighbours of a run without spaces.
    Pair,
    /// The last character of such a run.
    Last,
    /// Something that no phrase goes across.
    Break,
}

/// Shows every word of `text` to `each`: folded, where it stands, and what it is.
pub(crate) fn each(text: &str, each: &mut dyn FnMut(&str, Range<usize>, Sort)) {
    let mut scratch = String::new();
    let mut at = 0;
    for chunk in text.split(|c: char| c.is_ascii_whitespace()) {
        match chunk.is_ascii() {
            true => plain(chunk, at, &mut scratch, each),
            false => general(chunk, at, each),
        }
        at += chunk.len() + 1;
    }
}

/// ASCII without spaces: words are letters and digits in a row, which is what the rules come to.
fn plain(chunk: &str, at: usize, scratch: &mut String, each: &mut dyn FnMut(&str, Range<usize>, Sort)) {
    let bytes = chunk.as_bytes();
    let mut from = 0;
    while from < bytes.len() {
        if !bytes[from].is_ascii_alphanumeric() {
            from += 1;
            continue;
        }
        let data = data(&bytes[from..]);
        if data > 0 {
            each("", at + from..at + from + data, Sort::Break);
            from += data;
            continue;
        }
        let length = bytes[from..].iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
        scratch.clear();
        scratch.push_str(&chunk[from..from + length.min(LONGEST)]);
        scratch.make_ascii_lowercase();
        each(scratch, at + from..at + from + length, Sort::Word);
        from += length;
    }
}

/// How many bytes of data in base 64 stand here.
fn data(bytes: &[u8]) -> usize {
    if bytes.len() < DATA {
        return 0;
    }
    let is_digit = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let run = &bytes[..bytes.iter().take_while(is_digit).count()];
    let has = |kind: fn(&u8) -> bool| run.iter().any(kind);
    let mixed = || has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase) && has(u8::is_ascii_digit);
    if run.len() >= DATA && mixed() { run.len() } else { 0 }
}

/// Any text without spaces of ASCII.
fn general(chunk: &str, at: usize, each: &mut dyn FnMut(&str, Range<usize>, Sort)) {
    let mut begin = 0;
    let mut in_run = false;
    for (here, c) in chunk.char_indices() {
        let unspaced = is_unspaced(c) || in_run && is_joined_on(c);
        if unspaced != in_run {
            stretch(&chunk[begin..here], at + begin, in_run, each);
            (begin, in_run) = (here, unspaced);
        }
    }
    stretch(&chunk[begin..], at + begin, in_run, each);
}

fn stretch(text: &str, at: usize, unspaced: bool, each: &mut dyn FnMut(&str, Range<usize>, Sort)) {
    if unspaced {
        return pairs(text, at, each);
    }
    for (from, word) in text.unicode_word_indices() {
        let mut begin = 0;
        for (here, c) in word.char_indices().chain([(word.len(), '.')]) {
            if !joins(c) {
                continue;
            }
            let folded = fold(&word[begin..here]);
            if !folded.is_empty() {
                each(cut(&folded), at + from + begin..at + from + here, Sort::Word);
            }
            begin = here + c.len_utf8();
        }
    }
}

/// A run without spaces, in pairs.
fn pairs(text: &str, at: usize, each: &mut dyn FnMut(&str, Range<usize>, Sort)) {
    let mut units: Vec<(char, Range<usize>)> = Vec::new();
    // What belongs together is folded together, so that a mark that stands by itself is the same as one in its letter.
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
                each(&pair, range.start..end.end, Sort::Pair);
            }
            None => each(&pair, range.clone(), Sort::Last),
        }
    }
}

fn cut(word: &str) -> &str {
    word.char_indices().nth(LONGEST).map_or(word, |(at, _)| &word[..at])
}

/// Without case, width, accents and marks that are not seen.
pub(crate) fn fold(text: &str) -> String {
    const APART: DecomposingNormalizerBorrowed<'_> = DecomposingNormalizerBorrowed::new_nfkd();
    const TOGETHER: ComposingNormalizerBorrowed<'_> = ComposingNormalizerBorrowed::new_nfc();
    let letters = APART.normalize_iter(text.chars()).filter(|c| !is_accent(*c) && !is_unseen(*c));
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

/// Accents of Latin, Greek and Cyrillic letters, and what Hebrew, Arabic and Syriac put at their letters and mostly leave
/// away: points, vowels, signs of reading aloud, the stroke that makes a word longer. Marks of other scripts are letters
/// of theirs.
fn is_accent(c: char) -> bool {
    match c {
        '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}' => true,
        // Hebrew; between them are signs of its own.
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

/// Soft hyphens, joiners, marks of direction and of variants.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

/// What the rules of Unicode let stand inside a word, and we do not.
fn joins(c: char) -> bool {
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

/// Letters and marks of scripts that are cut into pairs.
fn is_unspaced(c: char) -> bool {
    match c {
        // Their signs of currency, and what ends their sentences.
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

/// What goes on with a run, and begins none.
fn is_joined_on(c: char) -> bool {
    is_unseen(c) || is_accent(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut words = Vec::new();
        each(text, &mut |word, range, sort| {
            assert!(text.get(range).is_some(), "{text:?}");
            words.push(if sort == Sort::Break { "|".into() } else { word.to_owned() });
        });
        words
    }

    #[test]
    fn words_are_cut_and_folded() {
        assert_eq!(words("The pool's 3.14 (checkout.conf)"), ["the", "pool", "s", "3", "14", "checkout", "conf"]);
        assert_eq!(words("snake_case CamelCase"), ["snake", "case", "camelcase"]);
        assert_eq!(words("Müller MU\u{308}LLER Straße STRASSE"), ["muller", "muller", "strasse", "strasse"]);
        assert_eq!(words("ΌΡΟΣ όρος İstanbul ＡＢＣ ﬁn"), ["οροσ", "οροσ", "istanbul", "abc", "fin"]);
        assert_eq!(words("не\u{ad}видно עברית مرحبا"), ["невидно", "עברית", "مرحبا"]);
        assert_eq!(words("हिन्दी नमस्ते"), ["हिन्दी", "नमस्ते"].map(fold));
        assert_eq!(words(" \n ->"), Vec::<String>::new());
    }

    #[test]
    fn points_and_vowels_do_not_count() {
        assert_eq!(words("שָׁלוֹם שלום \u{fb2a}לום"), ["שלום"; 3]);
        assert_eq!(words("בְּרֵאשִׁית־בָּרָא"), ["בראשית", "ברא"]);
        assert_eq!(words("مُحَمَّد محمد محمـــد مُحَمَّدٌ"), ["محمد"; 4]);
        assert_eq!(words("أَحْمَد احمد آخر"), ["احمد", "احمد", "اخر"]);
    }

    #[test]
    fn scripts_without_spaces_are_cut_into_pairs() {
        assert_eq!(words("東京都"), ["東京", "京都", "都"]);
        assert_eq!(words("ｶﾞｽとgas"), ["ガス", "スと", "と", "gas"]);
        assert_eq!(words("か\u{3099}が"), ["がが", "が"]);
        assert_eq!(words("한국어"), ["한국", "국어", "어"]);
        assert_eq!(words("ไทย").len(), 3);
    }

    #[test]
    fn data_is_not_read() {
        let data = "iVBORw0KGgo/".repeat(20);
        assert_eq!(words(&format!("before {data} after")), ["before", "|", "after"]);
        assert_eq!(words(&"ab".repeat(200))[0].len(), LONGEST);
    }
}
