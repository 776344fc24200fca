//! A message while it is coming.

use rath_core::Delta;
use serde_json::json;
use serde_json::value::RawValue;

use super::call::{Calling, Piece};
use super::grown::Object;
use crate::fields::{Fields, Seen, items_of, text_of};
use crate::turn::{Block, Part};

/// A message while it is coming.
#[derive(Debug, Default)]
pub(super) struct Message {
    rest: Object,
    order: Vec<Kind>,
    text: String,
    refusal: String,
    reasoning: String,
    /// The field that the reasoning is in.
    reasoning_key: Option<String>,
    calls: Vec<Calling>,
    /// There was content, if only an empty string.
    has_content: bool,
}

/// A kind of part, in the order in which they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Refusal,
    Reasoning,
    Call(usize),
}

impl Message {
    /// Takes more of the message.
    pub(super) fn add(&mut self, delta: &Seen<'_>, heard: &mut dyn FnMut(Delta)) {
        for (key, value) in delta.iter() {
            match key {
                "content" => self.content(value, heard),
                "refusal" => self.refuse(value, heard),
                "reasoning_content" | "reasoning" => self.reason(key, value, heard),
                "tool_calls" => self.call(value, false, heard),
                _ => self.rest.add(key, value),
            }
        }
    }

    /// Takes the message as a whole: calls are never pieces of one another, and reasoning came first.
    pub(super) fn add_whole(&mut self, message: &Seen<'_>) {
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

    fn begins(&mut self, kind: Kind) {
        if !self.order.contains(&kind) {
            self.order.push(kind);
        }
    }

    fn content(&mut self, value: &RawValue, heard: &mut dyn FnMut(Delta)) {
        let Some(more) = text_of(value) else { return self.parts(value, heard) };
        self.rest.keep_place("content");
        self.has_content = true;
        if self.rest.has_list("content") && !more.is_empty() {
            self.rest.push("content", &json!({"type": "text", "text": more}));
        }
        self.say(&more, heard);
    }

    fn say(&mut self, more: &str, heard: &mut dyn FnMut(Delta)) {
        if !more.is_empty() {
            self.begins(Kind::Text);
            self.text.push_str(more);
            heard(Delta::Text(more.to_owned()));
        }
    }

    /// Content that is a list of parts, as some write it: it is kept as it is, and its words are read.
    fn parts(&mut self, value: &RawValue, heard: &mut dyn FnMut(Delta)) {
        self.rest.add("content", value);
        for part in items_of(value) {
            let part = Seen::of_value(part);
            self.say(&part.text("text").unwrap_or_default(), heard);
            for thought in part.get("thinking").map(items_of).unwrap_or_default() {
                self.think(&Seen::of_value(thought).text("text").unwrap_or_default(), heard);
            }
        }
    }

    fn refuse(&mut self, value: &RawValue, heard: &mut dyn FnMut(Delta)) {
        let more = text_of(value).unwrap_or_default();
        if more.is_empty() {
            self.rest.add("refusal", value);
        } else {
            self.rest.keep_place("refusal");
            self.begins(Kind::Refusal);
            self.refusal.push_str(&more);
            heard(Delta::Text(more.into_owned()));
        }
    }

    /// Reasoning has two names. Who sends both says the same twice: the first is read, the other kept.
    fn reason(&mut self, key: &str, value: &RawValue, heard: &mut dyn FnMut(Delta)) {
        let Some(more) = text_of(value) else { return self.rest.add(key, value) };
        if self.reasoning_key.is_none() && !more.is_empty() {
            self.reasoning_key = Some(key.to_owned());
        }
        if self.reasoning_key.as_deref() == Some(key) {
            self.rest.keep_place(key);
            self.think(&more, heard);
        } else {
            self.rest.add(key, value);
        }
    }

    fn think(&mut self, more: &str, heard: &mut dyn FnMut(Delta)) {
        if !more.is_empty() {
            self.begins(Kind::Reasoning);
            self.reasoning.push_str(more);
            heard(Delta::Reasoning(more.to_owned()));
        }
    }

    fn call(&mut self, value: &RawValue, whole: bool, heard: &mut dyn FnMut(Delta)) {
        let pieces = items_of(value);
        match pieces.is_empty() {
            true => self.rest.add("tool_calls", value),
            false => self.rest.keep_place("tool_calls"),
        }
        for piece in pieces {
            let piece = Piece::of(piece);
            let at = match piece.place(&self.calls).filter(|_| !whole) {
                Some(at) => at,
                None => {
                    self.begins(Kind::Call(self.calls.len()));
                    self.calls.push(Calling::default());
                    self.calls.len() - 1
                }
            };
            let is_last = at + 1 == self.calls.len();
            self.calls[at].add(&piece, is_last, heard);
        }
    }

    /// The parts and the other fields.
    pub(super) fn close(self) -> (Vec<Block>, Fields) {
        let mut rest = self.rest.close();
        if self.has_content && self.text.is_empty() && !self.rest.has_list("content") {
            rest.put("content", "");
        }
        let Self { order, mut text, mut refusal, mut reasoning, calls, .. } = self;
        let blocks = order.into_iter().map(|kind| match kind {
            Kind::Text => Block::new(Part::Text { text: std::mem::take(&mut text) }, Fields::default()),
            Kind::Refusal => Block::new(Part::Refusal { text: std::mem::take(&mut refusal) }, Fields::default()),
            Kind::Reasoning => {
                let part = Part::Reasoning { text: std::mem::take(&mut reasoning), signature: None };
                let mut fields = Fields::default();
                if let Some(key) = &self.reasoning_key {
                    fields.put(key, &());
                }
                Block::new(part, fields)
            }
            Kind::Call(at) => {
                let Calling { id, name, arguments, .. } = &calls[at];
                let part = Part::Call { id: id.clone(), name: name.clone(), arguments: arguments.clone() };
                Block::new(part, calls[at].rest())
            }
        });
        (blocks.collect(), rest)
    }
}
