//! The kinds of records.

use std::fmt;
use std::str::FromStr;

/// Declares the table of kinds, with one row per kind. The table is in [`crate::body`].
///
/// The columns are: Rust name, stored name, code, then the fields of [`Row`] in their order. The body type has the same
/// Rust name.
macro_rules! kinds {
    ($($name:ident $wire:literal $code:literal
        $state:ident $resume:ident $publishes:ident $context:ident $writer:ident $content:ident [$($part:ident)*];)*) => {
        /// The kind of a record. [`Kind::Other`] is a kind that this version does not know; its records are kept byte
        /// for byte.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "docs/reference/records.md describes each kind")]
        pub enum Kind {
            $($name,)*
            Other(Arc<str>),
        }

        impl Kind {
            /// All kinds that this version knows.
            pub const KNOWN: &'static [Kind] = &[$(Kind::$name,)*];

            /// The stored name.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Kind::$name => $wire,)*
                    Kind::Other(name) => name,
                }
            }

            /// The code in stored segments. All unknown kinds share [`Kind::OTHER_CODE`].
            pub fn code(&self) -> u8 {
                match self {
                    $(Kind::$name => $code,)*
                    Kind::Other(_) => Self::OTHER_CODE,
                }
            }

            /// The kind with this code; `None` when no known kind has it.
            pub fn from_code(code: u8) -> Option<Kind> {
                match code {
                    $($code => Some(Kind::$name),)*
                    _ => None,
                }
            }

            /// The kind with this stored name.
            pub fn named(name: &str) -> Kind {
                match name {
                    $($wire => Kind::$name,)*
                    other => Kind::Other(other.into()),
                }
            }

            /// The row of the kind in the table.
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

        /// Parses a body by its kind; `None` for kinds without a body type.
        pub(crate) fn read(kind: &Kind, bytes: &[u8]) -> Result<Option<Box<dyn DynBody>>, RecordError> {
            match kind {
                $(Kind::$name => typed::<$name>(bytes),)*
                Kind::Other(_) => Ok(None),
            }
        }
    };
}
pub(crate) use kinds;

pub use crate::body::Kind;

/// The properties of a kind.
pub(crate) struct Row {
    /// Whether records of this kind change the folded state.
    pub(crate) state: InState,
    /// What a resumed run does with a recorded one.
    pub(crate) resume: OnResume,
    /// Whether [`Durability::Effect`](crate::Durability::Effect) publishes when one is appended.
    pub(crate) publishes: Publishes,
    /// What a record does to the context.
    pub(crate) context: InContext,
    /// What may write a record of this kind.
    pub(crate) writer: WrittenBy,
    /// Whether the body holds content or facts.
    pub(crate) content: Holds,
    /// The parts of the folded state that are lost when the body is erased, as bits: see [`parts`].
    pub(crate) lost: parts::Parts,
}

impl Row {
    /// The properties of a kind that this version does not know.
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
    /// A record of the kind does not change the state.
    Inert,
    /// A record of the kind changes the state. An unreadable body is an error.
    Folds,
    /// It changes the state. Stores may contain free-form bodies of this name, from before the kind had a body type. An
    /// unreadable body therefore changes nothing.
    FoldsIfReadable,
}

/// What a resumed run does when it reaches a recorded one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnResume {
    /// The run compares the record with what the program appends next. A difference is a divergence.
    Compared,
    /// It applies the record without comparing it, because it was not appended by the program or depends on the
    /// machine.
    Ignored,
}

/// Whether appending a record publishes the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Publishes {
    /// Appending does not publish.
    Never,
    /// Appending publishes, because a side effect may follow at once.
    Always,
    /// Appending publishes, unless the record is about a pure call.
    UnlessPure,
    /// Appending publishes when no step of the session is open any more.
    AtOutermostStep,
}

/// What a kind does to the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InContext {
    /// The record has no effect on the context.
    Hidden,
    /// The record is an item of the context: a message.
    Message,
    /// The record adds, replaces or removes items.
    Edits,
    /// The record is not an item, but messages refer to it: for the text of an output, or for the agent of a step.
    Needed,
}

/// What may write a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrittenBy {
    /// Any program may append it.
    Program,
    /// Only an operation of the session writes it: merge, compress, trim, close.
    Operation,
    /// Only the operation that starts a session writes it, at sequence number 0.
    Start,
}

