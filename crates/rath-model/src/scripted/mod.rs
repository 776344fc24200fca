//! A model that answers from a script, which is code or a file.
//!
//! The model has no state of its own. The next answer depends only on how many turns the model has had in the agent's
//! step, on the attempt number, and on the input, so a resumed session in a new process gets the right next answer. The
//! first of these that applies is used:
//!
//! 1. a rule ([`when`](Scripted::when), [`when_regex`](Scripted::when_regex)) whose pattern is in the latest message;
//! 2. the turn in the sequence with the number of the current turn, whether or not a rule answered the turns before;
//! 3. the turn given to [`otherwise`](Scripted::otherwise).
//!
//! A turn for one agent is invisible to all others, also when turns are counted, so several agents can share a script.
//!
//! # Files
//!
//! A script can be a TOML file with a list of turns. Every field is optional.
//!
//! ```
//! let script = r#"
//! model = "scripted"          # the model's name
//!
//! [[turn]]                    # the first turn
//! reasoning = "I should look."
//! text = "Let me look."
//! call = [{ tool = "read", arguments = { path = "a.txt" } }, { tool = "list", id = "mine" }]
//!
//! [[turn]]                    # the second: two attempts fail, the third breaks off, the fourth succeeds
//! fails = [{ times = 2, why = "overloaded", status = 529, after_ms = 5 }]
//! breaks_off_after = 8        # characters
//! text = "It says hello."
//! delay_ms = 20               # before the first delta
//! chunks = 4                  # number of pieces per part
//! chunk_delay_ms = 5          # between pieces
//! usage = { input_tokens = 120, output_tokens = 4 }
//! stop = "end_turn"
//!
//! [[turn]]                    # the first turn of this agent
//! agent = "reviewer"
//! fails = [{ why = "no such model", retry = false }]   # every attempt fails permanently
//!
//! [[turn]]                    # a rule: the latest message contains this text
//! when = "weather"
//! text = "Sunny."
//!
//! [[turn]]                    # a rule: the latest message matches this regular expression
//! matches = '^\d+ \+ \d+$'
//! call = [{ tool = "add", arguments = '{"a": 1, ' }]   # a string is passed on verbatim
//!
//! [[turn]]                    # after the end of the sequence
//! otherwise = true
//! text = "That is all."
//! "#;
//! rath_model::Scripted::from_toml(script)?;
//! # Ok::<(), rath_model::scripted::ScriptError>(())
//! ```
//!
//! In a JSONL file each line is a turn with the same fields; a line `{"model": "…"}` names the model.
//!
//! ```
//! let script = r#"{"model": "scripted"}
//! {"text": "Let me look.", "call": [{"tool": "read", "arguments": {"path": "a.txt"}}]}
//! {"text": "It says hello."}"#;
//! rath_model::Scripted::from_jsonl(script)?;
//! # Ok::<(), rath_model::scripted::ScriptError>(())
//! ```

mod error;
mod file;
mod input;
mod turn;

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rath_core::store::BoxFuture;
use rath_core::{
    AnswerSchemaSupport, Delta, Digest, Encoded, Failure, Injected, Model, ModelAnswer, ModelInput, RecordId,
    ToolChoice,
};
use regex::Regex;
use serde::Serialize;
use serde_json::Value;

pub use error::ScriptError;
pub use input::ScriptInput;
pub use turn::Turn;

/// The name and version of the encoder.
pub const ENCODER: &str = "scripted@1";

/// A model that answers from a script.
///
/// ```
/// use rath_core::Failure;
/// use rath_model::scripted::{Scripted, Turn};
/// use serde_json::json;
///
/// let model = Scripted::new("scripted")
///     .call("add", json!({"a": 1, "b": 2}))
///     .turn(Turn::new().fails_first(2, Failure::transient("overloaded")).text("Three."))
///     .when("weather", "Sunny.")
///     .otherwise("That is all.");
/// ```
#[derive(Clone)]
pub struct Scripted {
    name: String,
    rules: Vec<(Pattern, Turn)>,
    turns: Vec<Turn>,
    otherwise: Vec<Turn>,
    code: Option<Code>,
}

