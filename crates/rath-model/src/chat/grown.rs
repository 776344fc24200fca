//! A JSON value that grows with each delta.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::fields::{Fields, Seen, is_null, items_of, text_of};

/// A value that came in pieces.
#[derive(Debug)]
pub(super) enum Grown {
    /// What does not grow: numbers, `true`, `false`, `null`.
    Fixed(Box<RawValue>),
    Text(String),
    List(Vec<Grown>),
    Object(Object),
}

/// An object that came in pieces.
#[derive(Debug, Default)]
pub(super) struct Object(Vec<(String, Grown)>);

impl Grown {
    fn of(value: &RawValue) -> Self {
        match value.get().as_bytes().first() {
            Some(b'"') => Self::Text(text_of(value).unwrap_or_default().into_owned()),
            Some(b'[') => Self::List(items_of(value).into_iter().map(Self::of).collect()),
            Some(b'{') => {
                let mut object = Object::default();
                object.add_all(&Seen::of_value(value));
                Self::Object(object)
            }
            _ => Self::Fixed(value.to_owned()),
        }
    }

    fn add(&mut self, key: &str, value: &RawValue) {
        match (self, value.get().as_bytes().first()) {
            (Self::Text(held), Some(b'"')) => add_text(key, held, &text_of(value).unwrap_or_default()),
            (Self::List(held), Some(b'[')) => items_of(value).into_iter().for_each(|item| add_item(held, item)),
            (Self::Object(held), Some(b'{')) => held.add_all(&Seen::of_value(value)),
            (held, _) => *held = Self::of(value),
        }
    }
}

impl Object {
    /// Takes a field: what is there already grows; `null` says nothing.
    pub(super) fn add(&mut self, key: &str, value: &RawValue) {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some(_) if is_null(value) => {}
            Some((_, held)) => held.add(key, value),
            None => self.0.push((key.to_owned(), Grown::of(value))),
        }
    }

    fn add_all(&mut self, fields: &Seen<'_>) {
        fields.iter().for_each(|(key, value)| self.add(key, value));
    }

    /// Keeps a place for a field that is read into something else.
    pub(super) fn keep_place(&mut self, key: &str) {
        if !self.has(key) {
            self.0.push((key.to_owned(), Grown::Fixed(RawValue::NULL.to_owned())));
        }
    }

    /// Keeps a place for an object that is read into something else: an empty one.
    pub(super) fn keep_place_of_object(&mut self, key: &str) {
        self.0.retain(|(name, _)| name != key);
        self.0.push((key.to_owned(), Grown::Object(Object::default())));
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(name, _)| name == key)
    }

    pub(super) fn has_list(&self, key: &str) -> bool {
        self.0.iter().any(|(name, value)| name == key && matches!(value, Grown::List(_)))
    }

    /// Puts an item at the end of a list.
    pub(super) fn push(&mut self, key: &str, item: &impl Serialize) {
        if let Ok(list) = to_raw_value(&[item]) {
            self.add(key, &list);
        }
    }

    pub(super) fn close(&self) -> Fields {
        let mut fields = Fields::default();
        for (key, value) in &self.0 {
            fields.put(key, value);
        }
        fields
    }

    /// Whether an item is more of this one: it has the same number, and is no other type of thing.
    fn goes_on_with(&self, item: &Seen<'_>) -> bool {
        let is = |key: &str, other: Option<&RawValue>| {
            self.0.iter().find(|(name, _)| name == key).and_then(|(_, value)| match value {
                Grown::Fixed(held) => Some(other?.get() == held.get()),
                Grown::Text(held) => Some(text_of(other?)? == *held),
                _ => None,
            })
        };
        is("index", item.get("index")) == Some(true) && is("type", item.get("type")) != Some(false)
    }
}

/// Words are added to words; a label that is sent along with every piece stays one.
fn add_text(key: &str, held: &mut String, more: &str) {
    let words = ["text", "content", "summary", "data", "arguments", "input", "thinking", "transcript"];
    let labels = ["id", "type", "role", "name", "format", "object"];
    if labels.contains(&key) {
        more.clone_into(held);
    } else if words.contains(&key) || key.starts_with("reasoning") || held != more {
        held.push_str(more);
    }
}

/// An item goes on with one that is there already, or is new.
fn add_item(held: &mut Vec<Grown>, item: &RawValue) {
    let seen = Seen::of_value(item);
    let known = held.iter_mut().find_map(|old| match old {
        Grown::Object(old) if old.goes_on_with(&seen) => Some(old),
        _ => None,
    });
    match known {
        Some(known) => known.add_all(&seen),
        None => held.push(Grown::of(item)),
    }
}

impl Serialize for Grown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(value) => value.serialize(serializer),
            Self::Text(text) => text.serialize(serializer),
            Self::List(list) => list.serialize(serializer),
            Self::Object(Object(fields)) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (key, value) in fields {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}
