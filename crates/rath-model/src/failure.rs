//! Why there is no whole turn.

use std::time::Duration;

use rath_core::FailureKind;
use serde_json::value::RawValue;

use crate::fields::{Fields, Seen, text_of};
use crate::reply::Reply;
use crate::sse::TooLong;
use crate::turn::Turn;

/// A provider gave no whole turn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.words())]
pub struct Failure {
    /// What went wrong.
    pub cause: Cause,
    /// The HTTP status, where the response was an error as a whole.
    pub status: Option<u16>,
    /// How long the provider asks to wait.
    pub after: Option<Duration>,
    /// Whether it says that the request may be repeated.
    pub should_retry: Option<bool>,
    /// What is said about it.
    pub said: Box<Said>,
    /// What had come of the turn.
    pub partial: Option<Box<Turn>>,
}

/// What is said about a failure, mostly by the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The provider's word for the kind of error.
    pub kind: Option<String>,
    /// Its code for the error.
    pub code: Option<String>,
    /// What happened.
    pub message: String,
    /// The provider's name for the request.
    pub request: Option<String>,
    /// The body, or the event, that said so: as it came.
    pub body: String,
}

/// What went wrong with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The provider answered with an error.
    Refused,
    /// The provider broke the answer off with an error.
    BrokenOff,
    /// The stream ended before the answer did.
    Cut,
    /// What came cannot be read.
    Unreadable,
    /// An event is larger than allowed.
    TooLong,
}

impl Failure {
    fn new(cause: Cause, said: Said) -> Self {
        Self { cause, status: None, after: None, should_retry: None, said: Box::new(said), partial: None }
    }

    /// A response that is an error as a whole.
    pub fn refused(reply: &Reply<'_>) -> Self {
        let body = String::from_utf8_lossy(reply.body).trim().to_owned();
        let list: Vec<Seen<'_>> = serde_json::from_str(&body).unwrap_or_default();
        let mut said = match Seen::of(&body).ok().or(list.into_iter().next()) {
            Some(seen) => Said::of(&seen),
            None => Said { message: short(&body), ..Said::default() },
        };
        said.request = said.request.or_else(|| reply.request().map(str::to_owned));
        said.body = body;
        Self {
            status: Some(reply.status),
            after: reply.after(),
            should_retry: reply.should_retry(),
            ..Self::new(Cause::Refused, said)
        }
    }

    /// A response that is an error although its status is not.
    pub(crate) fn refused_quietly(reply: &Reply<'_>) -> Self {
        Self { status: None, ..Self::refused(reply) }
    }

    /// An event that is an error.
    pub(crate) fn broken_off(data: &str, seen: &Seen<'_>) -> Self {
        Self::new(Cause::BrokenOff, Said { body: data.to_owned(), ..Said::of(seen) })
    }

    /// An answer that says itself that it failed.
    pub(crate) fn failed(answer: &Fields) -> Self {
        let body = answer.object("error").to_json();
        let said = Said::of(&Seen::of(&body).unwrap_or_default());
        Self::new(Cause::BrokenOff, Said { body, ..said })
    }

    pub(crate) fn cut() -> Self {
        let message = "the stream ended before the answer did".into();
        Self::new(Cause::Cut, Said { message, ..Said::default() })
    }

    pub(crate) fn unreadable(data: &[u8], why: &dyn std::fmt::Display) -> Self {
        let (message, body) = (format!("what came cannot be read: {why}"), String::from_utf8_lossy(data).into_owned());
        Self::new(Cause::Unreadable, Said { message, body, ..Said::default() })
    }

    /// Whether the same request may succeed later.
    pub fn retry(&self) -> bool {
        if let Some(said) = self.should_retry {
            return said;
        }
        match self.cause {
            Cause::Cut | Cause::Unreadable => true,
            Cause::TooLong => false,
            Cause::Refused | Cause::BrokenOff => self.passes(),
        }
    }

    /// Whether an error is one that passes by itself.
    fn passes(&self) -> bool {
        let says = |word: &str| [&self.said.kind, &self.said.code].into_iter().flatten().any(|said| said == word);
        if says("insufficient_quota") || says("billing_error") || says("usage_limit_reached") {
            return false;
        }
        let status = self.status.or_else(|| self.said.code.as_deref()?.parse().ok());
        let passing = ["overloaded_error", "api_error", "rate_limit_error", "timeout_error", "server_error"];
        let more = ["rate_limit_exceeded", "server_overloaded", "service_unavailable", "internal_server_error"];
        match status {
            Some(status) => matches!(status, 408 | 409 | 425 | 429 | 500..),
            None => passing.iter().chain(&more).any(|word| says(word)),
        }
    }

