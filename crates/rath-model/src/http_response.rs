//! A complete HTTP response, and what its headers say.

use std::time::Duration;

use jiff::fmt::rfc2822;

/// A complete HTTP response.
#[derive(Clone, Copy, Debug)]
pub struct HttpResponse<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The headers. Names are compared without regard to case.
    pub headers: &'a [(String, String)],
    /// The body.
    pub body: &'a [u8],
}

/// Headers in which vendors send the request id.
const REQUEST: &[&str] = &["request-id", "x-request-id", "apim-request-id", "x-amzn-requestid", "cf-ray"];

impl<'a> HttpResponse<'a> {
    /// A response without headers.
    pub fn new(status: u16, body: &'a [u8]) -> Self {
        Self { status, headers: &[], body }
    }

    /// The value of a header, trimmed.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim())
    }

    /// The vendor's request id.
    pub fn request(&self) -> Option<&'a str> {
        REQUEST.iter().find_map(|name| self.header(name))
    }

    /// How long the vendor asks to wait before the next attempt. A date is compared with the response's own `Date`
    /// header, not with the local clock.
    pub fn after(&self) -> Option<Duration> {
        let exact = self.header("retry-after-ms").and_then(|ms| seconds(ms, 1e-3));
        exact.or_else(|| {
            let after = self.header("retry-after")?;
            seconds(after, 1.0).or_else(|| until(after, self.header("date")?))
        })
    }

    /// Whether the vendor says that the request may be retried. `None` if it does not say.
    pub fn should_retry(&self) -> Option<bool> {
        match self.header("x-should-retry")? {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }
}

fn seconds(number: &str, unit: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()
}

fn until(then: &str, now: &str) -> Option<Duration> {
    let time = |text| rfc2822::parse(text).ok().map(|time| time.timestamp());
    let wait = time(then)?.duration_since(time(now)?);
    Some(Duration::try_from(wait).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(headers: &[(&str, &str)]) -> Option<Duration> {
        let headers: Vec<_> = headers.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        HttpResponse { status: 429, headers: &headers, body: b"" }.after()
    }

    #[test]
    fn retry_after_is_a_number_or_a_date() {
        assert_eq!(after(&[("Retry-After", "2")]), Some(Duration::from_secs(2)));
        assert_eq!(after(&[("Retry-After", "1"), ("Retry-After-Ms", "250")]), Some(Duration::from_millis(250)));
        let date = ("Date", "Wed, 19 Aug 2026 14:34:22 GMT");
        assert_eq!(after(&[date, ("retry-after", "Wed, 19 Aug 2026 14:34:25 GMT")]), Some(Duration::from_secs(3)));
        assert_eq!(after(&[date, ("retry-after", "Wed, 19 Aug 2026 14:34:20 GMT")]), Some(Duration::ZERO));
        assert_eq!(after(&[("retry-after", "soon")]), None);
        assert_eq!(after(&[("retry-after", "-1")]), None);
    }
}
