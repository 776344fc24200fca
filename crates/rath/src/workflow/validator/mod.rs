//! Validators: checks of a session's work.
//!
//! A [`Validator`] gives a [`Validation`]: a verdict with a score, reasons and evidence. It runs on a fork of the session
//! that is thrown away, so what it changes in the files, such as a test runner's caches, is listed and dropped. A
//! `validated` record names the version of the files that was checked; the verdict applies to no other version.

mod command;
mod function;
mod judge;
mod paths;
mod person;
mod schema;

use std::fmt;
use std::sync::Arc;

use rath_core::body::{BranchContext, CheckVerdict, EvidenceRef, Role, Validated};
use rath_core::files::{Changes, TreeStore, diff};
use rath_core::store::BoxFuture;
use rath_core::{BoxWorkflow, BranchMerge, ErrorKind, How, Result, Session, Workflow};
use serde::{Deserialize, Serialize};

pub use command::{CommandCheck, command};
pub use function::check;
pub use judge::{IntoJudge, Judge, judge};
pub use paths::{ChangedPaths, only_paths};
pub use person::{Person, person};
pub use schema::{SchemaCheck, schema};

use super::branches::{Branch, BranchEnd, run_alone};

/// Checks a session's work.
pub trait Validator: Send + Sync {
    /// The name, which is recorded with each verdict.
    fn name(&self) -> String;

    /// Whether a resumed run can continue a validation that a crash interrupted. False for a validator that runs commands
    /// directly, because those cannot be replayed: it starts again on a new fork.
    fn can_resume(&self) -> bool {
        true
    }

    /// Checks `session`, a fork that is thrown away afterwards. An error is recorded as an undecided verdict.
    fn validate(&self, session: Session) -> impl Future<Output = Result<(Session, Validation)>> + Send;
}

/// The result of a validator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// Whether the work is accepted.
    pub verdict: CheckVerdict,
    /// The score: greater is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// The reasons, most important first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// The evidence for the verdict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<EvidenceRef>,
}

impl Validation {
    /// Accepts the work.
    pub fn accept() -> Self {
        Self { verdict: CheckVerdict::Passed, score: None, reasons: Vec::new(), evidence: Vec::new() }
    }

    /// Rejects the work.
    pub fn reject(reason: impl Into<String>) -> Self {
        Self { verdict: CheckVerdict::Failed, reasons: vec![reason.into()], ..Self::accept() }
    }

    /// The validator cannot decide. This counts as not accepted.
    pub fn undecided(reason: impl Into<String>) -> Self {
        Self { verdict: CheckVerdict::Undecided, ..Self::reject(reason) }
    }

    /// Sets the score.
    #[must_use]
    pub fn score(mut self, score: f64) -> Self {
        self.score = Some(score);
        self
    }

    /// Adds a reason.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reasons.push(reason.into());
        self
    }

    /// Whether the work is accepted.
    pub fn is_accepted(&self) -> bool {
        self.verdict == CheckVerdict::Passed
    }
}

impl fmt::Display for Validation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.verdict)?;
        if let Some(score) = self.score {
            write!(f, ", score {score}")?;
        }
        match self.reasons.is_empty() {
            true => Ok(()),
            false => write!(f, ": {}", self.reasons.join("; ")),
        }
    }
}

/// Any validator, without its type.
#[derive(Clone)]
pub struct BoxValidator(Arc<dyn DynValidator>);

/// The object-safe twin of [`Validator`].
trait DynValidator: Send + Sync {
    fn name_dyn(&self) -> String;
    fn can_resume_dyn(&self) -> bool;
    fn validate_dyn(&self, session: Session) -> BoxFuture<'_, Result<(Session, Validation)>>;
}

impl<V: Validator> DynValidator for V {
    fn name_dyn(&self) -> String {
        Validator::name(self)
    }

    fn can_resume_dyn(&self) -> bool {
        Validator::can_resume(self)
    }

    fn validate_dyn(&self, session: Session) -> BoxFuture<'_, Result<(Session, Validation)>> {
        Box::pin(Validator::validate(self, session))
    }
}

impl BoxValidator {
    /// Erases the type of `validator`.
    pub fn new(validator: impl Validator + 'static) -> Self {
        Self(Arc::new(validator))
    }
}

