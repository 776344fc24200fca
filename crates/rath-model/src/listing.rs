//! Which models a provider offers.

use serde::Deserialize;

use crate::failure::Failure;
use crate::http::Http;
use crate::reply::Reply;
use crate::stream::Wants;

/// All three APIs answer in this shape.
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
    let came = http.get(path, &mut |_, _| Wants::More).await;
    let hidden = |why: String| http.key.as_ref().map_or_else(|| why.clone(), |key| key.hide_in(why.clone()));
    if let Some(broken) = came.broken {
        let failure = broken.failure();
        return Err(rath_core::Failure { why: hidden(failure.why.clone()), ..failure });
    }
    let status = came.status.unwrap_or_default();
    let reply = Reply { status, headers: &came.headers, body: &came.body };
    if !(200..300).contains(&status) {
        let failure = rath_core::Failure::from(Failure::refused(&reply));
        return Err(rath_core::Failure { why: hidden(failure.why.clone()), ..failure });
    }
    let listing: Listing = serde_json::from_slice(&came.body).map_err(|error| {
        let why = format!("what came is no list of models: {error}; check the base URL");
        rath_core::Failure { status: Some(status), ..rath_core::Failure::for_good(why) }
    })?;
    Ok(listing.data.into_iter().map(|listed| listed.id).collect())
}
