//! What a vendor's own client made of an answer, compared with what we make of it.
//!
//! Rules, the same for every recording:
//!
//! - What the golden holds is compared; what it leaves out is not, because clients drop what they do not know.
//! - `null` in the golden holds nothing: clients add fields that never came, and forget some that did. So do `parsed`
//!   fields, which only they have.
//! - Numbers are compared by value: clients turn `1` into `1.0`.
//! - In a stream, clients repeat labels that come with every chunk (`assistantassistant`): a golden that is ours some
//!   times over is ours. They add up items that have the same number, so ours are added up, too. They take names and
//!   times from the first chunk even where it has empty ones, and pass over content that is no text.
//! - Clients leave blocks of kinds that they do not know as they began: of those the kind is compared.
//! - Clients do not notice that a stream was cut, or that an answer says it failed: what had come is compared.
//! - Where a client itself gave up on an answer that we can read, there is nothing to compare.

use std::fmt;

use serde_json::{Value, json};

use crate::api::Api;
use crate::python;
use rath_model::{Cause, Failure, Part, Turn, Why};

/// The first thing that is not the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Where.
    pub path: String,
    /// What the golden holds.
    pub golden: Value,
    /// What we have.
    pub ours: Value,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: golden {}, ours {}", self.path, self.golden, self.ours)
    }
}

/// What came of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Both are the same.
    Equal,
    /// They are not.
    Differs(Difference),
    /// They cannot be compared, and why.
    Skipped(String),
}

impl Verdict {
    fn of(found: Option<Difference>) -> Self {
        found.map_or(Self::Equal, Self::Differs)
    }

    /// Two things of which one does not fit.
    pub(super) fn differs(path: &str, golden: impl Into<Value>, ours: impl Into<Value>) -> Self {
        Self::Differs(Difference { path: path.into(), golden: golden.into(), ours: ours.into() })
    }
}

/// Compares what we made of an answer with the golden.
pub fn compare(golden: &Value, api: Api, is_stream: bool, ours: &Result<Turn, Failure>) -> Verdict {
    match (golden.get("sdk_error"), ours) {
        (None, Ok(turn)) => compare_turn(golden, api, is_stream, turn),
        (None, Err(failure)) => compare_unnoticed(golden, api, is_stream, failure),
        (Some(_), Err(failure)) => compare_failure(golden, api, is_stream, failure),
        (Some(error), Ok(turn)) => compare_given_up(golden, error.as_str().unwrap_or_default(), turn),
    }
}

fn compare_turn(golden: &Value, api: Api, is_stream: bool, turn: &Turn) -> Verdict {
    let mut golden = golden.clone();
    if is_stream {
        forget_unknown(&mut golden, api, turn);
    }
    Verdict::of(Rules { is_stream }.first_difference("", &golden, &shape(api, is_stream, turn)))
}

/// Takes out of a golden what the client could not know.
fn forget_unknown(golden: &mut Value, api: Api, turn: &Turn) {
    if api == Api::Messages {
        for (at, block) in turn.blocks.iter().enumerate() {
            match (&block.part, golden["content"].get_mut(at)) {
                (Part::Other { kind }, Some(theirs)) => *theirs = json!({"type": kind}),
                (Part::Server { .. }, Some(theirs)) if theirs["type"] != "server_tool_use" => {
                    theirs["input"].take();
                }
                _ => {}
            }
        }
    }
    if api == Api::Responses {
        // Only the event that ends an answer is kept; and one that failed may not list what had come.
        if turn.rest.event.is_empty() {
            golden["last"] = json!({"response": golden["last"]["response"].take()});
        }
        if golden["last"]["response"]["output"] == json!([]) {
            golden["last"]["response"]["output"].take();
        }
    }
}

/// The client saw no error where we do.
fn compare_unnoticed(golden: &Value, api: Api, is_stream: bool, failure: &Failure) -> Verdict {
    let last = golden.get("last").filter(|last| last["type"] == "error").unwrap_or(golden);
    let said = [&last["error"]["message"], &last["message"]].into_iter().find(|said| said.is_string());
    match (said, &failure.partial) {
        (Some(said), _) if *said == failure.said.message => Verdict::Equal,
        (Some(said), None) => Verdict::differs("message", said.clone(), failure.said.message.clone()),
        (_, Some(turn)) => compare_turn(golden, api, is_stream, turn),
        (None, None) => Verdict::differs("", golden.clone(), failure.to_string()),
    }
}

