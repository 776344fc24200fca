//! A turn as it is sent back to the API in later requests.

use crate::fields::Fields;
use crate::turn::ProviderTurn;

/// The turn's items as the API accepts them in later requests. Requests are not stored at the vendor, so only encrypted
/// reasoning can be sent back. Reasoning belongs to the item that follows it, so it is never the last item.
pub(crate) fn back(turn: &ProviderTurn) -> Option<String> {
    let mut turn = turn.clone();
    turn.normalize_arguments();
    let items = super::items(&turn);
    let all = items.len();
    let is_lost = |item: &Fields| is_reasoning(item) && item.text("encrypted_content").is_none();
    let mut kept: Vec<Fields> = items.into_iter().filter(|item| !is_lost(item)).collect();
    while kept.last().is_some_and(is_reasoning) {
        kept.pop();
    }
    if kept.len() < all {
        // The id ties an item to the reasoning that came with it, which is missing now.
        kept.iter_mut().filter(|item| !is_reasoning(item)).for_each(|item| drop(item.remove("id")));
    }
    (!kept.is_empty()).then(|| serde_json::to_string(&kept).ok()).flatten()
}

fn is_reasoning(item: &Fields) -> bool {
    item.text("type").as_deref() == Some("reasoning")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_response::HttpResponse;

    fn back_of(items: &str) -> Option<String> {
        let body = format!(r#"{{"id":"r","status":"completed","output":[{items}]}}"#);
        back(&super::super::decode_whole(&HttpResponse::new(200, body.as_bytes())).unwrap())
    }

    #[test]
    fn encrypted_reasoning_is_sent_back_verbatim() {
        let items = concat!(
            r#"{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA","x":1.50},"#,
            r#"{"id":"fc_1","type":"function_call","call_id":"c","name":"f","arguments":"{\"a\": 1}","status":"completed"}"#
        );
        assert_eq!(back_of(items), Some(format!("[{items}]")));
    }

    #[test]
    fn reasoning_without_encrypted_content_is_omitted() {
        let lost = r#"{"id":"rs_1","type":"reasoning","summary":[]}"#;
        let call = r#""type":"function_call","call_id":"c","name":"f","arguments":"#;
        let items = format!(r#"{lost},{{"id":"fc_1",{call}""}}"#);
        assert_eq!(back_of(&items), Some(format!(r#"[{{{call}"{{}}"}}]"#)));
        let last = r#"{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA"}"#;
        assert_eq!(back_of(last), None);
    }
}
