//! OpenAI Responses.
//!
//! [`Responses`] is the client. [`encode()`] makes a request of what is shown.
//! [`Decoder`] reads a streamed answer, [`decode_whole`] one that came at once; both give a [`Turn`](crate::Turn).
//! [`write()`] writes a turn as the vendor did, [`items`] what of it is sent back.

mod back;
mod client;
mod decode;
mod encode;
mod growing;
mod item;
mod write;

pub use client::Responses;
pub use decode::{Decoder, decode_whole};
pub use encode::{ENCODER, encode};
pub use write::{items, write};
