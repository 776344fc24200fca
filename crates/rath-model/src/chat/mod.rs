//! OpenAI Chat Completions, and what others make of them: Ollama, vLLM, llama.cpp, OpenRouter, DeepSeek and more.
//!
//! [`Decoder`] reads a streamed answer, [`decode_whole`] one that came at once; both give a [`Turn`](crate::Turn).
//! [`write()`] writes a turn as the vendor did, [`message`] what of it is sent back.

mod call;
mod decode;
mod grown;
mod message;
mod write;

pub use decode::{Decoder, decode_whole};
pub use write::{message, write};
