//! Encoders by name: a request that is on the record is made again by the one that made it.

use crate::chat::Dialect;
use crate::talk::Talk;
use crate::{anthropic, chat, responses};

/// Makes the request for what is shown with the encoder of this name and version; nothing where it is not known.
pub fn encode_with(encoder: &str, talk: &Talk<'_>) -> Option<serde_json::Result<Vec<u8>>> {
    match encoder {
        anthropic::ENCODER => Some(anthropic::encode(talk)),
        responses::ENCODER => Some(responses::encode(talk)),
        _ => {
            let dialect = Dialect::ALL.into_iter().find(|dialect| dialect.encoder() == encoder)?;
            Some(chat::encode(talk, dialect))
        }
    }
}
