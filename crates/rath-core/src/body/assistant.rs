//! What a model says.

use serde::{Deserialize, Deserializer, Serialize};

use super::{Body, UnknownValue};
use crate::blob::{BlobRef, Content};
use crate::context::Shape;
use crate::id::SessionId;
use crate::kind::Kind;
use crate::state::{At, OpenCall, State};

/// One turn of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assistant {
    /// Its parts, in order.
    pub blocks: Vec<Block>,
    /// The same as its API wants it back, where the blocks do not say all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<AsSent>,
}

/// A turn as the API that it came from wants it back: with signatures, sealed reasoning, and fields nobody here knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsSent {
    /// The API and its dialect.
    pub api: String,
    /// The model that was asked: reasoning is of use to no other.
    pub model: String,
    /// JSON, as it goes into a request.
    pub json: Content,
}

/// A part of a model's turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Words for the reader.
    Text {
        /// The words.
        text: Content,
    },
    /// Reasoning, as far as the provider shows it.
    Reasoning {
        /// The words.
        text: Content,
    },
    /// A call of a tool.
    ToolUse {
        /// The call's id, as the model gave it.
        id: String,
        /// The tool.
        name: String,
        /// The arguments: the model's JSON text, as it wrote it.
        arguments: Content,
    },
    /// A picture.
    Image {
        /// Where it is.
        image: BlobRef,
    },
    /// A part of a later version. No model is shown it here.
    #[serde(untagged, deserialize_with = "unknown_block")]
    Unknown(UnknownValue),
}

fn unknown_block<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UnknownValue, D::Error> {
    UnknownValue::tagged(deserializer, "type", &["text", "reasoning", "tool_use", "image"])
}

impl Assistant {
    /// A turn of these parts.
    pub fn new(blocks: Vec<Block>) -> Self {
        Self { blocks, sent: None }
    }

    /// A turn that is plain text.
    pub fn text(text: impl Into<Content>) -> Self {
        Self::new(vec![Block::Text { text: text.into() }])
    }

    /// The calls in this turn: id and tool.
    pub fn calls(&self) -> impl Iterator<Item = (&str, &str)> {
        self.blocks.iter().filter_map(|block| match block {
            Block::ToolUse { id, name, .. } => Some((id.as_str(), name.as_str())),
            _ => None,
        })
    }
}

impl Body for Assistant {
    const KIND: Kind = Kind::Assistant;
    fn summary(&self, _: SessionId) -> String {
        let block = |block: &Block| match block {
            Block::Text { text } => text.to_string(),
            Block::Reasoning { .. } => "(thinks)".to_owned(),
            Block::ToolUse { name, arguments, .. } => format!("→ {name}({arguments})"),
            Block::Image { .. } => "[picture]".to_owned(),
            Block::Unknown(block) => format!("[{block}]"),
        };
        self.blocks.iter().map(block).collect::<Vec<_>>().join(" ")
    }
    fn fold(&self, at: &At, state: &mut State) {
        for (id, tool) in self.calls() {
            state.calls.push(OpenCall::new(at.id, id, tool));
        }
        state.turn_came(self.calls().next().is_some());
    }
    fn shape(&self) -> Option<Shape> {
        Some(Shape::Turn(self.calls().map(|(id, _)| id.into()).collect()))
    }
    fn contents(&mut self, each: &mut dyn FnMut(&mut Content)) {
        for block in &mut self.blocks {
            match block {
                Block::Text { text } | Block::Reasoning { text } => each(text),
                Block::ToolUse { arguments, .. } => each(arguments),
                Block::Image { .. } | Block::Unknown(_) => {}
            }
        }
        self.sent.iter_mut().for_each(|sent| each(&mut sent.json));
    }
}
