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
}

impl<W: Workflow> Erased for W {
    fn forward_boxed(&self, session: Session) -> BoxFuture<'_, Result<Session>> {
        Box::pin(self.forward(session))
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
}

impl fmt::Debug for BoxWorkflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxWorkflow")
    }
}
