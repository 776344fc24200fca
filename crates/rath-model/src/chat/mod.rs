//! OpenAI Chat Completions and its dialects: Ollama, vLLM, llama.cpp, OpenRouter, DeepSeek and others.
//!
//! [`Chat`] is the client. [`encode()`] makes a request. [`Decoder`] decodes a streamed answer, [`decode_whole`] one
//! that was not streamed; both return a [`ProviderTurn`](crate::ProviderTurn). [`write()`] writes a turn as the
//! vendor's JSON, [`message`] the part of it that is sent back.

mod back;
mod call;
mod client;
mod decode;
mod delta_accumulator;
mod dialect;
mod message;
mod write;

pub use client::Chat;
pub use decode::{Decoder, decode_whole};
pub use dialect::Dialect;
pub(crate) use dialect::schema_support_of_openai;
pub use write::{message, write};

use crate::request_input::RequestInput;
use crate::v2;

/// Encodes a request in the current version.
pub fn encode(request_input: &RequestInput<'_>, dialect: Dialect) -> serde_json::Result<Vec<u8>> {
    v2::chat(request_input, dialect)
}
