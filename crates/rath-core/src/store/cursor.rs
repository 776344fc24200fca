//! Positions in a store's commit order.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;

/// A position in a store's commit order, after the records that were read.
///
/// A cursor is only valid in the store that created it, and its content is opaque: one store may count segments,
/// another may have a position in each of its shards. Cursors can be kept, converted to text and back (`Display` and
/// [`FromStr`], for `Last-Event-ID` or `--since`), but not computed or compared by order. The text of a cursor stays
/// valid as long as its store exists: stores never merge or renumber segments, and erasure and garbage collection keep
/// the numbers.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// Without trailing zeros, so that equal positions are equal values.
    numbers: SmallVec<[u64; 2]>,
}

/// The maximum count of numbers in a cursor.
const MAX_NUMBERS: usize = 1024;

impl Cursor {
    /// The position before the first record.
    pub fn start() -> Self {
        Self::default()
    }

    /// Creates a cursor from its numbers. Only for implementations of stores. Missing numbers count as 0.
    pub fn from_numbers(numbers: &[u64]) -> Self {
        let end = numbers.iter().rposition(|number| *number != 0).map_or(0, |last| last + 1);
        Self { numbers: SmallVec::from_slice(&numbers[..end]) }
    }

    /// The numbers of the cursor. Only for implementations of stores. Missing numbers count as 0.
    pub fn numbers(&self) -> &[u64] {
        &self.numbers
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.numbers.split_first() {
            None => f.write_str("0"),
            Some((first, rest)) => {
                write!(f, "{first}")?;
                rest.iter().try_for_each(|number| write!(f, ".{number}"))
            }
        }
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({self})")
    }
}

/// A text that is not a cursor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a cursor: use the text that a store printed, which is numbers separated by dots")]
pub struct NotACursor(String);

impl FromStr for Cursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, NotACursor> {
        let invalid = || NotACursor(text.chars().take(80).collect());
        let mut numbers = SmallVec::<[u64; 2]>::new();
        for part in text.split('.') {
            // The parser of `u64` also accepts a plus sign.
            if numbers.len() == MAX_NUMBERS || !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(invalid());
            }
            numbers.push(part.parse().map_err(|_| invalid())?);
        }
        Ok(Self::from_numbers(&numbers))
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_cursor_is_stable() {
        for (numbers, text) in [(&[][..], "0"), (&[0, 0], "0"), (&[12, 0], "12"), (&[12, 3], "12.3"), (&[0, 7], "0.7")]
        {
            let cursor = Cursor::from_numbers(numbers);
            assert_eq!(cursor.to_string(), text);
            assert_eq!(text.parse(), Ok(cursor.clone()));
            assert_eq!(serde_json::from_str::<Cursor>(&serde_json::to_string(&cursor).unwrap()).unwrap(), cursor);
        }
        assert_eq!("0.0.0".parse(), Ok(Cursor::start()));
        for wrong in ["", ".", "1.", "+1", "-1", "1 ", "a", "99999999999999999999", &"1.".repeat(2000)] {
            assert!(wrong.parse::<Cursor>().is_err(), "{wrong:?}");
        }
    }
}
