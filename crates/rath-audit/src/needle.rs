//! A text that is looked for, however it is written: in capitals or not, over line breaks, with its accents in the letters
//! or behind them, in letters of another width, with signs in between that are not seen, with escapes, in JSON that
//! stands in a text of JSON.

use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};
use icu_properties::props::DefaultIgnorableCodePoint;
use icu_properties::{CodePointSetData, CodePointSetDataBorrowed};
use serde_json::Value;

/// So often texts may stand in texts: a file of JSON lines in the arguments of a call is three deep.
const DEPTH: u32 = 5;

/// What is looked for, [flat](flat).
#[derive(Clone, Debug)]
pub(crate) struct Needle {
    text: String,
    /// Its first word: what does not have that is not read.
    first: String,
}

impl Needle {
    pub(crate) fn new(text: &str) -> Self {
        let text = flat(text);
        let first = text.split(' ').next().unwrap_or_default().to_owned();
        Self { text, first }
    }

    /// How many bytes it may take, written with escapes for every character, one level deep.
    pub(crate) fn longest(&self) -> usize {
        8 * self.text.len() + 16
    }

    /// Whether a text has it, as it stands or behind its escapes.
    pub(crate) fn in_text(&self, text: &str) -> bool {
        if flat(text).contains(&self.text) {
            return true;
        }
        let mut text = std::borrow::Cow::Borrowed(text);
        for _ in 0..DEPTH {
            if !text.contains('\\') {
                return false;
            }
            text = unescaped(&text).into();
            if flat(&text).contains(&self.text) {
                return true;
            }
        }
        false
    }

    /// Whether any text in a body has it.
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

    /// Whether a content has it, whatever it is.
    pub(crate) fn in_content(&self, bytes: &[u8]) -> bool {
        self.in_text(&String::from_utf8_lossy(bytes))
    }
}

/// So much of a part is looked at again with the next one: room for white space and escapes of escapes.
const CARRIED: usize = 64 << 10;

/// So much is looked at at once.
const AT_ONCE: usize = 4 << 20;

/// Looks for texts in a content of any length, which comes in parts.
#[derive(Debug)]
pub(crate) struct Reader {
    needles: Vec<Needle>,
    longest: usize,
    waiting: Vec<u8>,
    hit: bool,
}

impl Reader {
    pub(crate) fn new(needles: Vec<Needle>) -> Self {
        let longest = needles.iter().map(Needle::longest).max().unwrap_or(0).max(CARRIED);
        Self { needles, longest, waiting: Vec::new(), hit: false }
    }

    /// Whether there is nothing to look for.
    pub(crate) fn is_idle(&self) -> bool {
        self.needles.is_empty()
    }

    /// The next part.
    pub(crate) fn part(&mut self, bytes: &[u8]) {
        for bytes in bytes.chunks(AT_ONCE) {
            self.waiting.extend_from_slice(bytes);
            if self.waiting.len() >= self.longest + AT_ONCE {
                self.look();
                // A text may stand across two parts.
                self.waiting.drain(..self.waiting.len() - self.longest);
            }
        }
    }

    /// The end of the content: whether it holds one of the texts.
    pub(crate) fn end(&mut self) -> bool {
        self.look();
        self.waiting.clear();
        std::mem::take(&mut self.hit)
    }

    fn look(&mut self) {
        self.hit = self.hit || self.needles.iter().any(|needle| needle.in_content(&self.waiting));
    }
}

