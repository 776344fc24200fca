use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Zsh};
use clap_complete::{CompleteEnv, CompletionCandidate};
use rath::Store;
use rath::store::Query;

use super::{Answer, Cli};
use crate::expression::usage_error;
use crate::output;
use crate::settings::Settings;

/// Print a shell's completion script, or write man pages
///
/// The completions include the sessions of the store. For example:
///   rath completions bash > ~/.local/share/bash-completion/completions/rath
///   rath completions --man ~/.local/share/man/man1
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Completions {
    /// The shell
    #[arg(required_unless_present = "man")]
    shell: Option<Shell>,
    /// Write a man page for each command into DIR
    #[arg(long, value_name = "DIR", conflicts_with = "shell")]
    man: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Shell {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

/// The variable by which a completion script asks for candidates.
const VARIABLE: &str = "RATH_COMPLETE";

/// How many sessions are offered.
const SESSIONS: usize = 50;

/// Answers a completion script and exits, if that is why the program was started.
pub(crate) fn complete() {
    CompleteEnv::with_factory(with_sessions).var(VARIABLE).complete();
}

/// The command line, with completion of session ids for each argument that names a session.
fn with_sessions() -> clap::Command {
    fn add(command: clap::Command) -> clap::Command {
        let command = command.mut_args(|argument| match argument.get_id().as_str() {
            "session" | "sessions" | "into" | "branches" | "from" | "a" | "b" | "what" | "to" | "branch" | "keep" => {
                argument.add(clap_complete::ArgValueCompleter::new(sessions))
            }
            _ => argument,
        });
        command.mut_subcommands(add)
    }
    add(Cli::described())
}

/// The sessions of the store whose name starts with `word`, the last changed first.
fn sessions(word: &OsStr) -> Vec<CompletionCandidate> {
    let Some(word) = word.to_str() else { return Vec::new() };
    // Only the store of the current directory: the command line is not complete yet.
    let Ok(cli) = Cli::try_parse_from(["rath", "status"]) else { return Vec::new() };
    let settings = Settings::from_environment(&cli.global);
    let Ok(store) = settings.store() else { return Vec::new() };
    let Ok(rows) = listed(&store) else { return Vec::new() };
    let candidates = rows.into_iter().filter(|(name, _)| name.starts_with(word));
    candidates.map(|(name, title)| CompletionCandidate::new(name).help(title.map(Into::into))).collect()
}

fn listed(store: &Arc<dyn Store>) -> Result<Vec<(String, Option<String>)>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rows = runtime.block_on(store.sessions(Query::all().limit(SESSIONS)))?;
    Ok(rows.into_iter().map(|row| (row.id.short(), row.title)).collect())
}

impl Completions {
    pub(crate) fn run(self, settings: &Settings) -> Result<Answer> {
        if let Some(dir) = self.man {
            let dir = settings.here.join(dir);
            std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
            clap_mangen::generate_to(Cli::described(), &dir)
                .with_context(|| format!("writing to {}", dir.display()))?;
            output::remark(format_args!("wrote the man pages to {}", settings.shown(&dir)));
            return Ok(Answer::Yes);
        }
        let shell: &dyn EnvCompleter = match self.shell {
            Some(Shell::Bash) => &Bash,
            Some(Shell::Elvish) => &Elvish,
            Some(Shell::Fish) => &Fish,
            Some(Shell::Powershell) => &Powershell,
            Some(Shell::Zsh) => &Zsh,
            None => return Err(usage_error("no shell is named")),
        };
        let mut script = Vec::new();
        shell.write_registration(VARIABLE, "rath", "rath", "rath", &mut script)?;
        output::raw(&script)?;
        Ok(Answer::Yes)
    }
}
