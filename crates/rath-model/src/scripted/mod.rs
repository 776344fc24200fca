//! A model that answers from a script: from code, or from a file.
//!
//! It has no memory of its own. Which answer is next follows from how many turns the model has had in the agent's step,
//! how often the present one was asked for, and what is shown: a resumed session, in a new process, gets the answer
//! that is next. The first that fits is given:
//!
//! 1. a rule ([`when`](Scripted::when), [`when_regex`](Scripted::when_regex)) that finds its words in the youngest message;
//! 2. the turn of the sequence with the number of the present turn, whether or not a rule answered the ones before;
//! 3. what is said [`otherwise`](Scripted::otherwise).
//!
//! A turn for one agent is passed over by all others, also when turns are counted: several agents can share a script.
//!
//! # Files
//!
//! A script can be a TOML file with a list of turns. Every field may be left out.
//!
//! ```
//! let script = r#"
//! model = "scripted"          # what it calls itself
//!
//! [[turn]]                    # the first turn
//! reasoning = "I should look."
//! text = "Let me look."
//! call = [{ tool = "read", arguments = { path = "a.txt" } }, { tool = "list", id = "mine" }]
//!
//! [[turn]]                    # the second: two attempts fail, the third breaks off, the fourth goes through
//! fails = [{ times = 2, why = "overloaded", status = 529, after_ms = 5 }]
//! breaks_off_after = 8        # characters
//! text = "It says hello."
//! delay_ms = 20               # before the first word
//! chunks = 4                  # pieces in which it comes
//! chunk_delay_ms = 5          # between them
//! usage = { input_tokens = 120, output_tokens = 4 }
//! stop = "end_turn"
//!
//! [[turn]]                    # the first turn of this agent
//! agent = "reviewer"
//! fails = [{ why = "no such model", retry = false }]   # every attempt fails, for good
//!
//! [[turn]]                    # a rule: the youngest message has these words
//! when = "weather"
//! text = "Sunny."
//!
//! [[turn]]                    # a rule: the youngest message matches this regular expression
//! matches = '^\d+ \+ \d+$'
//! call = [{ tool = "add", arguments = '{"a": 1, ' }]   # arguments in words are handed over as they are
//!
//! [[turn]]                    # when the sequence is over
//! otherwise = true
//! text = "That is all."
//! "#;
//! rath_model::Scripted::from_toml(script)?;
//! # Ok::<(), rath_model::scripted::Error>(())
//! ```
//!
//! In a JSONL file each line is a turn with the same fields; a line `{"model": "…"}` names the model.
//!
//! ```
//! let script = r#"{"model": "scripted"}
//! {"text": "Let me look.", "call": [{"tool": "read", "arguments": {"path": "a.txt"}}]}
//! {"text": "It says hello."}"#;
//! rath_model::Scripted::from_jsonl(script)?;
//! # Ok::<(), rath_model::scripted::Error>(())
//! ```

mod error;
mod file;
mod seen;
mod turn;

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rath_core::store::BoxFuture;
use rath_core::{Answer, Delta, Digest, Encoded, Failure, Injected, Model, RecordId, Shown, ToolChoice};
use regex::Regex;
use serde::Serialize;
use serde_json::Value;

pub use error::Error;
pub use seen::Seen;
pub use turn::Turn;

/// What makes the requests, by name and version.
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
///     .turn(Turn::new().fails_first(2, Failure::for_now("overloaded")).text("Three."))
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

/// What a rule looks for in the youngest message.
#[derive(Clone, Debug)]
enum Pattern {
    Words(String),
    Regex(Regex),
}

type Code = Arc<dyn Fn(Seen) -> BoxFuture<'static, Turn> + Send + Sync>;

