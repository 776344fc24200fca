//! Sends one HTTP request and reads the response, with limits on time and size.

use std::error::Error as _;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rath_core::FailureKind;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Proxy, Url};
use tokio::time::Instant;

use crate::api_key::ApiKey;
use crate::prices::PriceSource;
use crate::stream::ReadMore;

/// How long to wait for the end of a response whose answer is complete. A connection is reused only if it was read to
/// the end.
const LINGER: Duration = Duration::from_millis(250);
/// How long to wait for the rest of a stream whose answer is complete but whose closing line or usage has not arrived.
const GRACE: Duration = Duration::from_secs(3);
/// How many bytes are read during [`LINGER`].
const LINGER_BYTES: usize = 64 << 10;
/// Size limit of an error response, in bytes.
const ERROR_LIMIT: usize = 1 << 20;

/// The connection settings of a client.
#[derive(Clone)]
pub(crate) struct Http {
    pub(crate) base_url: String,
    pub(crate) key: Option<ApiKey>,
    /// The header for the API key, and the prefix before the key.
    pub(crate) key_header: (&'static str, &'static str),
    pub(crate) headers: Vec<(String, ApiKey)>,
    pub(crate) priced_as: Option<String>,
    pub(crate) proxy: Option<String>,
    pub(crate) connect: Duration,
    pub(crate) idle: Duration,
    pub(crate) total: Duration,
    pub(crate) limit: usize,
    client: Arc<OnceLock<Result<Client, TransportError>>>,
}

/// A response as far as it was received.
#[derive(Debug, Default)]
pub(crate) struct PartialResponse {
    /// `None` if no response was received.
    pub(crate) status: Option<u16>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Why the response is incomplete. `None` if it is complete.
    pub(crate) error: Option<TransportError>,
}

/// Why a response is incomplete: a failure of the connection, a timeout or a limit.
#[derive(Clone, Debug)]
pub(crate) struct TransportError {
    pub(crate) why: String,
    pub(crate) kind: FailureKind,
    /// Whether the same request may succeed later.
    pub(crate) retry: bool,
}

impl TransportError {
    fn permanent(kind: FailureKind, why: impl Into<String>) -> Self {
        Self { why: why.into(), kind, retry: false }
    }

    fn transient(kind: FailureKind, why: impl Into<String>) -> Self {
        Self { why: why.into(), kind, retry: true }
    }

    /// The failure to report if nothing else is known.
    pub(crate) fn failure(&self) -> rath_core::Failure {
        let Self { why, kind, retry } = self.clone();
        rath_core::Failure { kind, retry, ..rath_core::Failure::permanent(why) }
    }
}

impl Http {
    pub(crate) fn new(base_url: &str, key_header: (&'static str, &'static str)) -> Self {
        Self {
            base_url: base_url.to_owned(),
            key: None,
            key_header,
            headers: Vec::new(),
            priced_as: None,
            proxy: None,
            connect: Duration::from_secs(15),
            idle: Duration::from_secs(300),
            total: Duration::from_secs(3600),
            limit: 64 << 20,
            client: Arc::default(),
        }
    }

