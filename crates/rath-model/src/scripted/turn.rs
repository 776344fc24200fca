//! One turn of a script: its content, its pace, and the failures before it.

use std::time::Duration;

use rath_core::body::Block;
use rath_core::{Delta, Failure, ModelAnswer, Usage};
use serde_json::Value;

/// A turn of a scripted model. Its parts come in the order in which they are added.
///
/// ```
/// use rath_core::Failure;
/// use rath_model::scripted::Turn;
/// use serde_json::json;
///
/// let turn = Turn::new()
///     .fails_first(2, Failure::transient("overloaded"))
///     .text("Two at once.")
///     .call("read", json!({"path": "a.txt"}))
///     .call("list", json!({}));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn {
    pub(super) agent: Option<String>,
    pub(super) parts: Vec<Part>,
    delay: Duration,
    chunks: usize,
    chunk_delay: Duration,
    /// Failures before the turn succeeds, each with the number of attempts that it lasts.
    faults: Vec<(u32, Fault)>,
    usage: Option<Usage>,
    stop: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    Text(String),
    Reasoning(String),
    Call { id: Option<String>, tool: String, arguments: String },
}

#[derive(Clone, Debug, PartialEq)]
enum Fault {
    Fails(Failure),
    BreaksOff { after: usize },
}

impl Turn {
    /// An empty turn.
    pub fn new() -> Self {
        Self::default()
    }

    /// Restricts the turn to one agent.
    #[must_use]
    pub fn for_agent(mut self, name: impl Into<String>) -> Self {
        self.agent = Some(name.into());
        self
    }

