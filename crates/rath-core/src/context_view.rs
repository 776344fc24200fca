//! Context views: named and versioned functions that choose the messages of a session that a model is shown.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::context::{Item, ItemKind};
use crate::error::Result;
use crate::message::Message;
use crate::store::BoxFuture;
use crate::view::View;

/// Chooses the messages that a model is shown.
///
/// A context view must be a pure function of the records at a point. Every request stores the name of its view, and is
/// rebuilt by calling the view again. So what one name and version returns must never change: use a new version for a
/// different choice.
///
/// ```
/// use rath_core::store::BoxFuture;
/// use rath_core::{ContextView, Message, Result, View};
///
/// /// The last ten messages.
/// #[derive(Debug)]
/// struct LastTen;
///
/// impl ContextView for LastTen {
///     fn name(&self) -> &str {
///         "last_ten@1"
///     }
///
///     fn messages<'a>(&'a self, view: &'a View) -> BoxFuture<'a, Result<Vec<Message>>> {
///         Box::pin(async move {
///             let messages = view.context().await?;
///             Ok(messages[messages.len().saturating_sub(10)..].to_vec())
///         })
///     }
/// }
/// ```
pub trait ContextView: fmt::Debug + Send + Sync + 'static {
    /// Name and version, for example `whole@1`. Every request stores it.
    fn name(&self) -> &str;

    /// The messages at `view`, oldest first. They must depend only on the records there.
    fn messages<'a>(&'a self, view: &'a View) -> BoxFuture<'a, Result<Vec<Message>>>;
}

/// A shared context view of any type.
pub type BoxContextView = Arc<dyn ContextView>;

/// The built-in context views. What they return never changes: see [`ContextView`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StandardView {
    /// The whole context.
    #[default]
    Whole,
    /// The messages since the agent's step was entered.
    OwnStep,
    /// The last user message, summary or model turn without calls before the step, and the messages since the step was
    /// entered.
    LastAnswer,
}

impl StandardView {
    const ALL: [Self; 3] = [Self::Whole, Self::OwnStep, Self::LastAnswer];

    /// Name and version.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole@1",
            Self::OwnStep => "own_step@1",
            Self::LastAnswer => "last_answer@1",
        }
    }

    /// The standard view of this name and version.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|view| view.as_str() == name)
    }
}

impl fmt::Display for StandardView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ContextView for StandardView {
    fn name(&self) -> &str {
        self.as_str()
    }

    fn messages<'a>(&'a self, view: &'a View) -> BoxFuture<'a, Result<Vec<Message>>> {
        Box::pin(async move {
            if *self == Self::Whole {
                return view.context().await;
            }
            let items = view.items().await?;
            let entered = view.state().entered_generation();
            let own = |item: &Item| item.newest > entered;
            let first_own = items.iter().position(|(item, _)| own(item)).unwrap_or(items.len());
            let answers = |item: &Item| match &item.kind {
                ItemKind::Message | ItemKind::Summary(_) => true,
                ItemKind::Turn(calls) => calls.is_empty(),
                ItemKind::Result(_) | ItemKind::Trimmed { .. } | ItemKind::Marker => false,
            };
            let last_answer = match self {
                Self::LastAnswer => items[..first_own].iter().rposition(|(item, _)| answers(item)),
                _ => None,
            };
            let shown = items.into_iter().enumerate();
            let shown = shown.filter(|(at, (item, _))| Some(*at) == last_answer || own(item));
            Ok(shown.map(|(_, (_, message))| message).collect())
        })
    }
}

/// A registry of context views by name and version, used to rebuild requests.
#[derive(Clone, Debug)]
pub struct ContextViews(BTreeMap<String, BoxContextView>);

impl Default for ContextViews {
    /// The [standard](StandardView) views.
    fn default() -> Self {
        let mut views = Self(BTreeMap::new());
        StandardView::ALL.into_iter().for_each(|view| views.register(view));
        views
    }
}

impl ContextViews {
    /// Adds a view. Replaces a view of the same name.
    pub fn register(&mut self, view: impl ContextView) {
        self.0.insert(view.name().to_owned(), Arc::new(view));
    }

    /// Like [`register`](Self::register), for chaining.
    #[must_use]
    pub fn with(mut self, view: impl ContextView) -> Self {
        self.register(view);
        self
    }

    /// The view of this name and version.
    pub fn get(&self, name: &str) -> Option<&BoxContextView> {
        self.0.get(name)
    }
}
