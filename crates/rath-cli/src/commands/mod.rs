//! The commands, a file each.

mod add;
mod answer;
mod apply;
mod auth;
mod blame;
mod cancel;
mod cat;
mod checkpoint;
mod close;
mod completions;
mod config;
mod conflicts;
mod demo;
mod detach;
mod diff;
mod doctor;
mod erase;
mod exec;
mod explain;
mod export;
mod files;
mod fork;
mod gc;
mod grep;
mod hold;
mod import;
mod inbox;
mod init;
mod label;
pub(crate) mod log;
mod merge;
mod models;
mod new;
mod place;
mod policy;
mod release;
mod resolve;
mod restore;
mod run;
mod sandbox;
mod save;
mod say;
mod sessions;
mod sh;
pub(crate) mod show;
mod state;
mod stats;
mod steps;
mod tail;
mod take;
mod undo;
mod verify;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use crate::settings::Settings;

/// Sessions of agents as values: look at them, branch them, merge them, verify them,
/// with the files they work on.
#[derive(Parser)]
#[command(name = "rath", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Start with `rath demo`, or `rath init` and `rath new \"first try\"`.\n\
    Exit codes: 0 yes, 1 failed, 2 usage, 3 the answer is no (tampered, differs,\n\
    in conflict, diverged), 5 waiting for a person.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags that every command takes.
#[derive(Args)]
pub(crate) struct Global {
    /// The store to work on, instead of the nearest .rath
    #[arg(long, global = true, env = "RATH_STORE", value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    /// Print data as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: clap::ColorChoice,
    /// Do not use a pager
    #[arg(long, global = true)]
    pub(crate) no_pager: bool,
    /// Who makes the records, as KIND:NAME (e.g. agent:planner)
    #[arg(long, global = true, value_name = "ACTOR", value_parser = actor)]
    pub(crate) by: Option<String>,
}

fn actor(text: &str) -> Result<String, String> {
    let (kind, name) = text.split_once(':').unwrap_or(("person", text));
    match kind.is_empty() || name.is_empty() {
        true => Err("KIND:NAME, for example agent:planner".into()),
        false => Ok(text.to_owned()),
    }
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Demo(demo::Demo),
    Init(init::Init),
    New(new::New),
    Add(add::Add),
    Log(log::Log),
    Sessions(sessions::Sessions),
    Grep(grep::Grep),
    Show(show::Show),
    Steps(steps::Steps),
    State(state::State),
    Tail(tail::Tail),
    Diff(diff::Diff),
    Place(place::Place),
    Exec(exec::Exec),
    Sh(sh::Sh),
    Save(save::Save),
    Files(files::Files),
    Cat(cat::Cat),
    Blame(blame::Blame),
    Undo(undo::Undo),
    Restore(restore::Restore),
    Apply(apply::Apply),
    Conflicts(conflicts::Conflicts),
    Resolve(resolve::Resolve),
    Sandbox(sandbox::Sandbox),
    Run(run::Run),
    Resume(run::Resume),
    Models(models::Models),
    Auth(auth::Auth),
    Inbox(inbox::Inbox),
    Answer(answer::Answer),
    Say(say::Say),
    Cancel(cancel::Cancel),
    Fork(fork::Fork),
    Detach(detach::Detach),
    Merge(merge::Merge),
    Label(label::Label),
    Close(close::Close),
    Take(take::Take),
    Verify(verify::Verify),
    Checkpoint(checkpoint::Checkpoint),
    Export(export::Export),
    Import(import::Import),
    Config(config::Config),
    Policy(policy::Policy),
    Stats(stats::Stats),
    Doctor(doctor::Doctor),
    Hold(hold::Hold),
    Release(release::Release),
    Erase(erase::Erase),
    Gc(gc::Gc),
    Explain(explain::Explain),
    Completions(completions::Completions),
}

/// What a command answers: most only yes.
pub(crate) enum Answer {
    Yes,
    No,
    /// What was asked for was done, and failed.
    Failed,
    /// A person is asked and has not answered.
    Waiting,
}

impl Command {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        match self {
            Command::Demo(command) => command.run(settings).await,
            Command::Init(command) => command.run(settings),
            Command::New(command) => command.run(settings).await,
            Command::Add(command) => command.run(settings).await,
            Command::Log(command) => command.run(settings).await,
            Command::Sessions(command) => command.run(settings).await,
            Command::Grep(command) => command.run(settings).await,
            Command::Show(command) => command.run(settings).await,
            Command::Steps(command) => command.run(settings).await,
            Command::State(command) => command.run(settings).await,
            Command::Tail(command) => command.run(settings).await,
            Command::Diff(command) => command.run(settings).await,
            Command::Place(command) => command.run(settings).await,
            Command::Exec(command) => command.run(settings).await,
            Command::Sh(command) => command.run(settings).await,
            Command::Save(command) => command.run(settings).await,
            Command::Files(command) => command.run(settings).await,
            Command::Cat(command) => command.run(settings).await,
            Command::Blame(command) => command.run(settings).await,
            Command::Undo(command) => command.run(settings).await,
            Command::Restore(command) => command.run(settings).await,
            Command::Apply(command) => command.run(settings).await,
            Command::Conflicts(command) => command.run(settings).await,
            Command::Resolve(command) => command.run(settings).await,
            Command::Sandbox(command) => command.run(settings).await,
            Command::Run(command) => command.run(settings).await,
            Command::Resume(command) => command.run(settings).await,
            Command::Models(command) => command.run(settings).await,
            Command::Auth(command) => command.run(settings),
            Command::Inbox(command) => command.run(settings).await,
            Command::Answer(command) => command.run(settings).await,
            Command::Say(command) => command.run(settings).await,
            Command::Cancel(command) => command.run(settings).await,
            Command::Fork(command) => command.run(settings).await,
            Command::Detach(command) => command.run(settings).await,
            Command::Merge(command) => command.run(settings).await,
            Command::Label(command) => command.run(settings).await,
            Command::Close(command) => command.run(settings).await,
            Command::Take(command) => command.run(settings).await,
            Command::Verify(command) => command.run(settings).await,
            Command::Checkpoint(command) => command.run(settings).await,
            Command::Export(command) => command.run(settings).await,
            Command::Import(command) => command.run(settings).await,
            Command::Config(command) => command.run(settings),
            Command::Policy(command) => command.run(settings),
            Command::Stats(command) => command.run(settings).await,
            Command::Doctor(command) => command.run(settings).await,
            Command::Hold(command) => command.run(settings).await,
            Command::Release(command) => command.run(settings).await,
            Command::Erase(command) => command.run(settings).await,
            Command::Gc(command) => command.run(settings).await,
            Command::Explain(command) => command.run(settings),
            Command::Completions(command) => command.run(),
        }
    }
}

/// A reason that stays on the record: it has words.
fn reason(text: &str) -> Result<String, String> {
    match text.trim().is_empty() {
        true => Err("it stays on the record, and needs words".into()),
        false => Ok(text.to_owned()),
    }
}
