//! Assembles streamed output items.

use std::collections::BTreeMap;

use crate::fields::{BorrowedFields, Fields};

/// An output item while it is streamed: its first fields, and the deltas so far.
#[derive(Debug)]
pub(super) struct PartialItem {
    /// The item's index in the output. Ids cannot identify items: some gateways change them from event to event.
    pub(super) index: u64,
    /// The fields at the start of the item, or at its end if `whole`.
    pub(super) item: Fields,
    /// Whether `item` has the final fields.
    pub(super) whole: bool,
    /// Streamed text, by list and index in the list.
    words: BTreeMap<(List, u64), String>,
    /// Streamed text outside lists: arguments of a call, code, or an input.
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
    /// The item's field, the type of its parts, and the field of a part that contains the text.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            List::Text => ("content", "output_text", "text"),
            List::Refusal => ("content", "refusal", "refusal"),
            List::Reasoning => ("content", "reasoning_text", "text"),
            List::Summary => ("summary", "summary_text", "text"),
        }
    }

    /// The event field that contains the part's index.
    pub(super) fn index(self) -> &'static str {
        if self == List::Summary { "summary_index" } else { "content_index" }
    }
}

impl PartialItem {
    pub(super) fn new(index: u64, item: Fields) -> Self {
        Self { index, item, whole: false, words: BTreeMap::new(), value: String::new() }
    }

    /// An item that was not streamed.
    pub(super) fn whole(index: u64, item: Fields) -> Self {
        Self { whole: true, ..Self::new(index, item) }
    }

    /// Appends text to a part.
    pub(super) fn add(&mut self, list: List, index: u64, more: &str) {
        self.words.entry((list, index)).or_default().push_str(more);
    }

    /// Appends text outside lists.
    pub(super) fn add_value(&mut self, more: &str) {
        self.value.push_str(more);
    }

    /// The item, as far as it has arrived.
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
            let key = ["arguments", "input", "code"].into_iter().find(|key| self.item.get(key).is_some());
            self.item.put(key.unwrap_or("arguments"), &self.value);
        }
        self.item
    }

    fn parts(&self, field: &str) -> Vec<Fields> {
        let mut parts: Vec<(u64, Fields)> = Vec::new();
        for ((list, index), words) in &self.words {
            let (list_field, kind, key) = list.names();
            if list_field == field {
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

/// The list that an event of this type appends to.
pub(super) fn list_of(kind: &str) -> Option<List> {
    match kind {
        "response.output_text.delta" => Some(List::Text),
        "response.refusal.delta" => Some(List::Refusal),
        "response.reasoning_text.delta" => Some(List::Reasoning),
        "response.reasoning_summary_text.delta" => Some(List::Summary),
        _ => None,
    }
}

/// The item that an event refers to: the one with its index, or the latest if it names none.
pub(super) fn item_of_event<'a>(
    items: &'a mut [PartialItem],
    event: &BorrowedFields<'_>,
) -> Option<&'a mut PartialItem> {
    let index = event.index("output_index");
    items.iter_mut().rev().find(|item| index.is_none_or(|index| index == item.index))
}