/// A text as it is compared: [folded], and with any white space as one space.
fn flat(text: &str) -> String {
    folded(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A text without case and without signs that are not seen (soft hyphens, joiners, marks of direction), and what Unicode
/// holds for the same written in one way (NFKC).
fn folded(text: &str) -> String {
    const APART: DecomposingNormalizerBorrowed<'_> = DecomposingNormalizerBorrowed::new_nfkd();
    const TOGETHER: ComposingNormalizerBorrowed<'_> = ComposingNormalizerBorrowed::new_nfkc();
    const UNSEEN: CodePointSetDataBorrowed<'_> = CodePointSetData::new::<DefaultIgnorableCodePoint>();
    match text.is_ascii() {
        true => text.to_ascii_lowercase(),
        false => {
            let seen = APART.normalize_iter(text.chars()).filter(|c| !UNSEEN.contains(*c));
            // By way of the capitals: a sharp s is two, and the sigma at the end of a word is like any other.
            TOGETHER.normalize_iter(seen.flat_map(char::to_uppercase).flat_map(char::to_lowercase)).collect()
        }
    }
}

/// A text with the escapes of JSON read once. What is no escape stays.
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

/// The character that an escape stands for, and how long the escape is.
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
    fn a_text_is_found_however_it_is_written() {
        let needle = Needle::new("Ada  Lovelace");
        assert!(needle.in_body(br#"{"text":"asked by ADA\nLovelace"}"#));
        assert!(needle.in_body(br#"{"arguments":"{\"to\":\"\\u0041da Lovelace\"}"}"#));
        assert!(needle.in_content(b"Dear Ada Lovelace,"));
        assert!(!needle.in_body(br#"{"text":"Ada and Lovelace"}"#));
        assert!(Needle::new("Zo\u{eb}").in_body(br#"{"text":"zo\u00eb"}"#));
        assert!(Needle::new("\u{1f9d1} me").in_body(br#"{"text":"\ud83e\uddd1\u0020me"}"#));
    }

    #[test]
    fn a_text_is_found_in_all_that_unicode_holds_for_the_same() {
        let together = "Zo\u{eb} M\u{fc}ller";
        let apart = "Zoe\u{308} Mu\u{308}ller";
        for (needle, text) in [
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
            let found = Needle::new(needle);
            assert!(found.in_body(body.as_bytes()), "{needle:?} in {body:?}");
            assert!(found.in_content(text.as_bytes()), "{needle:?} in {text:?}");
        }
        assert!(Needle::new(together).in_body(br#"{"text":"Zoe\u0308 Mu\u00ad\u0308ller"}"#));
        assert!(!Needle::new("Zoe").in_text(apart), "another letter is another name");
    }

    #[test]
    fn signs_that_json_escapes_are_found_too() {
        for (text, body) in [
            (r"CORP\ada", r#"{"text":"from CORP\\ada"}"#),
            (r#""ada""#, r#"{"text":"call her \"Ada\""}"#),
            (r"corp\ada", r#"{"arguments":"{\"user\":\"CORP\\\\ada\"}"}"#),
        ] {
            assert!(Needle::new(text).in_body(body.as_bytes()), "{text} in {body}");
        }
        assert!(!Needle::new(r"CORP\bob").in_body(br#"{"text":"from CORP\\ada"}"#));
    }

    #[test]
    fn lines_of_json_and_events_are_read_as_they_are() {
        let needle = Needle::new("Ada Lovelace");
        assert!(needle.in_content(b"{\"n\":1}\n{\"name\":\"\\u0041da Lovelace\"}\n"));
        assert!(needle.in_content(b"event: x\ndata: {\"text\":\"Ada\\u0020Lovelace\"}\n\n"));
        assert!(needle.in_content(b"{\"cut\": \"\\u0041da Lovelace"));
        assert!(Needle::new("5551234").in_content(b"{\"phone\":5551234}"));
    }

    #[test]
    fn a_long_content_is_read_by_parts() {
        let mut reader = Reader::new(vec![Needle::new("Ada Lovelace")]);
        let long = AT_ONCE + CARRIED;
        for at in [0, CARRIED - 5, AT_ONCE - 5, long - 5, long, 3 * AT_ONCE - 5] {
            let mut content = vec![b'.'; 3 * AT_ONCE + 100];
            content.splice(at..at + 12, *b"Ada\nLovelace");
            for step in [999_983, AT_ONCE, content.len()] {
                content.chunks(step).for_each(|part| reader.part(part));
                assert!(reader.end(), "at {at} in parts of {step}");
            }
            reader.part(b"Ada");
            assert!(!reader.end(), "nothing is left of the content before");
        }
    }

    #[test]
    fn broken_escapes_are_only_text() {
        for text in ["\\", "\\u", "\\u12", "\\ud83d", "\\ud83d\\u", "\\uzzzz", "a\\\u{eb}", "\\u00e\u{eb}"] {
            assert!(!Needle::new("ada").in_text(text), "{text}");
        }
        assert!(Needle::new("ada").in_text("\\ud83d ada"));
        assert!(Needle::new("Éva").in_text("\\ud83d\\u00c9va"));
    }
}
