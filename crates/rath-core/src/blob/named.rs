//! Finds the blob references in the JSON of a body without building a `serde_json::Value`. Bodies may be untrusted, and
//! a `Value` needs many times the memory of its text. A text that this parser rejects is not accepted as a body,
//! because it could contain references that are not found.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::BlobRef;

/// All blob references in a body of any kind, known or unknown.
pub fn references(body: &[u8]) -> Vec<BlobRef> {
    static DIGEST: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"digest\""));
    static ESCAPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\\u"));
    // Most bodies contain no reference, and a substring search is cheaper than parsing.
    let has_escape = || memchr::memchr(b'\\', body).is_some() && ESCAPE.find(body).is_some();
    if DIGEST.find(body).is_none() && !has_escape() {
        return Vec::new();
    }
    read(body).unwrap_or_default()
}

/// Whether a body is a JSON object that every parser accepts: without numbers beyond the range of a double, without
/// unpaired surrogates, and nested at most 127 levels deep.
pub(crate) fn is_object(body: &[u8]) -> bool {
    body.first() == Some(&b'{') && read(body).is_ok()
}

fn read(body: &[u8]) -> serde_json::Result<Vec<BlobRef>> {
    let mut found = Vec::new();
    let mut json = serde_json::Deserializer::from_slice(body);
    Search(&mut found).deserialize(&mut json)?;
    json.end()?;
    Ok(found)
}

/// Collects the references in a JSON value.
struct Search<'f>(&'f mut Vec<BlobRef>);

/// A field value, as far as it matters for a reference.
enum Part<'de> {
    Text(Cow<'de, str>),
    Number(u64),
    Other,
}

impl<'de> DeserializeSeed<'de> for Search<'_> {
    type Value = Part<'de>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Part<'de>, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Search<'_> {
    type Value = Part<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Part<'de>, A::Error> {
        let (mut digest, mut bytes, mut media_type, mut is_more) = (None, None, None, false);
        // If a key occurs twice, the last value counts.
        let mut inside: BTreeMap<Cow<'de, str>, Vec<BlobRef>> = BTreeMap::new();
        while let Some(name) = object.next_key_seed(Name)? {
            let mut found = Vec::new();
            let part = object.next_value_seed(Search(&mut found))?;
            match (&*name, part) {
                ("digest", Part::Text(text)) => digest = text.parse().ok(),
                ("digest", _) => digest = None,
                ("bytes", Part::Number(number)) => bytes = Some(number),
                ("bytes", _) => bytes = None,
                ("media_type", Part::Text(text)) => media_type = Some(text.into_owned()),
                ("media_type", _) => media_type = None,
                _ => is_more = true,
            }
            match found.is_empty() {
                true => drop(inside.remove(&name)),
                false => drop(inside.insert(name, found)),
            }
        }
        match (digest, bytes, media_type, is_more) {
            (Some(digest), Some(bytes), Some(media_type), false) => self.0.push(BlobRef { digest, bytes, media_type }),
            _ => self.0.extend(inside.into_values().flatten()),
        }
        Ok(Part::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Part<'de>, A::Error> {
        while list.next_element_seed(Search(self.0))?.is_some() {}
        Ok(Part::Other)
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Part<'de>, E> {
        Ok(Part::Text(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Part<'de>, E> {
        Ok(Part::Text(text.to_owned().into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Part<'de>, E> {
        Ok(Part::Number(number))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Part<'de>, E> {
        Ok(Part::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Part<'de>, E> {
        Ok(Part::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Part<'de>, E> {
        Ok(Part::Other)
    }

    fn visit_unit<E>(self) -> Result<Part<'de>, E> {
        Ok(Part::Other)
    }
}

/// Reads the name of a field.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Cow<'de, str>, D::Error> {
        from.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(name.into())
    }

    fn visit_str<E>(self, name: &str) -> Result<Cow<'de, str>, E> {
        Ok(name.to_owned().into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize as _;
    use serde_json::{Map, Value, json};

    use super::*;

    /// Finds the same blobs as the parser, by way of a `Value`.
    fn in_values(value: Value, found: &mut Vec<BlobRef>) {
        match value {
            Value::Array(items) => items.into_iter().for_each(|item| in_values(item, found)),
            Value::Object(fields) => match BlobRef::deserialize(Value::Object(fields.clone())) {
                Ok(blob) => found.push(blob),
                Err(_) => fields.into_iter().for_each(|(_, value)| in_values(value, found)),
            },
            _ => {}
        }
    }

    fn slowly(body: &[u8]) -> Vec<BlobRef> {
        let mut found = Vec::new();
        if let Ok(value) = serde_json::from_slice(body) {
            in_values(value, &mut found);
        }
        found
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let digest = prop_oneof![
            "[0-9a-f]{64}".prop_map(Value::from),
            "[0-9A-F]{64}".prop_map(Value::from),
            "[0-9a-f]{60,66}".prop_map(Value::from),
            any::<u64>().prop_map(Value::from)
        ];
        let bytes = prop_oneof![
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from)
        ];
        let blob = (digest, bytes, "\\PC{0,8}").prop_map(
            |(digest, bytes, media_type)| json!({"digest": digest, "bytes": bytes, "media_type": media_type}),
        );
        let leaf = prop_oneof![
            4 => blob,
            1 => any::<bool>().prop_map(Value::from),
            1 => Just(Value::Null),
            1 => "\\PC{0,8}".prop_map(Value::from)
        ];
        let name = || prop_oneof![Just("digest".to_owned()), Just("bytes".to_owned()), "[a-c\"\\\\]{0,2}"];
        leaf.prop_recursive(5, 40, 5, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::vec((name(), inner), 0..5)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>()))
            ]
        })
    }

    proptest! {
        #[test]
        fn the_references_are_those_found_in_a_parsed_value(value in any_value(), (at, other) in (any::<prop::sample::Index>(), any::<u8>())) {
            let mut body = serde_json::to_vec(&json!({"in": value})).unwrap();
            prop_assert_eq!(references(&body), slowly(&body));
            let escaped = String::from_utf8(body.clone()).unwrap().replace("digest", "d\\u0069gest");
            prop_assert_eq!(references(escaped.as_bytes()), slowly(&body));
            let at = at.index(body.len());
            body[at] = other;
            prop_assert_eq!(references(&body), slowly(&body), "{}", String::from_utf8_lossy(&body));
        }
    }

    #[test]
    fn the_last_value_of_a_repeated_key_counts() {
        let blob = |bytes: u64| format!(r#"{{"digest":"{}","bytes":{bytes},"media_type":"x"}}"#, "a".repeat(64));
        for body in [
            format!(r#"{{"a":{},"b":{},"a":{}}}"#, blob(1), blob(2), blob(3)),
            format!(r#"{{"a":{},"a":[]}}"#, blob(1)),
            format!(r#"{{"a":{{"digest":1,{}}}"#, &blob(4)[1..]),
            format!(r#"{{"a":{},"digest":2}}}}"#, blob(5).trim_end_matches('}')),
        ] {
            assert_eq!(references(body.as_bytes()), slowly(body.as_bytes()), "{body}");
        }
        assert_eq!(references(format!(r#"{{"a":{},"a":{}}}"#, blob(1), blob(3)).as_bytes())[0].bytes, 3);
    }
}
