//! OpenAI Responses.
//!
//! [`Decoder`] reads a streamed answer, [`decode_whole`] one that came at once; both give a [`Turn`](crate::Turn).
//! [`write()`] writes a turn as the vendor did, [`items`] what of it is sent back.

mod decode;
mod growing;
mod item;
mod write;

pub use decode::{Decoder, decode_whole};
pub use write::{items, write};
