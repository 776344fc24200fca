//! What became of the files of a branch that was merged, in words for the model that made the call.

use rath_core::files::Conflict;
use rath_core::{Result, Session, SessionId};

/// How many paths are named.
const NAMED: usize = 20;

/// What is to be said about the files of one branch. It is read from records alone, so a resumed run says the same.
pub(super) struct MergedBranch {
    /// The place of the call.
    pub(super) at: usize,
    branch: SessionId,
    failed: bool,
    /// Whether its files are other than those that it began with.
    changed: bool,
    /// Conflicts that came up on the branch and are open still.
    within: Vec<Conflict>,
}

impl MergedBranch {
    /// Of a branch at its end.
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

    /// The branch, where its files are to be left out: half of a work that failed may not win over one that is done.
    pub(super) fn without_files(&self) -> Option<SessionId> {
        self.failed.then_some(self.branch)
    }

    /// What the caller's model is told, once the branch was merged; `None` where all of its work is in the files.
    pub(super) fn told(&self, session: &Session) -> Option<String> {
        let short = self.branch.short();
        if self.failed {
            return self.changed.then(|| {
                format!(
                    "Because it failed, nothing that it changed is in the files. Its changes stay on branch {short}."
                )
            });
        }
        let mut said = Vec::new();
        let open = session.state().conflicts.iter().filter(|open| open.branch == Some(self.branch));
        if let Some(paths) = named(open) {
            said.push(format!(
                "Not all of its changes are in the files. Another call changed these paths too, in ways that do not fit \
                 together, and the other's side stands there now:\n{paths}\nRead them, and bring in what is missing \
                 yourself or by calling again.\nIts side stays on branch {short}; a person can take it with `rath resolve`."
            ));
        }
        if let Some(paths) = named(self.within.iter()) {
            said.push(format!("Calls that it made itself left conflicts, of which one side is in the files:\n{paths}"));
        }
        Some(said.join("\n")).filter(|said| !said.is_empty())
    }
}

/// Paths, a line each, and what does not fit together there; `None` where there are none.
fn named<'a>(conflicts: impl Iterator<Item = &'a Conflict>) -> Option<String> {
    let mut words: Vec<_> = conflicts.map(|open| format!("- {} ({})", open.path, open.kind)).collect();
    let more = words.len().saturating_sub(NAMED);
    words.truncate(NAMED);
    if more > 0 {
        words.push(format!("- and {more} more"));
    }
    Some(words.join("\n")).filter(|words| !words.is_empty())
}
