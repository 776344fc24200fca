//! A function as a validator.

use rath_core::{Result, Session};

use super::{Validation, Validator};

/// Validates with a function. `name` is recorded with each verdict.
pub fn check<F, Fut>(name: impl Into<String>, function: F) -> impl Validator + 'static
where
    F: Fn(Session) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(Session, Validation)>> + Send,
{
    Function { name: name.into(), function }
}

struct Function<F> {
    name: String,
    function: F,
}

impl<F, Fut> Validator for Function<F>
where
    F: Fn(Session) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(Session, Validation)>> + Send,
{
    fn name(&self) -> String {
        self.name.clone()
    }

    fn validate(&self, session: Session) -> impl Future<Output = Result<(Session, Validation)>> + Send {
        (self.function)(session)
    }
}
