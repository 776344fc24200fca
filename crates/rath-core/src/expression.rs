//! Expressions that name a session or record: `9f31`, `@`, `9f31@4`, `@-3`, `9f31@~12`, or a record id.

use std::fmt;

/// A parsed expression, not yet resolved in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expression<'a> {
    /// Digits of a session id or record id. Empty for the session that was changed last.
    pub base: &'a str,
    /// The record in the session.
    pub at: Position,
}

/// The position of a record in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The last record, or the session as a whole.
    Head,
    /// `@k`: the record with sequence number k.
    Seq(u64),
    /// `@-k`: the record k records before the last one.
    BeforeHead(u64),
    /// `@~k`: the k-th ancestor of the last record, following first parents through fork points.
    Ancestor(u64),
}

/// A text that is not a valid expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not the name of a session or record")]
pub struct NotAnExpression;

impl<'a> Expression<'a> {
    /// Parses an expression.
    pub fn parse(text: &'a str) -> Result<Self, NotAnExpression> {
        let (base, at) = match text.split_once('@') {
            Some((base, at)) => (base, Some(at)),
            None => (text, None),
        };
        let at = match at {
            None | Some("") => Position::Head,
            Some(at) => match (at.strip_prefix('-'), at.strip_prefix('~')) {
                (Some(back), _) => Position::BeforeHead(number(back)?),
                (_, Some(back)) => Position::Ancestor(number(back)?),
                _ => Position::Seq(number(at)?),
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

/// Parses decimal digits, without a sign.
fn number(digits: &str) -> Result<u64, NotAnExpression> {
    match digits.bytes().all(|b| b.is_ascii_digit()) {
        true => digits.parse().map_err(|_| NotAnExpression),
        false => Err(NotAnExpression),
    }
}

/// The name of the store's operator session in expressions.
pub const OPERATOR_WORD: &str = "operator";

impl fmt::Display for Expression<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base, at } = self;
        match at {
            Position::Head if base.is_empty() => f.write_str("@"),
            Position::Head => f.write_str(base),
            Position::Seq(seq) => write!(f, "{base}@{seq}"),
            Position::BeforeHead(back) => write!(f, "{base}@-{back}"),
            Position::Ancestor(back) => write!(f, "{base}@~{back}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_documented() {
        let read = |text| Expression::parse(text).map(|parsed| (parsed.base, parsed.at)).ok();
        assert_eq!(read("9f31"), Some(("9f31", Position::Head)));
        assert_eq!(read("@"), Some(("", Position::Head)));
        assert_eq!(read("9f31@4"), Some(("9f31", Position::Seq(4))));
        assert_eq!(read("@-3"), Some(("", Position::BeforeHead(3))));
        assert_eq!(read("9f31@~12"), Some(("9f31", Position::Ancestor(12))));
        assert_eq!(read("operator@4"), Some(("operator", Position::Seq(4))));
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
