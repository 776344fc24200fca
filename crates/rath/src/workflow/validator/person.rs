//! A person as a validator.

use rath_core::body::Verdict;
use rath_core::{Result, Session};

use super::{Validation, Validator};

/// Asks a person whether to accept the work. Until the answer, the run waits; other branches continue.
pub fn person(question: impl Into<String>) -> Person {
    Person { question: question.into() }
}

/// See [`person`].
#[derive(Clone, Debug)]
pub struct Person {
    question: String,
}

impl Validator for Person {
    fn name(&self) -> String {
        "person".into()
    }

    async fn validate(&self, mut session: Session) -> Result<(Session, Validation)> {
        match session.ask(self.question.as_str()).await {
            Ok(Verdict::Yes) => Ok((session, Validation::accept().score(1.0))),
            Ok(Verdict::No) => Ok((session, Validation::reject("a person said no").score(0.0))),
            Ok(Verdict::Text(text)) => {
                Ok((session, Validation::reject(format!("a person answered: {text}")).score(0.0)))
            }
            Ok(Verdict::Unknown(_)) => Ok((session, Validation::undecided("an answer of a later version of rath"))),
            Err(error) => Err(error.with_sessions(vec![session])),
        }
    }
}