/// What a rule looks for in the latest message.
#[derive(Clone, Debug)]
enum Pattern {
    Words(String),
    Regex(Regex),
}

type Code = Arc<dyn Fn(ScriptInput) -> BoxFuture<'static, Turn> + Send + Sync>;

impl Scripted {
    /// A model with this name and no turns yet.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), rules: Vec::new(), turns: Vec::new(), otherwise: Vec::new(), code: None }
    }

    /// A model that answers from code.
    ///
    /// ```
    /// use rath_model::scripted::{Scripted, Turn};
    /// use serde_json::json;
    ///
    /// let model = Scripted::from_fn(|input| match input.turn {
    ///     0 => Turn::new().call("search", json!({"words": input.latest})),
    ///     _ => Turn::from(format!("I found: {}", input.latest)),
    /// });
    /// ```
    pub fn from_fn<T: Into<Turn>>(answer: impl Fn(&ScriptInput) -> T + Send + Sync + 'static) -> Self {
        let code: Code = Arc::new(move |input| {
            let turn = answer(&input).into();
            Box::pin(std::future::ready(turn))
        });
        Self { code: Some(code), ..Self::new("scripted") }
    }

    /// A model that answers from async code.
    pub fn from_async_fn<T, F>(answer: impl Fn(ScriptInput) -> F + Send + Sync + 'static) -> Self
    where
        T: Into<Turn>,
        F: Future<Output = T> + Send + 'static,
    {
        let code: Code = Arc::new(move |input| {
            let turn = answer(input);
            Box::pin(async move { turn.await.into() })
        });
        Self { code: Some(code), ..Self::new("scripted") }
    }

    /// Parses a script in TOML; see the [module](self) for the format.
    pub fn from_toml(text: &str) -> Result<Self, ScriptError> {
        file::toml(text)
    }

    /// Parses a script in JSONL, one turn a line; see the [module](self) for the format.
    pub fn from_jsonl(text: &str) -> Result<Self, ScriptError> {
        file::jsonl(text)
    }

    /// Loads a script from a file whose name ends in `.toml` or `.jsonl`.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ScriptError> {
        file::read(path.as_ref())
    }

    /// Sets the model's name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Adds a turn of plain text to the sequence.
    #[must_use]
    pub fn say(self, text: impl Into<String>) -> Self {
        self.turn(Turn::new().text(text))
    }

    /// Adds a turn with one tool call to the sequence.
    #[must_use]
    pub fn call(self, tool: impl Into<String>, arguments: Value) -> Self {
        self.turn(Turn::new().call(tool, arguments))
    }

    /// Adds a turn to the sequence.
    #[must_use]
    pub fn turn(mut self, turn: impl Into<Turn>) -> Self {
        self.turns.push(turn.into());
        self
    }

    /// Answers with `turn` whenever the latest message contains this text. Rules are tried in order, before the
    /// sequence.
    #[must_use]
    pub fn when(mut self, words: impl Into<String>, turn: impl Into<Turn>) -> Self {
        self.rules.push((Pattern::Words(words.into()), turn.into()));
        self
    }

    /// Answers with `turn` whenever the latest message matches.
    #[must_use]
    pub fn when_regex(mut self, pattern: Regex, turn: impl Into<Turn>) -> Self {
        self.rules.push((Pattern::Regex(pattern), turn.into()));
        self
    }

    /// Answers with `turn` after the end of the sequence. Without this, the model fails permanently there.
    #[must_use]
    pub fn otherwise(mut self, turn: impl Into<Turn>) -> Self {
        self.otherwise.push(turn.into());
        self
    }

    /// The turns of the sequence that an agent sees.
    fn own(&self, agent: &str) -> impl Iterator<Item = &Turn> {
        self.turns.iter().filter(move |turn| turn.is_for(agent))
    }

    async fn next(&self, shown: &ModelInput<'_>) -> Result<Cow<'_, Turn>, Failure> {
        if self.rules.iter().any(|(_, turn)| turn.is_for(shown.agent)) {
            let latest = latest(shown).await?;
            let fits = |(pattern, turn): &&(Pattern, Turn)| turn.is_for(shown.agent) && pattern.is_in(&latest);
            if let Some((_, turn)) = self.rules.iter().find(fits) {
                return Ok(Cow::Borrowed(turn));
            }
        }
        if let Some(turn) = self.own(shown.agent).nth(usize::try_from(shown.turn).unwrap_or(usize::MAX)) {
            return Ok(Cow::Borrowed(turn));
        }
        if let Some(turn) = self.otherwise.iter().find(|turn| turn.is_for(shown.agent)) {
            return Ok(Cow::Borrowed(turn));
        }
        let latest = latest(shown).await?;
        if let Some(code) = &self.code {
            return Ok(Cow::Owned(code(ScriptInput::new(shown, latest)).await));
        }
        let latest: String = latest.chars().take(200).collect();
        Err(Failure::permanent(format!(
            "the script has {} turns for agent {:?} and was asked for turn {}; latest message: {latest:?}",
            self.own(shown.agent).count(),
            shown.agent,
            shown.turn.saturating_add(1),
        )))
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, rules, turns, otherwise, code } = self;
        f.debug_struct("Scripted")
            .field("name", name)
            .field("rules", rules)
            .field("turns", turns)
            .field("otherwise", otherwise)
            .field("code", &code.is_some())
            .finish()
    }
}

