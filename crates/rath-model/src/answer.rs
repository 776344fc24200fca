//! From what a provider answered to what a session records.

use rath_core::body::{AsSent, Block};
use rath_core::{Answer, Blob, Usage};

use crate::prices::Cost;
use crate::turn::{Part, Turn};

impl Turn {
    /// The turn as a session records it: as it goes back to its API, as it came, and what it cost.
    pub(crate) fn into_answer(self, sent: Option<AsSent>, raw: Blob, cost: Option<Cost>) -> Answer {
        let cost_nano_usd = cost.as_ref().map_or(0, |cost| cost.nano_usd);
        Answer {
            usage: Usage { cost_nano_usd, ..Usage::from(&self.used) },
            prices: cost.map(|cost| cost.prices),
            stop: self.stop.map(|stop| stop.word),
            model: self.model,
            blocks: self.blocks.into_iter().filter_map(|block| read(block.part)).collect(),
            sent,
            raw: Some(raw),
        }
    }
}

/// What there is to read in a part. The rest of it goes back as it was sent.
fn read(part: Part) -> Option<Block> {
    match part {
        Part::Text { text } | Part::Refusal { text } if !text.is_empty() => Some(Block::Text { text: text.into() }),
        Part::Reasoning { text, .. } if !text.is_empty() => Some(Block::Reasoning { text: text.into() }),
        Part::Call { id, name, arguments } => Some(Block::ToolUse { id, name, arguments: arguments.into() }),
        _ => None,
    }
}
