//! Steps with an undo.

use std::fmt;

use rath_core::body::{Role, StepEntered};
use rath_core::{BoxWorkflow, Cancel, Error, Outline, Point, Result, Session, Workflow};

use super::branches::StopHold;
use crate::workspaces::Workspaces;

/// Runs steps in order. If one fails for good, or the work is cancelled, the undos of the finished steps run in reverse
/// order, and the files are restored to the version before the scope. Then the scope fails with the original error.
///
/// An undo that fails is recorded, and the undos before it still run. A run that dies while it undoes continues with the
/// next undo when it is resumed.
pub fn compensate(name: impl Into<String>) -> Compensate {
    Compensate { name: name.into(), steps: Vec::new() }
}

/// See [`compensate`].
#[derive(Clone)]
pub struct Compensate {
    name: String,
    steps: Vec<CompensatedStep>,
}

#[derive(Clone)]
struct CompensatedStep {
    name: String,
    work: BoxWorkflow,
    undo: Option<BoxWorkflow>,
}

impl Compensate {
    /// Adds a step with its undo.
    #[must_use]
    pub fn step(
        mut self,
        name: impl Into<String>,
        work: impl Workflow + 'static,
        undo: impl Workflow + 'static,
    ) -> Self {
        let (work, undo) = (BoxWorkflow::new(work), Some(BoxWorkflow::new(undo)));
        self.steps.push(CompensatedStep { name: name.into(), work, undo });
        self
    }

    /// Adds a step that needs no undo of its own: one that only changes files, for example.
    #[must_use]
    pub fn then(mut self, name: impl Into<String>, work: impl Workflow + 'static) -> Self {
        self.steps.push(CompensatedStep { name: name.into(), work: BoxWorkflow::new(work), undo: None });
        self
    }

    async fn run(&self, mut session: Session) -> Result<Session> {
        let (id, start) = (session.id(), session.head().point());
        for (at, step) in self.steps.iter().enumerate() {
            match session.step(&step.name, async |session| step.work.forward(session).await).await {
                Ok(done) => session = done,
                Err(error) if error.leaves_the_run_open() || !error.is_recorded() => return Err(error),
                Err(mut error) => {
                    let mut sessions = error.take_sessions();
                    let Some(own) = sessions.iter().position(|session| session.id() == id) else {
                        return Err(error.with_sessions(sessions));
                    };
                    let failed = sessions.remove(own);
                    return match self.undo(failed, at, start).await {
                        Ok(undone) => Err(error.with_sessions(vec![undone])),
                        Err(other) => Err(other),
                    };
                }
            }
        }
        Ok(session)
    }

    /// Undoes the first `finished` steps, in reverse order. Fails only if the run stays open.
    async fn undo(&self, mut session: Session, finished: usize, start: Point) -> Result<Session> {
        // The undos run although the work was cancelled, and the branch is not dropped before they end.
        let cancelled = session.cancel_token();
        let hold = session.resources().get::<StopHold>().ok().map(|hold| hold.hold());
        session.stop_with(Cancel::new());
        for step in self.steps[..finished].iter().rev() {
            let Some(undo) = &step.undo else { continue };
            session = self.undo_step(session, format!("undo {}", step.name), undo).await?;
        }
        session = self.undo_step(session, "restore files".into(), &RestoreFiles { start }).await?;
        session.stop_with(cancelled);
        drop(hold);
        Ok(session)
    }

    /// Runs one undo as a step. Its failure is recorded, and the others still run.
    async fn undo_step(&self, session: Session, name: String, undo: &impl Workflow) -> Result<Session> {
        let id = session.id();
        match session.step(name, async |session| undo.forward(session).await).await {
            Ok(session) => Ok(session),
            Err(error) if error.leaves_the_run_open() || !error.is_recorded() => Err(error),
            Err(mut error) => {
                let mut sessions = error.take_sessions();
                match sessions.iter().position(|session| session.id() == id) {
                    Some(at) => Ok(sessions.swap_remove(at)),
                    None => Err(error.with_sessions(sessions)),
                }
            }
        }
    }
}

/// Restores the files to the version before the scope.
struct RestoreFiles {
    start: Point,
}

impl Workflow for RestoreFiles {
    async fn forward(&self, mut session: Session) -> Result<Session> {
        let Ok(workspaces) = session.resources().get::<Workspaces>() else { return Ok(session) };
        if session.state().workspace.is_none() || !session.is_live() {
            return Ok(session);
        }
        match workspaces.restore(&mut session, self.start, true).await {
            Ok(_) => Ok(session),
            Err(error) => Err(Error::workflow(error, session)),
        }
    }
}

impl Workflow for Compensate {
    async fn forward(&self, session: Session) -> Result<Session> {
        let step = StepEntered { role: Some(Role::Workflow), as_a_whole: true, ..StepEntered::new(&self.name) };
        session.in_step(step, None, |session, _| self.run(session)).await
    }

    fn outline(&self) -> Outline {
        self.steps.iter().fold(Outline::leaf("compensate").detail(&self.name), |outline, step| {
            let outline = outline.child(&step.name, step.work.outline());
            match &step.undo {
                Some(undo) => outline.child(format!("undo {}", step.name), undo.outline()),
                None => outline,
            }
        })
    }
}

impl fmt::Debug for Compensate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outline().fmt(f)
    }
}