    /// Adds text.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.part(Part::Text(text.into()))
    }

    /// Adds reasoning.
    #[must_use]
    pub fn reasoning(self, text: impl Into<String>) -> Self {
        self.part(Part::Reasoning(text.into()))
    }

    /// Adds a tool call. Its id is made of the turn number and the call's index, as in `call-1-0`.
    #[must_use]
    pub fn call(self, tool: impl Into<String>, arguments: Value) -> Self {
        self.call_text(tool, arguments.to_string())
    }

    /// Adds a tool call with this text as arguments, which need not be JSON.
    #[must_use]
    pub fn call_text(self, tool: impl Into<String>, arguments: impl Into<String>) -> Self {
        self.part(Part::Call { id: None, tool: tool.into(), arguments: arguments.into() })
    }

    /// Sets the id of the call that was added last. Does nothing if there is no call.
    #[must_use]
    pub fn id(mut self, named: impl Into<String>) -> Self {
        let last = self.parts.iter_mut().rev().find_map(|part| match part {
            Part::Call { id, .. } => Some(id),
            _ => None,
        });
        if let Some(id) = last {
            *id = Some(named.into());
        }
        self
    }

    /// Waits before the first delta. Needs a tokio runtime with time enabled.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Streams each part in this many pieces, with a wait before every piece except the first.
    #[must_use]
    pub fn chunks(mut self, chunks: usize, wait: Duration) -> Self {
        (self.chunks, self.chunk_delay) = (chunks, wait);
        self
    }

    /// Makes the next `attempts` attempts fail. Failures happen in the order in which they are added; the answer
    /// follows.
    #[must_use]
    pub fn fails_first(mut self, attempts: u32, failure: Failure) -> Self {
        self.faults.push((attempts, Fault::Fails(failure)));
        self
    }

    /// Makes every attempt fail.
    #[must_use]
    pub fn fails(self, failure: Failure) -> Self {
        self.fails_first(u32::MAX, failure)
    }

    /// Makes the next attempt break off after this many characters, as a failure that may be retried.
    #[must_use]
    pub fn breaks_off_after(mut self, characters: usize) -> Self {
        self.faults.push((1, Fault::BreaksOff { after: characters }));
        self
    }

    /// Sets the usage. Default: one request, and one output token for each word.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Sets the stop reason. Default: `tool_use` if the turn calls tools, otherwise `end_turn`.
    #[must_use]
    pub fn stop(mut self, why: impl Into<String>) -> Self {
        self.stop = Some(why.into());
        self
    }

    fn part(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// Whether the turn answers this agent.
    pub(super) fn is_for(&self, agent: &str) -> bool {
        self.agent.as_deref().is_none_or(|only| only == agent)
    }

    /// Whether the turn has neither content nor failures.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.faults.is_empty()
    }

    /// Streams the turn, as the given attempt at the given turn.
    pub(super) async fn play(
        &self,
        (turn, attempt): (u64, u32),
        model: &str,
        on_delta: &(dyn Fn(Delta) + Send + Sync),
    ) -> Result<ModelAnswer, Failure> {
        wait(self.delay).await;
        let breaks_off = match self.fault(attempt) {
            Some(Fault::Fails(failure)) => return Err(failure.clone()),
            Some(Fault::BreaksOff { after }) => Some(*after),
            None => None,
        };
        let blocks = self.blocks(turn);
        let mut stream = Stream { turn: self, on_delta, left: breaks_off, started: false, said: String::new() };
        for block in &blocks {
            match block {
                Block::Text { text } => stream.say(&text.to_string(), Delta::Text).await,
                Block::Reasoning { text } => stream.say(&text.to_string(), Delta::Reasoning).await,
                Block::ToolUse { id, name, arguments } if stream.left != Some(0) => {
                    on_delta(Delta::Call { id: id.clone(), name: name.clone() });
                    stream.say(&arguments.to_string(), Delta::Arguments).await;
                }
                _ => {}
            }
        }
        if let Some(after) = breaks_off {
            let why = format!("the answer broke off after {after} characters");
            return Err(Failure { partial: Some(stream.said), ..Failure::transient(why) });
        }
        let calls = self.parts.iter().any(|part| matches!(part, Part::Call { .. }));
        let stop = self.stop.clone().unwrap_or_else(|| if calls { "tool_use" } else { "end_turn" }.into());
        let usage = self.usage.unwrap_or_else(|| self.counted());
        Ok(ModelAnswer { blocks, stop: Some(stop), model: Some(model.into()), usage, ..ModelAnswer::default() })
    }

    /// The failure of this attempt, counted from 1.
    fn fault(&self, attempt: u32) -> Option<&Fault> {
        let mut before = attempt.saturating_sub(1);
        for (attempts, fault) in &self.faults {
            match before.checked_sub(*attempts) {
                None => return Some(fault),
                Some(rest) => before = rest,
            }
        }
        None
    }

    fn blocks(&self, turn: u64) -> Vec<Block> {
        let mut calls = 0;
        let block = |part: &Part| match part {
            Part::Text(text) => Block::Text { text: text.as_str().into() },
            Part::Reasoning(text) => Block::Reasoning { text: text.as_str().into() },
            Part::Call { id, tool, arguments } => {
                let id = id.clone().unwrap_or_else(|| format!("call-{turn}-{calls}"));
                calls += 1;
                Block::ToolUse { id, name: tool.clone(), arguments: arguments.as_str().into() }
            }
        };
        self.parts.iter().map(block).collect()
    }

    fn counted(&self) -> Usage {
        let words = |text: &str| text.split_whitespace().count() as u64;
        let mut usage = Usage { requests: 1, ..Usage::default() };
        for part in &self.parts {
            match part {
                Part::Text(text) | Part::Call { arguments: text, .. } => usage.output_tokens += words(text),
                Part::Reasoning(text) => {
                    usage.output_tokens += words(text);
                    usage.reasoning_tokens += words(text);
                }
            }
        }
        usage
    }
}

impl From<&str> for Turn {
    fn from(text: &str) -> Self {
        Self::new().text(text)
    }
}

impl From<String> for Turn {
    fn from(text: String) -> Self {
        Self::new().text(text)
    }
}

impl From<Failure> for Turn {
    fn from(failure: Failure) -> Self {
        Self::new().fails(failure)
    }
}

/// A turn while it is streamed.
struct Stream<'a> {
    turn: &'a Turn,
    on_delta: &'a (dyn Fn(Delta) + Send + Sync),
    /// The number of characters left before the answer breaks off. `None`: it does not break off.
    left: Option<usize>,
    started: bool,
    /// The text streamed so far.
    said: String,
}

impl Stream<'_> {
    /// Streams a part in pieces, up to where the answer breaks off.
    async fn say(&mut self, text: &str, delta: fn(String) -> Delta) {
        let length = text.chars().count();
        let size = length.div_ceil(self.turn.chunks.max(1)).max(1);
        let mut rest = text.chars();
        loop {
            let most = self.left.map_or(size, |left| left.min(size));
            let piece: String = rest.by_ref().take(most).collect();
            if piece.is_empty() {
                return;
            }
            if std::mem::replace(&mut self.started, true) {
                wait(self.turn.chunk_delay).await;
            }
            if let Some(left) = &mut self.left {
                *left -= piece.chars().count();
            }
            let delta = delta(piece);
            if let Delta::Text(piece) = &delta {
                self.said.push_str(piece);
            }
            (self.on_delta)(delta);
        }
    }
}

async fn wait(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}
