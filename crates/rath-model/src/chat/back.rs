//! A turn as it is sent back to the API in later requests.

use super::dialect::Dialect;
use crate::turn::{BlockContent, ProviderTurn};

/// The turn's message as the API accepts it in later requests: without empty fields, and with arguments that are
/// objects. `None` if the recorded blocks say the same.
pub(crate) fn back(turn: &ProviderTurn, dialect: Dialect) -> Option<String> {
    let mut turn = turn.clone();
    turn.normalize_arguments();
    let mut message = super::message(&turn);
    let is_empty_field = |(key, value): (&str, &serde_json::value::RawValue)| {
        let is_empty = matches!(value.get(), "null" | "[]" | "{}" | "\"\"");
        (is_empty && key != "content").then(|| key.to_owned())
    };
    let empty: Vec<String> = message.iter().filter_map(is_empty_field).collect();
    empty.iter().for_each(|key| drop(message.remove(key)));
    if dialect.refuses_reasoning_without_calls() && !turn.calls() {
        message.remove("reasoning_content");
    }
    if message.text("role").is_none_or(|role| role.is_empty()) {
        message.put("role", "assistant");
    }
    let is_plain = |key: &str| matches!(key, "role" | "content");
    let is_text = message.get("content").is_some_and(|content| content.get().starts_with('"'));
    let says_nothing = !turn.blocks.iter().any(|block| !matches!(block.part, BlockContent::Reasoning { .. }));
    match (is_text && message.iter().all(|(key, _)| is_plain(key))) || says_nothing {
        true => None,
        false => Some(message.to_json()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_response::HttpResponse;

    fn back_of(message: &str, dialect: Dialect) -> Option<String> {
        let body = format!(r#"{{"choices":[{{"message":{message},"finish_reason":"stop"}}]}}"#);
        back(&super::super::decode_whole(&HttpResponse::new(200, body.as_bytes())).unwrap(), dialect)
    }

    #[test]
    fn plain_text_needs_no_native_message() {
        let message = r#"{"role":"assistant","content":"Hi","refusal":null,"annotations":[]}"#;
        assert_eq!(back_of(message, Dialect::OpenAi), None);
    }

    #[test]
    fn unknown_fields_are_sent_back() {
        let message = r#"{"role":"assistant","content":"Hi","reasoning_details":[{"data":"x","n":1.50}],"audio":null}"#;
        let wanted = r#"{"role":"assistant","content":"Hi","reasoning_details":[{"data":"x","n":1.50}]}"#;
        assert_eq!(back_of(message, Dialect::OpenRouter).as_deref(), Some(wanted));
    }

    #[test]
    fn deepseek_gets_its_reasoning_back_only_with_calls() {
        let words = r#"{"role":"assistant","content":"Hi","reasoning_content":"Hm."}"#;
        assert_eq!(back_of(words, Dialect::DeepSeek), None);
        let call = r#"{"id":"c","type":"function","function":{"name":"f","arguments":""}}"#;
        let calls = format!(r#"{{"reasoning_content":"Hm.","role":"assistant","content":"","tool_calls":[{call}]}}"#);
        let wanted = calls.replace(r#""arguments":"""#, r#""arguments":"{}""#);
        assert_eq!(back_of(&calls, Dialect::DeepSeek), Some(wanted));
    }
}
