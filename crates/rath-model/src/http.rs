//! One request over HTTP, and all that can come of it.

use std::error::Error as _;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rath_core::FailureKind;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Proxy, Url};
use tokio::time::Instant;

use crate::key::Key;
use crate::prices::Seller;
use crate::stream::Wants;

/// How long to wait for the end of a response whose answer is whole: a connection that is read to its end is used again.
const LINGER: Duration = Duration::from_millis(250);
/// How long to wait for the end of a stream whose answer is whole, but which is to be closed by a line of its own.
const GRACE: Duration = Duration::from_secs(3);
/// How much of that end is read.
const LINGER_BYTES: usize = 64 << 10;
/// An error is said in less.
const ERROR_LIMIT: usize = 1 << 20;

/// Where requests go, and how long they may take.
#[derive(Clone)]
pub(crate) struct Http {
    pub(crate) base_url: String,
    pub(crate) key: Option<Key>,
    /// The header for the key, and what stands before it.
    pub(crate) key_header: (&'static str, &'static str),
    pub(crate) headers: Vec<(String, Key)>,
    pub(crate) priced_as: Option<String>,
    pub(crate) proxy: Option<String>,
    pub(crate) connect: Duration,
    pub(crate) idle: Duration,
    pub(crate) total: Duration,
    pub(crate) limit: usize,
    client: Arc<OnceLock<Result<Client, Broken>>>,
}

/// A response, as far as it came.
#[derive(Debug, Default)]
pub(crate) struct Came {
    /// None where nothing came.
    pub(crate) status: Option<u16>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Why it is not whole.
    pub(crate) broken: Option<Broken>,
}

/// Why a response is not whole.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub(crate) why: String,
    pub(crate) kind: FailureKind,
    /// Whether the same request may succeed later.
    pub(crate) retry: bool,
}

impl Broken {
    fn for_good(kind: FailureKind, why: impl Into<String>) -> Self {
        Self { why: why.into(), kind, retry: false }
    }

    fn for_now(kind: FailureKind, why: impl Into<String>) -> Self {
        Self { why: why.into(), kind, retry: true }
    }

    /// The failure that it is, if nothing else is known.
    pub(crate) fn failure(&self) -> rath_core::Failure {
        let Self { why, kind, retry } = self.clone();
        rath_core::Failure { kind, retry, ..rath_core::Failure::for_good(why) }
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

    /// The same with other settings: a connection that was made with the old ones is not used.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Self)) {
        change(self);
        self.client = Arc::default();
    }

