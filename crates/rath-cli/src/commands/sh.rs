use std::io::{IsTerminal as _, Write as _};

use anyhow::Result;
use rath::sandbox::{Command, CommandEvent};

use super::Answer;
use super::workspace::PlacementArgs;
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;
use crate::terminal::Terminal;

/// Open a shell in a session's workspace and sandbox
///
/// The shell is recorded as one call, with its terminal output and the files before and after.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Sh {
    /// The session
    #[arg(default_value = "@")]
    session: String,
    #[command(flatten)]
    placement: PlacementArgs,
    /// A command to run instead of a shell
    #[arg(last = true)]
    command: Vec<std::ffi::OsString>,
}

impl Sh {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        if !std::io::stdin().is_terminal() {
            return Err(expression::usage_error(
                "standard input is not a terminal\n  help: `rath exec` runs commands without one; its --stdin passes standard input",
            ));
        }
        let workspaces = settings.workspaces(self.placement.anywhere)?;
        let store = workspaces.store();
        let id = expression::resolve_session(store, &self.session).await?;
        let mut session = super::open_session(settings, store, id).await?;
        if self.placement.is_given() {
            self.placement.apply(settings, &workspaces, &mut session).await?;
        }
        let command = if self.command.is_empty() {
            Command::shell("if command -v bash >/dev/null; then exec bash --norc -i; else exec sh -i; fi")
        } else {
            Command::argv(&self.command)
        };
        let prompt = format!("[{}] \\w$ ", id.short());
        let (terminal, command) = Terminal::for_command(command.env("PS1", prompt))?;
        let show = |event: &CommandEvent| {
            if let CommandEvent::Output { bytes, .. } = event {
                let _ = std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush());
            }
        };
        let forwarding = terminal.forward()?;
        let done = workspaces.exec(&mut session, command, show).await;
        drop(forwarding);
        let done = done?;
        let point = style::record(done.record.point());
        output::remark(format_args!("{point} shell ended after {}", output::span(done.finished.duration)));
        output::remark_changes(&done.changed);
        settings.warn_of_quota()?;
        Ok(if done.finished.ended.success() { Answer::Yes } else { Answer::Failed })
    }
}
