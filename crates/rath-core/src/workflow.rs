//! [`Workflow`]: a function from session to session.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::error::Result;
use crate::session::Session;
use crate::store::BoxFuture;

/// Transforms a session: `session = workflow.forward(session).await?`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not transform sessions",
    note = "implement `Workflow`, or pass a closure: `|s: Session| async move {{ Ok(s) }}`"
)]
pub trait Workflow: Send + Sync {
    /// Works on `session` and returns it.
    fn forward(&self, session: Session) -> impl Future<Output = Result<Session>> + Send;

    /// The workflow's structure for display. `#[derive(Workflow)]` derives it from the fields.
    fn outline(&self) -> Outline {
        Outline::leaf(std::any::type_name::<Self>())
    }
}

/// The structure of a workflow: its type and its nested workflows by name. Displays as a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// The type of the workflow.
    pub kind: String,
    /// Further information in one line.
    pub detail: String,
    /// The nested workflows by name.
    pub children: Vec<(String, Outline)>,
}

impl Outline {
    /// A workflow without nested workflows. Of a type path only the last segment is shown.
    pub fn leaf(kind: &str) -> Self {
        let kind = match kind {
            closure if closure.contains("{{closure}}") => "closure",
            path => path.split('<').next().unwrap_or(path).rsplit("::").next().unwrap_or(path),
        };
        Self { kind: kind.into(), ..Self::default() }
    }

    /// Sets the detail.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Adds a nested workflow.
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
    /// Calls `workflow.forward(session)` as a method, for chaining.
    pub fn apply<W: Workflow>(self, workflow: &W) -> impl Future<Output = Result<Session>> + Send {
        workflow.forward(self)
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

/// The object-safe counterpart of [`Workflow`].
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

/// A shared workflow of any type.
#[derive(Clone)]
pub struct BoxWorkflow(Arc<dyn Erased>);

impl BoxWorkflow {
    /// Boxes `workflow`.
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
