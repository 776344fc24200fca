//! JSON values that are assembled from deltas.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::fields::{BorrowedFields, Fields, is_null, items_of, text_of};

/// A JSON value, assembled from deltas.
#[derive(Debug)]
pub(super) enum DeltaAccumulator {
    /// A value that cannot grow: a number, `true`, `false` or `null`.
    Fixed(Box<RawValue>),
    Text(String),
    List(Vec<DeltaAccumulator>),
    Object(Object),
}

/// A JSON object, assembled from deltas.
#[derive(Debug, Default)]
pub(super) struct Object(Vec<(String, DeltaAccumulator)>);

impl DeltaAccumulator {
    fn of(value: &RawValue) -> Self {
        match value.get().as_bytes().first() {
            Some(b'"') => Self::Text(text_of(value).unwrap_or_default().into_owned()),
            Some(b'[') => Self::List(items_of(value).into_iter().map(Self::of).collect()),
            Some(b'{') => {
                let mut object = Object::default();
                object.add_all(&BorrowedFields::of_value(value));
                Self::Object(object)
            }
            _ => Self::Fixed(value.to_owned()),
        }
    }

    fn add(&mut self, key: &str, value: &RawValue) {
        match (self, value.get().as_bytes().first()) {
            (Self::Text(current), Some(b'"')) => add_text(key, current, &text_of(value).unwrap_or_default()),
            (Self::List(current), Some(b'[')) => items_of(value).into_iter().for_each(|item| add_item(current, item)),
            (Self::Object(current), Some(b'{')) => current.add_all(&BorrowedFields::of_value(value)),
            (current, _) => *current = Self::of(value),
        }
    }
}

impl Object {
    /// Adds a field. A value that is already there grows; `null` changes nothing.
    pub(super) fn add(&mut self, key: &str, value: &RawValue) {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some(_) if is_null(value) => {}
            Some((_, current)) => current.add(key, value),
            None => self.0.push((key.to_owned(), DeltaAccumulator::of(value))),
        }
    }

    fn add_all(&mut self, fields: &BorrowedFields<'_>) {
        fields.iter().for_each(|(key, value)| self.add(key, value));
    }

    /// Reserves the position of a field that is parsed into something else.
    pub(super) fn reserve(&mut self, key: &str) {
        if !self.has(key) {
            self.0.push((key.to_owned(), DeltaAccumulator::Fixed(RawValue::NULL.to_owned())));
        }
    }

    /// Reserves the position of a field that is parsed into something else and whose value was an object, with an empty
    /// object.
    pub(super) fn reserve_object(&mut self, key: &str) {
        self.0.retain(|(name, _)| name != key);
        self.0.push((key.to_owned(), DeltaAccumulator::Object(Object::default())));
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(name, _)| name == key)
    }

    pub(super) fn has_list(&self, key: &str) -> bool {
        self.0.iter().any(|(name, value)| name == key && matches!(value, DeltaAccumulator::List(_)))
    }

    /// Appends an item to a list.
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

    /// Whether a list item continues this one: it has the same index, and no other type.
    fn is_continued_by(&self, item: &BorrowedFields<'_>) -> bool {
        let is = |key: &str, other: Option<&RawValue>| {
            self.0.iter().find(|(name, _)| name == key).and_then(|(_, value)| match value {
                DeltaAccumulator::Fixed(current) => Some(other?.get() == current.get()),
                DeltaAccumulator::Text(current) => Some(text_of(other?)? == *current),
                _ => None,
            })
        };
        is("index", item.get("index")) == Some(true) && is("type", item.get("type")) != Some(false)
    }
}

/// Appends text to text. A label that every delta repeats, such as an id, is kept once.
fn add_text(key: &str, current: &mut String, more: &str) {
    let words = ["text", "content", "summary", "data", "arguments", "input", "thinking", "transcript"];
    let labels = ["id", "type", "role", "name", "format", "object"];
    if labels.contains(&key) {
        more.clone_into(current);
    } else if words.contains(&key) || key.starts_with("reasoning") || current != more {
        current.push_str(more);
    }
}

/// Merges the item into the one that it continues, or appends it.
fn add_item(current: &mut Vec<DeltaAccumulator>, item: &RawValue) {
    let seen = BorrowedFields::of_value(item);
    let known = current.iter_mut().find_map(|old| match old {
        DeltaAccumulator::Object(old) if old.is_continued_by(&seen) => Some(old),
        _ => None,
    });
    match known {
        Some(known) => known.add_all(&seen),
        None => current.push(DeltaAccumulator::of(item)),
    }
}

impl Serialize for DeltaAccumulator {
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
