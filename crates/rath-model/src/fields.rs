//! JSON objects whose fields keep their order and their exact text.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// The fields of a JSON object, in their order, each with its exact JSON text: numbers keep their digits, nested
/// objects keep their order.
///
/// A field that was parsed into something else leaves `null` in its place, so that writing it again puts it at the same
/// position.
#[derive(Clone, Default)]
pub struct Fields(Vec<(String, Box<RawValue>)>);

impl Fields {
    /// Parses an object.
    pub fn parse(json: &str) -> serde_json::Result<Self> {
        serde_json::from_str(json)
    }

    /// Whether the object has no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The fields, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().map(|(key, value)| (key.as_str(), &**value))
    }

    /// The value of a field, verbatim.
    pub fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| &**value)
    }

    /// The value of a field if it is a string.
    pub fn text(&self, key: &str) -> Option<String> {
        self.get(key).and_then(text_of).map(Cow::into_owned)
    }

    /// The value of a field, parsed. `None` if the field is missing or has another type.
    pub fn read<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        self.get(key).and_then(|value| serde_json::from_str(value.get()).ok())
    }

    /// The value of a field if it is an object; otherwise an empty object.
    pub fn object(&self, key: &str) -> Fields {
        self.read(key).unwrap_or_default()
    }

    /// The value of a field that counts tokens; 0 if it is missing or not a number.
    pub(crate) fn count(&self, key: &str) -> u64 {
        self.get(key).map_or(0, count_of)
    }

    /// Sets a field. An existing field keeps its position.
    pub fn set(&mut self, key: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    /// Sets a field to a value that serializes as JSON. Does nothing if the value cannot be serialized.
    pub fn put(&mut self, key: &str, value: &(impl Serialize + ?Sized)) {
        if let Ok(value) = to_raw_value(value) {
            self.set(key, value);
        }
    }

    /// Removes the value of a field and leaves `null` in its place.
    pub fn take(&mut self, key: &str) -> Option<Box<RawValue>> {
        let (_, value) = self.0.iter_mut().find(|(name, _)| name == key)?;
        Some(std::mem::replace(value, RawValue::NULL.to_owned()))
    }

    /// Removes the value of a field if it is a string and leaves `null` in its place. Any other value stays.
    pub fn take_text(&mut self, key: &str) -> Option<String> {
        let text = self.text(key)?;
        self.take(key);
        Some(text)
    }

    /// Removes a field and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Box<RawValue>> {
        let at = self.0.iter().position(|(name, _)| name == key)?;
        Some(self.0.remove(at).1)
    }

    /// The object as JSON text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        self.iter().map(|(key, value)| (key, value.get())).eq(other.iter().map(|(key, value)| (key, value.get())))
    }
}

impl Eq for Fields {}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_json())
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Fields;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Fields::default();
                while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    fields.set(&key, value);
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// The fields of a JSON object, borrowed from its text.
#[derive(Debug, Default)]
pub(crate) struct BorrowedFields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> BorrowedFields<'a> {
    /// Parses an object.
    pub(crate) fn of(json: &'a str) -> serde_json::Result<Self> {
        serde_json::from_str(json)
    }

    /// Parses a value; returns no fields if it is not an object.
    pub(crate) fn of_value(value: &'a RawValue) -> Self {
        Self::of(value.get()).unwrap_or_default()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(key, value)| (&**key, *value))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a field, unless it is `null`. The last one wins if a name occurs twice.
    pub(crate) fn get(&self, key: &str) -> Option<&'a RawValue> {
        let field = self.0.iter().rfind(|(name, _)| name == key);
        field.map(|(_, value)| *value).filter(|value| !is_null(value))
    }

    pub(crate) fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        self.get(key).and_then(text_of)
    }

    pub(crate) fn object(&self, key: &str) -> BorrowedFields<'a> {
        self.get(key).map(Self::of_value).unwrap_or_default()
    }

    /// The value of a field if it is a non-negative integer, such as an index.
    pub(crate) fn index(&self, key: &str) -> Option<u64> {
        self.get(key)?.get().parse().ok()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for BorrowedFields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Key<'a>(#[serde(borrow)] Cow<'a, str>);
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = BorrowedFields<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<BorrowedFields<'de>, A::Error> {
                let mut fields = Vec::with_capacity(8);
                while let Some((Key(key), value)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
                    fields.push((key, value));
                }
                Ok(BorrowedFields(fields))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

pub(crate) fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

/// The items of an array; empty if the value is not an array.
pub(crate) fn items_of(value: &RawValue) -> Vec<&RawValue> {
    serde_json::from_str(value.get()).unwrap_or_default()
}

/// The value as a string, if it is one. An unpaired surrogate becomes a replacement character.
pub(crate) fn text_of(value: &RawValue) -> Option<Cow<'_, str>> {
    let inner = value.get().strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    match serde_json::from_str::<String>(value.get()) {
        Ok(text) => Some(Cow::Owned(text)),
        Err(_) => lossy(value.get()).map(Cow::Owned),
    }
}

/// A value as an integer. Accepts `12.0`; anything that is not a number is 0.
pub(crate) fn count_of(value: &RawValue) -> u64 {
    let number: Option<f64> = value.get().parse().ok();
    value.get().parse().unwrap_or_else(|_| number.map_or(0, |number| number as u64))
}

fn lossy(json: &str) -> Option<String> {
    struct Bytes(Vec<u8>);
    impl<'de> Deserialize<'de> for Bytes {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Reader;
            impl Visitor<'_> for Reader {
                type Value = Bytes;
                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("a string")
                }
                fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
                    Ok(Bytes(bytes.to_vec()))
                }
            }
            deserializer.deserialize_bytes(Reader)
        }
    }
    let Bytes(bytes) = serde_json::from_str(json).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_exact_text() {
        let json = r#"{"z":1.50,"a":{"y":1,"x":12345678901234567890123},"t":"é\u00e9"}"#;
        assert_eq!(Fields::parse(json).unwrap().to_json(), json);
    }

    #[test]
    fn a_field_that_was_taken_keeps_its_position() {
        let mut fields = Fields::parse(r#"{"type":"text","text":"hello","x":1}"#).unwrap();
        assert_eq!(fields.take_text("text").as_deref(), Some("hello"));
        assert_eq!(fields.to_json(), r#"{"type":"text","text":null,"x":1}"#);
        fields.put("text", "bye");
        assert_eq!(fields.to_json(), r#"{"type":"text","text":"bye","x":1}"#);
    }

    #[test]
    fn an_unpaired_surrogate_is_not_an_error() {
        let seen = BorrowedFields::of(r#"{"text":"a\ud83d b"}"#).unwrap();
        assert!(seen.text("text").unwrap().starts_with('a'));
    }
}
