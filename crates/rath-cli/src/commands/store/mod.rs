//! `rath store`: what a store holds, and what is removed from it.

mod end_hold;
mod erase;
mod gc;
mod hold;
mod stats;

use anyhow::Result;

use super::Answer;
use crate::settings::Settings;

pub(crate) use end_hold::end_holds;
pub(crate) use erase::{Erase, unfinished};
pub(crate) use gc::Gc;
pub(crate) use hold::Hold;
pub(crate) use stats::Stats;

/// Measure, collect, erase and hold what is stored
#[derive(clap::Args)]
pub(crate) struct Store {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Stats(Stats),
    Gc(Gc),
    Erase(Erase),
    Hold(Hold),
}

impl Store {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        match self.what {
            What::Stats(command) => command.run(settings).await,
            What::Gc(command) => command.run(settings).await,
            What::Erase(command) => command.run(settings).await,
            What::Hold(command) => command.run(settings).await,
        }
    }
}
