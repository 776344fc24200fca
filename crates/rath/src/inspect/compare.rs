//! How two sessions, records or versions of files differ.

use rath_core::body::Run;
use rath_core::files::{Change, Forest, Stat, Version, diff, patch};
use rath_core::{Message, Point, Reference, Result, State, Store, View};
use serde::Serialize;

/// How two sessions or versions differ.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// How the conversations differ, if sessions were compared.
    #[serde(flatten)]
    pub contexts: Option<ContextComparison>,
    /// Whether nothing differs.
    pub same: bool,
    /// How the files differ.
    pub files: FileComparison,
}

impl Comparison {
    /// Of these two parts.
    pub fn new(contexts: Option<ContextComparison>, files: FileComparison) -> Self {
        let same = files.changes.is_empty() && contexts.as_ref().is_none_or(ContextComparison::are_same);
        Self { contexts, same, files }
    }
}

/// How the conversations of two sessions differ.
#[derive(Clone, Debug, Serialize)]
pub struct ContextComparison {
    /// The one.
    pub a: Reference,
    /// The other.
    pub b: Reference,
    /// The youngest record that both have in their history.
    pub base: Option<Point>,
    /// Records that only the one has in its history.
    pub only_a: Vec<Run>,
    /// Records that only the other has in its history.
    pub only_b: Vec<Run>,
    /// What a model would be shown of the one.
    pub context_a: Vec<Message>,
    /// What a model would be shown of the other.
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
            only_a: only_a.brought,
            only_b: only_b.brought,
            context_a: a.context().await?,
            context_b: b.context().await?,
        })
    }

    /// Whether a model would be shown the same text.
    pub fn are_same(&self) -> bool {
        let text = |message: &Message| message.to_string();
        self.context_a.iter().map(text).eq(self.context_b.iter().map(text))
    }
}

/// How the files of two versions differ.
#[derive(Clone, Debug, Serialize)]
pub struct FileComparison {
    /// The one version; null if there are no files.
    pub before: Option<Version>,
    /// The other version.
    pub after: Option<Version>,
    /// The paths that differ.
    pub changes: Vec<Change>,
    /// How many lines of each path differ.
    pub stat: Vec<Stat>,
    /// The difference, as `git apply` reads it.
    #[serde(skip)]
    pub patch: Vec<u8>,
}

impl FileComparison {
    /// Compares two versions.
    pub async fn between(store: &dyn Store, before: Option<Version>, after: Option<Version>) -> Result<Self> {
        let forest = Forest::new(store);
        let changes = match (&before, &after) {
            (Some(a), Some(b)) => diff(&forest, a, b).await?,
            (None, None) => Vec::new(),
            // One side has no files at all: everything is new, or gone.
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

    /// Compares the files that a session was given with those that it has.
    pub async fn since_placed(store: &dyn Store, state: &State) -> Result<Self> {
        let given = state.placement.as_ref().and_then(|place| place.base.clone());
        Self::between(store, given, state.workspace.clone()).await
    }
}
