//! What transforms sessions.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::error::Result;
use crate::session::Session;
use crate::store::BoxFuture;

/// Maps one session to another: `session = workflow.forward(session).await?` is the whole programming model.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not transform sessions",
    note = "implement `Workflow`, or pass a closure: `|s: Session| async move {{ Ok(s) }}`"
)]
pub trait Workflow: Send + Sync {
    /// Works on `session` and hands it on.
    fn forward(&self, session: Session) -> impl Future<Output = Result<Session>> + Send;

    /// What it is and what it is made of. `#[derive(Workflow)]` fills this in from the fields.
    fn outline(&self) -> Outline {
        Outline::leaf(std::any::type_name::<Self>())
    }
}

/// A workflow and the workflows in it, by name. Prints as a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// What it is.
    pub kind: String,
    /// What is to be known of it.
    pub detail: String,
    /// What it is made of, by name.
    pub children: Vec<(String, Outline)>,
}

impl Outline {
    /// Something without parts. Of a type's path only its end is shown.
    pub fn leaf(kind: &str) -> Self {
        let kind = match kind {
            closure if closure.contains("{{closure}}") => "closure",
            path => path.split('<').next().unwrap_or(path).rsplit("::").next().unwrap_or(path),
        };
        Self { kind: kind.into(), ..Self::default() }
    }

    /// With a line about it.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// With a part.
    #[must_use]
    pub fn child(mut self, name: impl Into<String>, part: Outline) -> Self {
        self.children.push((name.into(), part));
        self
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        write!(f, "{}({}", self.kind, self.detail)?;
        if self.children.is_empty() {
            return f.write_str(")");
        }
        for (name, child) in &self.children {
            write!(f, "\n{:width$}({name}): ", "", width = 2 * (depth + 1))?;
            child.write(f, depth + 1)?;
        }
        write!(f, "\n{:width$})", "", width = 2 * depth)
    }
}

impl fmt::Display for Outline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

impl<W: Workflow> Workflow for Option<W> {
    async fn forward(&self, session: Session) -> Result<Session> {
        match self {
            Some(workflow) => workflow.forward(session).await,
            None => Ok(session),
        }
    }

    fn outline(&self) -> Outline {
        self.as_ref().map_or(Outline::leaf("None"), Workflow::outline)
    }
}

impl<W: Workflow> Workflow for Arc<W> {
    fn forward(&self, session: Session) -> impl Future<Output = Result<Session>> + Send {
        (**self).forward(session)
    }

    fn outline(&self) -> Outline {
        (**self).outline()
    }
}

impl Session {
    /// `session.apply(&workflow)` is `workflow.forward(session)`, read from left to right.
    pub fn apply<W: Workflow>(self, workflow: &W) -> impl Future<Output = Result<Session>> + Send {
        workflow.forward(self)
    }
}

/// Workflows one after the other.
#[derive(Clone, Debug, Default)]
pub struct Sequence(Vec<BoxWorkflow>);

/// Nothing yet: add to it with [`then`](Sequence::then).
pub fn seq() -> Sequence {
    Sequence::default()
}

impl Sequence {
    /// And then `workflow`.
    #[must_use]
    pub fn then(mut self, workflow: impl Workflow + 'static) -> Self {
        self.0.push(BoxWorkflow::new(workflow));
        self
    }
}

impl Workflow for Sequence {
    async fn forward(&self, mut session: Session) -> Result<Session> {
        for workflow in &self.0 {
            session = workflow.forward(session).await?;
        }
        Ok(session)
    }

    fn outline(&self) -> Outline {
        let parts = self.0.iter().enumerate();
        parts.fold(Outline::leaf("seq"), |outline, (at, part)| outline.child(at.to_string(), part.outline()))
    }
}

impl<F, Fut> Workflow for F
where
    F: Fn(Session) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Session>> + Send,
{
    fn forward(&self, session: Session) -> impl Future<Output = Result<Session>> + Send {
        self(session)
    }
}

/// The object-safe twin; users never name it.
trait Erased: Send + Sync {
    fn forward_boxed(&self, session: Session) -> BoxFuture<'_, Result<Session>>;
    fn outline_boxed(&self) -> Outline;
}

impl<W: Workflow> Erased for W {
    fn forward_boxed(&self, session: Session) -> BoxFuture<'_, Result<Session>> {
        Box::pin(self.forward(session))
    }

    fn outline_boxed(&self) -> Outline {
        self.outline()
    }
}

/// Any workflow, its type forgotten.
#[derive(Clone)]
pub struct BoxWorkflow(Arc<dyn Erased>);

impl BoxWorkflow {
    /// Forgets the type of `workflow`.
    pub fn new(workflow: impl Workflow + 'static) -> Self {
        Self(Arc::new(workflow))
    }
}

impl Workflow for BoxWorkflow {
    async fn forward(&self, session: Session) -> Result<Session> {
        self.0.forward_boxed(session).await
    }

    fn outline(&self) -> Outline {
        self.0.outline_boxed()
    }
}

impl fmt::Debug for BoxWorkflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxWorkflow")
    }
}