/// Both have an error.
fn compare_failure(golden: &Value, api: Api, is_stream: bool, failure: &Failure) -> Verdict {
    let words = words(api, is_stream, failure);
    let text = golden["text"].as_str().unwrap_or_default();
    let status = golden["status"].as_u64().filter(|status| *status >= 400);
    if status != failure.status.map(u64::from) {
        return Verdict::differs("status", golden["status"].clone(), json!(failure.status));
    }
    let is_theirs = golden["status"].is_null() && golden["sdk_error"] != "APIError";
    let is_same = words == text || (text.chars().count() >= 300 && words.starts_with(text));
    let is_ours = !matches!(failure.cause, Cause::Refused | Cause::BrokenOff);
    match is_same || (is_theirs && is_ours) {
        true => Verdict::Equal,
        false => Verdict::differs("text", text, words),
    }
}

/// The words of the client's error.
fn words(api: Api, is_stream: bool, failure: &Failure) -> String {
    let body = failure.said.body.as_str();
    let json = serde_json::from_str(body).ok();
    match (failure.status, json) {
        (Some(status), Some(json)) => format!("Error code: {status} - {}", python::repr(json)),
        (Some(status), None) if body.is_empty() => format!("Error code: {status}"),
        (Some(_), None) => body.to_owned(),
        (None, Some(json)) if api == Api::Messages && is_stream => python::repr(json),
        (None, _) => {
            let body: Value = serde_json::from_str(body).unwrap_or_default();
            let message = body["error"]["message"].as_str().filter(|message| !message.is_empty());
            message.unwrap_or("An error occurred during streaming").to_owned()
        }
    }
}

/// The client gave up where we have a turn. Two of its errors only say how the turn ended.
fn compare_given_up(golden: &Value, error: &str, turn: &Turn) -> Verdict {
    let why = turn.stop.as_ref().map(|stop| stop.why);
    match (error, why) {
        ("LengthFinishReasonError", Some(Why::Length)) => Verdict::Equal,
        ("ContentFilterFinishReasonError", Some(Why::Filtered)) => Verdict::Equal,
        _ if golden["status"].is_null() && error != "APIError" => {
            Verdict::Skipped(format!("the vendor's client gave up on it: {error}"))
        }
        _ => Verdict::differs("sdk_error", error, "a turn"),
    }
}

/// A turn in the shape in which the vendor's client gives it.
fn shape(api: Api, is_stream: bool, turn: &Turn) -> Value {
    let mut shape = serde_json::to_value(api.write(turn)).unwrap_or_default();
    match api {
        Api::Messages => end_inputs(&mut shape, turn),
        Api::Chat if is_stream => {
            let message = &mut shape["choices"][0]["message"];
            add_up(&mut message["tool_calls"]);
            add_up(&mut message["reasoning_details"]);
            if message["content"].is_array() {
                message["content"] = turn.text().into();
            }
        }
        Api::Responses if is_stream => {
            let mut last = serde_json::to_value(&turn.rest.event).unwrap_or_default();
            last["response"] = shape;
            shape = json!({"events": turn.events, "last": last});
        }
        Api::Chat | Api::Responses => {}
    }
    shape
}

/// Inputs that were broken off, as the client ends them.
fn end_inputs(message: &mut Value, turn: &Turn) {
    for (at, block) in turn.blocks.iter().enumerate() {
        let (Part::Call { arguments: input, .. } | Part::Server { input, .. }) = &block.part else { continue };
        if !input.is_empty() && serde_json::from_str::<Value>(input).is_err() {
            message["content"][at]["input"] = python::broken_off(input).unwrap_or_default();
        }
    }
}

/// Items that have the same number, as one.
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

/// Adds words to words, but no label to itself; anything else takes the place of what was there.
fn add(sum: &mut Value, item: Value) {
    let (Some(sum), Value::Object(fields)) = (sum.as_object_mut(), item) else { return };
    for (key, value) in fields {
        match (sum.get_mut(&key), value) {
            (Some(Value::String(held)), Value::String(more)) if key != "type" => {
                held.push_str(if *held == more { "" } else { &more });
            }
            (Some(held @ Value::Object(_)), value @ Value::Object(_)) => add(held, value),
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
