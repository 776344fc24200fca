//! Searching for a text in any spelling: in upper or lower case, across line breaks, with composed or decomposed
//! accents, in full-width letters, with invisible characters in between, with escapes, and in JSON strings that contain
//! JSON.

use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};
use icu_properties::props::DefaultIgnorableCodePoint;
use icu_properties::{CodePointSetData, CodePointSetDataBorrowed};
use serde_json::Value;

/// The number of levels of nested JSON strings that are unescaped. A file of JSON lines in the arguments of a call has
/// three levels.
const DEPTH: u32 = 5;

/// A text to search for, [normalized](normalize).
#[derive(Clone, Debug)]
pub(crate) struct TextPattern {
    text: String,
    /// The first word, for a fast check: text without it does not match.
    first: String,
}

impl TextPattern {
    pub(crate) fn new(text: &str) -> Self {
        let text = normalize(text);
        let first = text.split(' ').next().unwrap_or_default().to_owned();
        Self { text, first }
    }

    /// The maximum length of a match in bytes, with every character escaped at one level.
    pub(crate) fn longest(&self) -> usize {
        8 * self.text.len() + 16
    }

    /// Whether a text contains the pattern, directly or after unescaping.
    pub(crate) fn in_text(&self, text: &str) -> bool {
        if normalize(text).contains(&self.text) {
            return true;
        }
        let mut text = std::borrow::Cow::Borrowed(text);
        for _ in 0..DEPTH {
            if !text.contains('\\') {
                return false;
            }
            text = unescaped(&text).into();
            if normalize(&text).contains(&self.text) {
                return true;
            }
        }
        false
    }

    /// Whether any string in a JSON body contains the pattern.
    pub(crate) fn in_body(&self, bytes: &[u8]) -> bool {
        let raw = String::from_utf8_lossy(bytes);
        if !raw.contains('\\') && !folded(&raw).contains(&self.first) {
            return false;
        }
        match serde_json::from_slice::<Value>(bytes) {
            Ok(value) => self.in_value(&value),
            Err(_) => self.in_text(&raw),
        }
    }

    fn in_value(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.in_text(text),
            Value::Array(items) => items.iter().any(|item| self.in_value(item)),
            Value::Object(fields) => fields.iter().any(|(name, value)| self.in_text(name) || self.in_value(value)),
            _ => false,
        }
    }

    /// Whether bytes of any format contain the pattern.
    pub(crate) fn in_content(&self, bytes: &[u8]) -> bool {
        self.in_text(&String::from_utf8_lossy(bytes))
    }
}

/// The minimum number of bytes of a part that are searched again with the next part: enough for white space and nested
/// escapes within a match.
const CARRIED: usize = 64 << 10;

/// The number of bytes searched at once.
const AT_ONCE: usize = 4 << 20;

/// Searches content of any length, which comes in parts, for several patterns.
#[derive(Debug)]
pub(crate) struct StreamMatcher {
    patterns: Vec<TextPattern>,
    longest: usize,
    waiting: Vec<u8>,
    hit: bool,
}

impl StreamMatcher {
    pub(crate) fn new(patterns: Vec<TextPattern>) -> Self {
        let longest = patterns.iter().map(TextPattern::longest).max().unwrap_or(0).max(CARRIED);
        Self { patterns, longest, waiting: Vec::new(), hit: false }
    }