    fn words(&self) -> String {
        let message = match self.said.message.is_empty() {
            true => "the provider answered with an error",
            false => &self.said.message,
        };
        match (&self.status, &self.said.kind) {
            (Some(status), Some(kind)) => format!("{message} ({status}, {kind})"),
            (Some(status), None) => format!("{message} ({status})"),
            (None, Some(kind)) => format!("{message} ({kind})"),
            (None, None) => message.to_owned(),
        }
    }
}

impl Said {
    /// What an error object says. Vendors put it under `error`, some as plain words, some put it beside it.
    fn of(seen: &Seen<'_>) -> Self {
        let inner = seen.object("error");
        let find = |key: &str| inner.get(key).or_else(|| seen.get(key).filter(|_| inner.is_empty()));
        let plain = |key: &str| seen.text(key).map(Into::into);
        let message = find("message").map(words_of).or_else(|| plain("error")).or_else(|| plain("detail"));
        Self {
            kind: find("type").map(words_of),
            code: find("code").map(words_of),
            message: message.unwrap_or_default(),
            request: plain("request_id"),
            body: String::new(),
        }
    }
}

impl From<TooLong> for Failure {
    fn from(error: TooLong) -> Self {
        Self::new(Cause::TooLong, Said { message: error.to_string(), ..Said::default() })
    }
}

impl From<Failure> for rath_core::Failure {
    fn from(failure: Failure) -> Self {
        Self {
            why: failure.words(),
            kind: FailureKind::Other,
            retry: failure.retry(),
            after: failure.after,
            status: failure.status,
            partial: failure.partial.map(|turn| turn.text()).filter(|text| !text.is_empty()),
            raw: None,
        }
    }
}

/// A value in words: a string as it is, anything else as JSON.
fn words_of(value: &RawValue) -> String {
    text_of(value).map_or_else(|| value.get().to_owned(), Into::into)
}

/// The beginning of a body that is no JSON: a page of a proxy, mostly.
fn short(body: &str) -> String {
    body.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, body: &str) -> Failure {
        Failure::refused(&Reply::new(status, body.as_bytes()))
    }

    #[test]
    fn every_vendor_words_its_errors_in_its_own_way() {
        let said = |body| {
            let said = refused(400, body).said;
            (said.kind.unwrap_or_default(), said.code.unwrap_or_default(), said.message)
        };
        let is = |kind: &str, code: &str, message: &str| (kind.to_owned(), code.to_owned(), message.to_owned());
        let anthropic = r#"{"type":"error","error":{"type":"not_found_error","message":"no"},"request_id":"r"}"#;
        assert_eq!(said(anthropic), is("not_found_error", "", "no"));
        let openai = r#"{"error":{"message":"no","type":"invalid_request_error","param":null,"code":"bad"}}"#;
        assert_eq!(said(openai), is("invalid_request_error", "bad", "no"));
        assert_eq!(said(r#"{"error":{"code":429,"message":"no"}}"#), is("", "429", "no"));
        assert_eq!(said(r#"{"error":"no"}"#), is("", "", "no"));
        assert_eq!(said(r#"{"object":"error","message":"no","type":"T","code":400}"#), is("T", "400", "no"));
        assert_eq!(said(r#"{"detail":"no"}"#), is("", "", "no"));
        assert_eq!(said(r#"[{"error":{"code":404,"message":"no"}}]"#), is("", "404", "no"));
        assert_eq!(said("<html>"), is("", "", "<html>"));
        assert_eq!(said(""), is("", "", ""));
    }

    #[test]
    fn what_passes_is_tried_again() {
        for (status, body, retry) in [
            (429, r#"{"error":{"type":"rate_limit_error"}}"#, true),
            (429, r#"{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}"#, false),
            (529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, true),
            (503, "", true),
            (400, "{}", false),
            (401, "{}", false),
        ] {
            assert_eq!(refused(status, body).retry(), retry, "{status} {body}");
        }
    }

    #[test]
    fn the_vendors_own_word_on_repeating_counts() {
        let headers = [("x-should-retry".to_owned(), "false".to_owned()), ("request-id".into(), "req_1".into())];
        let failure = Failure::refused(&Reply { status: 500, headers: &headers, body: b"{}" });
        assert!(!failure.retry());
        assert_eq!(failure.said.request.as_deref(), Some("req_1"));
    }
}
