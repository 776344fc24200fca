//! OpenAI Responses.
//!
//! [`Responses`] is the client. [`encode()`] makes a request of what is shown.
//! [`Decoder`] reads a streamed answer, [`decode_whole`] one that came at once; both give a [`Turn`](crate::Turn).
//! [`write()`] writes a turn as the vendor did, [`items`] what of it is sent back.

mod back;
mod client;
mod decode;
mod growing;
mod item;
mod write;

pub use client::Responses;
pub use decode::{Decoder, decode_whole};
pub use write::{items, write};

use crate::talk::Talk;
use crate::v1;
use crate::v2;

/// The encoder's name and version.
pub const ENCODER: &str = "openai-responses@2";

/// The name that turns of this API are stored with.
pub(crate) const API: &str = v1::responses::API;

/// The request for what is shown.
pub fn encode(talk: &Talk<'_>) -> serde_json::Result<Vec<u8>> {
    v2::responses(talk)
}
