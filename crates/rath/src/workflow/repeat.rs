//! Rounds until the work is good enough.

use std::fmt;
use std::sync::Arc;

use rath_core::body::{Role, StepEntered};
use rath_core::{BoxWorkflow, ErrorKind, Outline, Result, Session, Usage, Workflow};

use super::choose::Predicate;
use super::codes;
use super::validator::{self, BoxValidator, Validator};

/// Runs `workflow` in rounds until a validator accepts the session or a predicate holds, at most 10 times.
///
/// Each round is a step. A rejected round adds the verdict to the context, so that the next round can do better. Fails
/// with the code `rounds-used-up` or `budget-spent` if no round is accepted.
pub fn repeat(name: impl Into<String>, workflow: impl Workflow + 'static) -> Repeat {
    Repeat {
        name: name.into(),
        workflow: BoxWorkflow::new(workflow),
        until: Until::Rounds,
        rounds: 10,
        tokens: None,
        cost_nano_usd: None,
    }
}

/// See [`repeat`].
#[derive(Clone)]
pub struct Repeat {
    name: String,
    workflow: BoxWorkflow,
    until: Until,
    rounds: u32,
    tokens: Option<u64>,
    cost_nano_usd: Option<u64>,
}

#[derive(Clone)]
enum Until {
    /// All rounds run.
    Rounds,
    Accepted(BoxValidator),
    Holds(Predicate),
}

impl Repeat {
    /// Stops when `validator` accepts the session.
    #[must_use]
    pub fn until_accepted(mut self, validator: impl Validator + 'static) -> Self {
        self.until = Until::Accepted(BoxValidator::new(validator));
        self
    }

    /// Stops when `predicate` holds. It is decided once a round; a resumed run uses the recorded decision.
    #[must_use]
    pub fn until(mut self, predicate: impl Fn(&Session) -> bool + Send + Sync + 'static) -> Self {
        self.until = Until::Holds(Arc::new(predicate));
        self
    }

    /// Sets the largest number of rounds. [default: 10]
    #[must_use]
    pub fn rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds.max(1);
        self
    }

    /// Starts no further round once the rounds together have used this many tokens, input and output.
    #[must_use]
    pub fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Starts no further round once the rounds together have cost this much.
    #[must_use]
    pub fn usd(mut self, dollars: f64) -> Self {
        self.cost_nano_usd = Some((dollars * 1e9) as u64);
        self
    }

    async fn run(&self, mut session: Session) -> Result<Session> {
        let before = session.usage();
        let mut last = String::from("no round was accepted");
        for round in 1..=self.rounds {
            let name = format!("round {round}");
            session = session.step(name, async |session| self.workflow.forward(session).await).await?;
            let is_accepted = match &self.until {
                Until::Rounds => round == self.rounds,
                Until::Accepted(validator) => {
                    let (validated, verdict) = validator::validate(session, validator).await?;
                    session = validated;
                    last = verdict.to_string();
                    verdict.is_accepted()
                }
                Until::Holds(predicate) => {
                    let holds = predicate(&session);
                    match session.record_once("accepted", async || Ok(holds)).await {
                        Ok(holds) => holds,
                        Err(error) => return Err(error.with_sessions(vec![session])),
                    }
                }
            };
            if is_accepted {
                return Ok(session);
            }
            if let Some(spent) = self.spent(session.usage() - before) {
                let error = ErrorKind::Budget { agent: self.name.clone(), spent: format!("{spent}; {last}") };
                return Err(rath_core::Error::new(error, vec![session]));
            }
            let told = match &self.until {
                Until::Accepted(_) if round < self.rounds => session.user(format!("Rejected: {last}")).map(drop),
                _ => Ok(()),
            };
            if let Err(error) = told {
                return Err(error.with_sessions(vec![session]));
            }
        }
        let why = format!("{} rounds were used up: {last}", self.rounds);
        Err(rath_core::Error::coded(codes::ROUNDS_USED_UP, why, session))
    }

    /// What the rounds have used, if it reaches a limit.
    fn spent(&self, used: Usage) -> Option<String> {
        let tokens = used.input_tokens + used.output_tokens;
        if let Some(limit) = self.tokens.filter(|limit| tokens >= *limit) {
            return Some(format!("{tokens} tokens of {limit}"));
        }
        let limit = self.cost_nano_usd.filter(|limit| used.cost_nano_usd >= *limit)?;
        Some(format!("${:.4} of ${:.4}", used.cost_nano_usd as f64 / 1e9, limit as f64 / 1e9))
    }
}

impl Workflow for Repeat {
    async fn forward(&self, session: Session) -> Result<Session> {
        let step = StepEntered { role: Some(Role::Workflow), ..StepEntered::new(&self.name) };
        session.in_step(step, None, |session, _| self.run(session)).await
    }

    fn outline(&self) -> Outline {
        let until = match &self.until {
            Until::Rounds => String::new(),
            Until::Accepted(validator) => format!(", until={}", validator.name()),
            Until::Holds(_) => ", until=predicate".into(),
        };
        Outline::leaf("repeat")
            .detail(format!("{}, rounds={}{until}", self.name, self.rounds))
            .child("round", self.workflow.outline())
    }
}

impl fmt::Debug for Repeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outline().fmt(f)
    }
}
