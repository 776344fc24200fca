//! How people name sessions and records: `9f31`, `@`, `9f31@4`, `@-3`, `9f31@~12`, a record's id.

use std::fmt;

/// What an expression says, before a store is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expression<'a> {
    /// Digits of a session's or a record's id; empty for the session that changed last.
    pub base: &'a str,
    /// Which record of it.
    pub at: Place,
}

/// A record of a session, by its distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The last one, or the session as a whole.
    Head,
    /// `@k`: the one with this seq.
    Seq(u64),
    /// `@-k`: so many before the last.
    Before(u64),
    /// `@~k`: so many parents back, through the fork points.
    Back(u64),
}

/// Text that can name nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it names no session or record")]
pub struct NotAnExpression;

impl<'a> Expression<'a> {
    /// Reads an expression.
    pub fn parse(text: &'a str) -> Result<Self, NotAnExpression> {
        let (base, at) = match text.split_once('@') {
            Some((base, at)) => (base, Some(at)),
            None => (text, None),
        };
        let at = match at {
            None | Some("") => Place::Head,
            Some(at) => match (at.strip_prefix('-'), at.strip_prefix('~')) {
                (Some(back), _) => Place::Before(number(back)?),
                (_, Some(back)) => Place::Back(number(back)?),
                _ => Place::Seq(number(at)?),
            },
        };
        let digits = base.len() <= 64 && base.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        let legal = digits || base == OPERATOR_WORD;
        match legal && (!base.is_empty() || text.contains('@')) {
            true => Ok(Self { base, at }),
            false => Err(NotAnExpression),
        }
    }
}

/// Digits and nothing else: no sign.
fn number(digits: &str) -> Result<u64, NotAnExpression> {
    match digits.bytes().all(|b| b.is_ascii_digit()) {
        true => digits.parse().map_err(|_| NotAnExpression),
        false => Err(NotAnExpression),
    }
}

/// The word for the store's operator session.
pub const OPERATOR_WORD: &str = "operator";

impl fmt::Display for Expression<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base, at } = self;
        match at {
            Place::Head if base.is_empty() => f.write_str("@"),
            Place::Head => f.write_str(base),
            Place::Seq(seq) => write!(f, "{base}@{seq}"),
            Place::Before(back) => write!(f, "{base}@-{back}"),
            Place::Back(back) => write!(f, "{base}@~{back}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_documented() {
        let read = |text| Expression::parse(text).map(|parsed| (parsed.base, parsed.at)).ok();
        assert_eq!(read("9f31"), Some(("9f31", Place::Head)));
        assert_eq!(read("@"), Some(("", Place::Head)));
        assert_eq!(read("9f31@4"), Some(("9f31", Place::Seq(4))));
        assert_eq!(read("@-3"), Some(("", Place::Before(3))));
        assert_eq!(read("9f31@~12"), Some(("9f31", Place::Back(12))));
        assert_eq!(read("operator@4"), Some(("operator", Place::Seq(4))));
        for bad in [
            "",
            "x",
            "9f31@x",
            "9f31@-",
            "@~",
            "@-99999999999999999999",
            "a b",
            "../..",
            "9f31@1@2",
            "é@1",
            "@+4",
            "@-+4",
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