    /// Whose prices hold.
    pub(crate) fn seller(&self) -> Seller<'_> {
        self.priced_as.as_deref().map_or(Seller::At(&self.base_url), Seller::Named)
    }

    /// What must not be kept, should somebody send it back: the key, and words in headers that are named like one.
    pub(crate) fn secrets(&self) -> Vec<Key> {
        let names = ["auth", "key", "token", "secret", "cookie"];
        let is_secret = |name: &str| names.iter().any(|part| name.to_ascii_lowercase().contains(part));
        let headers = self.headers.iter().filter(|(name, _)| is_secret(name)).map(|(_, value)| value);
        self.key.iter().chain(headers).flat_map(Key::secrets).collect()
    }

    /// Sends a request, once. `each` is told every piece of the response and says how much more it wants.
    pub(crate) async fn post(
        &self,
        path: &str,
        body: &[u8],
        each: &mut (dyn FnMut(&Came, &[u8]) -> Wants + Send),
    ) -> Came {
        self.send(path, Some(body), each).await
    }

    /// Asks for what is at this path, once.
    pub(crate) async fn get(&self, path: &str, each: &mut (dyn FnMut(&Came, &[u8]) -> Wants + Send)) -> Came {
        self.send(path, None, each).await
    }

    async fn send(
        &self,
        path: &str,
        body: Option<&[u8]>,
        each: &mut (dyn FnMut(&Came, &[u8]) -> Wants + Send),
    ) -> Came {
        let mut came = Came::default();
        let all = self.exchange(path, body, &mut came, each);
        let broken = match tokio::time::timeout(self.total, all).await {
            Ok(done) => done.err(),
            Err(_) => {
                Some(Broken::for_now(FailureKind::TimedOut, format!("the answer took longer than {:?}", self.total)))
            }
        };
        came.broken = broken;
        came
    }

    async fn exchange(
        &self,
        path: &str,
        body: Option<&[u8]>,
        came: &mut Came,
        each: &mut (dyn FnMut(&Came, &[u8]) -> Wants + Send),
    ) -> Result<(), Broken> {
        let url = self.url(path)?;
        let client = self.client(&url)?;
        let request = match body {
            Some(body) => client.post(url.clone()).body(body.to_vec()),
            None => client.get(url.clone()),
        };
        let request = request.headers(self.headers()?);
        let idle =
            || Broken::for_now(FailureKind::TimedOut, format!("nothing came from {} for {:?}", shown(&url), self.idle));
        let sent = tokio::time::timeout(self.idle, request.send()).await.map_err(|_| idle())?;
        let mut response = sent.map_err(|error| self.broken(&url, error))?;
        came.status = Some(response.status().as_u16());
        let header = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        came.headers = response.headers().iter().map(header).collect();
        let limit = if response.status().is_success() { self.limit } else { self.limit.min(ERROR_LIMIT) };
        let (mut wants, mut beyond, mut until) = (Wants::More, 0, Instant::now() + self.idle);
        loop {
            let piece = match tokio::time::timeout_at(until, response.chunk()).await {
                Ok(Ok(Some(piece))) => piece,
                Ok(Ok(None)) => return Ok(()),
                _ if wants != Wants::More => return Ok(()),
                Ok(Err(error)) => return Err(self.broken(&url, error)),
                Err(_) => return Err(idle()),
            };
            if wants == Wants::Nothing {
                beyond += piece.len();
                if beyond > LINGER_BYTES {
                    return Ok(());
                }
                continue;
            }
            if came.body.len() + piece.len() > limit {
                return Err(Broken::for_good(
                    FailureKind::Other,
                    format!("the response holds more than {limit} bytes"),
                ));
            }
            let before = std::mem::replace(&mut wants, each(came, &piece));
            came.body.extend_from_slice(&piece);
            if wants == Wants::More || wants != before {
                let wait = match wants {
                    Wants::More => self.idle,
                    Wants::LittleMore => GRACE.min(self.idle),
                    Wants::Nothing => LINGER.min(self.idle),
                };
                until = Instant::now() + wait;
            }
        }
    }

    fn url(&self, path: &str) -> Result<Url, Broken> {
        let bad = || {
            Broken::for_good(
                FailureKind::Address,
                "the base URL is no address: it should look like https://api.example.com/v1",
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

    fn headers(&self) -> Result<HeaderMap, Broken> {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        headers.insert("accept", HeaderValue::from_static("text/event-stream, application/json"));
        for (name, value) in &self.headers {
            let bad = || Broken::for_good(FailureKind::Setup, format!("the header {name:?} cannot be sent"));
            let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
            let mut value = HeaderValue::from_str(value.expose()).map_err(|_| bad())?;
            value.set_sensitive(true);
            headers.insert(parsed, value);
        }
        if let Some(key) = &self.key {
            let (name, before) = self.key_header;
            let value = HeaderValue::from_str(&format!("{before}{}", key.expose()));
            let mut value =
                value.map_err(|_| Broken::for_good(FailureKind::Setup, "the key holds characters that no key has"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }

    fn client(&self, url: &Url) -> Result<&Client, Broken> {
        let made = self.client.get_or_init(|| {
            let bad = |error: &dyn fmt::Display| Broken::for_good(FailureKind::Tls, format!("no HTTPS here: {error}"));
            let mut builder = Client::builder()
                .tls_backend_preconfigured(crate::tls::config().map_err(|error| bad(&error))?)
                // A redirect would take the key along.
                .redirect(reqwest::redirect::Policy::none())
                .retry(reqwest::retry::never())
                .no_proxy()
                .connect_timeout(self.connect)
                .user_agent(concat!("rath/", env!("CARGO_PKG_VERSION")));
            if let Some(proxy) = self.proxy.as_ref().filter(|_| !is_here(url)) {
                let bad = |_| {
                    Broken::for_good(
                        FailureKind::Setup,
                        "the proxy's address is none: it should look like http://proxy.example.com:3128",
                    )
                };
                builder = builder.proxy(Proxy::all(proxy).map_err(bad)?);
            }
            builder.build().map_err(|error| bad(&error))
        });
        made.as_ref().map_err(Clone::clone)
    }

    fn broken(&self, url: &Url, error: reqwest::Error) -> Broken {
        let (is_connect, is_late) = (error.is_connect(), error.is_timeout());
        let error = error.without_url();
        let (mut causes, mut is_tls) = (Vec::new(), false);
        let mut cause = error.source();
        while let Some(next) = cause {
            is_tls |= is_of_tls(next);
            let words = next.to_string();
            if causes.last() != Some(&words) {
                causes.push(words);
            }
            cause = next.source();
        }
        let causes = if causes.is_empty() { error.to_string() } else { causes.join(": ") };
        let kind = match (is_tls, is_late) {
            (true, _) => FailureKind::Tls,
            (false, true) => FailureKind::TimedOut,
            (false, false) => FailureKind::Unreachable,
        };
        match is_connect || is_tls {
            true => Broken { why: format!("cannot reach {}: {causes}", shown(url)), kind, retry: !is_tls },
            false => Broken::for_now(kind, format!("the connection to {} broke: {causes}", shown(url))),
        }
    }
}

/// Whether an error says that the two sides cannot talk in secret. Asking again will not help.
fn is_of_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    error.is::<rustls::Error>() || inner.is_some_and(|inner| is_of_tls(inner))
}

/// Whether it is this machine, which no proxy leads to.
fn is_here(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

/// An address for a reader: without a name and a password in it.
fn shown(url: &Url) -> String {
    url.origin().ascii_serialization()
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base_url = Url::parse(&self.base_url).map(|url| shown(&url)).unwrap_or_default();
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
