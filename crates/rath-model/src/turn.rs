//! One turn of a model, as its provider sent it, with every field kept.

use std::fmt;

use crate::fields::Fields;
use crate::provider_usage::ProviderUsage;
use crate::v1::as_text;

/// One turn of a model, as its provider sent it.
///
/// Fields that rath understands are parsed; all others are kept verbatim, so that the `write` functions of each API can
/// produce the provider's JSON again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderTurn {
    /// The provider's id of the response.
    pub id: Option<String>,
    /// The model that answered, as the provider names it.
    pub model: Option<String>,
    /// The content blocks, in order.
    pub blocks: Vec<TurnBlock>,
    /// Why the turn ended. `None` if the provider gave no reason.
    pub stop: Option<StopReason>,
    /// The tokens that the turn used.
    pub used: ProviderUsage,
    /// The number of stream events that the turn arrived in. 0 if the response was not streamed.
    pub events: u64,
    /// Fields that have no place above.
    pub rest: OtherFields,
}

/// Fields of a turn that rath does not interpret, by the JSON object that contained them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherFields {
    /// Fields of the response object.
    pub answer: Fields,
    /// Chat Completions: fields of the choice.
    pub choice: Fields,
    /// Chat Completions: fields of the message in the choice.
    pub message: Fields,
    /// Chat Completions: the other choices, if the request asked for more than one.
    pub others: Vec<Fields>,
    /// Responses API, streamed: fields of the event that ended the stream.
    pub event: Fields,
}

/// A content block of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnBlock {
    /// The parsed content of the block.
    pub part: BlockContent,
    /// The JSON fields of the block. Fields that are parsed into `part` are `null` here, which keeps their position.
    pub rest: Fields,
    /// Where the block is in the response.
    pub within: ItemPosition,
}

/// Where a block is in a response. Only the Responses API groups blocks into items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ItemPosition {
    /// The block is not inside an item.
    #[default]
    Standalone,
    /// The block is the first part of the item with these fields.
    FirstInItem(Fields),
    /// The block is in the same item as the block before it.
    SameItem,
}

/// The parsed content of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockContent {
    /// Text for the reader. Citations are in the block's fields.
    Text {
        /// The text.
        text: String,
    },
    /// Text in which the model refuses to answer.
    Refusal {
        /// The text.
        text: String,
    },
    /// Reasoning in plain text.
    Reasoning {
        /// The reasoning, or the provider's summary of it if the provider shows no more.
        text: String,
        /// Data by which the provider recognizes its own reasoning: a signature, or the reasoning in encrypted form.
        signature: Option<String>,
    },
    /// Encrypted reasoning, which only the provider can read.
    Sealed {
        /// The encrypted data, as the provider encoded it.
        data: String,
    },
    /// A call of one of the agent's tools.
    Call {
        /// The provider's id of the call.
        id: String,
        /// The name of the tool.
        name: String,
        /// The arguments, exactly as the model wrote them: usually JSON, sometimes truncated or empty.
        arguments: String,
    },
    /// A call of a tool that the provider runs itself, or the result of such a call.
    Server {
        /// The provider's type name of the block.
        kind: String,
        /// The input of the provider's tool, if it was streamed in pieces. Otherwise empty.
        input: String,
    },
    /// A block of any other type.
    Other {
        /// The provider's type name of the block.
        kind: String,
    },
}

impl TurnBlock {
    pub(crate) fn new(part: BlockContent, rest: Fields) -> Self {
        Self { part, rest, within: ItemPosition::Standalone }
    }
}

/// Why a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopReason {
    /// What the provider's word means.
    pub kind: StopKind,
    /// The provider's word, verbatim.
    pub word: String,
}

/// The meaning of a provider's stop reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopKind {
    /// The model finished its answer.
    Done,
    /// The model called tools and waits for the results.
    Calls,
    /// The token limit was reached, or the context was full.
    Length,
    /// The model wrote a stop sequence.
    Sequence,
    /// The model refused to answer.
    Refusal,
    /// The provider's content filter withheld the answer.
    Filtered,
    /// The provider paused the turn. Sending the same conversation with this turn appended continues it.
    Paused,
    /// Any other reason.
    Other,
}

impl StopReason {
    /// Interprets a provider's stop reason. The words of all supported providers are recognized.
    pub fn of(word: impl Into<String>) -> Self {
        let word = word.into();
        let kind = match word.as_str() {
            "end_turn" | "stop" | "completed" | "eos" => StopKind::Done,
            "tool_use" | "tool_calls" | "function_call" => StopKind::Calls,
            "max_tokens" | "length" | "max_output_tokens" | "model_context_window_exceeded" => StopKind::Length,
            "stop_sequence" => StopKind::Sequence,
            "refusal" => StopKind::Refusal,
            "content_filter" => StopKind::Filtered,
            "pause_turn" => StopKind::Paused,
            _ => StopKind::Other,
        };
        Self { kind, word }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.word)
    }
}

impl ProviderTurn {
    /// Sets the response fields. If the provider's word only says that the turn is done, a tool call or a refusal in
    /// the blocks decides the stop kind instead.
    pub(crate) fn with_answer(mut self, answer: Fields) -> Self {
        self.rest.answer = answer;
        let why = match () {
            () if self.calls() => StopKind::Calls,
            () if self.blocks.iter().any(|block| matches!(block.part, BlockContent::Refusal { .. })) => {
                StopKind::Refusal
            }
            () => StopKind::Done,
        };
        if let Some(stop) = self.stop.as_mut().filter(|stop| stop.kind == StopKind::Done) {
            stop.kind = why;
        }
        self
    }

    /// Writes the response id and the model name into an object.
    pub(crate) fn put_names(&self, fields: &mut Fields) {
        for (key, name) in [("id", &self.id), ("model", &self.model)] {
            if let Some(name) = name {
                fields.put(key, name);
            }
        }
    }

    /// The text blocks of the turn, joined.
    pub fn text(&self) -> String {
        let texts = self.blocks.iter().filter_map(|block| match &block.part {
            BlockContent::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// Whether the turn calls one of the agent's tools.
    pub fn calls(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block.part, BlockContent::Call { .. }))
    }

    /// Turns the arguments of every call into a JSON object. Custom tools are skipped: their input is free text.
    pub(crate) fn normalize_arguments(&mut self) {
        for block in &mut self.blocks {
            let takes_text = is_custom(&block.rest);
            if let BlockContent::Call { arguments, .. } = &mut block.part
                && !takes_text
            {
                *arguments = as_text(arguments).into_owned();
            }
        }
    }
}

fn is_custom(rest: &Fields) -> bool {
    rest.get("custom").is_some() || rest.text("type").as_deref() == Some("custom_tool_call")
}
