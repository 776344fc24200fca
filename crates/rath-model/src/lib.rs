//! Models: what answers when an agent asks.
//!
//! [`Scripted`] answers from code or from a file, always the same way: for tests, examples and demos that run without a
//! key and without a network. Its turns are [`scripted::Turn`]s.
//!
//! [`Anthropic`], [`Chat`] and [`Responses`] are clients of providers: each makes one attempt for every request, and the
//! agent that asks tries again. A [`Fallback`] is a chain of models. Requests are made by pure functions of a [`Talk`],
//! one for each API: [`encode_with`] finds them by name.
//!
//! What providers send is read by [`anthropic`], [`chat`] and [`responses`]: from bytes, in any pieces, to a [`Turn`]
//! that keeps all of it, or to a [`Failure`] with what had come. They do no IO.
//!
//! ```
//! use rath_model::Scripted;
//! use serde_json::json;
//!
//! let model = Scripted::new("scripted").call("add", json!({"a": 1, "b": 2})).say("Three.");
//! ```
//!
//! ```
//! use rath_model::chat::Decoder;
//!
//! let mut decoder = Decoder::new();
//! let mut heard = Vec::new();
//! for piece in [r#"data: {"choices":[{"delta":{"content":"Hel"#, r#"lo"},"finish_reason":"stop"}]}"#, "\n\n"] {
//!     decoder.feed(piece.as_bytes(), &mut |delta| heard.push(delta));
//! }
//! assert_eq!(decoder.finish()?.text(), "Hello");
//! assert_eq!(heard, [rath_core::Delta::Text("Hello".into())]);
//! # Ok::<(), rath_model::Failure>(())
//! ```

mod answer;
pub mod anthropic;
pub mod chat;
mod client;
mod encoders;
mod failure;
mod fallback;
mod fields;
mod hiding;
mod http;
mod key;
mod listing;
mod prices;
mod reply;
pub mod responses;
pub mod scripted;
mod settings;
pub mod sse;
mod stream;
mod talk;
mod tls;
mod turn;
mod used;
mod v1;
mod v2;

pub use anthropic::Anthropic;
pub use chat::Chat;
pub use encoders::encode_with;
pub use failure::{Cause, Failure, Said};
pub use fallback::Fallback;
pub use fields::Fields;
pub use key::Key;
pub use reply::Reply;
pub use responses::Responses;
pub use scripted::Scripted;
pub use talk::Talk;
pub use turn::{Block, Part, Rest, Stop, Turn, Why, Within};
pub use used::Used;
