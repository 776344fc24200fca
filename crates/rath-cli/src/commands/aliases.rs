//! The names that commands had in the last release, with their old arguments. Hidden, and to be removed in the next.

use std::ffi::OsString;

use anyhow::Result;

use super::{Answer, file, fork, help, resolve, session, show, store, workspace};
use crate::settings::Settings;

#[derive(clap::Subcommand)]
pub(crate) enum Alias {
    #[command(hide = true)]
    State(show::State),
    #[command(hide = true)]
    Steps(show::Steps),
    #[command(hide = true)]
    Files(file::Ls),
    #[command(hide = true)]
    Cat(file::Cat),
    #[command(hide = true)]
    Blame(Blame),
    #[command(hide = true)]
    Place(workspace::Set),
    #[command(hide = true)]
    Save(workspace::Save),
    #[command(hide = true)]
    Sandbox(workspace::Workspace),
    #[command(hide = true)]
    Conflicts(Conflicts),
    #[command(hide = true)]
    Detach(Detach),
    #[command(hide = true)]
    Label(session::Label),
    #[command(hide = true)]
    Close(session::Close),
    #[command(hide = true)]
    Take(session::Unlock),
    #[command(hide = true)]
    Stats(store::Stats),
    #[command(hide = true)]
    Gc(store::Gc),
    #[command(hide = true)]
    Erase(store::Erase),
    #[command(hide = true)]
    Hold(store::Hold),
    #[command(hide = true)]
    Release(Release),
    #[command(hide = true)]
    Explain(help::Explain),
}

impl Alias {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        match self {
            Self::State(command) => command.run(settings).await,
            Self::Steps(command) => command.run(settings).await,
            Self::Files(command) => command.run(settings).await,
            Self::Cat(command) => command.run(settings).await,
            Self::Blame(command) => command.run(settings).await,
            Self::Place(command) => command.run(settings).await,
            Self::Save(command) => command.run(settings).await,
            Self::Sandbox(command) => command.run(settings).await,
            Self::Conflicts(command) => command.run(settings).await,
            Self::Detach(command) => command.run(settings).await,
            Self::Label(command) => command.run(settings).await,
            Self::Close(command) => command.run(settings).await,
            Self::Take(command) => command.run(settings).await,
            Self::Stats(command) => command.run(settings).await,
            Self::Gc(command) => command.run(settings).await,
            Self::Erase(command) => command.run(settings).await,
            Self::Hold(command) => command.run(settings).await,
            Self::Release(command) => command.run(settings).await,
            Self::Explain(command) => command.run(settings),
        }
    }
}

/// Use `rath file blame SESSION:PATH`
#[derive(clap::Args)]
pub(crate) struct Blame {
    /// The path in the workspace, or PATH:LINE
    file: OsString,
    /// The session or record
    #[arg(long, short = 'S', default_value = "@")]
    session: String,
}

impl Blame {
    async fn run(self, settings: &Settings) -> Result<Answer> {
        let mut what = OsString::from(format!("{}:", self.session));
        what.push(self.file);
        file::Blame { what }.run(settings).await
    }
}

/// Use `rath resolve --list`
#[derive(clap::Args)]
pub(crate) struct Conflicts {
    /// The session
    #[arg(default_value = "@")]
    session: String,
    /// Print this file with both sides between markers
    path: Option<OsString>,
}

impl Conflicts {
    async fn run(self, settings: &Settings) -> Result<Answer> {
        resolve::list(settings, &self.session, self.path.as_deref()).await
    }
}

/// Use `rath fork --detach`
#[derive(clap::Args)]
pub(crate) struct Detach {
    /// The session or record
    from: String,
    /// The reason
    #[arg(default_value = "")]
    why: String,
}

impl Detach {
    async fn run(self, settings: &Settings) -> Result<Answer> {
        fork::Fork { from: self.from, why: self.why, detach: true }.run(settings).await
    }
}

/// Use `rath store hold --end`
#[derive(clap::Args)]
pub(crate) struct Release {
    /// Sessions, or the records of holds
    #[arg(required_unless_present = "label")]
    what: Vec<String>,
    /// Holds on this label
    #[arg(long)]
    label: Vec<String>,
    /// The reason
    #[arg(long)]
    why: String,
}

impl Release {
    async fn run(self, settings: &Settings) -> Result<Answer> {
        store::end_holds(settings, &self.what, &self.label, &self.why).await
    }
}
