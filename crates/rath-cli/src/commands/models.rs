use anyhow::Result;
use futures_util::future::join_all;
use rath::model::Failure;
use rath::providers::{Error, Provider};
use serde::Serialize;
use std::time::Duration;

use super::Answer;
use crate::output::{self, Page, style};
use crate::providers::{Providers, explained};
use crate::settings::Settings;

/// How long a provider may take to list its models.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server on this machine may take to list its models.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(2);
/// How many models of a provider are listed if no provider is named.
const SHOWN: usize = 12;

/// List the available models
///
/// Asks every provider that has a key, and servers on this machine. `rath doctor` shows why others cannot be reached.
#[derive(clap::Args)]
pub(crate) struct Models {
    /// Only this provider, and all of its models
    provider: Option<String>,
}

/// A model of a provider.
#[derive(Serialize)]
struct ModelOffer<'a> {
    provider: &'a str,
    model: &'a str,
    /// As `-m` takes it.
    name: String,
}

impl Models {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let providers = Providers::new(settings)?;
        let asked: Vec<Provider<'_>> = match &self.provider {
            Some(name) => {
                let named = providers.named(name)?;
                if named.needs_key() && named.key()?.is_none() {
                    return Err(explained(named.no_key()));
                }
                vec![named]
            }
            None => providers.all().into_iter().filter(may_be_reached).collect(),
        };
        let answers = join_all(asked.iter().map(offered)).await;
        let usual = match &self.provider {
            None => providers.default_model().await.ok(),
            Some(_) => None,
        };
        let any_answer = answers.iter().any(Result::is_ok);
        if settings.json && any_answer {
            let offers = asked.iter().zip(&answers).flat_map(|(named, answer)| {
                let models = answer.as_ref().map(Vec::as_slice).unwrap_or_default();
                models.iter().map(|model| ModelOffer {
                    provider: &named.name,
                    model,
                    name: format!("{}/{model}", named.name),
                })
            });
            output::json_list("rath.models/1", offers)?;
            return Ok(Answer::Yes);
        }
        let mut page = Page::default();
        for (named, answer) in asked.iter().zip(answers) {
            let models = match answer {
                Ok(models) => models,
                // A local server that does not run is reported only if it was named.
                Err(failure) if self.provider.is_some() => anyhow::bail!("{}: {}", named.name, failure.why),
                Err(failure) => {
                    if named.needs_key() {
                        let why = output::escaped(&failure.why);
                        output::remark(format_args!("{} {}: {why}", style::bad("✗"), named.name));
                    }
                    continue;
                }
            };
            let most = if self.provider.is_some() { usize::MAX } else { SHOWN };
            for model in models.iter().take(most) {
                let name = format!("{}/{model}", named.name);
                let mark = if usual.as_deref() == Some(&*name) { style::dim(" (default)") } else { String::new() };
                page.line(format_args!("{}{mark}", crate::commands::log::clip(&name, 200)));
            }
            if models.len() > most {
                let more = models.len() - most;
                page.line(style::dim(format!("  and {more} more: rath models {}", named.name)));
            }
        }
        if !any_answer {
            return Err(explained(Error::NothingToAsk));
        }
        page.show(settings)?;
        Ok(Answer::Yes)
    }
}

fn may_be_reached(provider: &Provider<'_>) -> bool {
    !provider.needs_key() || provider.key().is_ok_and(|key| key.is_some())
}

/// The models of a provider.
pub(crate) async fn offered(provider: &Provider<'_>) -> Result<Vec<String>, Failure> {
    let client = provider.client("").map_err(|error| Failure::permanent(error.to_string()))?;
    let timeout = if provider.is_local() { LOCAL_TIMEOUT } else { TIMEOUT };
    let mut models = client.with_timeout(timeout).models().await?;
    models.sort();
    Ok(models)
}
