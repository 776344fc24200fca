use anyhow::Result;
use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Answer, Cli};

/// Print completions for a shell
///
/// For example: rath completions bash > ~/.local/share/bash-completion/completions/rath
#[derive(clap::Args)]
pub(crate) struct Completions {
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<Answer> {
        clap_complete::generate(self.shell, &mut Cli::command(), "rath", &mut std::io::stdout());
        Ok(Answer::Yes)
    }
}
