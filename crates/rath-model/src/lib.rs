//! Models: clients of model providers, and a scripted model for tests.
//!
//! [`Anthropic`], [`Chat`] and [`Responses`] are clients of providers. A client makes one attempt for each request;
//! retrying is up to the agent. A [`Fallback`] is a chain of models. [`Scripted`] answers from code or from a file, the
//! same way every time, without a key and without a network.
//!
//! Encoders are pure functions from a [`RequestInput`] to the bytes of a request, one for each API; [`encode_with`] finds
//! them by name. Decoders (in [`anthropic`], [`chat`] and [`responses`]) read a response from bytes, split at any point,
//! into a [`ProviderTurn`] that keeps every field of the response, or into a [`ProviderFailure`] that keeps the partial
//! turn. Encoders and decoders do no I/O.
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
//! let mut deltas = Vec::new();
//! for piece in [r#"data: {"choices":[{"delta":{"content":"Hel"#, r#"lo"},"finish_reason":"stop"}]}"#, "\n\n"] {
//!     decoder.feed(piece.as_bytes(), &mut |delta| deltas.push(delta));
//! }
//! assert_eq!(decoder.finish()?.text(), "Hello");
//! assert_eq!(deltas, [rath_core::Delta::Text("Hello".into())]);
//! # Ok::<(), rath_model::ProviderFailure>(())
//! ```

mod answer;
pub mod anthropic;
mod api_key;
pub mod chat;
mod client;
mod encoders;
mod failure;
mod fallback;
mod fields;
mod http;
mod http_response;
mod listing;
mod prices;
mod provider_usage;
mod request_input;
pub mod responses;
pub mod scripted;
mod secret_filter;
mod settings;
pub mod sse;
mod stream;
mod tls;
mod turn;
mod v1;
mod v2;

pub use anthropic::Anthropic;
pub use api_key::ApiKey;
pub use chat::Chat;
pub use encoders::encode_with;
pub use failure::{FailureCause, FailureDetails, ProviderFailure};
pub use fallback::Fallback;
pub use fields::Fields;
pub use http_response::HttpResponse;
pub use provider_usage::ProviderUsage;
pub use request_input::RequestInput;
pub use responses::Responses;
pub use scripted::Scripted;
pub use turn::{BlockContent, ItemPosition, OtherFields, ProviderTurn, StopKind, StopReason, TurnBlock};
