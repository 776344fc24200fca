//! Why a provider gave no complete turn.

use std::time::Duration;

use rath_core::FailureKind;
use serde_json::value::RawValue;

use crate::fields::{BorrowedFields, Fields, text_of};
use crate::http_response::HttpResponse;
use crate::sse::EventTooLong;
use crate::turn::ProviderTurn;

/// A provider gave no complete turn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.describe())]
pub struct ProviderFailure {
    /// What went wrong.
    pub cause: FailureCause,
    /// The HTTP status, if the whole response is an error. `None` for an error inside a successful response.
    pub status: Option<u16>,
    /// How long the provider asks to wait before the next attempt.
    pub after: Option<Duration>,
    /// Whether the provider says that the request may be retried. `None` if it does not say.
    pub should_retry: Option<bool>,
    /// The provider's description of the error.
    pub said: Box<FailureDetails>,
    /// The part of the turn that arrived before the failure.
    pub partial: Option<Box<ProviderTurn>>,
}

/// The description of a failure, usually from the provider's error object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureDetails {
    /// The provider's error type, such as `rate_limit_error`.
    pub kind: Option<String>,
    /// The provider's error code.
    pub code: Option<String>,
    /// The error message.
    pub message: String,
    /// The provider's request id.
    pub request: Option<String>,
    /// The response body or the stream event that reported the error, verbatim.
    pub body: String,
}

/// What went wrong with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureCause {
    /// The provider answered with an error.
    Refused,
    /// The provider ended a started answer with an error.
    Interrupted,
    /// The stream ended before the answer was complete.
    Truncated,
    /// The response is not valid JSON or UTF-8.
    Unreadable,
    /// A stream event is larger than the limit.
    TooLong,
}

impl ProviderFailure {
    fn new(cause: FailureCause, said: FailureDetails) -> Self {
        Self { cause, status: None, after: None, should_retry: None, said: Box::new(said), partial: None }
    }

    /// A response that is an error as a whole.
    pub fn refused(reply: &HttpResponse<'_>) -> Self {
        let body = String::from_utf8_lossy(reply.body).trim().to_owned();
        let list: Vec<BorrowedFields<'_>> = serde_json::from_str(&body).unwrap_or_default();
        let mut said = match BorrowedFields::of(&body).ok().or(list.into_iter().next()) {
            Some(seen) => FailureDetails::of(&seen),
            None => FailureDetails { message: short(&body), ..FailureDetails::default() },
        };
        said.request = said.request.or_else(|| reply.request().map(str::to_owned));
        said.body = body;
        Self {
            status: Some(reply.status),
            after: reply.after(),
            should_retry: reply.should_retry(),
            ..Self::new(FailureCause::Refused, said)
        }
    }

    /// A response with a successful status whose body is an error.
    pub(crate) fn refused_quietly(reply: &HttpResponse<'_>) -> Self {
        Self { status: None, ..Self::refused(reply) }
    }

    /// A stream event that reports an error.
    pub(crate) fn interrupted(data: &str, seen: &BorrowedFields<'_>) -> Self {
        Self::new(FailureCause::Interrupted, FailureDetails { body: data.to_owned(), ..FailureDetails::of(seen) })
    }

    /// A complete response whose own status is `failed`.
    pub(crate) fn failed(answer: &Fields) -> Self {
        let body = answer.object("error").to_json();
        let said = FailureDetails::of(&BorrowedFields::of(&body).unwrap_or_default());
        Self::new(FailureCause::Interrupted, FailureDetails { body, ..said })
    }

    pub(crate) fn truncated() -> Self {
        let message = "the stream ended before the answer did".into();
        Self::new(FailureCause::Truncated, FailureDetails { message, ..FailureDetails::default() })
    }

    pub(crate) fn unreadable(data: &[u8], why: &dyn std::fmt::Display) -> Self {
        let (message, body) =
            (format!("the response cannot be read: {why}"), String::from_utf8_lossy(data).into_owned());
        Self::new(FailureCause::Unreadable, FailureDetails { message, body, ..FailureDetails::default() })
    }

    /// Whether the same request may succeed later.
    pub fn retry(&self) -> bool {
        if let Some(said) = self.should_retry {
            return said;
        }
        match self.cause {
            FailureCause::Truncated | FailureCause::Unreadable => true,
            FailureCause::TooLong => false,
            FailureCause::Refused | FailureCause::Interrupted => self.is_temporary(),
        }
    }

    /// Whether the error is of a kind that goes away by itself, such as a rate limit.
    fn is_temporary(&self) -> bool {
        let says = |word: &str| [&self.said.kind, &self.said.code].into_iter().flatten().any(|said| said == word);
        if says("insufficient_quota") || says("billing_error") || says("usage_limit_reached") {
            return false;
        }
        let status = self.status.or_else(|| self.said.code.as_deref()?.parse().ok());
        let temporary = ["overloaded_error", "api_error", "rate_limit_error", "timeout_error", "server_error"];
        let more = ["rate_limit_exceeded", "server_overloaded", "service_unavailable", "internal_server_error"];
        match status {
            Some(status) => matches!(status, 408 | 409 | 425 | 429 | 500..),
            None => temporary.iter().chain(&more).any(|word| says(word)),
        }
    }

    fn describe(&self) -> String {
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

impl FailureDetails {
    /// Parses an error object. Most vendors put it under `error`, some make `error` a plain string, and some put its
    /// fields at the top level.
    fn of(seen: &BorrowedFields<'_>) -> Self {
        let inner = seen.object("error");
        let find = |key: &str| inner.get(key).or_else(|| seen.get(key).filter(|_| inner.is_empty()));
        let plain = |key: &str| seen.text(key).map(Into::into);
        let message = find("message").map(string_or_json).or_else(|| plain("error")).or_else(|| plain("detail"));
        Self {
            kind: find("type").map(string_or_json),
            code: find("code").map(string_or_json),
            message: message.unwrap_or_default(),
            request: plain("request_id"),
            body: String::new(),
        }
    }
}

impl From<EventTooLong> for ProviderFailure {
    fn from(error: EventTooLong) -> Self {
        Self::new(FailureCause::TooLong, FailureDetails { message: error.to_string(), ..FailureDetails::default() })
    }
}

impl From<ProviderFailure> for rath_core::Failure {
    fn from(failure: ProviderFailure) -> Self {
        Self {
            why: failure.describe(),
            kind: FailureKind::Other,
            retry: failure.retry(),
            after: failure.after,
            status: failure.status,
            partial: failure.partial.map(|turn| turn.text()).filter(|text| !text.is_empty()),
            raw: None,
        }
    }
}

/// A string value as it is, any other value as JSON.
fn string_or_json(value: &RawValue) -> String {
    text_of(value).map_or_else(|| value.get().to_owned(), Into::into)
}

/// The first 300 characters of a body that is not JSON: usually an error page of a proxy.
fn short(body: &str) -> String {
    body.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, body: &str) -> ProviderFailure {
        ProviderFailure::refused(&HttpResponse::new(status, body.as_bytes()))
    }

    #[test]
    fn error_objects_of_all_vendors_are_understood() {
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
    fn only_temporary_errors_are_retried() {
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
    fn the_should_retry_header_overrides_the_status() {
        let headers = [("x-should-retry".to_owned(), "false".to_owned()), ("request-id".into(), "req_1".into())];
        let failure = ProviderFailure::refused(&HttpResponse { status: 500, headers: &headers, body: b"{}" });
        assert!(!failure.retry());
        assert_eq!(failure.said.request.as_deref(), Some("req_1"));
    }
}
