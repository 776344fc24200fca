//! Anthropic Messages.
//!
//! [`Anthropic`] is the client. [`encode()`] makes a request of what is shown.
//! [`Decoder`] reads a streamed answer, [`decode_whole`] one that came at once; both give a [`Turn`](crate::Turn).
//! [`write()`] writes a turn as the vendor did.

mod back;
mod block;
mod client;
mod count;
mod decode;
mod write;

pub use client::Anthropic;
pub use decode::{Decoder, decode_whole};
pub use write::{content, write};

use crate::talk::Talk;
use crate::v1;
use crate::v2;

/// The encoder's name and version.
pub const ENCODER: &str = "anthropic-messages@2";

/// The name that turns of this API are stored with.
pub(crate) const API: &str = v1::anthropic::API;

/// The request for what is shown.
pub fn encode(talk: &Talk<'_>) -> serde_json::Result<Vec<u8>> {
    v2::anthropic(talk)
}
