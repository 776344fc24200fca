//! An item while it is coming.

use std::collections::BTreeMap;

use crate::fields::{Fields, Seen};

/// An item while it is coming: as it began, and what was added.
#[derive(Debug)]
pub(super) struct Growing {
    /// Its place in the answer. Ids are no help: some gateways change them from event to event.
    pub(super) place: u64,
    /// As it began, or as it is at its end.
    pub(super) item: Fields,
    /// It is as it is at its end.
    pub(super) whole: bool,
    /// Words, by the list they are in and their place in it.
    words: BTreeMap<(List, u64), String>,
    /// What is no list: arguments of a call, code, an input.
    value: String,
}

/// A list of parts in an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum List {
    Text,
    Refusal,
    Reasoning,
    Summary,
}

impl List {
    /// The field of the item, the type of its parts, and the field of a part that holds the words.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            List::Text => ("content", "output_text", "text"),
            List::Refusal => ("content", "refusal", "refusal"),
            List::Reasoning => ("content", "reasoning_text", "text"),
            List::Summary => ("summary", "summary_text", "text"),
        }
    }

    /// The field of an event that says which part is meant.
    pub(super) fn index(self) -> &'static str {
        if self == List::Summary { "summary_index" } else { "content_index" }
    }
}

impl Growing {
    pub(super) fn new(place: u64, item: Fields) -> Self {
        Self { place, item, whole: false, words: BTreeMap::new(), value: String::new() }
    }

    /// An item that came at once.
    pub(super) fn whole(place: u64, item: Fields) -> Self {
        Self { whole: true, ..Self::new(place, item) }
    }

    /// Adds words to a part.
    pub(super) fn add(&mut self, list: List, index: u64, more: &str) {
        self.words.entry((list, index)).or_default().push_str(more);
    }

    /// Adds to what is no list.
    pub(super) fn add_value(&mut self, more: &str) {
        self.value.push_str(more);
    }

    /// The item as far as it came.
    pub(super) fn close(mut self) -> Fields {
        if self.whole {
            return self.item;
        }
        for list in ["content", "summary"] {
            let parts: Vec<Fields> = self.parts(list);
            if !parts.is_empty() {
                self.item.put(list, &parts);
            }
        }
        if !self.value.is_empty() {
            let held = ["arguments", "input", "code"].into_iter().find(|key| self.item.get(key).is_some());
            self.item.put(held.unwrap_or("arguments"), &self.value);
        }
        self.item
    }

    fn parts(&self, field: &str) -> Vec<Fields> {
        let mut parts: Vec<(u64, Fields)> = Vec::new();
        for ((list, index), words) in &self.words {
            let (place, kind, key) = list.names();
            if place == field {
                let mut part = Fields::default();
                part.put("type", kind);
                part.put(key, words);
                parts.push((*index, part));
            }
        }
        parts.sort_by_key(|(index, _)| *index);
        parts.into_iter().map(|(_, part)| part).collect()
    }
}

/// Which list an event adds words to.
pub(super) fn list_of(kind: &str) -> Option<List> {
    match kind {
        "response.output_text.delta" => Some(List::Text),
        "response.refusal.delta" => Some(List::Refusal),
        "response.reasoning_text.delta" => Some(List::Reasoning),
        "response.reasoning_summary_text.delta" => Some(List::Summary),
        _ => None,
    }
}

/// The place of an item that an event names, or the one that came last.
pub(super) fn meant<'a>(items: &'a mut [Growing], event: &Seen<'_>) -> Option<&'a mut Growing> {
    let place = event.index("output_index");
    items.iter_mut().rev().find(|item| place.is_none_or(|place| place == item.place))
}