    /// Whether there are no patterns.
    pub(crate) fn is_idle(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Searches the next part.
    pub(crate) fn part(&mut self, bytes: &[u8]) {
        for bytes in bytes.chunks(AT_ONCE) {
            self.waiting.extend_from_slice(bytes);
            if self.waiting.len() >= self.longest + AT_ONCE {
                self.look();
                // A match may span two parts.
                self.waiting.drain(..self.waiting.len() - self.longest);
            }
        }
    }

    /// Ends the content. Returns whether it contains one of the patterns.
    pub(crate) fn end(&mut self) -> bool {
        self.look();
        self.waiting.clear();
        std::mem::take(&mut self.hit)
    }

    fn look(&mut self) {
        self.hit = self.hit || self.patterns.iter().any(|pattern| pattern.in_content(&self.waiting));
    }
}

/// A text in the form that is compared: [folded], with every run of white space as one space.
fn normalize(text: &str) -> String {
    folded(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A text without case and without invisible characters (soft hyphens, joiners, direction marks), in Unicode
/// normalization form NFKC.
fn folded(text: &str) -> String {
    const APART: DecomposingNormalizerBorrowed<'_> = DecomposingNormalizerBorrowed::new_nfkd();
    const TOGETHER: ComposingNormalizerBorrowed<'_> = ComposingNormalizerBorrowed::new_nfkc();
    const UNSEEN: CodePointSetDataBorrowed<'_> = CodePointSetData::new::<DefaultIgnorableCodePoint>();
    match text.is_ascii() {
        true => text.to_ascii_lowercase(),
        false => {
            let seen = APART.normalize_iter(text.chars()).filter(|c| !UNSEEN.contains(*c));
            // Through upper case, so that `ß` becomes `ss`, and a final sigma equals any other sigma.
            TOGETHER.normalize_iter(seen.flat_map(char::to_uppercase).flat_map(char::to_lowercase)).collect()
        }
    }
}

/// A text with its JSON escapes replaced once. Invalid escapes stay.
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        let (read, length) = escape(rest);
        plain.push(read);
        rest = &rest[length..];
    }
    plain.push_str(rest);
    plain
}

/// The character of an escape, and the length of the escape.
fn escape(text: &str) -> (char, usize) {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    match text.as_bytes().get(1) {
        Some(b'n' | b'r' | b't' | b'f' | b'b') => (' ', 2),
        Some(plain @ (b'"' | b'\\' | b'/')) => (char::from(*plain), 2),
        Some(b'u') => match (unit(0), unit(6)) {
            (Some(high), Some(low)) if (0xd800..0xdc00).contains(&high) && (0xdc00..0xe000).contains(&low) => {
                let read = char::decode_utf16([high, low]).next().and_then(Result::ok);
                (read.unwrap_or(char::REPLACEMENT_CHARACTER), 12)
            }
            (Some(unit), _) => (char::from_u32(unit.into()).unwrap_or(char::REPLACEMENT_CHARACTER), 6),
            _ => ('\\', 1),
        },
        _ => ('\\', 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_white_space_and_escapes_do_not_matter() {
        let pattern = TextPattern::new("Ada  Lovelace");
        assert!(pattern.in_body(br#"{"text":"asked by ADA\nLovelace"}"#));
        assert!(pattern.in_body(br#"{"arguments":"{\"to\":\"\\u0041da Lovelace\"}"}"#));
        assert!(pattern.in_content(b"Dear Ada Lovelace,"));
        assert!(!pattern.in_body(br#"{"text":"Ada and Lovelace"}"#));
        assert!(TextPattern::new("Zo\u{eb}").in_body(br#"{"text":"zo\u00eb"}"#));
        assert!(TextPattern::new("\u{1f9d1} me").in_body(br#"{"text":"\ud83e\uddd1\u0020me"}"#));
    }

    #[test]
    fn text_that_unicode_considers_equivalent_is_found() {
        let together = "Zo\u{eb} M\u{fc}ller";
        let apart = "Zoe\u{308} Mu\u{308}ller";
        for (pattern, text) in [
            (together, apart),
            (apart, together),
            (together, "ZOE\u{308}\u{a0}MU\u{308}LLER"),
            (together, "Zo\u{ad}\u{eb} M\u{fc}l\u{ad}ler"),
            (together, "Zoe\u{200d}\u{308} Mu\u{ad}\u{308}\u{200b}ller"),
            ("Zo\u{ad}\u{eb}", "zo\u{eb}"),
            ("Ada", "\u{ff21}\u{ff44}\u{ff41}"),
            ("fin", "\u{fb01}n"),
            ("Strasse", "STRA\u{df}E"),
            ("\u{3a3}\u{3ac}\u{3c2}", "\u{3c3}\u{3ac}\u{3c3}\u{3bf}\u{3c2}"),
            ("\u{d55c}", "\u{1112}\u{1161}\u{11ab}"),
        ] {
            let body = serde_json::json!({ "text": format!("by {text}.") }).to_string();
            let found = TextPattern::new(pattern);
            assert!(found.in_body(body.as_bytes()), "{pattern:?} in {body:?}");
            assert!(found.in_content(text.as_bytes()), "{pattern:?} in {text:?}");
        }
        assert!(TextPattern::new(together).in_body(br#"{"text":"Zoe\u0308 Mu\u00ad\u0308ller"}"#));
        assert!(!TextPattern::new("Zoe").in_text(apart), "e and ë differ");
    }

    #[test]
    fn characters_that_json_escapes_are_found() {
        for (text, body) in [
            (r"CORP\ada", r#"{"text":"from CORP\\ada"}"#),
            (r#""ada""#, r#"{"text":"call her \"Ada\""}"#),
            (r"corp\ada", r#"{"arguments":"{\"user\":\"CORP\\\\ada\"}"}"#),
        ] {
            assert!(TextPattern::new(text).in_body(body.as_bytes()), "{text} in {body}");
        }
        assert!(!TextPattern::new(r"CORP\bob").in_body(br#"{"text":"from CORP\\ada"}"#));
    }

    #[test]
    fn json_lines_and_event_streams_are_searched() {
        let pattern = TextPattern::new("Ada Lovelace");
        assert!(pattern.in_content(b"{\"n\":1}\n{\"name\":\"\\u0041da Lovelace\"}\n"));
        assert!(pattern.in_content(b"event: x\ndata: {\"text\":\"Ada\\u0020Lovelace\"}\n\n"));
        assert!(pattern.in_content(b"{\"cut\": \"\\u0041da Lovelace"));
        assert!(TextPattern::new("5551234").in_content(b"{\"phone\":5551234}"));
    }

    #[test]
    fn long_content_is_searched_in_parts() {
        let mut reader = StreamMatcher::new(vec![TextPattern::new("Ada Lovelace")]);
        let long = AT_ONCE + CARRIED;
        for at in [0, CARRIED - 5, AT_ONCE - 5, long - 5, long, 3 * AT_ONCE - 5] {
            let mut content = vec![b'.'; 3 * AT_ONCE + 100];
            content.splice(at..at + 12, *b"Ada\nLovelace");
            for step in [999_983, AT_ONCE, content.len()] {
                content.chunks(step).for_each(|part| reader.part(part));
                assert!(reader.end(), "at {at} in parts of {step}");
            }
            reader.part(b"Ada");
            assert!(!reader.end(), "the previous content is forgotten");
        }
    }

    #[test]
    fn invalid_escapes_are_plain_text() {
        for text in ["\\", "\\u", "\\u12", "\\ud83d", "\\ud83d\\u", "\\uzzzz", "a\\\u{eb}", "\\u00e\u{eb}"] {
            assert!(!TextPattern::new("ada").in_text(text), "{text}");
        }
        assert!(TextPattern::new("ada").in_text("\\ud83d ada"));
        assert!(TextPattern::new("Éva").in_text("\\ud83d\\u00c9va"));
    }
}
