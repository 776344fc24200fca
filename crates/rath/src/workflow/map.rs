//! One branch for each item of a list.

use std::fmt;
use std::sync::Arc;

use rath_core::body::{Role, StepEntered};
use rath_core::{BoxWorkflow, ErrorKind, Outline, Result, Session, Workflow};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::join::{Join, OnConflict};
use super::parallel::{Parallel, parallel};

/// Runs `worker` once for each item of a list, each on a branch of its own, and joins the branches with
/// [`Join::answers`].
///
/// A branch records its item and starts with it as a user message: a string as it is, another value as JSON. The worker
/// can read it with [`item`](super::item). Without [`items`](Map::items), the list is the session's last output.
///
/// ```
/// use rath::prelude::*;
/// use rath::workflow::map;
/// # pollster::block_on(async {
/// let translate = Agent::new("translate").model(Scripted::new("scripted").say("Guten Tag."));
/// let store = InMemory::new();
/// let session = store.create(Actor::person("ada"));
/// let session = map("translate all", translate).items(["Good day.", "Hello."]).forward(session).await?;
/// assert_eq!(session.context().await?.len(), 1); // one message with both answers
/// # Ok::<(), rath::Error>(())
/// # }).unwrap();
/// ```
pub fn map(name: impl Into<String>, worker: impl Workflow + 'static) -> Map {
    let branches = parallel(name).kind("map").join(Join::answers());
    Map { branches, worker: BoxWorkflow::new(worker), items: Items::Output }
}

/// See [`map`].
#[derive(Clone, Debug)]
pub struct Map {
    branches: Parallel,
    worker: BoxWorkflow,
    items: Items,
}

/// Computes the items from the session.
type ItemsOf = Arc<dyn Fn(&Session) -> Result<Vec<Value>> + Send + Sync>;

#[derive(Clone)]
enum Items {
    /// The last structured output of the session.
    Output,
    List(Vec<Value>),
    Of(ItemsOf),
}

impl fmt::Debug for Items {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Output => f.write_str("the last output"),
            Self::List(items) => write!(f, "{} items", items.len()),
            Self::Of(_) => f.write_str("a function"),
        }
    }
}

impl Map {
    /// Sets the items. An item that cannot be serialized becomes `null`.
    #[must_use]
    pub fn items<T: Serialize>(mut self, items: impl IntoIterator<Item = T>) -> Self {
        self.items =
            Items::List(items.into_iter().map(|item| serde_json::to_value(item).unwrap_or_default()).collect());
        self
    }

    /// Computes the items when the step starts. They are recorded: a resumed run uses the recorded list.
    #[must_use]
    pub fn items_of(mut self, items: impl Fn(&Session) -> Result<Vec<Value>> + Send + Sync + 'static) -> Self {
        self.items = Items::Of(Arc::new(items));
        self
    }

    /// Sets how many branches run at the same time. [default: 16]
    #[must_use]
    pub fn at_most(mut self, branches: usize) -> Self {
        self.branches = self.branches.at_most(branches);
        self
    }

    /// Sets how the branches are joined. [default: `Join::answers()`]
    #[must_use]
    pub fn join(mut self, join: Join) -> Self {
        self.branches = self.branches.join(join);
        self
    }

    /// Sets what happens if the branches' files conflict. [default: fail]
    #[must_use]
    pub fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.branches = self.branches.on_conflict(on_conflict);
        self
    }

    /// Lets the other branches run when one fails: see [`Parallel::collect`].
    #[must_use]
    pub fn collect(mut self, at_least: usize) -> Self {
        self.branches = self.branches.collect(at_least);
        self
    }

    async fn items_now(&self, session: &mut Session) -> Result<Vec<Value>> {
        match &self.items {
            Items::List(items) => Ok(items.clone()),
            Items::Of(items) => {
                let items = items.clone();
                let made = items(session);
                session.record_once("items", async || made).await
            }
            Items::Output => session.output::<Vec<Value>>().await?.ok_or_else(|| {
                let why = "map needs a list: give it items, or run an agent before it whose output is a list";
                ErrorKind::Workflow(why.into()).into()
            }),
        }
    }

    async fn run(&self, mut session: Session) -> Result<Session> {
        let items = match self.items_now(&mut session).await {
            Ok(items) => items,
            Err(error) => return Err(error.with_sessions(vec![session])),
        };
        let mut branches = self.branches.clone();
        for (at, item) in items.into_iter().enumerate() {
            branches = branches.branch((at + 1).to_string(), OnItem::new(item, self.worker.clone()));
        }
        branches.run_and_join(session).await
    }
}

impl Workflow for Map {
    async fn forward(&self, session: Session) -> Result<Session> {
        let step = StepEntered { role: Some(Role::Workflow), ..StepEntered::new(&self.branches.name) };
        session.in_step(step, None, |session, _| self.run(session)).await
    }

    fn outline(&self) -> Outline {
        self.branches.outline().child("each", self.worker.outline())
    }
}

/// Runs the worker of a branch on its item.
pub(super) struct OnItem {
    item: Value,
    worker: BoxWorkflow,
}

/// The item, as a resource of the branch.
struct Item(Value);

impl OnItem {
    pub(super) fn new(item: Value, worker: BoxWorkflow) -> Self {
        Self { item, worker }
    }

    /// Records the item and shows it to the model.
    fn begin(&self, session: &mut Session) -> Result<()> {
        session.provide(Item(self.item.clone()));
        session.user(match &self.item {
            Value::String(text) => text.clone(),
            item => item.to_string(),
        })?;
        Ok(())
    }
}

impl Workflow for OnItem {
    async fn forward(&self, mut session: Session) -> Result<Session> {
        match self.begin(&mut session) {
            Ok(()) => self.worker.forward(session).await,
            Err(error) => Err(error.with_sessions(vec![session])),
        }
    }

    fn outline(&self) -> Outline {
        self.worker.outline()
    }
}

/// The item that this branch of [`map`] works on, or that was given to [`add_branch`](super::add_branch).
pub fn item<T: DeserializeOwned>(session: &Session) -> Result<T> {
    let item = session.resources().get::<Item>().map_err(|_| {
        let why = "this session is not a branch with an item";
        ErrorKind::Workflow(why.into())
    })?;
    serde_json::from_value(item.0.clone()).map_err(|why| ErrorKind::Workflow(why.into()).into())
}
