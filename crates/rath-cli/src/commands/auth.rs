use anyhow::{Result, bail};
use rath::providers::KeyOrigin;
use serde_json::json;

use super::Answer;
use crate::output::{self, Page, style};
use crate::providers::Providers;
use crate::secret;
use crate::settings::Settings;

/// Keep keys of providers in the keyring of the system, and say where keys are found
#[derive(clap::Args)]
#[command(
    after_help = "A key is looked for in the provider's variable (ANTHROPIC_API_KEY), then in the configuration,\n\
    then in the keyring. It is never shown."
)]
pub(crate) struct Auth {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Set(Set),
    List(List),
    Remove(Remove),
}

/// Keep a provider's key in the keyring
///
/// The key is typed without being shown, or piped in: `pass show anthropic | rath auth set anthropic`.
#[derive(clap::Args)]
struct Set {
    /// The provider, as in `anthropic`
    provider: String,
}

/// List the providers, and where the key of each is found
#[derive(clap::Args)]
struct List;

/// Remove a provider's key from the keyring; exit code 3 if there is none
#[derive(clap::Args)]
struct Remove {
    /// The provider, as in `anthropic`
    provider: String,
}

impl Auth {
    pub(crate) fn run(self, settings: &Settings) -> Result<Answer> {
        match self.what {
            What::Set(command) => command.run(settings),
            What::List(command) => command.run(settings),
            What::Remove(command) => command.run(settings),
        }
    }
}

impl Set {
    fn run(self, settings: &Settings) -> Result<Answer> {
        let name = &self.provider;
        let providers = Providers::new(settings)?;
        let provider = providers.named(name)?;
        if !provider.is_own() {
            bail!(
                "only this project names {name}, and it is not trusted with keys\n  help: `rath config trust`, or name {name} in your own configuration"
            );
        }
        let key = secret::read(&format!("Key of {name}: "))?;
        if let Err(trouble) = settings.keyring.set(name, &key) {
            let variable = provider.key_variable().map(|variable| format!("set {variable}, or ")).unwrap_or_default();
            bail!(
                "{trouble}\n  help: {variable}`rath config set --user providers.{name}.key KEY`: a file that only you can read"
            );
        }
        output::remark(format_args!("{} the key of {name} is in the keyring", style::good("✓")));
        remark_of_others(settings, name);
        Ok(Answer::Yes)
    }
}

/// Says where another key is that comes first.
fn remark_of_others(settings: &Settings, name: &str) {
    let found = Providers::new(settings).and_then(|providers| Ok(providers.named(name)?.key()?));
    if let Ok(Some(found)) = found
        && found.from != KeyOrigin::Keyring
    {
        output::remark(format_args!("{} the key in {} is used, not the keyring's", style::label("!"), found.from));
    }
}

impl List {
    fn run(self, settings: &Settings) -> Result<Answer> {
        let providers = Providers::new(settings)?;
        let mut rows = Vec::new();
        for provider in providers.all() {
            let from = provider.key()?.map(|found| found.from);
            rows.push((provider, from));
        }
        if settings.json {
            output::json_lines(rows.iter().map(
                |(provider, from)| json!({ "provider": provider.name, "needs_key": provider.needs_key(), "key": from }),
            ))?;
            return Ok(Answer::Yes);
        }
        let mut page = Page::default();
        for (provider, from) in &rows {
            let place = match (from, provider.key_variable()) {
                (Some(from), _) => output::harmless(&from.to_string()),
                (None, _) if !provider.needs_key() => style::dim("needs none"),
                (None, Some(variable)) => style::dim(format!("no key; ${variable} is not set")),
                (None, None) => style::dim("no key"),
            };
            page.line(format_args!("{:<12} {place}", output::harmless(&provider.name)));
        }
        page.show(settings)?;
        if let Some(trouble) = settings.keyring.trouble() {
            output::remark(style::dim(trouble));
        }
        Ok(Answer::Yes)
    }
}

impl Remove {
    fn run(self, settings: &Settings) -> Result<Answer> {
        let name = &self.provider;
        let there = settings.keyring.remove(name)?;
        match there {
            true => output::remark(format_args!("{} the key of {name} is removed from the keyring", style::good("✓"))),
            false => output::remark(format_args!("the keyring has no key of {}", output::harmless(name))),
        }
        remark_of_others(settings, name);
        Ok(if there { Answer::Yes } else { Answer::No })
    }
}
