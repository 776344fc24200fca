//! Checks which providers answer, and explains what is wrong with those that do not.

use futures_util::future::join_all;
use rath::model::{Failure, FailureKind};
use rath::providers::{KeyOrigin, Provider};
use serde::Serialize;

use crate::commands::models;
use crate::output::{self, Page, style};
use crate::providers::Providers;
use crate::settings::Settings;

/// The results of asking all providers.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct ProviderChecks(Vec<ProviderCheck>);

/// The result of asking one provider for its models.
#[derive(Serialize)]
struct ProviderCheck {
    provider: String,
    /// Where its key was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<KeyOrigin>,
    #[serde(flatten)]
    result: CheckResult,
}

/// The result of a check.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
enum CheckResult {
    /// The provider listed its models.
    Answers { models: usize },
    /// No key was found, so the provider was not asked.
    NoKey { help: String },
    /// A server on this machine is not running.
    NotRunning,
    /// The provider did not list its models.
    Wrong { what: Problem, why: String, help: String },
}

/// The kind of problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Problem {
    KeyRefused,
    Unreachable,
    WrongAddress,
    Tls,
    TimeOut,
    /// The provider answered with another error.
    ProviderError,
    /// The configuration of the provider is invalid.
    Setup,
}

impl Problem {
    fn of(failure: &Failure) -> Self {
        match (failure.status, failure.kind) {
            (Some(401 | 403), _) => Self::KeyRefused,
            // The address answered with something other than a list of models, with a redirect, or with "not found".
            (Some(200..=399 | 404 | 405 | 410), _) | (None, FailureKind::Address) => Self::WrongAddress,
            (Some(_), _) => Self::ProviderError,
            (None, FailureKind::TimedOut) => Self::TimeOut,
            (None, FailureKind::Tls) => Self::Tls,
            (None, FailureKind::Unreachable) => Self::Unreachable,
            (None, _) if failure.retry => Self::Unreachable,
            (None, _) => Self::Setup,
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::KeyRefused => "key refused",
            Self::Unreachable => "unreachable",
            Self::WrongAddress => "wrong address: no API there",
            Self::Tls => "TLS error",
            Self::TimeOut => "timed out",
            Self::ProviderError => "the provider returned an error",
            Self::Setup => "invalid configuration",
        }
    }

    /// How to fix it.
    fn help(self, provider: &Provider<'_>, key: Option<&KeyOrigin>) -> String {
        let name = &provider.name;
        let address = || match provider.address() {
            Some(url) => format!("its address is set to {url}"),
            None => "its default address is used".into(),
        };
        match (self, key) {
            (Self::KeyRefused, Some(KeyOrigin::Variable { name })) => format!("set {name} to a valid key"),
            (Self::KeyRefused, Some(KeyOrigin::Configuration { place })) => format!("replace the key at {place}"),
            (Self::KeyRefused, _) => format!("store another key with `rath auth set {name}`"),
            (Self::Unreachable, _) => format!("check the network and the host name; {}", address()),
            (Self::WrongAddress, _) => {
                format!("`base_url` in [providers.{name}] must be the address before the API's own path; {}", address())
            }
            (Self::Tls, _) => format!("check this machine's clock and certificates; {}", address()),
            (Self::TimeOut, _) => format!("try again; a firewall may drop the packets; {}", address()),
            (Self::ProviderError, _) => "try again later, or look at the provider's status page".into(),
            (Self::Setup, _) => format!("check [providers.{name}]: `rath config list --origin`"),
        }
    }
}

impl ProviderChecks {
    /// Asks all providers concurrently.
    pub(super) async fn run(settings: &Settings) -> anyhow::Result<Self> {
        let providers = Providers::new(settings)?.all();
        Ok(Self(join_all(providers.iter().map(ask)).await))
    }

    pub(super) fn is_well(&self) -> bool {
        !self.0.iter().any(|asked| matches!(asked.result, CheckResult::Wrong { .. }))
    }

    pub(super) fn describe(&self, page: &mut Page) {
        for (at, asked) in self.0.iter().enumerate() {
            let label = if at == 0 { "providers" } else { "" };
            let name = output::escaped(&asked.provider);
            let from =
                asked.key.as_ref().map(|from| output::escaped(&format!(", key from {from}"))).unwrap_or_default();
            let mut line = |text: String| page.line(format_args!("{label:<12} {text}"));
            match &asked.result {
                CheckResult::Answers { models } => {
                    let models = output::count(*models as u64, "model");
                    line(format!("{} {name}: {models}{from}", style::good("✓")));
                }
                CheckResult::NoKey { help } => line(style::dim(format!("· {name}: no key; {help}"))),
                CheckResult::NotRunning => line(style::dim(format!("· {name}: not running on this machine"))),
                CheckResult::Wrong { what, why, help } => {
                    line(format!("{} {name}: {}{from}", style::bad("✗"), what.describe()));
                    page.line(format_args!("{:<12}   {}", "", output::escaped(why)));
                    page.line(format_args!("{:<12}   help: {}", "", output::escaped(help)));
                }
            }
        }
        if self.0.iter().all(|asked| !matches!(asked.result, CheckResult::Answers { .. } | CheckResult::Wrong { .. })) {
            let help = "no model is available: store a key with `rath auth set anthropic`, or start a local server with `ollama serve`";
            page.line(format_args!("{:<12} {} {help}", "", style::label("!")));
        }
    }
}

async fn ask(provider: &Provider<'_>) -> ProviderCheck {
    let found = provider.key().map(|found| found.map(|found| found.from));
    let (key, result) = match found {
        Err(error) => {
            let help = Problem::Setup.help(provider, None);
            (None, CheckResult::Wrong { what: Problem::Setup, why: format!("{error:#}"), help })
        }
        Ok(None) if provider.needs_key() => {
            let name = &provider.name;
            let variable = provider.key_variable().map(|variable| format!("set {variable}, or ")).unwrap_or_default();
            let help = match provider.locked_keyring() {
                Some(locked) => locked,
                None => format!("{variable}`rath auth set {name}`"),
            };
            (None, CheckResult::NoKey { help })
        }
        Ok(key) => {
            let result = match models::offered(provider).await {
                Ok(models) => CheckResult::Answers { models: models.len() },
                Err(failure) => match Problem::of(&failure) {
                    Problem::Unreachable if provider.is_local() => CheckResult::NotRunning,
                    what => CheckResult::Wrong { what, why: failure.why, help: what.help(provider, key.as_ref()) },
                },
            };
            (key, result)
        }
    };
    ProviderCheck { provider: provider.name.clone(), key, result }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_classified_by_status_and_failure_kind() {
        let with = |status| Failure { status: Some(status), ..Failure::permanent("no") };
        let of = |kind| Failure { kind, ..Failure::permanent("no") };
        for (failure, what) in [
            (with(401), Problem::KeyRefused),
            (with(403), Problem::KeyRefused),
            (with(404), Problem::WrongAddress),
            (with(302), Problem::WrongAddress),
            (with(200), Problem::WrongAddress),
            (with(429), Problem::ProviderError),
            (with(503), Problem::ProviderError),
            (of(FailureKind::Unreachable), Problem::Unreachable),
            (of(FailureKind::TimedOut), Problem::TimeOut),
            (of(FailureKind::Tls), Problem::Tls),
            (of(FailureKind::Address), Problem::WrongAddress),
            (of(FailureKind::Setup), Problem::Setup),
            (Failure::transient("no"), Problem::Unreachable),
        ] {
            assert_eq!(Problem::of(&failure), what, "{failure:?}");
        }
    }
}
