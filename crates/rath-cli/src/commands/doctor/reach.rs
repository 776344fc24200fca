//! Which providers answer, and what is wrong with those that do not.

use futures_util::future::join_all;
use rath::providers::{KeyOrigin, Provider};
use rath::{Failure, FailureKind};
use serde::Serialize;

use crate::commands::models;
use crate::output::{self, Page, style};
use crate::providers::Providers;
use crate::settings::Settings;

/// What came of asking the providers.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct Reach(Vec<Asked>);

/// A provider that was asked what it offers.
#[derive(Serialize)]
struct Asked {
    provider: String,
    /// Where its key was.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<KeyOrigin>,
    #[serde(flatten)]
    came: Came,
}

/// What came of it.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
enum Came {
    /// It answers.
    Answers { models: usize },
    /// There is no key, so it was not asked.
    NoKey { help: String },
    /// A server on this machine is not there.
    NotRunning,
    /// Something is wrong.
    Wrong { what: What, why: String, help: String },
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum What {
    KeyRefused,
    Unreachable,
    WrongAddress,
    Tls,
    TimeOut,
    /// The provider itself is in trouble, or says no for another reason.
    Trouble,
    /// It is not set up in a way that makes sense.
    Setup,
}

impl What {
    fn of(failure: &Failure) -> Self {
        match (failure.status, failure.kind) {
            (Some(401 | 403), _) => Self::KeyRefused,
            // An answer that is no list of models, another place, or nothing there.
            (Some(200..=399 | 404 | 405 | 410), _) | (None, FailureKind::Address) => Self::WrongAddress,
            (Some(_), _) => Self::Trouble,
            (None, FailureKind::TimedOut) => Self::TimeOut,
            (None, FailureKind::Tls) => Self::Tls,
            (None, FailureKind::Unreachable) => Self::Unreachable,
            (None, _) if failure.retry => Self::Unreachable,
            (None, _) => Self::Setup,
        }
    }

    fn told(self) -> &'static str {
        match self {
            Self::KeyRefused => "the key is refused",
            Self::Unreachable => "cannot be reached",
            Self::WrongAddress => "the address is not that of its API",
            Self::Tls => "no secure connection",
            Self::TimeOut => "no answer in time",
            Self::Trouble => "it answers with an error",
            Self::Setup => "it cannot be asked",
        }
    }

    /// What to do.
    fn help(self, provider: &Provider<'_>, key: Option<&KeyOrigin>) -> String {
        let name = &provider.name;
        let address = || match provider.address() {
            Some(url) => format!("{url} is set as its address"),
            None => "no address is set, so the usual one is used".into(),
        };
        match (self, key) {
            (Self::KeyRefused, Some(KeyOrigin::Variable { name })) => format!("put a key that is valid into {name}"),
            (Self::KeyRefused, Some(KeyOrigin::Configuration { place })) => format!("replace the key at {place}"),
            (Self::KeyRefused, _) => format!("`rath auth set {name}` keeps another one"),
            (Self::Unreachable, _) => format!("check the network and the name of the host; {}", address()),
            (Self::WrongAddress, _) => {
                format!("`base_url` in [providers.{name}] ends where the API's own path begins; {}", address())
            }
            (Self::Tls, _) => format!("check the clock and the certificates of this machine; {}", address()),
            (Self::TimeOut, _) => format!("try again; a firewall may swallow what is sent; {}", address()),
            (Self::Trouble, _) => "try again later, or look at the provider's status page".into(),
            (Self::Setup, _) => format!("check [providers.{name}]: `rath config list --origin`"),
        }
    }
}

impl Reach {
    /// Asks all providers at once.
    pub(super) async fn look(settings: &Settings) -> anyhow::Result<Self> {
        let providers = Providers::new(settings)?.all();
        Ok(Self(join_all(providers.iter().map(ask)).await))
    }

    pub(super) fn is_well(&self) -> bool {
        !self.0.iter().any(|asked| matches!(asked.came, Came::Wrong { .. }))
    }

    pub(super) fn describe(&self, page: &mut Page) {
        for (at, asked) in self.0.iter().enumerate() {
            let label = if at == 0 { "providers" } else { "" };
            let name = output::harmless(&asked.provider);
            let from =
                asked.key.as_ref().map(|from| output::harmless(&format!(", key from {from}"))).unwrap_or_default();
            let mut line = |text: String| page.line(format_args!("{label:<12} {text}"));
            match &asked.came {
                Came::Answers { models } => {
                    let models = output::count(*models as u64, "model");
                    line(format!("{} {name}: {models}{from}", style::good("✓")));
                }
                Came::NoKey { help } => line(style::dim(format!("· {name}: no key; {help}"))),
                Came::NotRunning => line(style::dim(format!("· {name}: not running on this machine"))),
                Came::Wrong { what, why, help } => {
                    line(format!("{} {name}: {}{from}", style::bad("✗"), what.told()));
                    page.line(format_args!("{:<12}   {}", "", output::harmless(why)));
                    page.line(format_args!("{:<12}   help: {}", "", output::harmless(help)));
                }
            }
        }
        if self.0.iter().all(|asked| !matches!(asked.came, Came::Answers { .. } | Came::Wrong { .. })) {
            let help = "there is no model to ask: `rath auth set anthropic` keeps a key, `ollama serve` needs none";
            page.line(format_args!("{:<12} {} {help}", "", style::label("!")));
        }
    }
}

async fn ask(provider: &Provider<'_>) -> Asked {
    let found = provider.key().map(|found| found.map(|found| found.from));
    let (key, came) = match found {
        Err(error) => {
            let help = What::Setup.help(provider, None);
            (None, Came::Wrong { what: What::Setup, why: format!("{error:#}"), help })
        }
        Ok(None) if provider.needs_key() => {
            let name = &provider.name;
            let variable = provider.key_variable().map(|variable| format!("set {variable}, or ")).unwrap_or_default();
            let help = match provider.locked_keyring() {
                Some(locked) => locked,
                None => format!("{variable}`rath auth set {name}`"),
            };
            (None, Came::NoKey { help })
        }
        Ok(key) => {
            let came = match models::offered(provider).await {
                Ok(models) => Came::Answers { models: models.len() },
                Err(failure) => match What::of(&failure) {
                    What::Unreachable if provider.is_here() => Came::NotRunning,
                    what => Came::Wrong { what, why: failure.why, help: what.help(provider, key.as_ref()) },
                },
            };
            (key, came)
        }
    };
    Asked { provider: provider.name.clone(), key, came }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_from_what_the_client_says() {
        let with = |status| Failure { status: Some(status), ..Failure::for_good("no") };
        let of = |kind| Failure { kind, ..Failure::for_good("no") };
        for (failure, what) in [
            (with(401), What::KeyRefused),
            (with(403), What::KeyRefused),
            (with(404), What::WrongAddress),
            (with(302), What::WrongAddress),
            (with(200), What::WrongAddress),
            (with(429), What::Trouble),
            (with(503), What::Trouble),
            (of(FailureKind::Unreachable), What::Unreachable),
            (of(FailureKind::TimedOut), What::TimeOut),
            (of(FailureKind::Tls), What::Tls),
            (of(FailureKind::Address), What::WrongAddress),
            (of(FailureKind::Setup), What::Setup),
            (Failure::for_now("no"), What::Unreachable),
        ] {
            assert_eq!(What::of(&failure), what, "{failure:?}");
        }
    }
}
