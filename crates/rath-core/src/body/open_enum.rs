//! Enums in stored bodies that later versions may extend with new values.
//!
//! A value that this version does not know is kept as `Unknown`: the body stays readable, is written back unchanged,
//! and is shown as `unknown: NAME`. Code that decides based on such a value must assume the safest meaning.

use std::fmt;

use serde::de::{Deserialize, Deserializer};
use serde::{Serialize, Serializer};

/// The maximum length of a name, in bytes.
const LONGEST: usize = 47;

/// The name of a value that this version does not know: 1 to 47 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnknownName {
    bytes: [u8; LONGEST],
    length: u8,
}

impl UnknownName {
    /// The name; `None` when it is empty or too long.
    pub fn new(name: &str) -> Option<Self> {
        let mut bytes = [0; LONGEST];
        bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        (!name.is_empty()).then_some(Self { bytes, length: name.len() as u8 })
    }

    /// The name as it is stored.
    pub fn as_str(&self) -> &str {
        let name = self.bytes.get(..usize::from(self.length)).unwrap_or_default();
        std::str::from_utf8(name).unwrap_or_default()
    }

    /// Checks the name of a value of the enum `of`.
    pub(crate) fn read<E: serde::de::Error>(name: &str, of: &str) -> Result<Self, E> {
        Self::new(name).ok_or_else(|| E::custom(format!("a name in {of} has 1 to {LONGEST} bytes, not {}", name.len())))
    }
}

impl fmt::Debug for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown: {}", self.as_str())
    }
}

/// An unknown name in a rule or a command-line argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotKnown {
    pub(crate) name: String,
    pub(crate) known: &'static [&'static str],
}

impl fmt::Display for NotKnown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not one of {}", self.name, self.known.join(", "))
    }
}

impl std::error::Error for NotKnown {}

/// Reads an optional value in rules and settings, for `#[serde(deserialize_with = …)]`. A name that this version does
/// not know is an error there, because a rule with a misspelt value would never match.
pub fn only_known<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: std::str::FromStr<Err = NotKnown>,
{
    let name = Option::<std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
    name.map(|name| name.parse().map_err(serde::de::Error::custom)).transpose()
}

/// Declares an enum whose values are stored as names. Names that only later versions know become `Unknown`.
///
/// Values are ordered as declared; `Unknown` is the greatest. With `without Display` the enum implements `Display`
/// itself.
macro_rules! open_enum {
    ($(#[$about:meta])* pub enum $enum:ident { $($rest:tt)* }) => {
        $crate::body::open_enum::open_enum! { $(#[$about])* pub enum $enum without Display { $($rest)* } }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    Self::Unknown(name) => name.fmt(f),
                    known => f.pad(known.as_str()),
                }
            }
        }
    };
    ($(#[$about:meta])* pub enum $enum:ident without Display { $($(#[$doc:meta])* $value:ident = $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $enum {
            $($(#[$doc])* $value,)*
            /// A value that only a later version knows.
            Unknown($crate::body::UnknownName),
        }

        impl $enum {
            /// The values that this version knows.
            pub const KNOWN: &'static [Self] = &[$(Self::$value,)*];

            /// The name as it is stored.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$value => $name,)*
                    Self::Unknown(name) => name.as_str(),
                }
            }
        }

        /// Parses the names of known values only, for rules and arguments.
        impl std::str::FromStr for $enum {
            type Err = $crate::body::NotKnown;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                match name {
                    $($name => Ok(Self::$value),)*
                    other => Err($crate::body::NotKnown { name: other.chars().take(80).collect(), known: &[$($name),*] }),
                }
            }
        }

        impl serde::Serialize for $enum {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $enum {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = std::borrow::Cow::<str>::deserialize(deserializer)?;
                Ok(match &*name {
                    $($name => Self::$value,)*
                    other => Self::Unknown($crate::body::UnknownName::read(other, stringify!($enum))?),
                })
            }
        }
    };
}
pub(crate) use open_enum;

/// A value with fields that only a later version knows: its name and its JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownValue {
    name: UnknownName,
    json: serde_json::Value,
}

impl UnknownValue {
    /// The name of the value.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Reads a value whose field `tag` holds its name. A name in `known` is an error: its fields could not be read.
    pub(crate) fn tagged<'de, D: Deserializer<'de>>(
        deserializer: D,
        tag: &str,
        known: &[&str],
    ) -> Result<Self, D::Error> {
        let json = serde_json::Value::deserialize(deserializer)?;
        let name = json.get(tag).and_then(serde_json::Value::as_str).unwrap_or_default();
        Self::named(name, known).map(|name| Self { name, json })
    }

    /// Reads a value that is a name, or an object whose only key is the name. A name in `known` is an error.
    pub(crate) fn keyed<'de, D: Deserializer<'de>>(deserializer: D, known: &[&str]) -> Result<Self, D::Error> {
        let json = serde_json::Value::deserialize(deserializer)?;
        let name = match &json {
            serde_json::Value::String(name) => name,
            serde_json::Value::Object(fields) if fields.len() == 1 => {
                fields.keys().next().map(String::as_str).unwrap_or_default()
            }
            _ => "",
        };
        Self::named(name, known).map(|name| Self { name, json })
    }

    fn named<E: serde::de::Error>(name: &str, known: &[&str]) -> Result<UnknownName, E> {
        match known.contains(&name) {
            true => Err(E::custom(format!("the fields of {name:?} cannot be read"))),
            false => UnknownName::read(name, "a value with fields"),
        }
    }
}

impl fmt::Display for UnknownValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

impl PartialOrd for UnknownValue {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for UnknownValue {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.json.to_string().cmp(&other.json.to_string())
    }
}

impl Serialize for UnknownValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}
