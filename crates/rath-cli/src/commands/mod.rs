//! The commands: one file each, in the groups that `rath --help` shows.

mod add;
mod aliases;
mod answer;
mod apply;
mod auth;
mod cancel;
mod checkpoint;
mod completions;
mod config;
mod demo;
mod diff;
mod doctor;
mod exec;
mod export;
mod file;
mod fork;
mod grep;
mod help;
mod import;
mod inbox;
mod init;
pub(crate) mod log;
mod ls;
mod merge;
mod models;
mod new;
mod policy;
#[cfg(test)]
mod reference;
mod resolve;
mod restore;
mod run;
mod send;
mod session;
mod sh;
mod show;
mod status;
mod store;
mod tail;
mod undo;
mod verify;
mod workflow;
mod workspace;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::builder::StyledStr;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use rath::{Embedded, SessionId, Time};

use crate::settings::Settings;

pub(crate) use completions::complete;
pub(crate) use help::explained_codes;

/// Run, inspect, branch and verify AI agent sessions.
#[derive(Parser)]
#[command(name = "rath", version, arg_required_else_help = true)]
#[command(disable_help_subcommand = true, disable_version_flag = true, subcommand_help_heading = "Commands")]
pub(crate) struct Cli {
    /// Run as if started in DIR; stands before the command
    #[arg(short = 'C', value_name = "DIR", help_heading = GLOBAL)]
    pub(crate) directory: Option<PathBuf>,
    /// Print the version
    #[arg(short = 'V', long, action = clap::ArgAction::Version, help_heading = GLOBAL, hide_short_help = true)]
    version: Option<bool>,
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The heading of the flags that every command has.
const GLOBAL: &str = "Global Options";

/// Flags that every command has.
#[derive(Args)]
#[command(next_help_heading = GLOBAL)]
pub(crate) struct Global {
    /// Use the store in DIR [default: the nearest .rath]
    #[arg(long, global = true, env = "RATH_STORE", hide_env = true, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    /// Print JSON (see `rath help json`)
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Use color
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_short_help = true)]
    pub(crate) color: clap::ColorChoice,
    /// Do not use a pager
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) no_pager: bool,
    /// Record as this actor, KIND:NAME [default: person:$USER]
    #[arg(long, global = true, value_name = "ACTOR", value_parser = actor, hide_short_help = true)]
    pub(crate) by: Option<String>,
}

fn actor(text: &str) -> Result<String, String> {
    let (kind, name) = text.split_once(':').unwrap_or(("person", text));
    if kind.is_empty() || name.is_empty() {
        return Err("write KIND:NAME, for example agent:planner".into());
    }
    Ok(text.to_owned())
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Run(run::Run),
    Resume(run::Resume),
    #[command(alias = "say")]
    Send(send::Send),
    Cancel(cancel::Cancel),
    Inbox(inbox::Inbox),
    Answer(answer::Answer),
    Workflow(workflow::Workflow),
    #[command(alias = "sessions")]
    Ls(ls::Ls),
    Status(status::Status),
    Show(show::Show),
    Log(log::Log),
    Diff(diff::Diff),
    Grep(grep::Grep),
    Tail(tail::Tail),
    Exec(exec::Exec),
    Sh(sh::Sh),
    File(file::File),
    Workspace(workspace::Workspace),
    Apply(apply::Apply),
    Undo(undo::Undo),
    Restore(restore::Restore),
    New(new::New),
    Add(add::Add),
    Fork(fork::Fork),
    Merge(merge::Merge),
    Resolve(resolve::Resolve),
    Session(session::Session),
    Verify(verify::Verify),
    Checkpoint(checkpoint::Checkpoint),
    Export(export::Export),
    Import(import::Import),
    Init(init::Init),
    Config(config::Config),
    Auth(auth::Auth),
    Models(models::Models),
    Policy(policy::Policy),
    Doctor(doctor::Doctor),
    Store(store::Store),
    Demo(demo::Demo),
    Help(help::Help),
    Completions(completions::Completions),
    #[command(flatten)]
    Alias(aliases::Alias),
}

/// The groups of `rath --help`, with their commands in order.
pub(crate) const GROUPS: &[(&str, &[&str])] = &[
    ("Agents", &["run", "resume", "send", "cancel", "inbox", "answer", "workflow"]),
    ("Look", &["ls", "status", "show", "log", "diff", "grep", "tail"]),
    ("Files", &["exec", "sh", "file", "workspace", "apply", "undo", "restore"]),
    ("Branch", &["new", "add", "fork", "merge", "resolve", "session"]),
    ("Prove", &["verify", "checkpoint", "export", "import"]),
    ("Set up", &["init", "config", "auth", "models", "policy", "doctor"]),
    ("Store", &["store"]),
    ("Learn", &["demo", "help", "completions"]),
];

/// The result of a command, as an exit code.
pub(crate) enum Answer {
    /// Exit code 0.
    Yes,
    /// Exit code 3: the answer is no.
    No,
    /// Exit code 1: the command that was asked for ran and failed.
    Failed,
    /// Exit code 5: a question waits for a person.
    Waiting,
}

