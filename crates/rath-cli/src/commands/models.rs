use anyhow::Result;
use futures_util::future::join_all;
use rath::Failure;
use rath::providers::{Error, Provider};
use serde_json::json;
use std::time::Duration;

use super::Answer;
use crate::output::{self, Page, style};
use crate::providers::{Providers, explained};
use crate::settings::Settings;

/// How long a provider may take to say what it offers.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same for one on this machine.
const PATIENCE_HERE: Duration = Duration::from_secs(2);
/// How many models of a provider are listed unless it is named.
const SHOWN: usize = 12;

/// List the models that can be reached
///
/// Asks every provider whose key is at hand, and servers on this machine. `rath doctor` says what is wrong with others.
#[derive(clap::Args)]
pub(crate) struct Models {
    /// Only this provider, and all it offers
    provider: Option<String>,
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
            None => providers.usual().await.ok(),
            Some(_) => None,
        };
        if settings.json {
            output::json_lines(asked.iter().zip(&answers).flat_map(|(named, answer)| {
                let models = answer.as_ref().map(Vec::as_slice).unwrap_or_default();
                models.iter().map(|model| json!({ "provider": named.name, "model": model, "name": format!("{}/{model}", named.name) })).collect::<Vec<_>>()
            }))?;
            return Ok(Answer::Yes);
        }
        let (mut page, mut any) = (Page::default(), false);
        for (named, answer) in asked.iter().zip(answers) {
            let models = match answer {
                Ok(models) => models,
                // A server that is not there is no news, unless it was asked for.
                Err(failure) if self.provider.is_some() => anyhow::bail!("{}: {}", named.name, failure.why),
                Err(failure) => {
                    if named.needs_key() {
                        let why = output::harmless(&failure.why);
                        output::remark(format_args!("{} {}: {why}", style::bad("✗"), named.name));
                    }
                    continue;
                }
            };
            any = true;
            let most = if self.provider.is_some() { usize::MAX } else { SHOWN };
            for model in models.iter().take(most) {
                let name = format!("{}/{model}", named.name);
                let mark = if usual.as_deref() == Some(&*name) {
                    style::dim(" (used where none is named)")
                } else {
                    String::new()
                };
                page.line(format_args!("{}{mark}", crate::commands::log::clip(&name, 200)));
            }
            if models.len() > most {
                let more = models.len() - most;
                page.line(style::dim(format!("  and {more} more: rath models {}", named.name)));
            }
        }
        if !any {
            return Err(explained(Error::NothingToAsk));
        }
        page.show(settings)?;
        Ok(Answer::Yes)
    }
}

fn may_be_reached(provider: &Provider<'_>) -> bool {
    !provider.needs_key() || provider.key().is_ok_and(|key| key.is_some())
}

/// What a provider offers.
pub(crate) async fn offered(provider: &Provider<'_>) -> Result<Vec<String>, Failure> {
    let client = provider.client("").map_err(|error| Failure::for_good(error.to_string()))?;
    let patience = if provider.is_here() { PATIENCE_HERE } else { PATIENCE };
    let mut models = client.impatient(patience).models().await?;
    models.sort();
    Ok(models)
}
