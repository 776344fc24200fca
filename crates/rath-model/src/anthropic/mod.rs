//! Anthropic Messages.
//!
//! [`Decoder`] reads a streamed answer, [`decode_whole`] one that came at once; both give a [`Turn`](crate::Turn).
//! [`write()`] writes a turn as the vendor did.

mod block;
mod decode;
mod write;

pub use decode::{Decoder, decode_whole};
pub use write::{content, write};
