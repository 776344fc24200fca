//! `rath help`: commands, topics and error codes. All texts are in the binary.

mod error;

use anyhow::Result;
use serde::Serialize;

use super::{Answer, Cli};
use crate::expression::usage_error;
use crate::output::{self, Page};
use crate::settings::Settings;

pub(crate) use error::{Explain, explained_codes};

/// Show help for a command, a topic or an error code
#[derive(clap::Args)]
#[command(after_help = "Topics:\n  \
    addressing     how to name sessions, records and files\n  \
    agents         agent files and run files\n  \
    configuration  where configuration is, and what it may say\n  \
    environment    variables that rath reads\n  \
    exit-codes     what exit codes mean\n  \
    json           what --json prints\n  \
    sandbox        what a command can see and change\n\n\
    Examples:\n  \
    rath help file cat\n  \
    rath help addressing\n  \
    rath help error session-held")]
pub(crate) struct Help {
    /// A command, a topic, or `error CODE`; `error` alone lists the codes
    #[arg(value_name = "WHAT")]
    what: Vec<String>,
}

/// Name and text of each topic.
pub(crate) const TOPICS: &[(&str, &str)] = &[
    ("addressing", include_str!("topics/addressing.txt")),
    ("agents", include_str!("topics/agents.txt")),
    ("configuration", include_str!("topics/configuration.txt")),
    ("environment", include_str!("topics/environment.txt")),
    ("exit-codes", include_str!("topics/exit-codes.txt")),
    ("json", include_str!("topics/json.txt")),
    ("sandbox", include_str!("topics/sandbox.txt")),
];

#[derive(Serialize)]
struct Topic<'a> {
    name: String,
    text: &'a str,
}

impl Help {
    pub(crate) fn run(self, settings: &Settings) -> Result<Answer> {
        let words: Vec<&str> = self.what.iter().map(String::as_str).collect();
        match words.as_slice() {
            [] => show(settings, "rath", &Cli::described().render_long_help().ansi().to_string()),
            ["error"] => error::list(settings),
            ["error", code] => error::explain(settings, code),
            [topic] if let Some((name, text)) = TOPICS.iter().find(|(name, _)| name == topic) => {
                show(settings, name, text)
            }
            words => {
                let mut command = Cli::described();
                command.build();
                let mut found = &mut command;
                for word in words {
                    let Some(next) = found.find_subcommand_mut(word) else { return Err(unknown(words)) };
                    found = next;
                }
                let text = found.render_long_help().ansi().to_string();
                show(settings, &words.join(" "), &text)
            }
        }
    }
}

fn unknown(words: &[&str]) -> anyhow::Error {
    let topics: Vec<_> = TOPICS.iter().map(|(name, _)| *name).collect();
    usage_error(format!(
        "there is no command or topic {:?}\n  help: topics are {}; `rath help` lists the commands, `rath help error` the error codes",
        words.join(" "),
        topics.join(", ")
    ))
}

fn show(settings: &Settings, name: &str, text: &str) -> Result<Answer> {
    if settings.json {
        let text = &anstream::adapter::strip_str(text).to_string();
        output::json("rath.help/1", &Topic { name: name.to_owned(), text })?;
        return Ok(Answer::Yes);
    }
    let mut page = Page::default();
    page.text(text);
    page.show(settings)?;
    Ok(Answer::Yes)
}
