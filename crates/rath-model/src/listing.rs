//! Lists the models of a provider.

use serde::Deserialize;

use crate::failure::ProviderFailure;
use crate::http::Http;
use crate::http_response::HttpResponse;
use crate::stream::ReadMore;

/// The response of all three APIs.
#[derive(Deserialize)]
struct Listing {
    data: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    id: String,
}

/// Asks for the names of the models, in the provider's order.
pub(crate) async fn models(http: &Http, path: &str) -> Result<Vec<String>, rath_core::Failure> {
    let response = http.get(path, &mut |_, _| ReadMore::Yes).await;
    let redacted = |why: String| http.key.as_ref().map_or_else(|| why.clone(), |key| key.redact(why.clone()));
    if let Some(error) = response.error {
        let failure = error.failure();
        return Err(rath_core::Failure { why: redacted(failure.why.clone()), ..failure });
    }
    let status = response.status.unwrap_or_default();
    let http_response = HttpResponse { status, headers: &response.headers, body: &response.body };
    if !(200..300).contains(&status) {
        let failure = rath_core::Failure::from(ProviderFailure::refused(&http_response));
        return Err(rath_core::Failure { why: redacted(failure.why.clone()), ..failure });
    }
    let listing: Listing = serde_json::from_slice(&response.body).map_err(|error| {
        let why = format!("the response is not a list of models: {error}; check the base URL");
        rath_core::Failure { status: Some(status), ..rath_core::Failure::permanent(why) }
    })?;
    // A server may echo the request's headers in its answer.
    let keys: Vec<_> = http.key.iter().chain(http.headers.iter().map(|(_, value)| value)).collect();
    let secrets: Vec<_> = keys.into_iter().flat_map(crate::ApiKey::secrets).collect();
    let redacted = |id: String| secrets.iter().fold(id, |id, secret| secret.redact(id));
    Ok(listing.data.into_iter().map(|listed| redacted(listed.id)).collect())
}
