use anyhow::{Result, bail};
use rath::providers::KeyOrigin;
use serde_json::json;

use super::Answer;
use crate::output::{self, Page, style};
use crate::providers::Providers;
use crate::secret;
use crate::settings::Settings;

/// Store provider keys in the keyring, and show where keys are found
#[derive(clap::Args)]
#[command(after_help = "rath looks for a key in the provider's variable (such as ANTHROPIC_API_KEY), then in the\n\
    configuration, then in the keyring. It never prints a key.")]
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

/// Store a provider's key in the keyring
///
/// Reads the key from the terminal without echo, or from a pipe: `pass show anthropic | rath auth set anthropic`.
#[derive(clap::Args)]
struct Set {
    /// The provider, such as `anthropic`
    provider: String,
}

/// List the providers and where the key of each is found
#[derive(clap::Args)]
struct List;

/// Remove a provider's key from the keyring; exit code 3 if there is none
#[derive(clap::Args)]
struct Remove {
    /// The provider, such as `anthropic`
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
        if !provider.is_trusted() {
            bail!(
                "only this project defines {name}, and the project is not trusted with keys\n  help: `rath config trust`, or define {name} in your own configuration"
            );
        }
        let key = secret::read(&format!("Key of {name}: "))?;
        if let Err(failure) = settings.keyring.set(name, &key) {
            let variable = provider.key_variable().map(|variable| format!("set {variable}, or ")).unwrap_or_default();
            bail!(
                "{failure}\n  help: {variable}`rath config set --user providers.{name}.key KEY`: a file that only you can read"
            );
        }
        output::remark(format_args!("{} the key of {name} is in the keyring", style::good("✓")));
        remark_of_others(settings, name);
        Ok(Answer::Yes)
    }
}

/// Reports another key that takes precedence.
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
            output::json_list("rath.auth.list/1", rows.iter().map(
                |(provider, from)| json!({ "provider": provider.name, "needs_key": provider.needs_key(), "key": from }),
            ))?;
            return Ok(Answer::Yes);
        }
        let mut page = Page::default();
        for (provider, from) in &rows {
            let place = match (from, provider.key_variable()) {
                (Some(from), _) => output::escaped(&from.to_string()),
                (None, _) if !provider.needs_key() => style::dim("needs no key"),
                (None, Some(variable)) => style::dim(format!("no key; ${variable} is not set")),
                (None, None) => style::dim("no key"),
            };
            page.line(format_args!("{:<12} {place}", output::escaped(&provider.name)));
        }
        page.show(settings)?;
        if let Some(failure) = settings.keyring.failure() {
            output::remark(style::dim(failure));
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
            false => output::remark(format_args!("the keyring has no key of {}", output::escaped(name))),
        }
        remark_of_others(settings, name);
        Ok(if there { Answer::Yes } else { Answer::No })
    }
}
