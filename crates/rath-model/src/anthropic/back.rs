//! A turn as it is sent back to the API in later requests.

use crate::turn::{BlockContent, ProviderTurn, TurnBlock};

/// The turn's content as the API accepts it in later requests: without blank text, and with arguments that are objects.
/// `None` if the recorded blocks say the same.
pub(crate) fn back(turn: &ProviderTurn) -> Option<String> {
    let is_not_blank =
        |block: &&TurnBlock| !matches!(&block.part, BlockContent::Text { text } if text.trim().is_empty());
    let mut turn =
        ProviderTurn { blocks: turn.blocks.iter().filter(is_not_blank).cloned().collect(), ..ProviderTurn::default() };
    let is_plain = |block: &TurnBlock| {
        matches!(block.part, BlockContent::Text { .. } | BlockContent::Call { .. }) && block.rest_is_plain()
    };
    if turn.blocks.iter().all(is_plain) {
        return None;
    }
    turn.normalize_arguments();
    serde_json::to_string(&super::content(&turn)).ok()
}

impl TurnBlock {
    /// Whether the block has no fields other than those that are parsed.
    fn rest_is_plain(&self) -> bool {
        let is_known = |key: &str| matches!(key, "type" | "text" | "id" | "name" | "input");
        self.rest.iter().all(|(key, value)| is_known(key) || value.get() == "null")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_response::HttpResponse;

    fn back_of(content: &str) -> Option<String> {
        let body = format!(r#"{{"type":"message","content":[{content}]}}"#);
        back(&super::super::decode_whole(&HttpResponse::new(200, body.as_bytes())).unwrap())
    }

    #[test]
    fn plain_blocks_need_no_native_content() {
        let call = r#"{"type":"tool_use","id":"t","name":"f","input":{"a":1}}"#;
        assert_eq!(back_of(&format!(r#"{{"type":"text","text":"Hi","citations":null}},{call}"#)), None);
    }

    #[test]
    fn signatures_and_server_tool_results_are_sent_back_and_blank_text_is_not() {
        let kept = [
            r#"{"type":"thinking","thinking":"Hm.","signature":"sig=="}"#,
            r#"{"type":"server_tool_use","id":"s","name":"web_search","input":{"query":"x"}}"#,
            r#"{"type":"web_search_tool_result","tool_use_id":"s","content":[{"encrypted_content":"E"}]}"#,
        ];
        let content = format!(r#"{},{{"type":"text","text":"\n"}},{},{}"#, kept[0], kept[1], kept[2]);
        assert_eq!(back_of(&content), Some(format!("[{}]", kept.join(","))));
    }
}
