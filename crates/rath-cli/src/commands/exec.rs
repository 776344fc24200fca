use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rath::inspect::CommandOutcome;
use rath::sandbox::{Command, CommandEvent, ExitStatus, Stdin, Stream};
use rath::workspaces::ExecReport;

use super::Answer;
use super::workspace::PlacementArgs;
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;

/// Run a command in a session's workspace and record it
///
/// Records the command, its exit code, its output, the system calls that were blocked, and the files before and after.
/// The command gets a small environment (PATH, HOME, LANG, …) and no keys. On `local`, it sees the system read-only, its
/// workspace writable, and no network (`rath help sandbox`). Exit code 0 if the command exits with 0, otherwise 1.
#[derive(clap::Args)]
#[command(
    override_usage = "rath exec [OPTIONS] SESSION COMMAND [ARGUMENT]...\n       rath exec [OPTIONS] -- COMMAND [ARGUMENT]...   (in the session that changed last)"
)]
#[command(after_help = expression::HELP)]
pub(crate) struct Exec {
    /// The session; without one, write -- before the command
    session: String,
    #[command(flatten)]
    placement: PlacementArgs,
    /// Run the command with /bin/sh -c
    #[arg(long, short = 'c')]
    shell: bool,
    /// Stop the command after this time: 30s, 5m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
    /// Run it in this directory of the workspace
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Set an environment variable
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Pass an environment variable of yours
    #[arg(long, value_name = "NAME")]
    pass_env: Vec<String>,
    /// Pass standard input to the command
    #[arg(long)]
    stdin: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true)]
    command: Vec<OsString>,
}

fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a duration: write 500ms, 30s, 5m or 1h");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().map_err(|_| bad())?;
    let seconds = match &text[digits..] {
        "ms" => number / 1000.0,
        "s" | "" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(bad()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| bad())
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("write NAME=VALUE, for example LANG=C".into()),
    }
}

impl Exec {
    pub(crate) async fn run(mut self, settings: &Settings) -> Result<Answer> {
        self.default_session()?;
        let workspaces = settings.workspaces(self.placement.anywhere)?;
        let store = workspaces.store();
        let id = expression::resolve_session(store, &self.session).await?;
        let command = self.command(settings)?;
        let mut session = store.open(id, settings.actor()).await?;
        if self.placement.is_given() {
            self.placement.apply(settings, &workspaces, &mut session).await?;
        }
        let show = |event: &CommandEvent| {
            let CommandEvent::Output { stream, bytes } = event else { return };
            if settings.json {
                return;
            }
            // A closed pipe does not stop the command.
            let _ = match stream {
                Stream::Stdout => std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush()),
                Stream::Stderr => std::io::stderr().write_all(bytes),
            };
        };
        let stop = settings.interrupted()?;
        let done = workspaces.exec_until(&mut session, command, show, stop).await?;
        if settings.json {
            output::json("rath.exec/1", &CommandOutcome::from(done.clone()))?
        } else {
            remark(&done)
        }
        settings.warn_of_quota()?;
        Ok(if done.finished.ended.success() && !done.finished.timed_out { Answer::Yes } else { Answer::Failed })
    }

    /// Makes `exec -- COMMAND` run in `@`. The parser then takes the first word of the command for the session.
    fn default_session(&mut self) -> Result<()> {
        let before_dashes = std::env::args_os().take_while(|argument| argument != "--").count();
        let after_dashes = std::env::args_os().count().checked_sub(before_dashes + 1);
        if after_dashes == Some(1 + self.command.len()) {
            self.command.insert(0, std::mem::replace(&mut self.session, "@".to_owned()).into());
        }
        if self.command.is_empty() {
            let session = &self.session;
            return Err(expression::usage_error(format!(
                "no command is named\n  help: `rath exec SESSION COMMAND` runs one in a session, `rath exec -- {session}` runs {session} in the session that changed last"
            )));
        }
        Ok(())
    }

    fn command(&self, settings: &Settings) -> Result<Command> {
        let mut command = if self.shell {
            let words: Vec<_> = self.command.iter().map(|word| word.to_string_lossy()).collect();
            Command::shell(words.join(" "))
        } else {
            Command::argv(&self.command)
        };
        command.cwd = self.cwd.clone().unwrap_or_default();
        command.timeout = self.timeout;
        for name in &self.pass_env {
            let value = settings.variable(name).with_context(|| format!("the variable {name} is not set"))?;
            command = command.env(name, value);
        }
        for (name, value) in &self.env {
            command = command.env(name, value);
        }
        if self.stdin {
            let mut bytes = Vec::new();
            std::io::stdin().lock().read_to_end(&mut bytes).context("reading standard input")?;
            command.stdin = Stdin::Bytes(bytes);
        }
        Ok(command)
    }
}

/// Prints the outcome as remarks.
fn remark(done: &ExecReport) {
    let finished = &done.finished;
    let ended = match finished.ended {
        _ if finished.timed_out => style::bad("timed out"),
        _ if finished.killed => style::bad("stopped"),
        ExitStatus::Exited(0) => style::good("exit 0"),
        ExitStatus::Exited(code) => style::bad(format!("exit {code}")),
        ExitStatus::Signalled { signal, .. } => style::bad(format!("killed by signal {signal}")),
    };
    let ended = match &finished.limit_exceeded {
        Some(limit) => style::bad(format!("stopped: limit exceeded: {}", limit.split(':').next().unwrap_or(limit))),
        None => ended,
    };
    let isolation = if done.isolated { style::good("isolated") } else { style::label("not isolated") };
    let point = style::record(done.record.point());
    output::remark(format_args!("{point} {ended} in {}, {isolation}", output::span(finished.duration)));
    if !done.outside.is_empty() {
        output::remark(style::label("changed by others before this command:"));
        output::remark_changes(&done.outside);
    }
    output::remark_changes(&done.changed);
    for (stream, captured) in [("stdout", &finished.stdout), ("stderr", &finished.stderr)] {
        if captured.cut {
            let (kept, all) = (output::bytes(captured.bytes.len() as u64), output::bytes(captured.total));
            output::remark(style::label(format!("{stream} is truncated: {kept} of {all} are recorded and shown")));
        }
    }
    if finished.killed_orphans > 0 {
        let left = output::count(u64::from(finished.killed_orphans), "process");
        output::remark(style::label(format!("{left} orphaned and killed")));
    }
    if !finished.refused.is_empty() {
        let calls: Vec<String> = finished.refused.iter().map(|(what, times)| format!("{what} ×{times}")).collect();
        output::remark(style::label(format!("blocked: {}", calls.join(", "))));
    }
    for remark in &done.remarks {
        output::remark(style::label(output::escaped(remark)));
    }
}
