//! A session's records for people: steps, messages, calls with their changes, questions, crashes.
//!
//! A [`Transcript`] reads the records of one session in order, and returns [`TranscriptEntry`]s for each. The entries
//! of a call have its id; a display puts them below the entry that starts the call.

mod builder;
mod changes;
mod entry;
mod excerpt;

pub use builder::Transcript;
pub use changes::{ChangeSummary, ChangedPath, LineCounts};
pub use entry::{EntryKind, MergedBranch, Speaker, TranscriptEntry};
pub use excerpt::Excerpt;

/// Which file differences a transcript includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Differences {
    /// No differences, only the changed paths.
    None,
    /// Differences if few files changed.
    Few,
    /// All differences.
    All,
}
