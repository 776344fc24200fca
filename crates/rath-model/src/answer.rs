//! Converts a provider's turn into the answer that a session records.

use rath_core::body::{Block, NativeTurn};
use rath_core::{Blob, ModelAnswer, Usage};

use crate::prices::Cost;
use crate::turn::{BlockContent, ProviderTurn, StopKind, StopReason};

impl ProviderTurn {
    /// The turn as a session records it, with its form for the next request (`sent`), the raw response and the cost.
    pub(crate) fn into_answer(self, sent: Option<NativeTurn>, raw: Blob, cost: Option<Cost>) -> ModelAnswer {
        let cost_nano_usd = cost.as_ref().map_or(0, |cost| cost.nano_usd);
        ModelAnswer {
            usage: Usage { cost_nano_usd, ..Usage::from(&self.used) },
            prices: cost.map(|cost| cost.prices),
            stop: self.stop.map(stop_word),
            model: self.model,
            blocks: self.blocks.into_iter().filter_map(|block| read(block.part)).collect(),
            sent,
            raw: Some(raw),
        }
    }
}

/// The word to record. OpenAI marks a refusal in the content and ends the turn with its usual word.
fn stop_word(stop: StopReason) -> String {
    match (stop.kind, StopReason::of(stop.word.as_str()).kind) {
        (StopKind::Refusal, StopKind::Done) => "refusal".into(),
        _ => stop.word,
    }
}

/// The readable content of a block. All other fields are kept in `sent`.
fn read(part: BlockContent) -> Option<Block> {
    match part {
        BlockContent::Text { text } | BlockContent::Refusal { text } if !text.is_empty() => {
            Some(Block::Text { text: text.into() })
        }
        BlockContent::Reasoning { text, .. } if !text.is_empty() => Some(Block::Reasoning { text: text.into() }),
        BlockContent::Call { id, name, arguments } => Some(Block::ToolUse { id, name, arguments: arguments.into() }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_in_the_content_is_recorded_as_the_stop_reason() {
        let word = |kind, word: &str| stop_word(StopReason { kind, word: word.into() });
        assert_eq!(word(StopKind::Refusal, "stop"), "refusal");
        assert_eq!(word(StopKind::Refusal, "completed"), "refusal");
        assert_eq!(word(StopKind::Refusal, "refusal"), "refusal");
        assert_eq!(word(StopKind::Done, "stop"), "stop");
        assert_eq!(word(StopKind::Filtered, "content_filter"), "content_filter");
    }
}
