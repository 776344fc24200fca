//! The Anthropic Messages API.
//!
//! [`Anthropic`] is the client. [`encode()`] makes a request. [`Decoder`] decodes a streamed answer, [`decode_whole`]
//! one that was not streamed; both return a [`ProviderTurn`](crate::ProviderTurn). [`write()`] writes a turn as the
//! vendor's JSON.

mod back;
mod block;
mod client;
mod count;
mod decode;
mod write;

pub use client::Anthropic;
pub use decode::{Decoder, decode_whole};
pub use write::{content, write};

use crate::request_input::RequestInput;
use crate::v1;
use crate::v2;

/// The name and version of the current encoder.
pub const ENCODER: &str = "anthropic-messages@2";

/// The name that turns of this API are stored with.
pub(crate) const API: &str = v1::anthropic::API;

/// Encodes a request in the current version.
pub fn encode(request_input: &RequestInput<'_>) -> serde_json::Result<Vec<u8>> {
    v2::anthropic(request_input)
}