impl Cli {
    /// The command line with the groups as its help.
    pub(crate) fn described() -> clap::Command {
        let command = Self::command();
        let short = root_help(&command);
        command
            .help_template("{about}\n\n{usage-heading} {usage}\n\n{before-help}Global Options:\n{options}{after-help}")
            .before_help(short)
            .after_long_help(
                "Exit codes:\n  0 yes   1 failed   2 wrong command line, or it names something that does not exist\n  \
                 3 the answer is no (altered, different, in conflict, diverged)   4 no provider key\n  \
                 5 waiting for a person",
            )
    }

    pub(crate) fn from_arguments() -> Result<Self, clap::Error> {
        let mut command = Self::described();
        let matches = command.try_get_matches_from_mut(std::env::args_os())?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }
}

/// The commands with their first sentences, group by group.
fn root_help(command: &clap::Command) -> StyledStr {
    use std::fmt::Write as _;
    let mut text = StyledStr::new();
    let header = clap::builder::Styles::default().get_header().to_owned();
    for (group, names) in GROUPS {
        let _ = writeln!(text, "{header}{group}:{header:#}");
        for name in *names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {name:<11} {about}");
        }
    }
    text
}

impl Command {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        match self {
            Command::Run(command) => command.run(settings).await,
            Command::Resume(command) => command.run(settings).await,
            Command::Send(command) => command.run(settings).await,
            Command::Cancel(command) => command.run(settings).await,
            Command::Inbox(command) => command.run(settings).await,
            Command::Answer(command) => command.run(settings).await,
            Command::Workflow(command) => command.run(settings).await,
            Command::Ls(command) => command.run(settings).await,
            Command::Status(command) => command.run(settings).await,
            Command::Show(command) => command.run(settings).await,
            Command::Log(command) => command.run(settings).await,
            Command::Diff(command) => command.run(settings).await,
            Command::Grep(command) => command.run(settings).await,
            Command::Tail(command) => command.run(settings).await,
            Command::Exec(command) => command.run(settings).await,
            Command::Sh(command) => command.run(settings).await,
            Command::File(command) => command.run(settings).await,
            Command::Workspace(command) => command.run(settings).await,
            Command::Apply(command) => command.run(settings).await,
            Command::Undo(command) => command.run(settings).await,
            Command::Restore(command) => command.run(settings).await,
            Command::New(command) => command.run(settings).await,
            Command::Add(command) => command.run(settings).await,
            Command::Fork(command) => command.run(settings).await,
            Command::Merge(command) => command.run(settings).await,
            Command::Resolve(command) => command.run(settings).await,
            Command::Session(command) => command.run(settings).await,
            Command::Verify(command) => command.run(settings).await,
            Command::Checkpoint(command) => command.run(settings).await,
            Command::Export(command) => command.run(settings).await,
            Command::Import(command) => command.run(settings).await,
            Command::Init(command) => command.run(settings),
            Command::Config(command) => command.run(settings),
            Command::Auth(command) => command.run(settings),
            Command::Models(command) => command.run(settings).await,
            Command::Policy(command) => command.run(settings),
            Command::Doctor(command) => command.run(settings).await,
            Command::Store(command) => command.run(settings).await,
            Command::Demo(command) => command.run(settings).await,
            Command::Help(command) => command.run(settings),
            Command::Completions(command) => command.run(settings),
            Command::Alias(command) => command.run(settings).await,
        }
    }
}

/// How long a command waits for a session that another process has locked, before it fails.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Opens a session for writing. Waits a short time if another process has it locked: most commands are done soon.
pub(crate) async fn open_session(
    settings: &Settings,
    store: &Arc<dyn rath::Store>,
    id: SessionId,
) -> Result<rath::Session, rath::Error> {
    let start = Time::now();
    loop {
        let error = match store.open(id, settings.actor()).await {
            Ok(session) => return Ok(session),
            Err(error) => error,
        };
        let rath::ErrorKind::Store(rath::store::Error::Locked { holder, .. }) = error.kind() else { return Err(error) };
        let waited = Duration::from_micros(Time::now().micros_since(start));
        if waited >= LOCK_TIMEOUT || Embedded::is_stopped(holder.process) {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Parses the reason for something that stays on the record: it must not be empty.
fn reason(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("a reason must not be empty: it stays on the record".into());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_visible_command_is_in_one_group() {
        let command = Cli::described();
        let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
        let visible: BTreeSet<_> = visible.map(|command| command.get_name().to_owned()).collect();
        let grouped: Vec<_> =
            GROUPS.iter().flat_map(|(_, names)| names.iter().map(|name| (*name).to_owned())).collect();
        assert_eq!(grouped.len(), grouped.iter().collect::<BTreeSet<_>>().len());
        assert_eq!(visible, grouped.into_iter().collect());
    }

    #[test]
    fn the_root_help_fits_on_a_screen() {
        let help = Cli::described().term_width(80).render_help().to_string();
        assert!(help.lines().count() < 60, "{} lines:\n{help}", help.lines().count());
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::described().debug_assert();
    }

    /// An installed binary has no docs directory.
    #[test]
    fn no_help_text_names_a_file_of_the_repository() {
        fn check(command: &clap::Command) {
            let help = command.clone().render_long_help().to_string();
            assert!(!help.contains("docs/"), "{}:\n{help}", command.get_name());
            command.get_subcommands().for_each(check);
        }
        check(&Cli::described());
    }
}