impl Pattern {
    fn is_in(&self, text: &str) -> bool {
        match self {
            Pattern::Words(words) => text.contains(words.as_str()),
            Pattern::Regex(pattern) => pattern.is_match(text),
        }
    }
}

/// The text of the latest message.
async fn latest(shown: &ModelInput<'_>) -> Result<String, Failure> {
    let latest = shown.latest().await;
    let latest = latest.map_err(|error| Failure::permanent(format!("the agent's input cannot be read: {error}")))?;
    Ok(latest.as_ref().map(input::text_of_message).unwrap_or_default())
}

/// The content of a request. It refers to the input by ids and digests, so its length does not grow with the session.
#[derive(Serialize)]
struct Manifest<'a> {
    model: &'a str,
    encoder: &'a str,
    config: Digest,
    rule: &'a str,
    head: RecordId,
    attempt: u32,
    #[serde(skip_serializing_if = "<[Injected]>::is_empty")]
    injected: &'a [Injected],
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'a ToolChoice>,
}

/// The request of this model for the given input, under the model name `model`. It refers to the input and contains
/// none of it.
pub fn manifest(model: &str, shown: &ModelInput<'_>) -> Result<Vec<u8>, serde_json::Error> {
    let manifest = Manifest {
        model,
        encoder: ENCODER,
        config: shown.config,
        rule: shown.view.name(),
        head: shown.head(),
        attempt: shown.attempt,
        injected: shown.injected,
        tool_choice: shown.parameters.tool_choice.as_ref(),
    };
    serde_jcs::to_vec(&manifest)
}

impl Model for Scripted {
    fn name(&self) -> &str {
        &self.name
    }

    fn encoder(&self) -> &str {
        ENCODER
    }

    /// The script is trusted to answer with the schema, in words.
    fn answer_schema_support(&self) -> AnswerSchemaSupport {
        AnswerSchemaSupport::Always
    }

    fn encode<'a>(&'a self, shown: &'a ModelInput<'a>) -> BoxFuture<'a, Result<Encoded, Failure>> {
        Box::pin(async move {
            let bytes = manifest(&self.name, shown).map_err(|error| Failure::permanent(error.to_string()))?;
            Ok(Encoded::new(bytes))
        })
    }

    fn send<'a>(
        &'a self,
        shown: &'a ModelInput<'a>,
        _: &'a Encoded,
        on_delta: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>> {
        Box::pin(async move {
            let turn = self.next(shown).await?;
            turn.play((shown.turn, shown.attempt), &self.name, on_delta).await
        })
    }
}