impl Validator for BoxValidator {
    fn name(&self) -> String {
        self.0.name_dyn()
    }

    fn can_resume(&self) -> bool {
        self.0.can_resume_dyn()
    }

    async fn validate(&self, session: Session) -> Result<(Session, Validation)> {
        self.0.validate_dyn(session).await
    }
}

impl fmt::Debug for BoxValidator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BoxValidator({})", self.0.name_dyn())
    }
}

/// The name of the step in which a validator's verdict is recorded.
pub(super) fn step_name(validator: &str) -> String {
    format!("validate: {validator}")
}

/// The step of a validator on its fork.
const VERDICT: &str = "verdict";

/// The error code of a validation that a crash interrupted. The next one runs on a new fork.
const INTERRUPTED: &str = "validation-interrupted";

/// Checks `session` and records the verdict. A verdict that rejects the work is not an error.
pub async fn validate(session: Session, validator: &BoxValidator) -> Result<(Session, Validation)> {
    let name = validator.name();
    let work = async |session: Session| run(session, validator, &name).await;
    session.step_value_as(Role::Validator, step_name(&name), work).await
}

async fn run(mut session: Session, validator: &BoxValidator, name: &str) -> Result<(Session, Validation)> {
    loop {
        let fork = session.fork(format!("validation by {name}"));
        let workflow = BoxWorkflow::new(OnFork { validator: validator.clone() });
        let end = run_alone(Branch { name: "validation".into(), session: fork, workflow, validator: None }).await;
        let (fork, validation) = match end {
            BranchEnd::Open(error) => return Err(error.with_sessions(vec![session])),
            BranchEnd::Failed(fork, error) if error.code() == INTERRUPTED => (fork, None),
            BranchEnd::Failed(fork, error) if error.is_cancelled() => {
                return Err(error.with_sessions(vec![session, fork]));
            }
            BranchEnd::Failed(fork, error) => (fork, Some(Validation::undecided(error.to_string()))),
            BranchEnd::Done(fork) => match fork.value::<Validation>(VERDICT).await {
                Ok(Some(validation)) => (fork, Some(validation)),
                Ok(None) => (fork, Some(Validation::undecided("the validator recorded no verdict"))),
                Err(error) => return Err(error.with_sessions(vec![session, fork])),
            },
        };
        let workspace = session.state().workspace.clone();
        let dropped = match dropped_by(&session, &fork).await {
            Ok(dropped) => dropped,
            Err(error) => return Err(error.with_sessions(vec![session, fork])),
        };
        let rejected = validation.is_none().then(|| "the process ended during the validation".to_owned());
        let part = BranchMerge { branch: fork.id(), context: BranchContext::Omit, files: false, rejected };
        let how = How::PerBranch { branches: vec![part], allow_conflicts: false, then: None };
        session = session.merge([fork], how).await?;
        let Some(validation) = validation else { continue };
        let Validation { verdict, score, reasons, evidence } = validation.clone();
        let validated = Validated {
            validator: Some(name.into()),
            workspace,
            dropped,
            record: None,
            what: Some("the work".into()),
            verdict,
            score,
            reasons,
            evidence,
        };
        return match session.append(validated) {
            Ok(_) => Ok((session, validation)),
            Err(error) => Err(error.with_sessions(vec![session])),
        };
    }
}

/// What the validator changed in the files of its fork.
async fn dropped_by(session: &Session, fork: &Session) -> Result<Changes> {
    match (&session.state().workspace, &fork.state().workspace) {
        (Some(before), Some(after)) if !before.same_files(after) => {
            let trees = TreeStore::new(&**session.store());
            Ok(Changes::of(diff(&trees, before, after).await.map_err(ErrorKind::from)?))
        }
        _ => Ok(Changes::default()),
    }
}

/// Runs the validator on its fork.
struct OnFork {
    validator: BoxValidator,
}

impl Workflow for OnFork {
    async fn forward(&self, session: Session) -> Result<Session> {
        let work = async |session: Session| {
            if !session.is_live() && !self.validator.can_resume() {
                let why = "the process ended during the validation";
                return Err(rath_core::Error::coded(INTERRUPTED, why, session));
            }
            self.validator.validate(session).await
        };
        Ok(session.step_value(VERDICT, work).await?.0)
    }
}
