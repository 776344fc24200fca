//! What a provider answered: one turn of a model, with nothing of it lost.

use std::fmt;

use crate::fields::Fields;
use crate::used::Used;
use crate::v1::as_text;

/// A turn of a model, as a provider sent it.
///
/// What is known has a place of its own; everything else is kept as it was written, so that each room can write the
/// turn again for the vendor it came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// The provider's name for the answer.
    pub id: Option<String>,
    /// The model that answered, as it calls itself.
    pub model: Option<String>,
    /// Its parts, in order.
    pub blocks: Vec<Block>,
    /// Why it ended.
    pub stop: Option<Stop>,
    /// What it used.
    pub used: Used,
    /// In how many events it came; none where it came whole.
    pub events: u64,
    /// Everything else.
    pub rest: Rest,
}

/// What a turn holds besides its parts, by the object that it was in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// The answer itself.
    pub answer: Fields,
    /// Chat Completions: the choice.
    pub choice: Fields,
    /// Chat Completions: the message in the choice.
    pub message: Fields,
    /// Chat Completions: the other choices, where more than one was asked for.
    pub others: Vec<Fields>,
    /// Responses, streamed: the event that ended it.
    pub event: Fields,
}

/// A part of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// What it is.
    pub part: Part,
    /// Its fields; those that are read into `part` are `null` here.
    pub rest: Fields,
    /// Where it is.
    pub within: Within,
}

/// Where a part is. Only Responses have parts within items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Within {
    /// On its own.
    #[default]
    Nothing,
    /// The first part of this item.
    Item(Fields),
    /// In the same item as the part before it.
    Same,
}

/// What a part of a turn is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Words for the reader. What they cite is in the fields.
    Text {
        /// The words.
        text: String,
    },
    /// Words that decline to answer.
    Refusal {
        /// The words.
        text: String,
    },
    /// Reasoning that can be read.
    Reasoning {
        /// The words; the provider's own summary where it shows no more.
        text: String,
        /// What proves it to the provider: a signature, or the same in a form only the provider can read.
        signature: Option<String>,
    },
    /// Reasoning that only the provider can read.
    Sealed {
        /// Its bytes, in the provider's writing.
        data: String,
    },
    /// A call of one of our tools.
    Call {
        /// The call's id.
        id: String,
        /// The tool.
        name: String,
        /// The arguments, exactly as the model wrote them: often JSON, sometimes broken off, sometimes empty.
        arguments: String,
    },
    /// Something a tool of the provider's own did: a call, or what came of it.
    Server {
        /// The provider's name for it.
        kind: String,
        /// What the tool was given, where that came in pieces.
        input: String,
    },
    /// Anything else.
    Other {
        /// The provider's name for it.
        kind: String,
    },
}

impl Block {
    /// A part and its fields.
    pub(crate) fn new(part: Part, rest: Fields) -> Self {
        Self { part, rest, within: Within::Nothing }
    }
}

/// Why a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// What it means.
    pub why: Why,
    /// The provider's own word.
    pub word: String,
}

/// What a provider's word for the end of a turn means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// The model was done.
    Done,
    /// It waits for the results of its calls.
    Calls,
    /// No more tokens were allowed, or the context was full.
    Length,
    /// It wrote a sequence that it was told to stop at.
    Sequence,
    /// It declines.
    Refusal,
    /// The provider took the answer away.
    Filtered,
    /// The provider made a pause: the same conversation, sent again with this turn, goes on.
    Paused,
    /// Something else.
    Other,
}

impl Stop {
    /// What `word` means, whichever vendor says it.
    pub fn of(word: impl Into<String>) -> Self {
        let word = word.into();
        let why = match word.as_str() {
            "end_turn" | "stop" | "completed" | "eos" => Why::Done,
            "tool_use" | "tool_calls" | "function_call" => Why::Calls,
            "max_tokens" | "length" | "max_output_tokens" | "model_context_window_exceeded" => Why::Length,
            "stop_sequence" => Why::Sequence,
            "refusal" => Why::Refusal,
            "content_filter" => Why::Filtered,
            "pause_turn" => Why::Paused,
            _ => Why::Other,
        };
        Self { why, word }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.word)
    }
}

impl Turn {
    /// The same turn with the rest of the answer. A refusal, or calls, say more than the word "done".
    pub(crate) fn with_answer(mut self, answer: Fields) -> Self {
        self.rest.answer = answer;
        let why = match () {
            () if self.calls() => Why::Calls,
            () if self.blocks.iter().any(|block| matches!(block.part, Part::Refusal { .. })) => Why::Refusal,
            () => Why::Done,
        };
        if let Some(stop) = self.stop.as_mut().filter(|stop| stop.why == Why::Done) {
            stop.why = why;
        }
        self
    }

    /// Puts the names of the answer and of the model into an object.
    pub(crate) fn put_names(&self, fields: &mut Fields) {
        for (key, name) in [("id", &self.id), ("model", &self.model)] {
            if let Some(name) = name {
                fields.put(key, name);
            }
        }
    }

    /// The words for the reader.
    pub fn text(&self) -> String {
        let texts = self.blocks.iter().filter_map(|block| match &block.part {
            Part::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// Whether the model calls one of our tools.
    pub fn calls(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block.part, Part::Call { .. }))
    }

    /// Makes objects of all arguments, but for those of tools that take any text.
    pub(crate) fn mend_arguments(&mut self) {
        for block in &mut self.blocks {
            let takes_text = is_custom(&block.rest);
            if let Part::Call { arguments, .. } = &mut block.part
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
