//! Counts the tokens of a request with the vendor's own counter.

use rath_core::{Encoded, Failure, TokenCount};

use crate::client::ask_whole;
use crate::fields::Fields;
use crate::http::Http;

/// Parameters that the counting endpoint does not accept.
const NOT_ACCEPTED: &[&str] = &["max_tokens", "temperature", "stream"];

/// Asks the vendor for the token count of a request, which is free of charge.
pub(super) async fn count(http: &Http, request: &Encoded) -> Result<TokenCount, Failure> {
    let unreadable = |error: serde_json::Error| Failure::permanent(format!("the token count cannot be read: {error}"));
    let mut fields: Fields = serde_json::from_slice(request.body()).map_err(unreadable)?;
    for key in NOT_ACCEPTED {
        fields.remove(key);
    }
    let response = ask_whole(http, "/v1/messages/count_tokens", fields.to_json().as_bytes()).await?;
    let counted: Fields = serde_json::from_slice(&response).map_err(unreadable)?;
    match counted.read("input_tokens") {
        Some(tokens) => Ok(TokenCount::Counted(tokens)),
        None => Err(Failure::permanent("the provider's response contains no token count")),
    }
}
