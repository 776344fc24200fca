//! Compares what the vendor's own client made of an answer (the golden file) with the decoded turn.
//!
//! Rules, the same for every recording:
//!
//! - Fields that the golden file lacks are not compared: clients drop fields that they do not know.
//! - `null` in the golden file matches anything: clients add fields that never arrived, and lose some that did.
//!   `parsed` fields, which only clients have, are ignored.
//! - Numbers are compared by value: clients turn `1` into `1.0`.
//! - In a stream, clients repeat labels that every chunk repeats (`assistantassistant`): a golden text that is a
//!   repetition of ours is equal. Clients merge list items with the same index, so ours are merged too. Clients take
//!   ids and times from the first chunk even if they are empty there, and skip content that is not text.
//! - Clients leave blocks of unknown types as they started: only the type of those is compared.
//! - Clients do not notice that a stream was truncated, or that an answer has the status `failed`: the partial turn is
//!   compared.
//! - If the client itself rejected an answer that rath can decode, nothing is compared.

use std::fmt;

use serde_json::{Value, json};

use crate::api::RecordedApi;
use crate::python;
use rath_model::{BlockContent, FailureCause, ProviderFailure, ProviderTurn, StopKind};

/// The first difference.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The path of the JSON value.
    pub path: String,
    /// The value in the golden file.
    pub golden: Value,
    /// The value in the decoded turn.
    pub ours: Value,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: golden {}, ours {}", self.path, self.golden, self.ours)
    }
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub enum GoldenVerdict {
    /// No difference was found.
    Equal,
    /// The first difference.
    Differs(Difference),
    /// The exchange was not compared, for this reason.
    Skipped(String),
}

impl GoldenVerdict {
    fn of(found: Option<Difference>) -> Self {
        found.map_or(Self::Equal, Self::Differs)
    }

    pub(super) fn differs(path: &str, golden: impl Into<Value>, ours: impl Into<Value>) -> Self {
        Self::Differs(Difference { path: path.into(), golden: golden.into(), ours: ours.into() })
    }
}

/// Compares the result of decoding an answer with the golden file.
pub fn compare(
    golden: &Value,
    api: RecordedApi,
    is_stream: bool,
    ours: &Result<ProviderTurn, ProviderFailure>,
) -> GoldenVerdict {
    match (golden.get("sdk_error"), ours) {
        (None, Ok(turn)) => compare_turn(golden, api, is_stream, turn),
        (None, Err(failure)) => compare_unnoticed(golden, api, is_stream, failure),
        (Some(_), Err(failure)) => compare_failure(golden, api, is_stream, failure),
        (Some(error), Ok(turn)) => compare_client_error(golden, error.as_str().unwrap_or_default(), turn),
    }
}

fn compare_turn(golden: &Value, api: RecordedApi, is_stream: bool, turn: &ProviderTurn) -> GoldenVerdict {
    let mut golden = golden.clone();
    if is_stream {
        forget_unknown(&mut golden, api, turn);
    }
    GoldenVerdict::of(Rules { is_stream }.first_difference("", &golden, &shape(api, is_stream, turn)))
}

/// Removes from the golden value what the client could not know.
fn forget_unknown(golden: &mut Value, api: RecordedApi, turn: &ProviderTurn) {
    if api == RecordedApi::Messages {
        for (at, block) in turn.blocks.iter().enumerate() {
            match (&block.part, golden["content"].get_mut(at)) {
                (BlockContent::Other { kind }, Some(theirs)) => *theirs = json!({"type": kind}),
                (BlockContent::Server { .. }, Some(theirs)) if theirs["type"] != "server_tool_use" => {
                    theirs["input"].take();
                }
                _ => {}
            }
        }
    }
    if api == RecordedApi::Responses {
        // Only the event that ends an answer is kept, and the final event of a failed answer may not list the items
        // that had arrived.
        if turn.rest.event.is_empty() {
            golden["last"] = json!({"response": golden["last"]["response"].take()});
        }
        if golden["last"]["response"]["output"] == json!([]) {
            golden["last"]["response"]["output"].take();
        }
    }
}

/// Compares a failure of ours with an answer in which the client saw no error.
fn compare_unnoticed(golden: &Value, api: RecordedApi, is_stream: bool, failure: &ProviderFailure) -> GoldenVerdict {
    let last = golden.get("last").filter(|last| last["type"] == "error").unwrap_or(golden);
    let said = [&last["error"]["message"], &last["message"]].into_iter().find(|said| said.is_string());
    match (said, &failure.partial) {
        (Some(said), _) if *said == failure.said.message => GoldenVerdict::Equal,
        (Some(said), None) => GoldenVerdict::differs("message", said.clone(), failure.said.message.clone()),
        (_, Some(turn)) => compare_turn(golden, api, is_stream, turn),
        (None, None) => GoldenVerdict::differs("", golden.clone(), failure.to_string()),
    }
}

/// Compares two errors.
fn compare_failure(golden: &Value, api: RecordedApi, is_stream: bool, failure: &ProviderFailure) -> GoldenVerdict {
    let words = words(api, is_stream, failure);
    let text = golden["text"].as_str().unwrap_or_default();
    let status = golden["status"].as_u64().filter(|status| *status >= 400);
    if status != failure.status.map(u64::from) {
        return GoldenVerdict::differs("status", golden["status"].clone(), json!(failure.status));
    }
    let is_theirs = golden["status"].is_null() && golden["sdk_error"] != "APIError";
    let is_same = words == text || (text.chars().count() >= 300 && words.starts_with(text));
    let is_ours = !matches!(failure.cause, FailureCause::Refused | FailureCause::Interrupted);
    match is_same || (is_theirs && is_ours) {
        true => GoldenVerdict::Equal,
        false => GoldenVerdict::differs("text", text, words),
    }
}

