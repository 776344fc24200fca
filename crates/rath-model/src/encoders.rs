//! Encoders by name and version: a stored request is made again by the version that made it.

use crate::chat::Dialect;
use crate::talk::Talk;
use crate::{anthropic, responses, v1, v2};

/// Makes the request for what is shown with the encoder of this name and version, for example `openai-responses@2`;
/// `None` if there is no such encoder.
pub fn encode_with(encoder: &str, talk: &Talk<'_>) -> Option<serde_json::Result<Vec<u8>>> {
    let (api, version) = encoder.rsplit_once('@')?;
    let dialect = || Dialect::ALL.into_iter().find(|dialect| dialect.api() == api);
    Some(match (api, version) {
        (anthropic::API, "1") => v1::anthropic::encode(talk),
        (anthropic::API, "2") => v2::anthropic(talk),
        (responses::API, "1") => v1::responses::encode(talk),
        (responses::API, "2") => v2::responses(talk),
        (_, "1") => v1::chat::encode(talk, dialect()?),
        (_, "2") => v2::chat(talk, dialect()?),
        _ => return None,
    })
}
