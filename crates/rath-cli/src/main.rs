//! `rath`: look at sessions, branch them, merge them, verify them.

mod commands;
mod config;
mod expression;
mod graph;
mod live;
mod output;
mod providers;
mod secret;
mod settings;
mod signing;
mod space;
mod terminal;
mod termination;
mod time;
mod transcript;

use std::process::ExitCode;

use clap::Parser as _;

use crate::commands::{Answer, Cli};
use crate::settings::Settings;

/// Sessions are many small allocations; the system's allocator gives them back to the kernel too eagerly.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Threads for what goes on beside the main thing: calls that run together.
const WORKERS: usize = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let settings = Settings::from_environment(&cli.global);
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::complain(&settings, &anyhow::Error::new(error).context("starting threads"));
            return ExitCode::from(1);
        }
    };
    let done = runtime.block_on(cli.command.run(&settings));
    // Somebody may still be asked for a line.
    runtime.shutdown_background();
    match done {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(3),
        Ok(Answer::Failed) => ExitCode::from(1),
        Ok(Answer::Waiting) => ExitCode::from(5),
        Err(error) => {
            output::complain(&settings, &error);
            ExitCode::from(match () {
                () if error.is::<expression::Unclear>() => 2,
                () if error.is::<providers::NoCredentials>() => 4,
                () => 1,
            })
        }
    }
}
