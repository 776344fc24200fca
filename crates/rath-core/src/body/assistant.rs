//! A model's turn.

use serde::{Deserialize, Deserializer, Serialize};

use super::{Body, UnknownValue};
use crate::blob::{BlobRef, Content};
use crate::context::ItemKind;
use crate::id::SessionId;
use crate::kind::Kind;
use crate::state::{OpenCall, RecordMeta, State};

/// One turn of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assistant {
    /// The parts of the turn, in order.
    pub blocks: Vec<Block>,
    /// The turn as the provider's API expects it back in later requests; `None` when the blocks contain everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<NativeTurn>,
}

/// A turn in the format of the API that produced it, including signatures, encrypted reasoning and fields that Rath
/// does not know. Later requests to the same API and model send it back unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeTurn {
    /// The name of the API and its dialect.
    pub api: String,
    /// The model that was asked. Other models cannot use its reasoning.
    pub model: String,
    /// The JSON text that goes into a request.
    pub json: Content,
}

/// A part of a model's turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Text for the reader.
    Text {
        /// What the model wrote.
        text: Content,
    },
    /// The part of the reasoning that the provider shows.
    Reasoning {
        /// The reasoning, as far as the provider shows it.
        text: Content,
    },
    /// A tool call.
    ToolUse {
        /// The id of the call, chosen by the model.
        id: String,
        /// The name of the tool.
        name: String,
        /// The arguments, as the JSON text that the model wrote.
        arguments: Content,
    },
    /// An image.
    Image {
        /// The image.
        image: BlobRef,
    },
    /// A kind of part that only a later version knows. This version does not send it to models.
    #[serde(untagged, deserialize_with = "unknown_block")]
    Unknown(UnknownValue),
}

fn unknown_block<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UnknownValue, D::Error> {
    UnknownValue::tagged(deserializer, "type", &["text", "reasoning", "tool_use", "image"])
}

impl Assistant {
    /// A turn with these parts.
    pub fn new(blocks: Vec<Block>) -> Self {
        Self { blocks, sent: None }
    }

    /// A turn of plain text.
    pub fn text(text: impl Into<Content>) -> Self {
        Self::new(vec![Block::Text { text: text.into() }])
    }

    /// The calls in this turn, as pairs of id and tool name.
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
    fn fold(&self, at: &RecordMeta, state: &mut State) {
        for (id, tool) in self.calls() {
            state.calls.push(OpenCall::new(at.id, id, tool));
        }
        state.on_turn(self.calls().next().is_some());
    }
    fn item_kind(&self) -> Option<ItemKind> {
        Some(ItemKind::Turn(self.calls().map(|(id, _)| id.into()).collect()))
    }
    fn visit_text(&mut self, each: &mut dyn FnMut(&mut Content)) {
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
