//! Finds encoders by name and version. A stored request is rebuilt by the version that made it.

use crate::chat::Dialect;
use crate::request_input::RequestInput;
use crate::{anthropic, responses, v1, v2};

/// Encodes a request with the encoder of this name and version, for example `openai-responses@2`. `None` if there is no
/// such encoder.
pub fn encode_with(encoder: &str, request_input: &RequestInput<'_>) -> Option<serde_json::Result<Vec<u8>>> {
    let (api, version) = encoder.rsplit_once('@')?;
    let dialect = || Dialect::ALL.into_iter().find(|dialect| dialect.api() == api);
    Some(match (api, version) {
        (anthropic::API, "1") => v1::anthropic::encode(request_input),
        (anthropic::API, "2") => v2::anthropic(request_input),
        (responses::API, "1") => v1::responses::encode(request_input),
        (responses::API, "2") => v2::responses(request_input),
        (_, "1") => v1::chat::encode(request_input, dialect()?),
        (_, "2") => v2::chat(request_input, dialect()?),
        _ => return None,
    })
}
