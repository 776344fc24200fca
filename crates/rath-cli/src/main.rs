//! `rath`: runs, inspects, branches and verifies the sessions of AI agents.

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

use crate::commands::{Answer, Cli};
use crate::settings::Settings;

/// Sessions make many small allocations, and the system allocator returns memory to the kernel too eagerly for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Worker threads of the runtime. Tool calls that run in parallel use them.
const WORKERS: usize = 2;

fn main() -> ExitCode {
    commands::complete();
    let cli = match Cli::from_arguments() {
        Ok(cli) => cli,
        Err(error) => return output::complain_of_usage(&error),
    };
    if let Some(directory) = &cli.directory
        && let Err(error) = std::env::set_current_dir(directory)
    {
        let error = expression::usage_error(format!("cannot change to {}: {error}", directory.display()));
        output::complain(&Settings::from_environment(&cli.global), &error);
        return ExitCode::from(2);
    }
    let settings = Settings::from_environment(&cli.global);
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::complain(&settings, &anyhow::Error::new(error).context("starting threads"));
            return ExitCode::from(1);
        }
    };
    let done = runtime.block_on(cli.command.run(&settings));
    // A thread may still be blocked on reading a line from the terminal.
    runtime.shutdown_background();
    match done {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(3),
        Ok(Answer::Failed) => ExitCode::from(1),
        Ok(Answer::Waiting) => ExitCode::from(5),
        Err(error) => {
            output::complain(&settings, &error);
            ExitCode::from(output::exit_code(&error))
        }
    }
}
