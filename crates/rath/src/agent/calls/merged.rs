//! Notices for the model about the files of a merged branch.

use rath_core::files::Conflict;
use rath_core::{Result, Session, SessionId};

/// The largest number of paths in a notice.
const NAMED: usize = 20;

/// The file changes of one merged branch. Read from records alone, so that a resumed run gives the same notice.
pub(super) struct MergedBranch {
    /// The index of the call.
    pub(super) at: usize,
    branch: SessionId,
    failed: bool,
    /// Whether the branch changed files.
    changed: bool,
    /// Conflicts of merges on the branch that are still open.
    within: Vec<Conflict>,
}

impl MergedBranch {
    /// Reads a branch at its end.
    pub(super) async fn of(at: usize, branch: &Session, failed: bool) -> Result<Self> {
        let state = branch.state();
        let (mut changed, mut within) = (false, Vec::new());
        if let Some(files) = &state.workspace {
            let first = branch.at(0).await?;
            changed = first.state().workspace.as_ref().is_none_or(|before| !before.same_files(files));
            let new = state.conflicts.iter().filter(|open| !first.state().conflicts.contains(open));
            within.extend(new.cloned());
        }
        Ok(Self { at, branch: branch.id(), failed, changed, within })
    }

    /// The branch, if its files must not be merged: partial changes of a failed call must not win over those of a
    /// finished one.
    pub(super) fn without_files(&self) -> Option<SessionId> {
        self.failed.then_some(self.branch)
    }

    /// The notice for the caller's model after the merge. `None` if all changes were merged.
    pub(super) fn notice(&self, session: &Session) -> Option<String> {
        let short = self.branch.short();
        if self.failed {
            return self.changed.then(|| {
                format!("The call failed, so none of its file changes were merged. They remain on branch {short}.")
            });
        }
        let mut said = Vec::new();
        let open = session.state().conflicts.iter().filter(|open| open.branch == Some(self.branch));
        if let Some(paths) = named(open) {
            said.push(format!(
                "Some of its file changes were not merged. Another call made conflicting changes to these paths, and the \
                 other call's version was kept:\n{paths}\nRead these files, and add what is missing yourself or with \
                 another call.\nThe version of this call remains on branch {short}; a person can take it with `rath resolve`."
            ));
        }
        if let Some(paths) = named(self.within.iter()) {
            said.push(format!("Its own calls left merge conflicts, and one side of each is in the files:\n{paths}"));
        }
        Some(said.join("\n")).filter(|said| !said.is_empty())
    }
}

/// The conflicts, one line each. `None` if there are none.
fn named<'a>(conflicts: impl Iterator<Item = &'a Conflict>) -> Option<String> {
    let mut words: Vec<_> = conflicts.map(|open| format!("- {} ({})", open.path, open.kind)).collect();
    let more = words.len().saturating_sub(NAMED);
    words.truncate(NAMED);
    if more > 0 {
        words.push(format!("- and {more} more"));
    }
    Some(words.join("\n")).filter(|words| !words.is_empty())
}
