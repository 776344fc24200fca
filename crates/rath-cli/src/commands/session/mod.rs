//! `rath session`: names, the end and the lock of a session.

mod close;
mod label;
mod unlock;

use anyhow::Result;

use super::Answer;
use crate::settings::Settings;

pub(crate) use close::Close;
pub(crate) use label::Label;
pub(crate) use unlock::Unlock;

/// Label, close or unlock a session
#[derive(clap::Args)]
pub(crate) struct Session {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Label(Label),
    Close(Close),
    Unlock(Unlock),
}

impl Session {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        match self.what {
            What::Label(command) => command.run(settings).await,
            What::Close(command) => command.run(settings).await,
            What::Unlock(command) => command.run(settings).await,
        }
    }
}
