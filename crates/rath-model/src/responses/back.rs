//! A turn as it goes back.

use crate::fields::Fields;
use crate::turn::Turn;

/// The items of the turn as the API takes them back. Nothing is stored there, so reasoning goes back sealed or not at
/// all, and never as the last item: it belongs to the one that follows it.
pub(crate) fn back(turn: &Turn) -> Option<String> {
    let mut turn = turn.clone();
    turn.mend_arguments();
    let items = super::items(&turn);
    let all = items.len();
    let is_lost = |item: &Fields| is_reasoning(item) && item.text("encrypted_content").is_none();
    let mut kept: Vec<Fields> = items.into_iter().filter(|item| !is_lost(item)).collect();
    while kept.last().is_some_and(is_reasoning) {
        kept.pop();
    }
    if kept.len() < all {
        // By its id an item is known to have come with the reasoning that is missing.
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
    use crate::reply::Reply;

    fn back_of(items: &str) -> Option<String> {
        let body = format!(r#"{{"id":"r","status":"completed","output":[{items}]}}"#);
        back(&super::super::decode_whole(&Reply::new(200, body.as_bytes())).unwrap())
    }

    #[test]
    fn sealed_reasoning_goes_back_as_it_came() {
        let items = concat!(
            r#"{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA","x":1.50},"#,
            r#"{"id":"fc_1","type":"function_call","call_id":"c","name":"f","arguments":"{\"a\": 1}","status":"completed"}"#
        );
        assert_eq!(back_of(items), Some(format!("[{items}]")));
    }

    #[test]
    fn reasoning_that_the_vendor_would_look_for_is_left_out() {
        let lost = r#"{"id":"rs_1","type":"reasoning","summary":[]}"#;
        let call = r#""type":"function_call","call_id":"c","name":"f","arguments":"#;
        let items = format!(r#"{lost},{{"id":"fc_1",{call}""}}"#);
        assert_eq!(back_of(&items), Some(format!(r#"[{{{call}"{{}}"}}]"#)));
        let last = r#"{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA"}"#;
        assert_eq!(back_of(last), None);
    }
}
