//! Assembles a streamed message.

use rath_core::Delta;
use serde_json::json;
use serde_json::value::RawValue;

use super::call::{PartialCall, Piece};
use super::delta_accumulator::Object;
use crate::fields::{BorrowedFields, Fields, items_of, text_of};
use crate::turn::{BlockContent, TurnBlock};

/// A message while it is streamed.
#[derive(Debug, Default)]
pub(super) struct Message {
    rest: Object,
    order: Vec<Kind>,
    text: String,
    refusal: String,
    reasoning: String,
    /// The name of the field that contains the reasoning.
    reasoning_key: Option<String>,
    calls: Vec<PartialCall>,
    /// Whether there was a `content` string, even an empty one.
    has_content: bool,
}

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Refusal,
    Reasoning,
    Call(usize),
}

impl Message {
    /// Adds a delta of the message.
    pub(super) fn add(&mut self, delta: &BorrowedFields<'_>, on_delta: &mut dyn FnMut(Delta)) {
        for (key, value) in delta.iter() {
            match key {
                "content" => self.content(value, on_delta),
                "refusal" => self.refuse(value, on_delta),
                "reasoning_content" | "reasoning" => self.reason(key, value, on_delta),
                "tool_calls" => self.call(value, false, on_delta),
                _ => self.rest.add(key, value),
            }
        }
    }

    /// Adds a whole message. Its calls are never pieces of one another, and its reasoning comes first.
    pub(super) fn add_whole(&mut self, message: &BorrowedFields<'_>) {
        for key in ["reasoning_content", "reasoning"] {
            if let Some(value) = message.get(key).filter(|value| text_of(value).is_some_and(|text| !text.is_empty())) {
                self.reason(key, value, &mut |_| {});
            }
        }
        let keys_read: Vec<String> = self.reasoning_key.clone().into_iter().collect();
        for (key, value) in message.iter() {
            match key {
                "content" => self.content(value, &mut |_| {}),
                "refusal" => self.refuse(value, &mut |_| {}),
                "tool_calls" => self.call(value, true, &mut |_| {}),
                _ if keys_read.iter().any(|read| read == key) => {}
                _ if self.rest.has(key) => {}
                _ => self.rest.add(key, value),
            }
        }
    }

    fn note_kind(&mut self, kind: Kind) {
        if !self.order.contains(&kind) {
            self.order.push(kind);
        }
    }

    fn content(&mut self, value: &RawValue, on_delta: &mut dyn FnMut(Delta)) {
        let Some(more) = text_of(value) else { return self.parts(value, on_delta) };
        self.rest.reserve("content");
        self.has_content = true;
        if self.rest.has_list("content") && !more.is_empty() {
            self.rest.push("content", &json!({"type": "text", "text": more}));
        }
        self.say(&more, on_delta);
    }

    fn say(&mut self, more: &str, on_delta: &mut dyn FnMut(Delta)) {
        if !more.is_empty() {
            self.note_kind(Kind::Text);
            self.text.push_str(more);
            on_delta(Delta::Text(more.to_owned()));
        }
    }

    /// Adds content that is a list of parts: the list is kept verbatim, and its text is read.
    fn parts(&mut self, value: &RawValue, on_delta: &mut dyn FnMut(Delta)) {
        self.rest.add("content", value);
        for part in items_of(value) {
            let part = BorrowedFields::of_value(part);
            self.say(&part.text("text").unwrap_or_default(), on_delta);
            for thought in part.get("thinking").map(items_of).unwrap_or_default() {
                self.think(&BorrowedFields::of_value(thought).text("text").unwrap_or_default(), on_delta);
            }
        }
    }

    fn refuse(&mut self, value: &RawValue, on_delta: &mut dyn FnMut(Delta)) {
        let more = text_of(value).unwrap_or_default();
        if more.is_empty() {
            self.rest.add("refusal", value);
        } else {
            self.rest.reserve("refusal");
            self.note_kind(Kind::Refusal);
            self.refusal.push_str(&more);
            on_delta(Delta::Text(more.into_owned()));
        }
    }

    /// Adds reasoning, which has two field names. A server that sends both sends the same text twice: the first field
    /// is read, the other is kept.
    fn reason(&mut self, key: &str, value: &RawValue, on_delta: &mut dyn FnMut(Delta)) {
        let Some(more) = text_of(value) else { return self.rest.add(key, value) };
        if self.reasoning_key.is_none() && !more.is_empty() {
            self.reasoning_key = Some(key.to_owned());
        }
        if self.reasoning_key.as_deref() == Some(key) {
            self.rest.reserve(key);
            self.think(&more, on_delta);
        } else {
            self.rest.add(key, value);
        }
    }

    fn think(&mut self, more: &str, on_delta: &mut dyn FnMut(Delta)) {
        if !more.is_empty() {
            self.note_kind(Kind::Reasoning);
            self.reasoning.push_str(more);
            on_delta(Delta::Reasoning(more.to_owned()));
        }
    }

    fn call(&mut self, value: &RawValue, whole: bool, on_delta: &mut dyn FnMut(Delta)) {
        let pieces = items_of(value);
        match pieces.is_empty() {
            true => self.rest.add("tool_calls", value),
            false => self.rest.reserve("tool_calls"),
        }
        for piece in pieces {
            let piece = Piece::of(piece);
            let at = match piece.call_index(&self.calls).filter(|_| !whole) {
                Some(at) => at,
                None => {
                    self.note_kind(Kind::Call(self.calls.len()));
                    self.calls.push(PartialCall::default());
                    self.calls.len() - 1
                }
            };
            let is_last = at + 1 == self.calls.len();
            self.calls[at].add(&piece, is_last, on_delta);
        }
    }

    /// The blocks and the other fields.
    pub(super) fn close(self) -> (Vec<TurnBlock>, Fields) {
        let mut rest = self.rest.close();
        if self.has_content && self.text.is_empty() && !self.rest.has_list("content") {
            rest.put("content", "");
        }
        let Self { order, mut text, mut refusal, mut reasoning, calls, .. } = self;
        let blocks = order.into_iter().map(|kind| match kind {
            Kind::Text => TurnBlock::new(BlockContent::Text { text: std::mem::take(&mut text) }, Fields::default()),
            Kind::Refusal => {
                TurnBlock::new(BlockContent::Refusal { text: std::mem::take(&mut refusal) }, Fields::default())
            }
            Kind::Reasoning => {
                let part = BlockContent::Reasoning { text: std::mem::take(&mut reasoning), signature: None };
                let mut fields = Fields::default();
                if let Some(key) = &self.reasoning_key {
                    fields.put(key, &());
                }
                TurnBlock::new(part, fields)
            }
            Kind::Call(at) => {
                let PartialCall { id, name, arguments, .. } = &calls[at];
                let part = BlockContent::Call { id: id.clone(), name: name.clone(), arguments: arguments.clone() };
                TurnBlock::new(part, calls[at].rest())
            }
        });
        (blocks.collect(), rest)
    }
}
