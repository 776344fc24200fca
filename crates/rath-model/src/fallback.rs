//! Models in a chain: where one does not answer, the next is asked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rath_core::store::BoxFuture;
use rath_core::{Answer, BoxModel, Delta, Encoded, Failure, MadeBy, Model, Shown, TokenCount};

/// A chain of models. Each attempt at a turn asks the next one; the last is asked again and again.
///
/// Which one is next follows from how often the turn was asked for, so a resumed session goes on where it was, and
/// every attempt is on the record with the model that made it. The agent must be willing to ask as often as the chain
/// is long. A new turn begins with the first again.
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
    /// A chain that begins with this model.
    pub fn new(first: impl Model) -> Self {
        Self { first: Arc::new(first), others: Vec::new() }
    }

    /// These models in this order, where their types are forgotten already.
    pub fn shared(first: BoxModel, others: Vec<BoxModel>) -> Self {
        Self { first, others }
    }

    /// And then this one.
    #[must_use]
    pub fn or(mut self, next: impl Model) -> Self {
        self.others.push(Arc::new(next));
        self
    }

    fn at(&self, attempt: u32) -> &BoxModel {
        let others = (attempt as usize).saturating_sub(1).min(self.others.len());
        others.checked_sub(1).and_then(|at| self.others.get(at)).unwrap_or(&self.first)
    }

    /// Where another model follows, any failure is one for now, and there is nothing to wait for.
    fn pass_on(&self, attempt: u32, failure: Failure) -> Failure {
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

    fn encode<'a>(&'a self, shown: &'a Shown<'a>) -> BoxFuture<'a, Result<Encoded, Failure>> {
        Box::pin(async move {
            let model = self.at(shown.attempt);
            let mut encoded = model.encode(shown).await.map_err(|failure| self.pass_on(shown.attempt, failure))?;
            let made = || MadeBy { model: model.name().into(), encoder: model.encoder().into() };
            encoded.by.get_or_insert_with(made);
            Ok(encoded)
        })
    }

    fn send<'a>(
        &'a self,
        shown: &'a Shown<'a>,
        request: &'a Encoded,
        heard: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Answer, Failure>> {
        Box::pin(async move {
            let sent = self.at(shown.attempt).send(shown, request, heard).await;
            sent.map_err(|failure| self.pass_on(shown.attempt, failure))
        })
    }

    fn count<'a>(&'a self, shown: &'a Shown<'a>, request: &'a Encoded) -> BoxFuture<'a, Result<TokenCount, Failure>> {
        self.at(shown.attempt).count(shown, request)
    }
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [&self.first].into_iter().chain(&self.others).map(|model| model.name());
        f.debug_list().entries(names).finish()
    }
}
