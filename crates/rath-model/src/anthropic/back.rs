//! A turn as it goes back.

use crate::turn::{Block, Part, Turn};

/// The content of the turn as the API takes it back: without words that are none, with arguments that are objects.
/// Nothing where plain blocks say the same.
pub(crate) fn back(turn: &Turn) -> Option<String> {
    let is_said = |block: &&Block| !matches!(&block.part, Part::Text { text } if text.trim().is_empty());
    let mut turn = Turn { blocks: turn.blocks.iter().filter(is_said).cloned().collect(), ..Turn::default() };
    let is_plain = |block: &Block| matches!(block.part, Part::Text { .. } | Part::Call { .. }) && block.rest_is_plain();
    if turn.blocks.iter().all(is_plain) {
        return None;
    }
    turn.mend_arguments();
    serde_json::to_string(&super::content(&turn)).ok()
}

impl Block {
    /// Whether its fields hold nothing but what is read.
    fn rest_is_plain(&self) -> bool {
        let is_known = |key: &str| matches!(key, "type" | "text" | "id" | "name" | "input");
        self.rest.iter().all(|(key, value)| is_known(key) || value.get() == "null")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::Reply;

    fn back_of(content: &str) -> Option<String> {
        let body = format!(r#"{{"type":"message","content":[{content}]}}"#);
        back(&super::super::decode_whole(&Reply::new(200, body.as_bytes())).unwrap())
    }

    #[test]
    fn what_blocks_say_is_kept_once() {
        let call = r#"{"type":"tool_use","id":"t","name":"f","input":{"a":1}}"#;
        assert_eq!(back_of(&format!(r#"{{"type":"text","text":"Hi","citations":null}},{call}"#)), None);
    }

    #[test]
    fn signatures_and_results_of_the_vendors_tools_go_back_and_empty_words_do_not() {
        let kept = [
            r#"{"type":"thinking","thinking":"Hm.","signature":"sig=="}"#,
            r#"{"type":"server_tool_use","id":"s","name":"web_search","input":{"query":"x"}}"#,
            r#"{"type":"web_search_tool_result","tool_use_id":"s","content":[{"encrypted_content":"E"}]}"#,
        ];
        let came = format!(r#"{},{{"type":"text","text":"\n"}},{},{}"#, kept[0], kept[1], kept[2]);
        assert_eq!(back_of(&came), Some(format!("[{}]", kept.join(","))));
    }
}