/// The text of the client's error.
fn words(api: RecordedApi, is_stream: bool, failure: &ProviderFailure) -> String {
    let body = failure.said.body.as_str();
    let json = serde_json::from_str(body).ok();
    match (failure.status, json) {
        (Some(status), Some(json)) => format!("Error code: {status} - {}", python::repr(json)),
        (Some(status), None) if body.is_empty() => format!("Error code: {status}"),
        (Some(_), None) => body.to_owned(),
        (None, Some(json)) if api == RecordedApi::Messages && is_stream => python::repr(json),
        (None, _) => {
            let body: Value = serde_json::from_str(body).unwrap_or_default();
            let message = body["error"]["message"].as_str().filter(|message| !message.is_empty());
            message.unwrap_or("An error occurred during streaming").to_owned()
        }
    }
}

/// Compares a turn of ours with an error of the client. Two of its errors only report how the turn ended.
fn compare_client_error(golden: &Value, error: &str, turn: &ProviderTurn) -> GoldenVerdict {
    let stop = turn.stop.as_ref().map(|stop| stop.kind);
    match (error, stop) {
        ("LengthFinishReasonError", Some(StopKind::Length)) => GoldenVerdict::Equal,
        ("ContentFilterFinishReasonError", Some(StopKind::Filtered)) => GoldenVerdict::Equal,
        _ if golden["status"].is_null() && error != "APIError" => {
            GoldenVerdict::Skipped(format!("the vendor's client rejected the answer: {error}"))
        }
        _ => GoldenVerdict::differs("sdk_error", error, "a turn"),
    }
}

/// The turn in the form in which the vendor's client returns it.
fn shape(api: RecordedApi, is_stream: bool, turn: &ProviderTurn) -> Value {
    let mut shape = serde_json::to_value(api.write(turn)).unwrap_or_default();
    match api {
        RecordedApi::Messages => end_inputs(&mut shape, turn),
        RecordedApi::Chat if is_stream => {
            let message = &mut shape["choices"][0]["message"];
            add_up(&mut message["tool_calls"]);
            add_up(&mut message["reasoning_details"]);
            if message["content"].is_array() {
                message["content"] = turn.text().into();
            }
        }
        RecordedApi::Responses if is_stream => {
            let mut last = serde_json::to_value(&turn.rest.event).unwrap_or_default();
            last["response"] = shape;
            shape = json!({"events": turn.events, "last": last});
        }
        RecordedApi::Chat | RecordedApi::Responses => {}
    }
    shape
}

/// Replaces truncated inputs by what the client makes of them.
fn end_inputs(message: &mut Value, turn: &ProviderTurn) {
    for (at, block) in turn.blocks.iter().enumerate() {
        let (BlockContent::Call { arguments: input, .. } | BlockContent::Server { input, .. }) = &block.part else {
            continue;
        };
        if !input.is_empty() && serde_json::from_str::<Value>(input).is_err() {
            message["content"][at]["input"] = python::parse_truncated(input).unwrap_or_default();
        }
    }
}

/// Merges list items that have the same index.
fn add_up(list: &mut Value) {
    let Some(items) = list.as_array_mut() else { return };
    let mut sums: Vec<Value> = Vec::new();
    for item in std::mem::take(items) {
        let index = item.get("index").filter(|index| !index.is_null());
        match sums.iter_mut().find(|sum| index.is_some() && sum.get("index") == index) {
            Some(sum) => add(sum, item),
            None => sums.push(item),
        }
    }
    *items = sums;
}

/// Merges an item into another: text is appended, except labels that repeat; other values are replaced.
fn add(sum: &mut Value, item: Value) {
    let (Some(sum), Value::Object(fields)) = (sum.as_object_mut(), item) else { return };
    for (key, value) in fields {
        match (sum.get_mut(&key), value) {
            (Some(Value::String(current)), Value::String(more)) if key != "type" => {
                current.push_str(if *current == more { "" } else { &more });
            }
            (Some(current @ Value::Object(_)), value @ Value::Object(_)) => add(current, value),
            (_, value) => drop(sum.insert(key, value)),
        }
    }
}

struct Rules {
    is_stream: bool,
}

impl Rules {
    fn first_difference(&self, path: &str, golden: &Value, ours: &Value) -> Option<Difference> {
        let differs = || Some(Difference { path: path.to_owned(), golden: golden.clone(), ours: ours.clone() });
        match (golden, ours) {
            (Value::Null, _) => None,
            (Value::Object(fields), Value::Object(_)) => {
                let mut fields = fields.iter().filter(|(key, _)| !key.starts_with("parsed"));
                fields.find_map(|(key, value)| self.first_difference(&join(path, key), value, &ours[key]))
            }
            (Value::Array(list), Value::Array(other)) if list.len() == other.len() => {
                let mut pairs = list.iter().zip(other).enumerate();
                pairs.find_map(|(at, (golden, ours))| self.first_difference(&format!("{path}[{at}]"), golden, ours))
            }
            (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => None,
            (Value::Number(a), _) if self.is_stream && path == "created" && a.as_f64() == Some(0.0) => None,
            (Value::String(golden), Value::String(ours)) if self.is_same_text(path, golden, ours) => None,
            (golden, ours) if golden == ours => None,
            _ => differs(),
        }
    }

    fn is_same_text(&self, path: &str, golden: &str, ours: &str) -> bool {
        let is_name = matches!(path, "id" | "model");
        let times = golden.len().checked_div(ours.len()).unwrap_or(0);
        golden == ours
            || (self.is_stream && ((is_name && golden.is_empty()) || ours.repeat(times) == golden && times > 1))
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
