//! How many tokens a request has, by the vendor's own count.

use rath_core::{Encoded, Failure, TokenCount};

use crate::client::ask_whole;
use crate::fields::Fields;
use crate::http::Http;

/// What is asked for besides what is read, which is not counted.
const NOT_READ: &[&str] = &["max_tokens", "temperature", "stream"];

/// Asks for the count, which costs nothing.
pub(super) async fn count(http: &Http, request: &Encoded) -> Result<TokenCount, Failure> {
    let unreadable = |error: serde_json::Error| Failure::for_good(format!("what was counted cannot be read: {error}"));
    let mut fields: Fields = serde_json::from_slice(request.body()).map_err(unreadable)?;
    for key in NOT_READ {
        fields.remove(key);
    }
    let came = ask_whole(http, "/v1/messages/count_tokens", fields.to_json().as_bytes()).await?;
    let counted: Fields = serde_json::from_slice(&came).map_err(unreadable)?;
    match counted.read("input_tokens") {
        Some(tokens) => Ok(TokenCount::Counted(tokens)),
        None => Err(Failure::for_good("the provider was asked for a count and gave none")),
    }
}
