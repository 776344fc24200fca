use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rath::inspect::CommandOutcome;
use rath::sandbox::{Command, Ended, Event, Stdin, Stream};
use rath::workshop::Done;

use super::Answer;
use super::place::PlaceArgs;
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;

/// Run a command where a session works, on the record
///
/// Records the command, how it ended, what it wrote, what it was refused, and the files before and after. The command
/// finds only a plain environment: PATH, HOME, LANG and the like, no keys. On `local` it sees the system to read, its
/// workspace to write, and no network. Exits with 0 if the command did, with 1 otherwise.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Exec {
    /// The session
    session: String,
    #[command(flatten)]
    place: PlaceArgs,
    /// Run the words as one line of /bin/sh
    #[arg(long, short = 'c')]
    shell: bool,
    /// Stop it after this long, e.g. 30s, 5m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
    /// Run in this directory of the workspace
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Set a variable for it
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Hand on a variable of yours
    #[arg(long, value_name = "NAME")]
    pass_env: Vec<String>,
    /// Let it read what you type or pipe in
    #[arg(long)]
    stdin: bool,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a time: write 500ms, 30s, 5m or 1h");
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
        _ => Err("NAME=VALUE, for example LANG=C".into()),
    }
}

impl Exec {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workshop = settings.workshop(self.place.anywhere)?;
        let store = workshop.store();
        let id = expression::resolve_session(store, &self.session).await?;
        let command = self.command(settings)?;
        let mut session = store.open(id, settings.actor()).await?;
        if self.place.is_given() {
            self.place.apply(settings, &workshop, &mut session).await?;
        }
        let show = |event: &Event| {
            let Event::Output { stream, bytes } = event else { return };
            if settings.json {
                return;
            }
            // Somebody who stops reading does not stop the command.
            let _ = match stream {
                Stream::Stdout => std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush()),
                Stream::Stderr => std::io::stderr().write_all(bytes),
            };
        };
        let stop = settings.interrupted()?;
        let done = workshop.exec_until(&mut session, command, show, stop).await?;
        match settings.json {
            true => output::json(&CommandOutcome::from(done.clone()))?,
            false => remark(&done),
        }
        settings.warn_of_quota()?;
        Ok(if done.finished.ended.well() && !done.finished.timed_out { Answer::Yes } else { Answer::Failed })
    }

    fn command(&self, settings: &Settings) -> Result<Command> {
        let mut command = match self.shell {
            true => {
                let words: Vec<_> = self.command.iter().map(|word| word.to_string_lossy()).collect();
                Command::shell(words.join(" "))
            }
            false => Command::argv(&self.command),
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
            std::io::stdin().lock().read_to_end(&mut bytes).context("reading the input")?;
            command.stdin = Stdin::Bytes(bytes);
        }
        Ok(command)
    }
}

/// What happened, for the person: not data.
fn remark(done: &Done) {
    let finished = &done.finished;
    let ended = match finished.ended {
        _ if finished.timed_out => style::bad("timed out"),
        _ if finished.killed => style::bad("stopped"),
        Ended::Exited(0) => style::good("exit 0"),
        Ended::Exited(code) => style::bad(format!("exit {code}")),
        Ended::Signalled { signal, .. } => style::bad(format!("killed by signal {signal}")),
    };
    let ended = match &finished.beyond {
        Some(limit) => style::bad(format!("stopped, beyond its limit of {}", limit.split(':').next().unwrap_or(limit))),
        None => ended,
    };
    let isolation = if done.isolated { style::good("isolated") } else { style::label("not isolated") };
    let point = style::record(done.record.point());
    output::remark(format_args!("{point} {ended} in {}, {isolation}", output::span(finished.duration)));
    if !done.outside.is_empty() {
        output::remark(style::label("changed outside, before this command:"));
        output::remark_changes(&done.outside);
    }
    output::remark_changes(&done.changed);
    for (stream, captured) in [("stdout", &finished.stdout), ("stderr", &finished.stderr)] {
        if captured.cut {
            let (kept, all) = (output::bytes(captured.bytes.len() as u64), output::bytes(captured.total));
            output::remark(style::label(format!("{stream} is cut: {kept} of {all} are kept and shown")));
        }
    }
    if finished.escaped > 0 {
        let left = output::count(u64::from(finished.escaped), "process");
        output::remark(style::label(format!("{left} left behind and killed")));
    }
    if !finished.refused.is_empty() {
        let calls: Vec<String> = finished.refused.iter().map(|(what, times)| format!("{what} ×{times}")).collect();
        output::remark(style::label(format!("refused: {}", calls.join(", "))));
    }
    for remark in &done.remarks {
        output::remark(style::label(output::harmless(remark)));
    }
}
