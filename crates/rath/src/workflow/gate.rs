//! Work that must pass validators before it continues.

use std::fmt;

use rath_core::body::{Role, StepEntered, Verdict};
use rath_core::{BoxWorkflow, Error, Outline, Result, Session, Workflow};

use super::codes;
use super::validator::{BoxValidator, Validation, Validator, validate};

/// Runs `workflow`, then validators in order. What a rejection means is up to [`OnReject`]: by default the step fails with
/// the code `rejected`.
pub fn gate(name: impl Into<String>, workflow: impl Workflow + 'static) -> Gate {
    Gate { name: name.into(), workflow: BoxWorkflow::new(workflow), validators: Vec::new(), on_reject: OnReject::Fail }
}

/// See [`gate`].
#[derive(Clone)]
pub struct Gate {
    name: String,
    workflow: BoxWorkflow,
    validators: Vec<BoxValidator>,
    on_reject: OnReject,
}

/// What a [`gate`] does when a validator rejects the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnReject {
    /// Fails with the code `rejected`.
    #[default]
    Fail,
    /// Runs the workflow again, at most so many times, with the reason as a user message. Then fails.
    Retry(u32),
    /// Asks a person whether to accept the work anyway. Fails if the person says no.
    Ask,
}

impl Gate {
    /// Adds a validator. Validators run in order, and the first rejection counts.
    #[must_use]
    pub fn validator(mut self, validator: impl Validator + 'static) -> Self {
        self.validators.push(BoxValidator::new(validator));
        self
    }

    /// Sets what a rejection means.
    #[must_use]
    pub fn on_reject(mut self, on_reject: OnReject) -> Self {
        self.on_reject = on_reject;
        self
    }

    async fn run(&self, mut session: Session) -> Result<Session> {
        let retries = if let OnReject::Retry(times) = self.on_reject { times } else { 0 };
        let mut round = 0;
        loop {
            session = self.workflow.forward(session).await?;
            let (validated, rejection) = self.validate_all(session).await?;
            session = validated;
            let Some((name, rejection)) = rejection else { return Ok(session) };
            let why = format!("{name} did not accept the work: {rejection}");
            if round < retries {
                round += 1;
                if let Err(error) = session.user(format!("{why}\nFix it.")) {
                    return Err(error.with_sessions(vec![session]));
                }
                continue;
            }
            if self.on_reject == OnReject::Ask {
                match session.ask(format!("{why}\nAccept it anyway?")).await {
                    Ok(Verdict::Yes) => return Ok(session),
                    Ok(_) => {}
                    Err(error) => return Err(error.with_sessions(vec![session])),
                }
            }
            return Err(Error::coded(codes::REJECTED, why, session));
        }
    }

    /// The first rejection, with the name of the validator.
    async fn validate_all(&self, mut session: Session) -> Result<(Session, Option<(String, Validation)>)> {
        for validator in &self.validators {
            let (validated, validation) = validate(session, validator).await?;
            session = validated;
            if !validation.is_accepted() {
                return Ok((session, Some((validator.name(), validation))));
            }
        }
        Ok((session, None))
    }
}

impl Workflow for Gate {
    async fn forward(&self, session: Session) -> Result<Session> {
        let step = StepEntered { role: Some(Role::Workflow), ..StepEntered::new(&self.name) };
        session.in_step(step, None, |session, _| self.run(session)).await
    }

    fn outline(&self) -> Outline {
        let names: Vec<_> = self.validators.iter().map(Validator::name).collect();
        let detail = format!("{}, validators=[{}]", self.name, names.join(", "));
        Outline::leaf("gate").detail(detail).child("work", self.workflow.outline())
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outline().fmt(f)
    }
}
