//! A position in a store's commit order.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;

/// A position in a store's commit order: everything up to it was read.
///
/// A cursor belongs to the store that made it and means nothing to another one. What is inside is the store's business:
/// one store counts segments, another has a position in each of its shards. So cursors can be kept, sent as text
/// (`Display` and [`FromStr`], for `Last-Event-ID` or `--since`) and handed back, and neither computed with nor put in
/// order. The text of a cursor stays valid as long as its store exists: stores never merge or renumber segments, and
/// erasures and garbage collections keep their numbers.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// Without zeros at the end, so that equal positions are equal values.
    numbers: SmallVec<[u64; 2]>,
}

/// How many numbers a cursor may consist of.
const LONGEST: usize = 1024;

impl Cursor {
    /// The position before the first record.
    pub fn start() -> Self {
        Self::default()
    }

    /// The position that these numbers name. Only for implementations of stores; a missing number is 0.
    pub fn of_store(numbers: &[u64]) -> Self {
        let end = numbers.iter().rposition(|number| *number != 0).map_or(0, |last| last + 1);
        Self { numbers: SmallVec::from_slice(&numbers[..end]) }
    }

    /// The numbers that name it. Only for implementations of stores; a missing number is 0.
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

/// A text that is not a cursor's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a cursor: a cursor is numbers with dots between them, as a store printed it")]
pub struct NotACursor(String);

impl FromStr for Cursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, NotACursor> {
        let wrong = || NotACursor(text.chars().take(80).collect());
        let mut numbers = SmallVec::<[u64; 2]>::new();
        for part in text.split('.') {
            // `u64` would take a plus sign, too.
            if numbers.len() == LONGEST || !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(wrong());
            }
            numbers.push(part.parse().map_err(|_| wrong())?);
        }
        Ok(Self::of_store(&numbers))
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
            let cursor = Cursor::of_store(numbers);
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
