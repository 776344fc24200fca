//! The kinds of records.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Declares the kinds once: name, wire name, code. Codes are stored in segments and never change.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident $wire:literal $code:literal)*) => {
        /// What a record says. [`Kind::Other`] is a kind this version does not know; it is carried byte for byte.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "docs/records.md describes each kind")]
        pub enum Kind {
            $($(#[$doc])* $name,)*
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
        }
    };
}

kinds! {
    Created "created" 0
    Forked "forked" 1
    Detached "detached" 2
    Merged "merged" 3
    Imported "imported" 4
    Closed "closed" 5
    Rejected "rejected" 6
    Labelled "labelled" 7
    Linked "linked" 8
    System "system" 9
    User "user" 10
    Assistant "assistant" 11
    ToolResult "tool_result" 12
    ModelRequested "model_requested" 13
    ModelResponded "model_responded" 14
    ModelFailed "model_failed" 15
    ToolStarted "tool_started" 16
    ToolFinished "tool_finished" 17
    Placed "placed" 18
    SandboxOpened "sandbox_opened" 19
    SandboxClosed "sandbox_closed" 20
    SandboxLost "sandbox_lost" 21
    NetDecided "net_decided" 22
    Restored "restored" 23
    Resolved "resolved" 24
    Recalled "recalled" 25
    Committed "committed" 26
    Retracted "retracted" 27
    RolledBack "rolled_back" 28
    MemoryUsed "memory_used" 29
    Compressed "compressed" 30
    StepEntered "step_entered" 31
    StepLeft "step_left" 32
    Routed "routed" 33
    Validated "validated" 34
    Asked "asked" 35
    Answered "answered" 36
    Granted "granted" 37
    Cancelled "cancelled" 38
    Failed "failed" 39
    Sampled "sampled" 40
    Note "note" 41
    Erased "erased" 42
    Held "held" 43
    Released "released" 44
    Checkpointed "checkpointed" 45
    Arrived "arrived" 56
}

impl Kind {
    /// The code that all unknown kinds share.
    pub const OTHER_CODE: u8 = 62;

    /// This kind as a bit, for masks over segments.
    pub fn bit(&self) -> u64 {
        1 << self.code()
    }

    /// Whether the kind may stand at seq 0, and only there.
    pub fn begins_a_session(&self) -> bool {
        matches!(self, Kind::Created | Kind::Forked | Kind::Detached | Kind::Imported)
    }

    /// Whether only an operation of the session writes it: fork, merge, compress, close.
    pub fn is_written_by_operation(&self) -> bool {
        self.begins_a_session() || matches!(self, Kind::Merged | Kind::Closed | Kind::Compressed)
    }

    /// Whether records of this kind are shown to a model.
    pub fn is_conversation(&self) -> bool {
        matches!(self, Kind::System | Kind::User | Kind::Assistant | Kind::ToolResult)
    }
}

/// The bits of all `kinds` together.
pub fn mask<'a>(kinds: impl IntoIterator<Item = &'a Kind>) -> u64 {
    kinds.into_iter().fold(0, |mask, kind| mask | kind.bit())
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
