use std::io::{IsTerminal as _, Write as _};

use anyhow::Result;
use rath::sandbox::{Command, Event};

use super::Answer;
use super::place::PlaceArgs;
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;
use crate::terminal::Terminal;

/// Work by hand where a session works: a shell on its files, in its sandbox
///
/// What you do there is one call on the record, with what the terminal showed and the files before and after.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Sh {
    /// The session
    session: String,
    #[command(flatten)]
    place: PlaceArgs,
    /// What to run instead of a shell
    #[arg(last = true)]
    command: Vec<std::ffi::OsString>,
}

impl Sh {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        if !std::io::stdin().is_terminal() {
            return Err(expression::unclear(
                "standard input is no terminal\n  help: `rath exec` runs commands without one, `--stdin` hands on input",
            ));
        }
        let workshop = settings.workshop(self.place.anywhere)?;
        let store = workshop.store();
        let id = expression::resolve_session(store, &self.session).await?;
        let mut session = store.open(id, settings.actor()).await?;
        if self.place.is_given() {
            self.place.apply(settings, &workshop, &mut session).await?;
        }
        let command = match self.command.is_empty() {
            true => Command::shell("if command -v bash >/dev/null; then exec bash --norc -i; else exec sh -i; fi"),
            false => Command::argv(&self.command),
        };
        let prompt = format!("[{}] \\w$ ", id.short());
        let (terminal, command) = Terminal::for_command(command.env("PS1", prompt))?;
        let show = |event: &Event| {
            if let Event::Output { bytes, .. } = event {
                let _ = std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush());
            }
        };
        let held = terminal.hold()?;
        let done = workshop.exec(&mut session, command, show).await;
        drop(held);
        let done = done?;
        let point = style::record(done.record.point());
        output::remark(format_args!("{point} shell ended after {}", output::span(done.finished.duration)));
        output::remark_changes(&done.changed);
        settings.warn_of_quota()?;
        Ok(if done.finished.ended.well() { Answer::Yes } else { Answer::Failed })
    }
}