impl Scripted {
    /// A model of this name that says nothing yet.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), rules: Vec::new(), turns: Vec::new(), otherwise: Vec::new(), code: None }
    }

    /// A model that answers from code.
    ///
    /// ```
    /// use rath_model::scripted::{Scripted, Turn};
    /// use serde_json::json;
    ///
    /// let model = Scripted::from_fn(|seen| match seen.turn {
    ///     0 => Turn::new().call("search", json!({"words": seen.latest})),
    ///     _ => Turn::from(format!("I found: {}", seen.latest)),
    /// });
    /// ```
    pub fn from_fn<T: Into<Turn>>(answer: impl Fn(&Seen) -> T + Send + Sync + 'static) -> Self {
        let code: Code = Arc::new(move |seen| {
            let turn = answer(&seen).into();
            Box::pin(std::future::ready(turn))
        });
        Self { code: Some(code), ..Self::new("scripted") }
    }

    /// A model that answers from code that waits.
    pub fn from_async_fn<T, F>(answer: impl Fn(Seen) -> F + Send + Sync + 'static) -> Self
    where
        T: Into<Turn>,
        F: Future<Output = T> + Send + 'static,
    {
        let code: Code = Arc::new(move |seen| {
            let turn = answer(seen);
            Box::pin(async move { turn.await.into() })
        });
        Self { code: Some(code), ..Self::new("scripted") }
    }

    /// Reads a script in TOML; the [module](self) describes it.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        file::toml(text)
    }

    /// Reads a script with a turn on each line; the [module](self) describes it.
    pub fn from_jsonl(text: &str) -> Result<Self, Error> {
        file::jsonl(text)
    }

    /// Reads a script from a file whose name ends in `.toml` or `.jsonl`.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        file::read(path.as_ref())
    }

    /// Calls itself this.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The next turn is plain text.
    #[must_use]
    pub fn say(self, text: impl Into<String>) -> Self {
        self.turn(Turn::new().text(text))
    }

    /// The next turn is one call of a tool.
    #[must_use]
    pub fn call(self, tool: impl Into<String>, arguments: Value) -> Self {
        self.turn(Turn::new().call(tool, arguments))
    }

    /// The next turn.
    #[must_use]
    pub fn turn(mut self, turn: impl Into<Turn>) -> Self {
        self.turns.push(turn.into());
        self
    }

    /// Answers with `turn` whenever the youngest message has these words. Rules are tried in order, before the sequence.
    #[must_use]
    pub fn when(mut self, words: impl Into<String>, turn: impl Into<Turn>) -> Self {
        self.rules.push((Pattern::Words(words.into()), turn.into()));
        self
    }

    /// Answers with `turn` whenever the youngest message matches.
    #[must_use]
    pub fn when_regex(mut self, pattern: Regex, turn: impl Into<Turn>) -> Self {
        self.rules.push((Pattern::Regex(pattern), turn.into()));
        self
    }

    /// Answers with `turn` when the sequence is over. Without this, the model fails for good then.
    #[must_use]
    pub fn otherwise(mut self, turn: impl Into<Turn>) -> Self {
        self.otherwise.push(turn.into());
        self
    }

    /// The sequence as an agent has it.
    fn own(&self, agent: &str) -> impl Iterator<Item = &Turn> {
        self.turns.iter().filter(move |turn| turn.is_for(agent))
    }

    /// The turn that is next.
    async fn next(&self, shown: &Shown<'_>) -> Result<Cow<'_, Turn>, Failure> {
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
            return Ok(Cow::Owned(code(Seen::new(shown, latest)).await));
        }
        let latest: String = latest.chars().take(200).collect();
        Err(Failure::for_good(format!(
            "the script has {} turns for agent {:?} and was asked for turn {}; shown last: {latest:?}",
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

/// The words of the youngest message.
async fn latest(shown: &Shown<'_>) -> Result<String, Failure> {
    let latest = shown.latest().await;
    let latest = latest.map_err(|error| Failure::for_good(format!("what is shown cannot be read: {error}")))?;
    Ok(latest.as_ref().map(seen::words).unwrap_or_default())
}

/// What a request says: names of what is shown, not its words. However long a session is, it is as short as this.
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

/// The request that this model makes of what is shown, for a model of the name `model`. It names what is shown and
/// holds none of it.
pub fn manifest(model: &str, shown: &Shown<'_>) -> Result<Vec<u8>, serde_json::Error> {
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

    fn encode<'a>(&'a self, shown: &'a Shown<'a>) -> BoxFuture<'a, Result<Encoded, Failure>> {
        Box::pin(async move {
            let bytes = manifest(&self.name, shown).map_err(|error| Failure::for_good(error.to_string()))?;
            Ok(Encoded::new(bytes))
        })
    }

    fn send<'a>(
        &'a self,
        shown: &'a Shown<'a>,
        _: &'a Encoded,
        heard: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Answer, Failure>> {
        Box::pin(async move {
            let turn = self.next(shown).await?;
            turn.play((shown.turn, shown.attempt), &self.name, heard).await
        })
    }
}