/// What a body contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Content: messages, arguments and outputs. When two such records contain the same text, one is a copy of the
    /// other.
    Content,
    /// Facts about the run. Equal text in another record is not a copy.
    Facts,
}

/// The parts of a folded state, as bits.
pub(crate) mod parts {
    /// A set of parts.
    pub(crate) type Parts = u16;

    /// The open steps.
    pub(crate) const STEPS: Parts = 1;
    /// The open calls.
    pub(crate) const CALLS: Parts = 1 << 1;
    /// The open questions.
    pub(crate) const ASKS: Parts = 1 << 2;
    /// The usage.
    pub(crate) const USAGE: Parts = 1 << 3;
    /// The files.
    pub(crate) const WORKSPACE: Parts = 1 << 4;
    /// The files of the origin directory.
    pub(crate) const BASE: Parts = 1 << 5;
    /// The sandbox.
    pub(crate) const SANDBOX: Parts = 1 << 6;
    /// The progress of the agents in open steps.
    pub(crate) const RUNS: Parts = 1 << 7;
    /// Whether open steps were started in this session, and how many steps were entered in each.
    pub(crate) const OWNERS: Parts = 1 << 8;
    /// The open waits.
    pub(crate) const WAITS: Parts = 1 << 9;
    /// All parts that can only be read from a snapshot once the body is erased.
    pub(crate) const FOLDED: Parts = STEPS | CALLS | ASKS | USAGE | WORKSPACE | BASE | SANDBOX | RUNS | OWNERS | WAITS;
    /// The placement. An erasure removes this part and the following ones from snapshots.
    pub(crate) const PLACEMENT: Parts = 1 << 10;
    /// The permissions.
    pub(crate) const GRANTS: Parts = 1 << 11;
    /// The file conflicts.
    pub(crate) const CONFLICTS: Parts = 1 << 12;
    /// The title and the labels.
    pub(crate) const NAMES: Parts = 1 << 13;
    /// The name of something that the record opens: a step, a call, a question or a wait.
    pub(crate) const OPENS: Parts = 1 << 14;
}

impl Kind {
    /// The code that all unknown kinds share.
    pub const OTHER_CODE: u8 = 62;

    /// The first code that was assigned after the first stores were written. Older versions store kinds from this code
    /// on as unknown kinds.
    const LATER_CODES: u8 = 45;

    /// The bit of the kind in the mask of a segment.
    pub fn bit(&self) -> u64 {
        1 << self.code()
    }

    /// Whether a record of this kind may be stored with this code. That is the kind's own code, or the code of unknown
    /// kinds if an older version may have written the record. For a kind that this version does not know, it is any
    /// code that this version does not know.
    pub fn may_have_code(&self, code: u8) -> bool {
        code < 64 && self.possible_codes() & (1 << code) != 0
    }

    /// The codes for which [`may_have_code`](Self::may_have_code) is true, as bits.
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

    /// Whether records of this kind start a session. They have sequence number 0, and no other kind has it.
    pub fn starts_session(&self) -> bool {
        self.row().writer == WrittenBy::Start
    }

    /// Whether only operations of the session write it: fork, merge, compress, close.
    pub fn is_written_by_operation(&self) -> bool {
        self.row().writer != WrittenBy::Program
    }

    /// Whether records of this kind are messages, which models are shown.
    pub fn is_conversation(&self) -> bool {
        self.row().context == InContext::Message
    }

    /// Whether the body holds content: messages, arguments or outputs. When two such records contain the same text, one
    /// is a copy of the other.
    pub fn holds_content(&self) -> bool {
        self.row().content == Holds::Content
    }

    /// Whether records of this kind change the session's title or labels.
    pub fn changes_names(&self) -> bool {
        self.row().lost & parts::NAMES != 0
    }

    /// The kinds for whose row `test` returns true.
    pub(crate) fn all(test: impl Fn(&Row) -> bool) -> Vec<Kind> {
        Self::KNOWN.iter().filter(|kind| test(kind.row())).cloned().collect()
    }
}

/// The codes that records of these `kinds` may be stored with, as bits. A record with such a code may still be of
/// another kind.
pub fn mask<'a>(kinds: impl IntoIterator<Item = &'a Kind>) -> u64 {
    kinds.into_iter().fold(0, |mask, kind| mask | kind.possible_codes())
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A name that is not a valid kind.
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
