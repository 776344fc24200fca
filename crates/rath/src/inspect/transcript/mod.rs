//! A session's records as a person reads them: steps, messages, calls with what they changed, questions, crashes.
//!
//! A [`Transcript`] is given the records of one session in order, and returns what each of them means as [`Entry`]s. Entries
//! of one call have its id; a reader puts them below the entry that begins the call.

mod changes;
mod entry;
mod excerpt;
mod teller;

pub use changes::{ChangeSummary, ChangedPath, LineCounts};
pub use entry::{Entry, EntryKind, MergedBranch, Speaker};
pub use excerpt::Excerpt;
pub use teller::Transcript;

/// How much of the files' differences a transcript reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Differences {
    /// None: only which paths changed.
    None,
    /// Those of a few changed files.
    Few,
    /// All.
    All,
}
