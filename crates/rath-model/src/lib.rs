//! Models: what answers when an agent asks.
//!
//! [`Scripted`] answers from code or from a file, always the same way: for tests, examples and demos that run without a
//! key and without a network. Its turns are [`scripted::Turn`]s.
//!
//! ```
//! use rath_model::Scripted;
//! use serde_json::json;
//!
//! let model = Scripted::new("scripted").call("add", json!({"a": 1, "b": 2})).say("Three.");
//! ```

pub mod scripted;
pub mod sse;

pub use scripted::Scripted;
