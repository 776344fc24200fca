//! OpenAI Chat Completions, and what others make of them: Ollama, vLLM, llama.cpp, OpenRouter, DeepSeek and more.
//!
//! [`Chat`] is the client. [`encode()`] makes a request of what is shown.
//! [`Decoder`] reads a streamed answer, [`decode_whole`] one that came at once; both give a [`Turn`](crate::Turn).
//! [`write()`] writes a turn as the vendor did, [`message`] what of it is sent back.

mod back;
mod call;
mod client;
mod decode;
mod dialect;
mod grown;
mod message;
mod write;

pub use client::Chat;
pub use decode::{Decoder, decode_whole};
pub use dialect::Dialect;
pub use write::{message, write};

use crate::talk::Talk;
use crate::v2;

/// The request for what is shown.
pub fn encode(talk: &Talk<'_>, dialect: Dialect) -> serde_json::Result<Vec<u8>> {
    v2::chat(talk, dialect)
}
