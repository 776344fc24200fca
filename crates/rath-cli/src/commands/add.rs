use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use rath::body::{Assistant, Block};

use super::Answer;
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// Add a record to a session
///
/// The text comes from the argument, a file, or standard input.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Add {
    /// The session
    #[arg(default_value = "@")]
    session: String,
    /// The text; `-` reads standard input
    text: Option<String>,
    /// The kind of record
    #[arg(long = "as", value_name = "KIND", default_value = "user")]
    kind: AddedKind,
    /// Take the text from a file
    #[arg(long, short, value_name = "FILE", conflicts_with = "text")]
    file: Option<PathBuf>,
    /// The call that a tool result belongs to
    #[arg(long, value_name = "ID", hide_short_help = true, required_if_eq("kind", "tool-result"))]
    call: Option<String>,
    /// Record a call of this tool by the assistant; the text is its arguments
    #[arg(long, value_name = "NAME", requires = "call", hide_short_help = true)]
    tool: Option<String>,
    /// Record a kind of your own; the text is its body, a JSON object
    #[arg(long, value_name = "KIND", conflicts_with = "kind", hide_short_help = true)]
    raw: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum AddedKind {
    System,
    User,
    Assistant,
    ToolResult,
    Note,
}

impl Add {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let id = expression::resolve_session(&store, &self.session).await?;
        let text = self.text()?;
        let mut session = super::open_session(settings, &store, id).await?;
        if let Some(kind) = &self.raw {
            session.append_json(kind, &text)?;
        } else {
            match self.kind {
                AddedKind::System => session.system(text)?,
                AddedKind::User => session.user(text)?,
                AddedKind::Note => session.note(text)?,
                AddedKind::ToolResult => session.tool_result(self.call.unwrap_or_default(), text)?,
                AddedKind::Assistant => match (self.tool, self.call) {
                    (Some(name), Some(id)) => {
                        let block = Block::ToolUse { id, name, arguments: text.into() };
                        session.append(Assistant::new(vec![block]))?
                    }
                    _ => session.assistant(text)?,
                },
            };
        }
        session.publish().await?;
        output::added(settings, session.head())?;
        Ok(Answer::Yes)
    }

    fn text(&self) -> Result<String> {
        if let Some(file) = &self.file {
            let bytes = std::fs::read(file).with_context(|| format!("reading {}", file.display()))?;
            return String::from_utf8(bytes).with_context(|| format!("{} is not UTF-8 text", file.display()));
        }
        match self.text.as_deref() {
            Some("-") => {}
            Some(text) => return Ok(text.to_owned()),
            None if std::io::stdin().is_terminal() => return Err(no_text()),
            None => {}
        }
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).context("reading standard input")?;
        let text = String::from_utf8(bytes).context("standard input is not UTF-8 text")?;
        if text.is_empty() && self.text.is_none() {
            return Err(no_text());
        }
        Ok(text.strip_suffix('\n').map(str::to_owned).unwrap_or(text))
    }
}

fn no_text() -> anyhow::Error {
    expression::usage_error("no text\n  help: give it as an argument, with --file, or on standard input")
}
