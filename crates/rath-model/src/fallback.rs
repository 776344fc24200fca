//! A chain of models: if one fails, the next is asked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rath_core::store::BoxFuture;
use rath_core::{
    AnswerSchemaSupport, BoxModel, Delta, Digest, Encoded, EncodedBy, Failure, Model, ModelAnswer, ModelInput,
    TokenCount,
};

/// A chain of models. Each attempt at a turn asks the next model; further attempts ask the last one again.
///
/// The attempt number alone decides which model is next, so a resumed session continues where it was. Each attempt is
/// recorded with the model that made it. The agent must allow at least as many attempts as the chain has models. Every
/// new turn starts with the first model.
///
/// ```
/// use rath_model::{Anthropic, Chat, Fallback};
///
/// let model = Fallback::new(Anthropic::new("claude-sonnet-4-5").key("the key")).or(Chat::ollama("qwen3:4b"));
/// ```
#[derive(Clone)]
pub struct Fallback {
    first: BoxModel,
    others: Vec<BoxModel>,
}

impl Fallback {
    /// A chain that starts with this model.
    pub fn new(first: impl Model) -> Self {
        Self { first: Arc::new(first), others: Vec::new() }
    }

    /// A chain of boxed models, in this order.
    pub fn shared(first: BoxModel, others: Vec<BoxModel>) -> Self {
        Self { first, others }
    }

    /// Adds a model at the end of the chain.
    #[must_use]
    pub fn or(mut self, next: impl Model) -> Self {
        self.others.push(Arc::new(next));
        self
    }

    fn at(&self, attempt: u32) -> &BoxModel {
        let others = (attempt as usize).saturating_sub(1).min(self.others.len());
        others.checked_sub(1).and_then(|at| self.others.get(at)).unwrap_or(&self.first)
    }

    /// Makes any failure retriable at once if another model follows.
    fn retry_with_next(&self, attempt: u32, failure: Failure) -> Failure {
        match (attempt as usize) <= self.others.len() {
            true => Failure { retry: true, after: Some(Duration::ZERO), ..failure },
            false => failure,
        }
    }
}

impl Model for Fallback {
    fn name(&self) -> &str {
        self.first.name()
    }

    fn encoder(&self) -> &str {
        self.first.encoder()
    }

    fn encode<'a>(&'a self, shown: &'a ModelInput<'a>) -> BoxFuture<'a, Result<Encoded, Failure>> {
        Box::pin(async move {
            let model = self.at(shown.attempt);
            let mut encoded =
                model.encode(shown).await.map_err(|failure| self.retry_with_next(shown.attempt, failure))?;
            let made = || EncodedBy { model: model.name().into(), encoder: model.encoder().into() };
            encoded.by.get_or_insert_with(made);
            Ok(encoded)
        })
    }

    fn send<'a>(
        &'a self,
        shown: &'a ModelInput<'a>,
        request: &'a Encoded,
        on_delta: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>> {
        Box::pin(async move {
            let sent = self.at(shown.attempt).send(shown, request, on_delta).await;
            sent.map_err(|failure| self.retry_with_next(shown.attempt, failure))
        })
    }

    fn rate_limit_key(&self, attempt: u32) -> Option<Digest> {
        self.at(attempt).rate_limit_key(attempt)
    }

    /// What all models of the chain support, because any of them may answer.
    fn answer_schema_support(&self) -> AnswerSchemaSupport {
        let others = self.others.iter().map(|model| model.answer_schema_support());
        others.fold(self.first.answer_schema_support(), Ord::min)
    }

    fn count<'a>(
        &'a self,
        shown: &'a ModelInput<'a>,
        request: &'a Encoded,
    ) -> BoxFuture<'a, Result<TokenCount, Failure>> {
        self.at(shown.attempt).count(shown, request)
    }
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [&self.first].into_iter().chain(&self.others).map(|model| model.name());
        f.debug_list().entries(names).finish()
    }
}
