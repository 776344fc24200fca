//! The kinds of records.

use std::fmt;
use std::str::FromStr;

/// Declares the table of kinds: one row a kind, and every column in every row. The table stands in [`crate::body`].
///
/// Columns: name, name on the wire, code, then the fields of [`Row`] in their order. The body type has the kind's name.
macro_rules! kinds {
    ($($name:ident $wire:literal $code:literal
        $state:ident $resume:ident $publishes:ident $context:ident $writer:ident $content:ident [$($part:ident)*];)*) => {
        /// What a record says. [`Kind::Other`] is a kind this version does not know; it is carried byte for byte.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "docs/records.md describes each kind")]
        pub enum Kind {
            $($name,)*
            Other(Arc<str>),
        }

        impl Kind {
            /// Every kind this version knows by name.
            pub const KNOWN: &'static [Kind] = &[$(Kind::$name,)*];

            /// The name on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Kind::$name => $wire,)*
                    Kind::Other(name) => name,
                }
            }

            /// The code in a stored segment. All unknown kinds share [`Kind::OTHER_CODE`].
            pub fn code(&self) -> u8 {
                match self {
                    $(Kind::$name => $code,)*
                    Kind::Other(_) => Self::OTHER_CODE,
                }
            }

            /// The kind with this code, where the code says it all.
            pub fn from_code(code: u8) -> Option<Kind> {
                match code {
                    $($code => Some(Kind::$name),)*
                    _ => None,
                }
            }

            /// The kind with this name.
            pub fn named(name: &str) -> Kind {
                match name {
                    $($wire => Kind::$name,)*
                    other => Kind::Other(other.into()),
                }
            }

            /// Its row in the table.
            pub(crate) fn row(&self) -> &'static Row {
                match self {
                    $(Kind::$name => {
                        const ROW: Row = Row {
                            state: InState::$state,
                            resume: OnResume::$resume,
                            publishes: Publishes::$publishes,
                            context: InContext::$context,
                            writer: WrittenBy::$writer,
                            content: Holds::$content,
                            lost: $(parts::$part |)* 0,
                        };
                        &ROW
                    })*
                    Kind::Other(_) => &Row::UNKNOWN,
                }
            }
        }

        /// Reads a body by its kind; `None` for kinds without a type.
        pub(crate) fn read(kind: &Kind, bytes: &[u8]) -> Result<Option<Box<dyn Meaning>>, Fault> {
            match kind {
                $(Kind::$name => typed::<$name>(bytes),)*
                Kind::Other(_) => Ok(None),
            }
        }
    };
}
pub(crate) use kinds;

pub use crate::body::Kind;

/// What the rest of the code must know about a kind of record.
pub(crate) struct Row {
    /// Whether it changes the folded state.
    pub(crate) state: InState,
    /// What a resumed run does when it comes to one.
    pub(crate) resume: OnResume,
    /// Whether [`Durability::Effect`](crate::Durability::Effect) publishes when one is appended.
    pub(crate) publishes: Publishes,
    /// What it does to the context.
    pub(crate) context: InContext,
    /// What may write it.
    pub(crate) writer: WrittenBy,
    /// Whether contents that it shares with another record are copies of that.
    pub(crate) content: Holds,
    /// The parts of the folded state that are lost with its body, as bits: see [`parts`].
    pub(crate) lost: parts::Parts,
}

impl Row {
    /// What holds for a kind that this version does not know.
    pub(crate) const UNKNOWN: Row = Row {
        state: InState::Inert,
        resume: OnResume::Compared,
        publishes: Publishes::Never,
        context: InContext::Hidden,
        writer: WrittenBy::Program,
        content: Holds::Facts,
        lost: 0,
    };
}

/// Whether a kind changes the folded state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InState {
    /// It does not.
    Inert,
    /// It does. A body that cannot be read is an error.
    Folds,
    /// It does, and got its type after free bodies of that name may have been stored. One that cannot be read changes nothing.
    FoldsIfReadable,
}

/// What a resumed run does when it comes to a recorded one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnResume {
    /// It must be what the program appends next.
    Compared,
    /// It is taken in where it stands: others leave it on the line, or it depends on the machine.
    Ignored,
}

/// Whether appending one publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Publishes {
    /// It waits for what comes next.
    Never,
    /// An effect may follow it at once.
    Always,
    /// Unless the call that it is about only computes.
    UnlessPure,
    /// When no step of the line is open any more.
    AtOutermostStep,
}

/// What a kind does to the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InContext {
    /// Nothing.
    Hidden,
    /// It is an item: a message that a model is shown.
    Message,
    /// It makes, replaces or removes items.
    Edits,
    /// A message refers to it: to the text of an output, or to the agent of a step.
    Needed,
}

/// What may write a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrittenBy {
    /// Any program that appends.
    Program,
    /// An operation of the session: merge, compress, close.
    Operation,
    /// The operation that begins a session: it stands at seq 0 and nowhere else.
    Beginning,
}

/// What a body holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// What was said and done: contents that two such records share are copies.
    Content,
    /// Facts about the run: a content that it names is not a copy of another.
    Facts,
}

/// Parts of a folded state, as bits: what is lost with a body that said it.
pub(crate) mod parts {
    /// Some of them.
    pub(crate) type Parts = u16;

