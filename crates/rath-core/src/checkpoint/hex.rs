//! Keys and signatures as hex digits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::NotAnId;

macro_rules! hex {
    ($(#[$doc:meta])* $name:ident $bytes:literal $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; $bytes]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&const_hex::encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&const_hex::encode(&self.0[..6]))
            }
        }

        impl FromStr for $name {
            type Err = NotAnId;

            fn from_str(text: &str) -> Result<Self, NotAnId> {
                let mut bytes = [0; $bytes];
                let lower = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                match lower && const_hex::decode_to_slice(text, &mut bytes).is_ok() {
                    true => Ok(Self(bytes)),
                    false => Err(NotAnId::new(text, $expected)),
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

hex! {
    /// An Ed25519 public key, written as 64 lower-case hex digits.
    PublicKey 32 "a public key: 64 lower-case hex digits"
}

hex! {
    /// An Ed25519 signature, written as 128 lower-case hex digits.
    Signature 64 "a signature: 128 lower-case hex digits"
}

impl PublicKey {
    /// The first twelve hex digits, for display.
    pub fn short(&self) -> String {
        const_hex::encode(&self.0[..6])
    }
}
