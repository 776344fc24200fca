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
mod encode;
mod write;

pub use client::Anthropic;
pub use decode::{Decoder, decode_whole};
pub use encode::{ENCODER, encode};
pub use write::{content, write};
