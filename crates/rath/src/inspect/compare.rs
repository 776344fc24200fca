//! Comparing sessions, records or versions of files.

use rath_core::body::RecordRange;
use rath_core::files::{Change, Stat, TreeStore, Version, diff, patch};
use rath_core::{Message, Point, Reference, Result, State, Store, View};
use serde::Serialize;

/// The differences between two sessions or versions.
#[derive(Clone, Debug, Serialize)]
pub struct SessionComparison {
    /// The differences between the conversations, if sessions were compared.
    #[serde(flatten)]
    pub contexts: Option<ContextComparison>,
    /// Whether nothing differs.
    pub same: bool,
    /// The differences between the files.
    pub files: FileComparison,
}

impl SessionComparison {
    /// Combines the two parts.
    pub fn new(contexts: Option<ContextComparison>, files: FileComparison) -> Self {
        let same = files.changes.is_empty() && contexts.as_ref().is_none_or(ContextComparison::are_same);
        Self { contexts, same, files }
    }
}

/// The differences between the conversations of two sessions.
#[derive(Clone, Debug, Serialize)]
pub struct ContextComparison {
    /// The first session.
    pub a: Reference,
    /// The second session.
    pub b: Reference,
    /// The newest record in both histories.
    pub base: Option<Point>,
    /// Records only in the first history.
    pub only_a: Vec<RecordRange>,
    /// Records only in the second history.
    pub only_b: Vec<RecordRange>,
    /// The context of the first session.
    pub context_a: Vec<Message>,
    /// The context of the second session.
    pub context_b: Vec<Message>,
}

impl ContextComparison {
    /// Compares two views.
    pub async fn of(a: &View, b: &View) -> Result<Self> {
        let (only_b, only_a) = (a.divergence(b).await?, b.divergence(a).await?);
        Ok(Self {
            a: a.reference(),
            b: b.reference(),
            base: only_b.base,
            only_a: only_a.added,
            only_b: only_b.added,
            context_a: a.context().await?,
            context_b: b.context().await?,
        })
    }

    /// Whether the contexts contain the same text.
    pub fn are_same(&self) -> bool {
        let text = |message: &Message| message.to_string();
        self.context_a.iter().map(text).eq(self.context_b.iter().map(text))
    }
}

/// The differences between the files of two versions.
#[derive(Clone, Debug, Serialize)]
pub struct FileComparison {
    /// The first version; null if there are no files.
    pub before: Option<Version>,
    /// The second version.
    pub after: Option<Version>,
    /// The paths that differ.
    pub changes: Vec<Change>,
    /// The number of changed lines by path.
    pub stat: Vec<Stat>,
    /// The difference as a patch for `git apply`.
    #[serde(skip)]
    pub patch: Vec<u8>,
}

impl FileComparison {
    /// Compares two versions.
    pub async fn between(store: &dyn Store, before: Option<Version>, after: Option<Version>) -> Result<Self> {
        let forest = TreeStore::new(store);
        let changes = match (&before, &after) {
            (Some(a), Some(b)) => diff(&forest, a, b).await?,
            (None, None) => Vec::new(),
            // One side has no files: every path was added or deleted.
            (None, Some(all)) => {
                let added = |(path, node)| Change { path, before: None, after: Some(node) };
                forest.list(all).await?.into_iter().map(added).collect()
            }
            (Some(all), None) => {
                let gone = |(path, node)| Change { path, before: Some(node), after: None };
                forest.list(all).await?.into_iter().map(gone).collect()
            }
        };
        let patch = patch(&forest, &changes).await?;
        Ok(Self { before, after, changes, stat: patch.stat, patch: patch.text })
    }

    /// Compares a session's files with those that it started with.
    pub async fn since_placed(store: &dyn Store, state: &State) -> Result<Self> {
        let given = state.placement.as_ref().and_then(|placement| placement.base.clone());
        Self::between(store, given, state.workspace.clone()).await
    }
}
