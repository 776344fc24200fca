//! Assembles streamed tool calls, whose pieces every dialect numbers and names in its own way.

use std::borrow::Cow;

use rath_core::Delta;
use serde_json::value::RawValue;

use super::delta_accumulator::Object;
use crate::fields::{BorrowedFields, Fields, text_of};

/// A tool call while it is streamed.
#[derive(Debug, Default)]
pub(super) struct PartialCall {
    index: Option<u64>,
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    /// The other fields of the call.
    rest: Object,
    /// The other fields of the object that contains name and arguments.
    inner: Object,
    /// The name of that object's field: `function` or `custom`.
    inner_key: &'static str,
    announced: bool,
}

/// A piece of a streamed call.
pub(super) struct Piece<'a> {
    seen: BorrowedFields<'a>,
    index: Option<u64>,
    id: Cow<'a, str>,
    name: Cow<'a, str>,
    inner_key: &'static str,
    inner: BorrowedFields<'a>,
}

impl<'a> Piece<'a> {
    pub(super) fn of(value: &'a RawValue) -> Self {
        let seen = BorrowedFields::of_value(value);
        let inner_key = if seen.get("custom").is_some() { "custom" } else { "function" };
        let inner = seen.object(inner_key);
        Self {
            index: seen.index("index"),
            id: seen.text("id").unwrap_or_default(),
            name: inner.text("name").unwrap_or_default(),
            inner_key,
            inner,
            seen,
        }
    }

    /// The index of the call that this piece continues; `None` if it starts a new call. Some dialects send no index,
    /// and some the same index for every call: there, a new id together with a name starts a new call.
    pub(super) fn call_index(&self, calls: &[PartialCall]) -> Option<usize> {
        let at = match self.index {
            Some(_) => calls.iter().rposition(|call| call.index == self.index),
            None if self.id.is_empty() => calls.len().checked_sub(1),
            None => calls.iter().rposition(|call| call.id == self.id),
        }?;
        let other = !self.id.is_empty() && !calls[at].id.is_empty() && self.id != calls[at].id;
        (!other || self.name.is_empty()).then_some(at)
    }
}

impl PartialCall {
    /// Adds a piece. Some dialects repeat id and name in every piece.
    pub(super) fn add(&mut self, piece: &Piece<'_>, is_last: bool, on_delta: &mut dyn FnMut(Delta)) {
        self.index = self.index.or(piece.index);
        self.inner_key = piece.inner_key;
        if self.id.is_empty() {
            self.id.push_str(&piece.id);
        }
        if self.name != piece.name {
            self.name.push_str(&piece.name);
        }
        self.keep(piece);
        let more = piece.arguments();
        self.arguments.push_str(&more);
        if !self.announced && !self.name.is_empty() {
            self.announced = true;
            on_delta(Delta::Call { id: self.id.clone(), name: self.name.clone() });
        }
        if is_last && self.announced && !more.is_empty() {
            on_delta(Delta::Arguments(more.into_owned()));
        }
    }

    fn keep(&mut self, piece: &Piece<'_>) {
        for (key, value) in piece.seen.iter() {
            match key == "id" || key == piece.inner_key {
                true => self.rest.reserve(key),
                false => self.rest.add(key, value),
            }
        }
        for (key, value) in piece.inner.iter() {
            match key {
                "arguments" if value.get().starts_with('{') => self.inner.reserve_object(key),
                "name" | "arguments" | "input" => self.inner.reserve(key),
                _ => self.inner.add(key, value),
            }
        }
    }

    /// The fields of the call, without id, name and arguments.
    pub(super) fn rest(&self) -> Fields {
        let mut rest = self.rest.close();
        rest.put(self.inner_key, &self.inner.close());
        rest
    }
}

impl<'a> Piece<'a> {
    /// The piece of the arguments: a string, or in some dialects a whole object.
    fn arguments(&self) -> Cow<'a, str> {
        let value = self.inner.get("arguments").or_else(|| self.inner.get("input"));
        value.map(|value| text_of(value).unwrap_or(Cow::Borrowed(value.get()))).unwrap_or_default()
    }
}
