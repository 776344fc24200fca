//! The one owner of randomness: salts, session ids and names.

use rand::RngExt as _;
use uuid::Builder;

use crate::clock::Time;
use crate::id::SessionId;

/// The salt of a record's body.
pub type Salt = [u8; 16];

/// A fresh salt from the thread's cryptographic generator.
#[allow(clippy::disallowed_methods, reason = "this is the owner")]
pub(crate) fn salt() -> Salt {
    rand::rng().random()
}

/// A name that nobody else has: 32 random hex digits.
#[allow(clippy::disallowed_methods, reason = "this is the owner")]
pub fn fresh_name() -> String {
    const_hex::encode(rand::rng().random::<[u8; 16]>())
}

/// A fresh session id: a UUIDv7 born at `time`.
#[allow(clippy::disallowed_methods, reason = "this is the owner")]
pub(crate) fn session_id(time: Time) -> SessionId {
    let random: [u8; 10] = rand::rng().random();
    SessionId(Builder::from_unix_timestamp_millis(time.0 / 1000, &random).into_uuid())
}
