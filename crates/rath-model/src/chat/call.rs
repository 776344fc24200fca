//! Calls of tools, which come in pieces that every dialect numbers and names in its own way.

use std::borrow::Cow;

use rath_core::Delta;
use serde_json::value::RawValue;

use super::grown::Object;
use crate::fields::{Fields, Seen, text_of};

/// A call while it is coming.
#[derive(Debug, Default)]
pub(super) struct Calling {
    index: Option<u64>,
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    /// The other fields of the call.
    rest: Object,
    /// The other fields of the object that holds name and arguments.
    inner: Object,
    /// The field that holds them: `function`, or `custom`.
    held: &'static str,
    told: bool,
}

/// A piece of a call.
pub(super) struct Piece<'a> {
    seen: Seen<'a>,
    index: Option<u64>,
    id: Cow<'a, str>,
    name: Cow<'a, str>,
    held: &'static str,
    inner: Seen<'a>,
}

impl<'a> Piece<'a> {
    pub(super) fn of(value: &'a RawValue) -> Self {
        let seen = Seen::of_value(value);
        let held = if seen.get("custom").is_some() { "custom" } else { "function" };
        let inner = seen.object(held);
        Self {
            index: seen.index("index"),
            id: seen.text("id").unwrap_or_default(),
            name: inner.text("name").unwrap_or_default(),
            held,
            inner,
            seen,
        }
    }

    /// The call that it is a piece of; none where it begins one. Some dialects give no number, and some the same number
    /// to every call: then another id with a name is another call.
    pub(super) fn place(&self, calls: &[Calling]) -> Option<usize> {
        let at = match self.index {
            Some(_) => calls.iter().rposition(|call| call.index == self.index),
            None if self.id.is_empty() => calls.len().checked_sub(1),
            None => calls.iter().rposition(|call| call.id == self.id),
        }?;
        let other = !self.id.is_empty() && !calls[at].id.is_empty() && self.id != calls[at].id;
        (!other || self.name.is_empty()).then_some(at)
    }
}

impl Calling {
    /// Takes a piece. Ids and names may be repeated with every one.
    pub(super) fn add(&mut self, piece: &Piece<'_>, is_last: bool, heard: &mut dyn FnMut(Delta)) {
        self.index = self.index.or(piece.index);
        self.held = piece.held;
        if self.id.is_empty() {
            self.id.push_str(&piece.id);
        }
        if self.name != piece.name {
            self.name.push_str(&piece.name);
        }
        self.keep(piece);
        let more = piece.arguments();
        self.arguments.push_str(&more);
        if !self.told && !self.name.is_empty() {
            self.told = true;
            heard(Delta::Call { id: self.id.clone(), name: self.name.clone() });
        }
        if is_last && self.told && !more.is_empty() {
            heard(Delta::Arguments(more.into_owned()));
        }
    }

    fn keep(&mut self, piece: &Piece<'_>) {
        for (key, value) in piece.seen.iter() {
            match key == "id" || key == piece.held {
                true => self.rest.keep_place(key),
                false => self.rest.add(key, value),
            }
        }
        for (key, value) in piece.inner.iter() {
            match key {
                "arguments" if value.get().starts_with('{') => self.inner.keep_place_of_object(key),
                "name" | "arguments" | "input" => self.inner.keep_place(key),
                _ => self.inner.add(key, value),
            }
        }
    }

    /// The fields of the call, without id, name and arguments.
    pub(super) fn rest(&self) -> Fields {
        let mut rest = self.rest.close();
        rest.put(self.held, &self.inner.close());
        rest
    }
}

impl<'a> Piece<'a> {
    /// More of the arguments: words, or in some dialects a whole object.
    fn arguments(&self) -> Cow<'a, str> {
        let value = self.inner.get("arguments").or_else(|| self.inner.get("input"));
        value.map(|value| text_of(value).unwrap_or(Cow::Borrowed(value.get()))).unwrap_or_default()
    }
}