    /// Which steps are open.
    pub(crate) const STEPS: Parts = 1;
    /// Which calls are open.
    pub(crate) const CALLS: Parts = 1 << 1;
    /// Which questions are open.
    pub(crate) const ASKS: Parts = 1 << 2;
    /// What was used.
    pub(crate) const USAGE: Parts = 1 << 3;
    /// The files.
    pub(crate) const WORKSPACE: Parts = 1 << 4;
    /// What the origin of the files had.
    pub(crate) const BASE: Parts = 1 << 5;
    /// The sandbox.
    pub(crate) const SANDBOX: Parts = 1 << 6;
    /// Where the agents of open steps are.
    pub(crate) const RUNS: Parts = 1 << 7;
    /// Whether open steps are the line's own, and how many were entered in them.
    pub(crate) const OWNERS: Parts = 1 << 8;
    /// What the line waits for.
    pub(crate) const WAITS: Parts = 1 << 9;
    /// All parts that only a snapshot can tell once the body is gone.
    pub(crate) const FOLDED: Parts = STEPS | CALLS | ASKS | USAGE | WORKSPACE | BASE | SANDBOX | RUNS | OWNERS | WAITS;
    /// Where the session works. An erasure takes this out of snapshots, as it does the parts that follow.
    pub(crate) const PLACE: Parts = 1 << 10;
    /// Permissions.
    pub(crate) const GRANTS: Parts = 1 << 11;
    /// Conflicts between files.
    pub(crate) const CONFLICTS: Parts = 1 << 12;
    /// Title and labels.
    pub(crate) const NAMES: Parts = 1 << 13;
    /// The name of something that the record opens: a step, a call, a question, a wait.
    pub(crate) const OPENS: Parts = 1 << 14;
}

impl Kind {
    /// The code that all unknown kinds share.
    pub const OTHER_CODE: u8 = 62;

    /// The first code that was given after stores had been written. Older versions store such a kind as an unknown one.
    const LATER_CODES: u8 = 45;

    /// The kind's code as a bit, for the mask of a segment.
    pub fn bit(&self) -> u64 {
        1 << self.code()
    }

    /// Whether a record of this kind may be stored with this code: its own, the one of unknown kinds if another version
    /// wrote it that did not know the kind, or, for a kind that this version does not know, one that it does not know either.
    pub fn may_have_code(&self, code: u8) -> bool {
        code < 64 && self.possible_codes() & (1 << code) != 0
    }

    /// The codes that a record of this kind may be stored with, as bits.
    fn possible_codes(&self) -> u64 {
        let other = 1 << Self::OTHER_CODE;
        match self {
            Kind::Other(_) => {
                let known = Self::KNOWN.iter().fold(0, |mask, kind| mask | kind.bit());
                !known & (other | (other - 1))
            }
            later if later.code() >= Self::LATER_CODES => later.bit() | other,
            first => first.bit(),
        }
    }

    /// Whether the kind may stand at seq 0, and only there.
    pub fn begins_a_session(&self) -> bool {
        self.row().writer == WrittenBy::Beginning
    }

    /// Whether only an operation of the session writes it: fork, merge, compress, close.
    pub fn is_written_by_operation(&self) -> bool {
        self.row().writer != WrittenBy::Program
    }

    /// Whether records of this kind are shown to a model.
    pub fn is_conversation(&self) -> bool {
        self.row().context == InContext::Message
    }

    /// Whether it holds what was said and done: contents that two such records share are copies.
    pub fn holds_content(&self) -> bool {
        self.row().content == Holds::Content
    }

    /// Whether it changes the session's title or labels.
    pub fn changes_names(&self) -> bool {
        self.row().lost & parts::NAMES != 0
    }

    /// The kinds whose row passes `test`.
    pub(crate) fn all(test: impl Fn(&Row) -> bool) -> Vec<Kind> {
        Self::KNOWN.iter().filter(|kind| test(kind.row())).cloned().collect()
    }
}

/// The codes that records of these `kinds` may be stored with, as bits. A record with one of them may be of another kind.
pub fn mask<'a>(kinds: impl IntoIterator<Item = &'a Kind>) -> u64 {
    kinds.into_iter().fold(0, |mask, kind| mask | kind.possible_codes())
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A name that cannot be a kind.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is not a kind: 1 to 64 of a-z, 0-9, '_', '.', '-', starting with a letter")]
pub struct NotAKind(String);

impl FromStr for Kind {
    type Err = NotAKind;

    fn from_str(name: &str) -> Result<Self, NotAKind> {
        let legal = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'-');
        let starts = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
        if starts && name.len() <= 64 && name.bytes().all(legal) {
            Ok(Kind::named(name))
        } else {
            Err(NotAKind(name.chars().take(80).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_given_once_and_fits_the_mask() {
        let mut codes: Vec<u8> = Kind::KNOWN.iter().map(Kind::code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Kind::KNOWN.len());
        assert!(codes.iter().all(|code| *code < Kind::OTHER_CODE));
    }

    #[test]
    fn a_kind_may_have_been_stored_as_an_unknown_one_if_it_came_later() {
        let (later, unknown) = (Kind::Awaited, Kind::named("weather.report"));
        assert!(later.may_have_code(later.code()) && later.may_have_code(Kind::OTHER_CODE));
        assert!(!later.may_have_code(Kind::User.code()) && !later.may_have_code(61));
        assert!(!Kind::User.may_have_code(Kind::OTHER_CODE));
        assert!(unknown.may_have_code(61) && unknown.may_have_code(Kind::OTHER_CODE));
        assert!(!unknown.may_have_code(Kind::User.code()) && !unknown.may_have_code(63));
        assert_ne!(mask([&later]) & Kind::named("x").bit(), 0);
        assert_eq!(mask([&Kind::User]), Kind::User.bit());
    }
}