    /// Changes settings of the connection. Discards a connection that was made with the old ones.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Self)) {
        change(self);
        self.client = Arc::default();
    }

    /// Identifies the address and the API key, whose requests share a rate limit.
    pub(crate) fn rate_limit_key(&self) -> rath_core::Digest {
        let key = self.key.as_ref().map_or("", ApiKey::expose);
        rath_core::Digest::of(format!("{}\n{key}", self.base_url).as_bytes())
    }

    /// Where the prices of this client's requests come from.
    pub(crate) fn price_source(&self) -> PriceSource<'_> {
        self.priced_as.as_deref().map_or(PriceSource::At(&self.base_url), PriceSource::Named)
    }

    /// Values that must not be stored if the provider echoes them: the key, and values of headers whose names suggest a
    /// secret.
    pub(crate) fn secrets(&self) -> Vec<ApiKey> {
        let names = ["auth", "key", "token", "secret", "cookie"];
        let is_secret = |name: &str| names.iter().any(|part| name.to_ascii_lowercase().contains(part));
        let headers = self.headers.iter().filter(|(name, _)| is_secret(name)).map(|(_, value)| value);
        self.key.iter().chain(headers).flat_map(ApiKey::secrets).collect()
    }

    /// Sends a POST request, without retries. `each` is called with every piece of the response and decides how much
    /// more is read.
    pub(crate) async fn post(
        &self,
        path: &str,
        body: &[u8],
        each: &mut (dyn FnMut(&PartialResponse, &[u8]) -> ReadMore + Send),
    ) -> PartialResponse {
        self.send(path, Some(body), each).await
    }

    /// Sends a GET request, without retries.
    pub(crate) async fn get(
        &self,
        path: &str,
        each: &mut (dyn FnMut(&PartialResponse, &[u8]) -> ReadMore + Send),
    ) -> PartialResponse {
        self.send(path, None, each).await
    }

    async fn send(
        &self,
        path: &str,
        body: Option<&[u8]>,
        each: &mut (dyn FnMut(&PartialResponse, &[u8]) -> ReadMore + Send),
    ) -> PartialResponse {
        let mut response = PartialResponse::default();
        let all = self.exchange(path, body, &mut response, each);
        let error = match tokio::time::timeout(self.total, all).await {
            Ok(done) => done.err(),
            Err(_) => Some(TransportError::transient(
                FailureKind::TimedOut,
                format!("the answer took longer than {:?}", self.total),
            )),
        };
        response.error = error;
        response
    }

    async fn exchange(
        &self,
        path: &str,
        body: Option<&[u8]>,
        received: &mut PartialResponse,
        each: &mut (dyn FnMut(&PartialResponse, &[u8]) -> ReadMore + Send),
    ) -> Result<(), TransportError> {
        let url = self.url(path)?;
        let client = self.client(&url)?;
        let request = match body {
            Some(body) => client.post(url.clone()).body(body.to_vec()),
            None => client.get(url.clone()),
        };
        let request = request.headers(self.headers()?);
        let idle = || {
            TransportError::transient(
                FailureKind::TimedOut,
                format!("no data from {} for {:?}", origin_of(&url), self.idle),
            )
        };
        let result = tokio::time::timeout(self.idle, request.send()).await.map_err(|_| idle())?;
        let mut response = result.map_err(|error| self.connection_error(&url, error))?;
        received.status = Some(response.status().as_u16());
        let header = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        received.headers = response.headers().iter().map(header).collect();
        let limit = if response.status().is_success() { self.limit } else { self.limit.min(ERROR_LIMIT) };
        let (mut read_more, mut lingered, mut deadline) = (ReadMore::Yes, 0, Instant::now() + self.idle);
        loop {
            let piece = match tokio::time::timeout_at(deadline, response.chunk()).await {
                Ok(Ok(Some(piece))) => piece,
                Ok(Ok(None)) => return Ok(()),
                _ if read_more != ReadMore::Yes => return Ok(()),
                Ok(Err(error)) => return Err(self.connection_error(&url, error)),
                Err(_) => return Err(idle()),
            };
            if read_more == ReadMore::No {
                lingered += piece.len();
                if lingered > LINGER_BYTES {
                    return Ok(());
                }
                continue;
            }
            if received.body.len() + piece.len() > limit {
                return Err(TransportError::permanent(
                    FailureKind::Other,
                    format!("the response is longer than {limit} bytes"),
                ));
            }
            let before = std::mem::replace(&mut read_more, each(received, &piece));
            received.body.extend_from_slice(&piece);
            if read_more == ReadMore::Yes || read_more != before {
                let wait = match read_more {
                    ReadMore::Yes => self.idle,
                    ReadMore::Briefly => GRACE.min(self.idle),
                    ReadMore::No => LINGER.min(self.idle),
                };
                deadline = Instant::now() + wait;
            }
        }
    }

    fn url(&self, path: &str) -> Result<Url, TransportError> {
        let bad = || {
            TransportError::permanent(
                FailureKind::Address,
                "the base URL is invalid: it must look like https://api.example.com/v1",
            )
        };
        let mut url = Url::parse(&self.base_url).map_err(|_| bad())?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(bad());
        }
        let whole = format!("{}{path}", url.path().trim_end_matches('/'));
        url.set_path(&whole);
        Ok(url)
    }

    fn headers(&self) -> Result<HeaderMap, TransportError> {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        headers.insert("accept", HeaderValue::from_static("text/event-stream, application/json"));
        for (name, value) in &self.headers {
            let bad = || TransportError::permanent(FailureKind::Setup, format!("invalid header {name:?}"));
            let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
            let mut value = HeaderValue::from_str(value.expose()).map_err(|_| bad())?;
            value.set_sensitive(true);
            headers.insert(parsed, value);
        }
        if let Some(key) = &self.key {
            let (name, before) = self.key_header;
            let value = HeaderValue::from_str(&format!("{before}{}", key.expose()));
            let mut value = value.map_err(|_| {
                TransportError::permanent(
                    FailureKind::Setup,
                    "the API key contains characters that are not allowed in a header",
                )
            })?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }

    fn client(&self, url: &Url) -> Result<&Client, TransportError> {
        let made = self.client.get_or_init(|| {
            let bad = |error: &dyn fmt::Display| {
                TransportError::permanent(FailureKind::Tls, format!("cannot set up HTTPS: {error}"))
            };
            let mut builder = Client::builder()
                .tls_backend_preconfigured(crate::tls::config().map_err(|error| bad(&error))?)
                // A redirect would send the key to another host.
                .redirect(reqwest::redirect::Policy::none())
                .retry(reqwest::retry::never())
                .no_proxy()
                .connect_timeout(self.connect)
                .user_agent(concat!("rath/", env!("CARGO_PKG_VERSION")));
            if let Some(proxy) = self.proxy.as_ref().filter(|_| !is_loopback(url)) {
                let bad = |_| {
                    TransportError::permanent(
                        FailureKind::Setup,
                        "the proxy URL is invalid: it must look like http://proxy.example.com:3128",
                    )
                };
                builder = builder.proxy(Proxy::all(proxy).map_err(bad)?);
            }
            builder.build().map_err(|error| bad(&error))
        });
        made.as_ref().map_err(Clone::clone)
    }

    fn connection_error(&self, url: &Url, error: reqwest::Error) -> TransportError {
        let (is_connect, is_timeout) = (error.is_connect(), error.is_timeout());
        let error = error.without_url();
        let (mut causes, mut is_tls) = (Vec::new(), false);
        let mut cause = error.source();
        while let Some(next) = cause {
            is_tls |= is_tls_error(next);
            let words = next.to_string();
            if causes.last() != Some(&words) {
                causes.push(words);
            }
            cause = next.source();
        }
        let causes = if causes.is_empty() { error.to_string() } else { causes.join(": ") };
        let kind = match (is_tls, is_timeout) {
            (true, _) => FailureKind::Tls,
            (false, true) => FailureKind::TimedOut,
            (false, false) => FailureKind::Unreachable,
        };
        match is_connect || is_tls {
            true => TransportError { why: format!("cannot reach {}: {causes}", origin_of(url)), kind, retry: !is_tls },
            false => TransportError::transient(kind, format!("the connection to {} broke: {causes}", origin_of(url))),
        }
    }
}

/// Whether an error comes from TLS. Retrying does not help then.
fn is_tls_error(error: &(dyn std::error::Error + 'static)) -> bool {
    let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    error.is::<rustls::Error>() || inner.is_some_and(|inner| is_tls_error(inner))
}

/// Whether the host is this machine, which is reached without the proxy.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

/// The origin of a URL, without user name and password, for messages.
fn origin_of(url: &Url) -> String {
    url.origin().ascii_serialization()
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base_url = Url::parse(&self.base_url).map(|url| origin_of(&url)).unwrap_or_default();
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Http")
            .field("base_url", &base_url)
            .field("key", &self.key)
            .field("headers", &headers)
            .field("connect", &self.connect)
            .field("idle", &self.idle)
            .field("total", &self.total)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
